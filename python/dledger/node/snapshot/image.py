"""The state that one node gives another, as one run of bytes; see
`dledger.protocol.messages.snapshot`.

::

    | size of head, 4 bytes | head, JSON | catalog's snapshot | first entry | rows, table by table |

`Image` is the giving side and holds no rows, which never change; `Unpacker` the taking one, which
writes the bytes that come to new files. None of them counts before `Unpacker.check` has seen that
all of it fits together.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from dledger.catalog.state_machine import Catalog
from dledger.catalog.topics.batch_rows import ROW_SIZE
from dledger.errors import CorruptEntry, CorruptStore
from dledger.protocol.messages.entry import Entry, LogEnd, body_is_sound, chain_is_sound, parse
from dledger.storage.recovery.snapshot_install import Staging
from dledger.types import NO_INDEX, NO_TERM, Buffer, Index, Position, Term

MAX_HEAD: Final = 64 << 20
ROWS_BYTES: Final = 256 << 10
"""Rows are written when so many bytes of them have come."""


@dataclass(frozen=True, slots=True)
class ImageHead:
    """The head of an image: how long its parts are, and whose log it belongs to."""

    index: Index
    """The catalog is as of this entry."""
    begin: LogEnd
    """The place before the log's first entry."""
    term: Term
    """That entry's."""
    snapshot: int
    entry: int
    """Bytes of the two parts that follow."""
    tables: tuple[tuple[str, int, int], ...]
    """Name, first row, row behind the last."""

    def pack(self) -> bytes:
        begin = [self.begin.position.index, self.begin.end_pos, self.begin.chain_crc]
        value = {
            "index": self.index, "begin": begin, "term": self.term, "snapshot": self.snapshot,
            "entry": self.entry, "tables": self.tables,
        }  # fmt: skip
        text = json.dumps(value, separators=(",", ":"), sort_keys=True).encode()
        return len(text).to_bytes(4, "big") + text

    @staticmethod
    def unpack(text: bytes) -> ImageHead:
        """Raises: CorruptStore."""
        try:
            value: dict[str, Any] = json.loads(text)
            index, pos, chain = value["begin"]
            tables = tuple(
                (str(name), int(first), int(end)) for name, first, end in value["tables"]
            )
            begin = LogEnd(Position(NO_TERM, Index(int(index))), int(pos), int(chain))
            return ImageHead(
                Index(int(value["index"])),
                begin,
                Term(int(value["term"])),
                int(value["snapshot"]),
                int(value["entry"]),
                tables,
            )
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptStore(
                f"the head of another node's state cannot be read: {error}"
            ) from error

    @property
    def first(self) -> Position:
        """The first entry that the log still has."""
        return Position(self.term, Index(self.begin.position.index + 1))


class Image:
    """The state of this node now. Make and read it on the thread that owns the catalog."""

    def __init__(self, catalog: Catalog, begin: LogEnd, *, first: Entry) -> None:
        """``first``: the entry behind ``begin``, which is applied."""
        snapshot = catalog.snapshot()
        self.index = catalog.applied_index
        self.first_index = first.index
        partitions = [part for _, part in sorted(catalog.partitions.used.items()) if part.rows]
        self._parts: list[tuple[int, Callable[[int, int], Buffer]]] = []
        head = ImageHead(
            self.index,
            begin,
            first.term,
            len(snapshot),
            first.size,
            tuple((part.name, part.begin_row, part.rows) for part in partitions),
        )
        for data in (head.pack(), snapshot, bytes(first.header) + bytes(first.body)):
            self._parts.append((len(data), _slicer(data)))
        for part in partitions:
            size = (part.rows - part.begin_row) * ROW_SIZE
            self._parts.append((size, _row_slicer(part.table.read, part.begin_row)))
        self.size = sum(size for size, _ in self._parts)

    def read(self, offset: int, size: int) -> bytes:
        """Up to ``size`` bytes from ``offset`` on; fewer at the end.

        Raises:
            CorruptStore: rows are damaged, or gone meanwhile with the entries or the topic that
                they were of.
            StorageError: the disk failed.
        """
        pieces: list[Buffer] = []
        at = 0
        for length, read in self._parts:
            if size > 0 and at <= offset < at + length:
                piece = read(offset - at, min(size, at + length - offset))
                pieces.append(piece)
                offset, size = offset + len(piece), size - len(piece)
            at += length
        return b"".join(pieces)


def _slicer(data: bytes) -> Callable[[int, int], Buffer]:
    return lambda offset, size: data[offset : offset + size]


def _row_slicer(rows: Callable[[int, int], Buffer], first: int) -> Callable[[int, int], Buffer]:
    def read(offset: int, size: int) -> Buffer:
        low, high = offset // ROW_SIZE, -(-(offset + size) // ROW_SIZE)
        inside = offset - low * ROW_SIZE
        return bytes(rows(first + low, first + high)[inside : inside + size])

    return read


class Unpacker:
    """Takes an image apart as it comes. Blocks; one thread at a time."""

    def __init__(self, staging: Staging) -> None:
        self.staging = staging
        self.head: ImageHead | None = None
        self._snapshot = b""
        self.first: Entry | None = None
        self.members_index = NO_INDEX
        """Of the catalog, once it is checked: the last entry that has changed which incarnations
        count."""
        self._outlines: dict[str, _Outline] = {}
        self._buffer = bytearray()
        self._done = False
        self._steps = self._take_apart()
        self._wanted = next(self._steps)

    def feed(self, data: Buffer) -> None:
        """The next bytes.

        Raises:
            CorruptStore: they are no image.
            DiskFull: there is no room for it.
            StorageError: the disk failed.
        """
        self._buffer += data
        with self.staging.writing():
            while not self._done and len(self._buffer) >= self._wanted:
                try:
                    self._wanted = next(self._steps)
                except StopIteration:
                    self._done = True

    def _take(self, size: int) -> bytes:
        piece = bytes(self._buffer[:size])
        del self._buffer[:size]
        return piece

    def _take_apart(self) -> Iterator[int]:
        """Yields how many bytes it needs before it can go on."""
        yield 4
        size = int.from_bytes(self._take(4), "big")
        if size > MAX_HEAD:
            raise CorruptStore(f"the head of another node's state claims {size} bytes")
        yield size
        head = self.head = ImageHead.unpack(self._take(size))
        yield head.snapshot
        self._snapshot = self._take(head.snapshot)
        self.staging.snapshot(head.index, self._snapshot)
        yield head.entry
        try:
            self.first = parse(self._take(head.entry))
        except ValueError as error:
            raise CorruptStore(
                f"the first entry of another node's log cannot be read: {error}"
            ) from error
        for name, first, end in head.tables:
            table = self.staging.table(name, ROW_SIZE, first)
            outline = self._outlines[name] = _Outline(first)
            while outline.end < end:
                count = min(end - outline.end, ROWS_BYTES // ROW_SIZE)
                yield count * ROW_SIZE
                rows = self._take(count * ROW_SIZE)
                table.append(rows)
                outline.passed(rows)
            table.sync()

    def check(self) -> None:
        """That nothing is missing, that the entry is sound, and that the catalog fits its tables.

        Raises:
            CorruptStore, CorruptEntry: it is not so.
        """
        head, first = self.head, self.first
        if not self._done or head is None or first is None or self._buffer:
            raise CorruptStore("the state of another node is not complete, or too long")
        chain = head.begin.chain_crc
        if not body_is_sound(first) or (chain >= 0 and not chain_is_sound(first, chain)):
            raise CorruptEntry(
                f"entry {first.index}, the first of another node's log, is damaged", first.index
            )
        if (first.position, first.pos) != (
            head.first,
            head.begin.end_pos,
        ) or first.index > head.index:
            raise CorruptStore(
                f"entry {first.index} at {first.pos} is not the first one behind {head.begin}"
            )
        catalog = Catalog.restore(self._snapshot, _Outlines(self._outlines))
        if catalog.applied_index != head.index:
            raise CorruptStore(f"a catalog as of entry {catalog.applied_index}, not {head.index}")
        self.members_index = catalog.members_index


class _Outline:
    """A table of which only the ends are known: as much as a catalog looks at when it is
    restored."""

    def __init__(self, begin: int) -> None:
        self.begin = self.end = begin
        self._rows: dict[int, bytes] = {}

    def passed(self, rows: bytes) -> None:
        """Rows came."""
        if self.end == self.begin:
            self._rows[self.begin] = rows[:ROW_SIZE]
        else:
            self._rows.pop(self.end - 1 if self.end - 1 != self.begin else -1, None)
        self.end += len(rows) // ROW_SIZE
        self._rows[self.end - 1] = rows[-ROW_SIZE:]

    def append(self, row: bytes) -> None:
        raise CorruptStore("a catalog that is only looked at takes no rows")

    def read(self, start: int, stop: int) -> Buffer:
        row = self._rows.get(start) if stop == start + 1 else None
        if row is None:
            raise CorruptStore(
                f"rows {start} to {stop} are not there, only {self.begin} to {self.end}"
            )
        return row

    def truncate(self, end: int) -> None:
        if end != self.end:
            raise CorruptStore(f"a table with {self.end} rows where the catalog has {end}")

    def drop_front(self, begin: int) -> None:
        raise CorruptStore("a catalog that is only looked at loses no rows")


class _Outlines:
    """The tables that came with an image."""

    def __init__(self, tables: dict[str, _Outline]) -> None:
        self._tables = tables

    def open(self, name: str, row_size: int) -> _Outline:
        if name not in self._tables or row_size != ROW_SIZE:
            raise CorruptStore(f"table {name} has not come with the catalog")
        return self._tables[name]

    def remove(self, name: str) -> None:
        raise CorruptStore(f"table {name} is not of the catalog that it came with")

    def names(self) -> list[str]:
        return sorted(self._tables)
