"""Planted bugs as text: the lines that stand in a function, and those that replace them.

A file of `bugs/` holds some, the lines of each but the first one indented::

    # The subject that the bugs of this file have in common.
    caught by: tests/verification/test_store_crashes.py

    store-abort-file-late (B9)
        a crash is taken for a clean stop, and the start recovers no file
        in rocketmq.store.message_store: MessageStore.__init__
        -             self._abort.make()
        -

Lines of ``-`` and ``+`` are joined as they stand behind their first blank, so an empty last one
ends the pattern with a new line, and without a ``+`` the pattern is deleted. A line ``caught by``
holds for the bugs that follow it; without one the simulator has to find a bug.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from dledger.errors import ConfigError
from verification.mutants.plant import SIMULATOR, Mutant

FOLDER: Final = Path(__file__).parent / "bugs"
BLIND: Final = "planted blind"
"""Behind the classes of a bug: it was written before the tests of its package were looked at."""
_INDENT: Final = "    "
_HEAD: Final = re.compile(r"(?P<name>[\w-]+) \((?P<stands_for>[^)]+)\)")
_PLACE: Final = re.compile(r"in (?P<module>[\w.]+):(?: (?P<function>[\w.]+))?")
_CATCHER: Final = "caught by: "


def all_planted() -> Iterator[Mutant]:
    """The bugs of all files, in the order of the files' names.

    Raises:
        ConfigError: a line is none of a bug's; with its file and number.
    """
    for path in sorted(FOLDER.glob("*.txt")):
        yield from planted_in(path)


def planted_in(path: Path) -> Iterator[Mutant]:
    """The bugs of one file; raises as `all_planted`."""
    catcher, bug = SIMULATOR, list[str]()
    for number, line in enumerate([*path.read_text().splitlines(), ""], 1):
        if line.startswith(_INDENT) and bug:
            bug.append(line.removeprefix(_INDENT))
            continue
        if bug:
            yield _bug(bug, catcher, f"{path}:{number - len(bug)}")
            bug = []
        if line.startswith(_CATCHER):
            catcher = line.removeprefix(_CATCHER)
        elif line and not line.startswith("#"):
            bug = [line]


def _bug(lines: list[str], catcher: str, where: str) -> Mutant:
    head, place = _HEAD.fullmatch(lines[0]), _PLACE.fullmatch(lines[2] if len(lines) > 2 else "")
    if head is None or place is None:
        raise ConfigError(f"{where}: a bug has a name (its classes), a reason, and a place")
    sides: dict[str, list[str]] = {"-": [], "+": []}
    for line in lines[3:]:
        if line[0] not in sides or line[1:2] not in {"", " "}:
            raise ConfigError(f"{where}: a line of a pattern begins with '- ' or '+ ': {line!r}")
        sides[line[0]].append(line[2:])
    stands_for, _, blind = head["stands_for"].partition(", ")
    return Mutant(
        name=head["name"],
        stands_for=stands_for,
        module=place["module"],
        function=place["function"] or "",
        pattern="\n".join(sides["-"]),
        replacement="\n".join(sides["+"]),
        why=lines[1],
        catcher=catcher,
        planted_blind=blind == BLIND,
    )
