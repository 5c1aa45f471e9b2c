"""docs/shell.md: each habit of other tools is here, by a command that there is, or says why not."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from dledger.cli.main import main

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "shell.md").read_text()
TOOLS = {"kcat": 20, "rpk": 15, "nats": 15, "Kafka": 19}


def rows(tool: str) -> list[list[str]]:
    section = PAGE.split(f"### {tool}\n")[1].split("\n### ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [re.split(r"(?<!\\)\|", line)[1:-1] for line in lines[2:]]


@pytest.mark.parametrize("tool", TOOLS)
def test_each_habit_has_its_command_or_the_reason(tool: str) -> None:
    found = rows(tool)
    assert len(found) >= TOOLS[tool]
    for habit, here, how in found:
        assert here.strip() in ("yes", "no"), habit
        assert how.strip(), habit


def commands() -> list[str]:
    """All that the page shows: in tables and in indented blocks."""
    inline = re.findall(r"`(dledger [^`]+)`", PAGE.replace("\\|", "|"))
    blocks = re.findall(r"(?m)^    (dledger .+)$", PAGE)
    found = (re.split(r"\s+#|\s[<|]", one)[0] for one in [*inline, *blocks])
    return [one for one in found if one != "dledger COMMAND --help"]


def test_page_shows_commands() -> None:
    assert len(commands()) > 60


@pytest.mark.parametrize("words", sorted(set(commands())))
def test_command_of_the_page_can_be_given(words: str) -> None:
    """Each of its words is a command, an option or an argument that there is."""
    arguments = shlex.split(words)[1:]
    command: click.Command = main
    context = click.Context(main, info_name="dledger")
    while isinstance(command, click.Group) and arguments:
        if arguments[0] not in command.commands:
            assert "list" in command.commands, words  # as in: dledger groups NAME
            arguments.insert(0, "list")
        command = command.commands[arguments.pop(0)]
    known = {name for one in command.params for name in (*one.opts, *one.secondary_opts)}
    options = [word for word in arguments if re.fullmatch(r"-[A-Za-z]|--[a-z-]+", word)]
    assert {*options} <= known, words
    assert command.get_help(context)
