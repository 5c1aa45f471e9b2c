"""A journal of a node's changes of its files, beside these: a killed process leaves it, and it
tells which changes a power cut may undo.

Each change is noted before it is made, with what stood there, and again when it is done. A change
is on the disk for sure when a sync that began after its end has ended well; all others are pending.
A record is a line of JSON behind two lengths, and the bytes that stood there behind it.
"""

from __future__ import annotations

import json
import os
import struct
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

LIMIT: Final = 32 << 20
"""Bytes of a journal from which on what is no longer pending is taken out."""
CHANGES: Final = ("write", "resize", "made", "renamed", "removed")
SYNC: Final = "sync"
_LENGTHS: Final = struct.Struct("<II")


@dataclass(slots=True)
class Record:
    """One line. ``known`` has ``kind`` and ``n``, the number of the change or sync that it is
    about."""

    known: dict[str, Any]
    data: bytes = b""

    def pack(self) -> bytes:
        """As it stands in the file."""
        head = json.dumps(self.known, separators=(",", ":")).encode()
        return _LENGTHS.pack(len(head), len(self.data)) + head + self.data


def read_records(path: Path) -> Iterator[Record]:
    """All of a journal; a last one that was cut short is left out, because the change that it
    announces was not begun."""
    data = path.read_bytes() if path.exists() else b""
    at = 0
    while at + _LENGTHS.size <= len(data):
        head, body = _LENGTHS.unpack_from(data, at)
        at += _LENGTHS.size
        if at + head + body > len(data):
            break
        yield Record(json.loads(data[at : at + head]), data[at + head : at + head + body])
        at += head + body


@dataclass(slots=True)
class Pending:
    """The changes and syncs that the records so far leave open.

    Attributes:
        changes: by number, in the order of their begin: those that no sync covers.
        ended: when each of them was done; a change under way is not in it.
        syncs: those under way, and when each began.
        outages: power cuts so far.
    """

    changes: dict[int, Record] = field(default_factory=dict)
    ended: dict[int, int] = field(default_factory=dict)
    syncs: dict[int, tuple[int, Record]] = field(default_factory=dict)
    outages: int = 0
    last: int = 0
    _time: int = 0

    @classmethod
    def of(cls, records: Iterable[Record]) -> Pending:
        """After all of these."""
        found = cls()
        for record in records:
            found.take(record)
        return found

    def take(self, record: Record) -> None:
        """One more record."""
        self._time += 1
        known = record.known
        kind, number = known["kind"], known.get("n", 0)
        self.last = max(self.last, number)
        if kind in CHANGES:
            self.changes[number] = record
        elif kind == SYNC:
            self.syncs[number] = self._time, record
        elif kind == "end":
            self._end(number)
        elif kind == "failed":
            self.syncs.pop(number, None)
        elif kind == "fresh":
            self._drop(
                [
                    n
                    for n, change in self.changes.items()
                    if change.known.get("inode") == known["inode"]
                    and change.known["kind"] in {"write", "resize"}
                ]
            )
        elif kind == "start":
            self.ended = {n: self.ended.get(n, self._time) for n in self.changes}
            self.syncs.clear()
        else:
            self.outages = known["count"]

    def _end(self, number: int) -> None:
        if number in self.changes:
            self.ended[number] = self._time
        elif number in self.syncs:
            began, sync = self.syncs.pop(number)
            covered = [
                n
                for n, change in self.changes.items()
                if self.ended.get(n, self._time) < began and _is_of(change, sync)
            ]
            self._drop(covered)

    def _drop(self, numbers: list[int]) -> None:
        for number in numbers:
            del self.changes[number]
            self.ended.pop(number, None)


def shortened(records: Sequence[Record]) -> list[Record]:
    """Those without which the others say the same."""
    found = Pending.of(records)
    open_numbers = {*found.changes, *found.syncs}
    return [
        record
        for record in records
        if record.known["kind"] in {"start", "outage"} or record.known.get("n") in open_numbers
    ]


def _is_of(change: Record, sync: Record) -> bool:
    """Whether the sync is of the file, or of the directory, of the change."""
    if "inode" in sync.known:
        return bool(
            change.known.get("inode") == sync.known["inode"]
            and change.known["kind"] in {"write", "resize"}
        )
    return bool(change.known.get("directory") == sync.known["directory"])


class Journal:
    """The journal of one process; its threads share it.

    Args:
        path: of the file; one that an earlier process has left goes on.
        limit: see `LIMIT`.
    """

    def __init__(self, path: Path, limit: int = LIMIT) -> None:
        self._path = path
        self._limit = limit
        self._lock = threading.Lock()
        found = Pending.of(read_records(path))
        self.outages = found.outages
        """Power cuts so far."""
        self._number = found.last
        self._fd = -1
        self._shorten(Record({"kind": "start"}))

    @contextmanager
    def change(self, kind: str, data: bytes = b"", **known: Any) -> Iterator[None]:
        """A change, which may be half done where it fails."""
        number = self.begin(kind, data, **known)
        try:
            yield
        finally:
            self.end(number)

    @contextmanager
    def sync(self, **known: Any) -> Iterator[None]:
        """A sync, which covers nothing where it fails."""
        number = self.begin("sync", **known)
        try:
            yield
        except OSError:
            self.end(number, well=False)
            raise
        self.end(number)

    def begin(self, kind: str, data: bytes = b"", **known: Any) -> int:
        """A change or a sync begins; its number. ``data``: the bytes that stood there."""
        with self._lock:
            self._number += 1
            number = self._number
            self._write(Record({"kind": kind, "n": number, **known}, data))
            return number

    def end(self, number: int, *, well: bool = True) -> None:
        """It is done. ``well``: False for a sync that failed."""
        self.note("end" if well else "failed", n=number)

    def note(self, kind: str, **known: Any) -> None:
        """Anything else."""
        with self._lock:
            self._write(Record({"kind": kind, **known}))

    def _write(self, record: Record) -> None:
        packed = record.pack()
        if self._size + len(packed) > self._limit:
            self._shorten()
        if os.write(self._fd, packed) != len(packed):
            raise OSError(f"{self._path} was not written in full")
        self._size += len(packed)

    def _shorten(self, *more: Record) -> None:
        packed = b"".join(
            record.pack() for record in (*shortened(list(read_records(self._path))), *more)
        )
        replace(self._path, packed)
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        self._size = len(packed)
        self._limit = max(self._limit, 2 * self._size)


def replace(path: Path, content: bytes) -> None:
    """Put a whole journal in the place of another one."""
    fresh = path.with_name(path.name + ".new")
    fresh.write_bytes(content)
    fresh.replace(path)
