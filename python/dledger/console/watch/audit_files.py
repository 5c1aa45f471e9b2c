"""The audit log of a path's group, out of the files of its nodes, the newest lines first."""

from __future__ import annotations

import heapq
import json
import os
import stat
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any, Final

from dledger.console.views.audit import AuditRow, audit_row
from dledger.embedded.group import read_group
from dledger.node.audit.audit_file import AUDIT_FILE

MOST_LINES: Final = 200
"""Of a page."""
LOOK_BYTES: Final = 16 << 20
"""Of all files together that are looked through for a page."""
CHUNK_BYTES: Final = 64 << 10

Line = dict[str, Any]


class AuditFiles:
    """One look at the files.

    Args:
        place: the directory of the group.
        event, principal: text that lines have there, in any case; empty: all of them.
    """

    def __init__(self, place: str, *, event: str = "", principal: str = "") -> None:
        self._place = place
        self._wanted = {"event": event.lower(), "principal": principal.lower()}
        self._left = LOOK_BYTES
        self.is_cut = False
        """There are older lines, which were not looked at."""
        self.faults: list[str] = []
        """Files that cannot be read, and why."""

    def rows(self) -> list[AuditRow]:
        """At most `MOST_LINES` of all nodes, by time from the newest down.

        Raises:
            PathError: there is no group any more.
        """
        home, group = read_group(self._place)
        lines = [self._of_node(home.node_directory(node)) for node in group.local]
        rows: list[AuditRow] = []
        for line in heapq.merge(*lines, key=lambda line: str(line.get("time", "")), reverse=True):
            if self.is_cut or len(rows) == MOST_LINES:
                self.is_cut = True  # what other nodes have is older than what was not looked at
                break
            if self._fits(line):
                rows.append(audit_row(line))
        return rows

    def _fits(self, line: Line) -> bool:
        return all(text in str(line.get(name, "")).lower() for name, text in self._wanted.items())

    def _of_node(self, directory: Path) -> Iterator[Line]:
        """Lines of ``audit.log``, then of ``audit.log.1``, and so on."""
        seen = set()
        for number in count():
            path = directory / (f"{AUDIT_FILE}.{number}" if number else AUDIT_FILE)
            try:
                file = open(path, "rb", buffering=0, opener=_opener)  # noqa: SIM115
            except FileNotFoundError:
                if number:
                    return
                continue  # it has become .1, and there is no new one yet
            except OSError as error:
                self.faults.append(f"{path}: {error.strerror}")
                return
            with file:
                found = os.fstat(file.fileno())
                if not stat.S_ISREG(found.st_mode):
                    self.faults.append(f"{path}: it is no file")
                    return
                if found.st_ino in seen:  # renamed since it was read
                    continue
                seen.add(found.st_ino)
                yield from self._backwards(file.fileno(), found.st_size)
                if self.is_cut:
                    return

    def _backwards(self, descriptor: int, end: int) -> Iterator[Line]:
        rest = b""
        """The beginning of what was read: a line of which more stands in front of it."""
        while end > 0:
            size = min(CHUNK_BYTES, end)
            if size > self._left:
                self.is_cut = True
                return
            self._left -= size
            end -= size
            rest, *whole = (os.pread(descriptor, size, end) + rest).split(b"\n")
            for text in reversed(whole):
                yield from _parsed(text)
        yield from _parsed(rest)


def _opener(path: str, flags: int) -> int:
    """Nothing that somebody has put in the place of the file: no link, and no pipe that waits."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)


def _parsed(text: bytes) -> Iterator[Line]:
    """The line, unless it is none: the disk may have taken a part of one."""
    try:
        line = json.loads(text)
    except (ValueError, RecursionError):
        return
    if isinstance(line, dict):
        yield line
