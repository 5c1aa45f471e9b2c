"""Entries of a DLedger log as Arrow columns, with any bodies: the files of any Java DLedger, 0.1 to
0.4.

Java's DLedger never fills the entry's CRCs, so that a changed byte of a body cannot be noticed
there. The checks are that sizes and place agree, and the body's CRC where there is one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import ClassVar, Final

import pyarrow as pa

from dledger.checksum import crc32
from dledger.protocol.messages.entry import HEADER, HEADER_SIZE, MAGIC_NOOP, MAGIC_NORMAL
from dledger.rocketmq.columns.borders import walk_entries
from dledger.rocketmq.columns.commit_log import BATCH_BYTES, Batches, ColumnBatch, first_false
from dledger.rocketmq.columns.properties import array, slices
from dledger.rocketmq.format.scan import Scanner
from dledger.rocketmq.with_numpy import np, npt
from dledger.types import Buffer

MAGIC_CONFIG_CHANGE: Final = 3
"""Known to DLedger 0.4.0, which never writes it."""
MAGICS: Final = (MAGIC_NORMAL, MAGIC_NOOP, MAGIC_CONFIG_CHANGE)
ENTRY_SCHEMA: Final = pa.schema(
    [
        ("entry_index", pa.int64()),
        ("term", pa.int64()),
        ("position", pa.int64()),
        ("size", pa.int32()),
        ("magic", pa.int32()),
        ("channel", pa.int32()),
        ("chain_crc", pa.int64()),
        ("body_crc", pa.int64()),
        ("body", pa.binary()),
    ]
)
"""All columns: an entry's header and its body. ``position`` is the entry's first byte in the log,
``size`` counts the header's 48 bytes too; ``magic`` is 1, or 2 for the empty entry that DLedger
0.4.0 may write at elections."""


class EntryScanner(Scanner):
    """Takes an entry for sound whose header agrees with itself and its place; the body may be
    anything."""

    marks: ClassVar[re.Pattern[bytes]] = re.compile(
        rb"\x00\x00\x00[\x01-\x03]|\xff\xff\xff\xff(?=[\x00-\x7f])"
    )

    def _place(self, mark: re.Match[bytes]) -> int:
        return mark.start()

    def _is_message(self, magic: int) -> bool:
        return False

    def _is_entry(self, magic: int) -> bool:
        return magic in MAGICS

    def _is_command(self, at: int, size: int) -> bool:
        return False  # it is an entry like any other

    def _body(self, index: int, at: int, size: int) -> None:
        """Anything is one."""

    def _only_the_header_is_wrong(self, offset: int) -> bool:
        return False

    def _claimed_end(self, offset: int) -> int | None:
        if self.data_end - offset < HEADER_SIZE:
            return None
        self._need(offset, HEADER_SIZE)
        magic, size, *_, body_size = HEADER.unpack_from(self.view, offset - self.start)
        whole = magic in MAGICS and body_size >= 0 and size == HEADER_SIZE + body_size
        return offset + size if whole and offset + size <= self.data_end else None


def entry_batches(
    data: Buffer,
    start: int = 0,
    *,
    stop: int | None = None,
    file_end: int | None = None,
    data_end: int | None = None,
    columns: Sequence[str] | None = None,
    check: bool = True,
    batch_bytes: int = BATCH_BYTES,
) -> Iterator[ColumnBatch]:
    """The entries of a DLedger data file, or of a part of it; arguments and errors as for
    `column_batches`."""
    scanner = EntryScanner(data, start, file_end=file_end, data_end=data_end, check=check)
    yield from _Entries(scanner, columns, batch_bytes=batch_bytes).batches(stop)


class _Entries(Batches):
    every = ENTRY_SCHEMA

    def _sound(self, at: int, limit: int) -> ColumnBatch | None:
        stop, most = min(limit, at + self._batch_bytes), self._most
        found = walk_entries(
            self._view, at, stop, most, least=HEADER_SIZE, last_magic=MAGIC_CONFIG_CHANGE
        )
        places = np.array(found, np.int64)
        sizes, bodies = self._fields.int32(places + 4), self._fields.int32(places + 44)
        whole = (sizes == HEADER_SIZE + bodies) & (places + sizes <= len(self._view))
        sound = whole & (self._fields.int64(places + 24) == places + self._start)
        places = places[: first_false(sound)]
        places = places[: self._first_bad_crc(places)]
        self._looked_at(len(found), len(places))
        if not len(places):
            return None
        columns = [self._column(name, places) for name in self._schema.names]
        rows = pa.RecordBatch.from_arrays(columns, schema=self._schema)
        last = self._start + int(places[-1])
        return ColumnBatch(rows, [], last + int(self._fields.int32(places[-1:] + 4)[0]), last)

    def _first_bad_crc(self, places: npt.NDArray[np.int64]) -> int:
        """Number of the first entry whose body does not match its CRC, or how many there are."""
        stamped = np.flatnonzero(self._fields.int32(places + 40)).tolist() if self._check else []
        for n in stamped:
            at = int(places[n])
            *_, stored, size = HEADER.unpack_from(self._view, at)
            if crc32(self._view[at + HEADER_SIZE : at + HEADER_SIZE + size]) != stored:
                return int(n)
        return len(places)

    def _column(self, name: str, places: npt.NDArray[np.int64]) -> pa.Array:
        fields = self._fields
        if name == "body":
            ends = places + fields.int32(places + 4)
            return slices(pa.py_buffer(self._view), places + HEADER_SIZE, ends, pa.binary())
        kind = ENTRY_SCHEMA.field(name).type
        if name in LONGS:
            return array(fields.int64(places + LONGS[name]), kind)
        values = fields.int32(places + INTS[name])
        if kind == pa.int64():
            return array(values & 0xFFFF_FFFF, kind)
        return array(values.astype(np.int32), kind)


LONGS: Final = {"entry_index": 8, "term": 16, "position": 24}
INTS: Final = {"magic": 0, "size": 4, "channel": 32, "chain_crc": 36, "body_crc": 40}
