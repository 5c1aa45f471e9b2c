"""The page of the commands, as they are in `dledger.cli`."""

from __future__ import annotations

from collections.abc import Iterator

import click

from dledger.cli.main import main

HEAD = """# Commands

Every command with all of its options, as `dledger COMMAND --help` has them.
[Operations](operations.md#the-command) says what the commands are for, and what their exit codes
mean.
"""


def commands_page() -> str:
    """In Markdown."""
    sections = (_section(command, f"dledger {name}") for name, command in main.commands.items())
    return "\n".join([HEAD, *(line for section in sections for line in section)])


def _section(command: click.Command, path: str, depth: int = 2) -> Iterator[str]:
    yield f"{'#' * depth} `{path}`\n"
    yield f"{_paragraphs(command.help or '')}\n"
    with click.Context(command, info_name=path) as context:
        usage = " ".join(command.collect_usage_pieces(context))
        yield f"```\n{path} {usage}\n```\n"
        rows = [row for one in command.get_params(context) if (row := one.get_help_record(context))]
    if rows:
        yield "| option | meaning |\n|---|---|"
        yield from (f"| `{_code(name)}` | {_cell(meaning)} |" for name, meaning in rows)
        yield ""
    if isinstance(command, click.Group):
        for name, part in command.commands.items():
            yield from _section(part, f"{path} {name}", depth + 1)


def _paragraphs(text: str) -> str:
    """Without the marks by which click keeps lines as they are."""
    return text.replace("\b", "").strip()


def _code(text: str) -> str:
    """In a table, where a bar between backticks is no border to mkdocs."""
    return " ".join(text.split())


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
