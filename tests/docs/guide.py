"""A guide's page as one session of a shell: each command is typed, and what it prints is compared
with what the page shows, by its shape."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.docs.snippets import snippets

PROMPT: Final = "$ "
DONE: Final = "@@ done "
WATCHED: Final = re.compile(r"dledger (status|members|upgrade)\b(?! (add|promote|demote|remove))")
"""Commands that show how nodes are: typed when all are well."""
WELL: Final = "timeout 60 bash -c 'until dledger status > /dev/null 2>&1; do :; done'\n"
ANY: Final = "..."
"""A line of the page that stands for any others."""
_SHAPES: Final = (
    (re.compile(r"\b[0-9a-f]{12,32}\b"), "<hex>"),
    (re.compile(r"\b(LEADER|FOLLOWER)\b"), "<role>"),
    (re.compile(r"\d[\d,.:+TZ-]*"), "<n>"),
    (re.compile(r"(?<=\s)-(?=\s|$)"), "<n>"),
    (re.compile(r"[-─]{3,}"), "---"),
    (re.compile(r"\s+"), " "),
)


@dataclass(frozen=True)
class Typed:
    """A command, and what the page says that it prints."""

    line: int
    command: str
    shown: tuple[str, ...]


def typed_commands(page: str) -> Iterator[Typed]:
    """All of a page, in its order."""
    for block in snippets(page):
        if block.language != "console" or block.not_run:
            continue
        command, shown, at = "", list[str](), block.line
        for number, line in enumerate(block.text.splitlines(), block.line):
            if not line.startswith(PROMPT):
                shown.append(line)
                continue
            if command:
                yield Typed(at, command, tuple(shown))
            command, shown, at = line.removeprefix(PROMPT), [], number
        yield Typed(at, command, tuple(shown))


def session(
    commands: list[Typed], folder: Path, ports: Mapping[int, int], environ: Mapping[str, str]
) -> list[list[str]]:
    """What each of the commands prints, typed into one shell. ``ports``: those of the page, and
    those that are free here."""
    lines = ["exec 2>&1\n"]
    for number, one in enumerate(commands):
        if WATCHED.match(one.command):
            lines.append(WELL)
        lines.append(f"{one.command}\necho '{DONE}{number}'\n")
    lines.append("kill $(jobs -p); wait\n")
    text = "".join(lines).replace("/data/", f"{folder}/data/")
    for there, here in ports.items():
        text = text.replace(f"127.0.0.1:{there}", f"127.0.0.1:{here}")
    (folder / "data").mkdir()
    done = subprocess.run(
        ["bash"], input=text, cwd=folder, env=dict(environ), capture_output=True, text=True,
        timeout=900, check=False,
    )  # fmt: skip
    printed = done.stdout.replace(f"{folder}/data/", "/data/")
    for there, here in ports.items():
        printed = printed.replace(str(here), str(there))
    parts = re.split(rf"(?m)^{DONE}\d+\n", printed)
    assert len(parts) == len(commands) + 1, printed[-3000:]
    return [part.splitlines() for part in parts[:-1]]


def shape(line: str) -> str:
    """What is the same in each run."""
    for pattern, word in _SHAPES:
        line = pattern.sub(word, line)
    return line.strip()


def fits(shown: tuple[str, ...], printed: list[str]) -> bool:
    """Whether a command prints what the page shows, by its shape."""
    one, other = [shape(line) for line in shown], [shape(line) for line in printed]
    if ANY not in one:
        return one == other
    at = one.index(ANY)
    tail = one[at + 1 :]
    assert ANY not in tail, "one line for any others is enough"
    enough = len(other) >= at + len(tail)
    return enough and one[:at] == other[:at] and other[len(other) - len(tail) :] == tail
