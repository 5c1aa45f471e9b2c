"""A commit log file as Arrow columns, a batch at a time.

The same messages and the same damage that ``scan`` finds, without a Python object per message. Where all is sound,
numpy checks and takes out whole columns; where something is not, ``Scanner`` says what, and where it goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dledger.errors import FormatError
from dledger.messages.entry import HEADER_SIZE
from dledger.rocketmq.borders import Fields, Rows, walk_entries, walk_messages
from dledger.rocketmq.compression import MAX_UNPACKED, unpack
from dledger.rocketmq.hosts import Host
from dledger.rocketmq.map_columns import PropertyColumns, array, slices
from dledger.rocketmq.message import COMPRESSION_MASK, COMPRESSION_SHIFT, SysFlag, Transaction
from dledger.rocketmq.properties import KEYS, TAGS, UNIQUE_KEY
from dledger.rocketmq.scan import Kind, Piece, Scanner
from dledger.types import Buffer

__all__ = ["BATCH_BYTES", "SCHEMA", "ColumnBatch", "column_batches"]

BATCH_BYTES: Final = 16 << 20
MAX_BUFFER: Final = (1 << 31) - 1
"""Arrow counts the bytes of a column with 32 bits; a commit log file has 1 GiB."""
TIME: Final = pa.timestamp("us", "UTC")
FIRST_TIME: Final = -62_135_596_800_000
"""The year 1 in milliseconds: neither Python nor Spark has a time before it, or behind the year 9999."""
LAST_TIME: Final = 253_402_300_799_999
SCHEMA: Final = pa.schema([
    ("topic", pa.string()),
    ("queue_id", pa.int32()),
    ("queue_offset", pa.int64()),
    ("physical_offset", pa.int64()),
    ("message_id", pa.string()),
    ("unique_key", pa.string()),
    ("keys", pa.string()),
    ("tags", pa.string()),
    ("body", pa.binary()),
    ("properties", pa.map_(pa.string(), pa.string())),
    ("born_timestamp", TIME),
    ("born_host", pa.string()),
    ("store_timestamp", TIME),
    ("store_host", pa.string()),
    ("flag", pa.int32()),
    ("sys_flag", pa.int32()),
    ("transaction", pa.string()),
    ("reconsume_times", pa.int32()),
    ("prepared_transaction_offset", pa.int64()),
    ("body_crc", pa.int32()),
    ("stored_size", pa.int32()),
    ("entry_index", pa.int64()),
    ("entry_term", pa.int64()),
])  # fmt: skip
"""All columns. ``keys`` is the property as it stands, words with blanks between them; ``entry_index`` and
``entry_term`` are null in a plain commit log; ``stored_size`` counts the message's bytes in the log."""


@dataclass(slots=True)
class ColumnBatch:
    """Messages one behind the other, and what is wrong in the bytes up to ``end``."""

    rows: pa.RecordBatch | None
    damage: list[Piece] = field(default_factory=list)
    end: int = 0
    """Offset in the log behind what this batch accounts for."""


def column_batches(
    data: Buffer,
    start: int = 0,
    *,
    stop: int | None = None,
    file_end: int | None = None,
    columns: Sequence[str] | None = None,
    check: bool = True,
    batch_bytes: int = BATCH_BYTES,
) -> Iterator[ColumnBatch]:
    """The messages of a commit log file, or of a part of it.

    Args:
        data: a file's bytes, or those from a message's border on (``Scanner.next_sound`` finds one); at most 2 GiB.
        start: offset in the log of the first byte.
        stop: messages that begin at or behind this offset are not wanted.
        file_end: offset in the log where the file ends, if the data end before that.
        columns: names out of ``SCHEMA``, all by default; what is not asked for is not taken out.
        check: compare bodies with their CRC.
        batch_bytes: bytes of the log in one batch, about.

    Yields:
        Batches in order. A message whose compressed body cannot be unpacked is there with a null body, and among the
        damage as well.

    Raises:
        ValueError: there is no such column, or the data are over 2 GiB.
    """
    names = tuple(SCHEMA.names if columns is None else columns)
    if unknown := [name for name in names if name not in SCHEMA.names]:
        raise ValueError(f"no column {unknown[0]!r}; there are {', '.join(SCHEMA.names)}")
    if len(data) > MAX_BUFFER:
        raise ValueError(f"{len(data):,} bytes at once; hand over at most {MAX_BUFFER:,}")
    yield from _Reader(data, start, file_end, check, names, batch_bytes).batches(stop)


class _Reader:
    """One pass over one buffer."""

    def __init__(
        self, data: Buffer, start: int, file_end: int | None, check: bool, names: tuple[str, ...], batch_bytes: int
    ) -> None:
        self._view = memoryview(data).cast("B")
        self._start = start
        self._check = check
        self._names = names
        self._batch_bytes = batch_bytes
        self._scanner = Scanner(self._view, start, file_end=file_end, check=check)
        self._fields = Fields(self._view)
        self._most = 1 << 30
        """Messages that are looked at together: few right behind damage, since what is wrong among them is looked at
        again, and more with each time that all are sound."""

    def batches(self, stop: int | None) -> Iterator[ColumnBatch]:
        at, size = 0, len(self._view)
        limit = size if stop is None else max(0, min(size, stop - self._start))
        while at < limit:
            rows, entries = self._sound_rows(at, limit)
            if len(rows.at):
                at = int(rows.end[-1])
                yield self._batch(rows, entries, self._start + at)
                continue
            piece = self._scanner.piece(self._start + at)
            at = piece.end - self._start
            if piece.kind is Kind.DAMAGE:
                self._most = 16
                yield ColumnBatch(None, [piece], piece.end)
            else:
                assert piece.kind not in (Kind.MESSAGE, Kind.ENTRY), f"overlooked: {piece}"
                yield ColumnBatch(None, [], piece.end)

    def _sound_rows(self, at: int, limit: int) -> tuple[Rows, bool]:
        """Sound messages from here on, as many as a batch takes, and whether they are in entries."""
        stop, most = min(limit, at + self._batch_bytes), self._most
        entries = False
        found = walk_messages(self._view, at, stop, most)
        if not found:
            found, entries = walk_entries(self._view, at, stop, most), True
        places = np.array(found, np.int64)
        bodies = places + HEADER_SIZE if entries else places
        room = len(self._view) - bodies
        if entries:
            room = np.minimum(room, self._fields.int32(places + 44))
        rows = Rows(self._fields, self._view, bodies, room)
        sound = rows.adds_up & rows.placed(self._start)
        if entries:
            sound &= self._headers_agree(places, rows)
        rows = rows.first(_first_false(sound))
        rows = self._checked(rows, entries)
        self._most = min(1 << 30, self._most * 2) if len(rows.at) == len(found) else 16
        return rows, entries

    def _headers_agree(self, places: npt.NDArray[np.int64], rows: Rows) -> npt.NDArray[np.bool_]:
        """Whether each entry's header says what its place and its message say."""
        body_size = self._fields.int32(places + 44)
        whole = (self._fields.int32(places + 4) == HEADER_SIZE + body_size) & (rows.size == body_size)
        placed = self._fields.int64(places + 24) == places + self._start
        sound: npt.NDArray[np.bool_] = whole & placed
        return sound

    def _checked(self, rows: Rows, entries: bool) -> Rows:
        """The rows before the first one whose contents are not what was written."""
        if not len(rows.at):
            return rows
        count = rows.first_bad_crc() if self._check else len(rows.at)
        if self._check and entries:
            count = min(count, self._first_bad_entry(rows))
        rows = rows.first(count)
        return rows if not count or self._is_text(rows) else rows.first(self._first_without_text(rows))

    def _first_bad_entry(self, rows: Rows) -> int:
        """The entry's own CRC, which DLedger leaves zero, is looked at by ``Scanner``, one entry at a time."""
        stamped = np.flatnonzero(self._fields.int32(rows.at - 8))
        for n in stamped.tolist():
            if self._scanner.piece(self._start + int(rows.at[n]) - HEADER_SIZE).kind is not Kind.ENTRY:
                return int(n)
        return len(rows.at)

    def _is_text(self, rows: Rows) -> bool:
        try:
            for begins, ends in ((rows.topic, rows.topic_end), (rows.properties, rows.end)):
                self._slices(begins, ends, pa.binary()).cast(pa.string())
        except pa.ArrowInvalid:
            return False
        return True

    def _first_without_text(self, rows: Rows) -> int:
        low, high = 0, len(rows.at)
        while low + 1 < high:  # the first ``low`` are text, the first ``high`` are not
            middle = (low + high) // 2
            low, high = (middle, high) if self._is_text(rows.first(middle)) else (low, middle)
        return low

    def _slices(self, begins: npt.NDArray[np.int64], ends: npt.NDArray[np.int64], kind: pa.DataType) -> pa.Array:
        return slices(pa.py_buffer(self._view), begins, ends, kind)

    def _batch(self, rows: Rows, entries: bool, end: int) -> ColumnBatch:
        damage: list[Piece] = []
        taken = _Columns(rows, entries, self._start, pa.py_buffer(self._view), damage)
        arrays = [taken.column(name) for name in self._names]
        schema = pa.schema([SCHEMA.field(name) for name in self._names])
        return ColumnBatch(pa.RecordBatch.from_arrays(arrays, schema=schema), damage, end)


class _Columns:
    """Takes columns out of sound rows."""

    def __init__(self, rows: Rows, entries: bool, start: int, data: pa.Buffer, damage: list[Piece]) -> None:
        self._rows = rows
        self._entries = entries
        self._start = start
        self._data = data
        self._damage = damage
        self._properties: PropertyColumns | None = None

    def column(self, name: str) -> pa.Array:
        """A column by its name in ``SCHEMA``."""
        return self.TAKE[name](self)

    def properties(self) -> PropertyColumns:
        """Split once for all columns that need it."""
        if self._properties is None:
            rows = self._rows
            self._properties = PropertyColumns(slices(self._data, rows.properties, rows.end, pa.string()))
        return self._properties

    def number(self, offset: int) -> pa.Array:
        """The 32-bit number at this place of each message."""
        return array(self._rows.fields.int32(self._rows.at + offset).astype(np.int32), pa.int32())

    def long(self, places: npt.NDArray[np.int64]) -> pa.Array:
        return array(self._rows.fields.int64(places), pa.int64())

    def reconsume_times(self) -> pa.Array:
        """Stands behind the hosts."""
        return array(self._rows.fields.int32(self._rows.body - 16).astype(np.int32), pa.int32())

    def time(self, places: npt.NDArray[np.int64]) -> pa.Array:
        """Milliseconds as a timestamp; null outside the years 1 to 9999."""
        values = self._rows.fields.int64(places)
        possible = (values >= FIRST_TIME) & (values <= LAST_TIME)
        return array(np.where(possible, values, 0) * 1000, TIME, possible)

    def host(self, begins: npt.NDArray[np.int64], v6: npt.NDArray[np.int64]) -> pa.Array:
        """``address:port``, made once for each address that there is."""
        taken = slices(self._data, begins, begins + 8 + 12 * v6, pa.binary()).dictionary_encode()
        texts = [str(Host.decode(packed)) for packed in taken.dictionary.to_pylist()]
        return pa.array(texts, pa.string()).take(taken.indices)

    def message_id(self) -> pa.Array:
        """Hexadecimal digits of store host and physical offset."""
        rows = self._rows
        begins, v6 = rows.born_host_end + 8, rows.sys_flag >> 5 & 1
        if v6.any():
            offsets = (rows.at + self._start).tolist()
            hosts = slices(self._data, begins, begins + 8 + 12 * v6, pa.binary()).to_pylist()
            ids = [(h + o.to_bytes(8, "big", signed=True)).hex().upper() for h, o in zip(hosts, offsets, strict=True)]
            return pa.array(ids, pa.string())
        raw = np.empty((len(begins), 16), np.uint8)
        for byte in range(8):
            raw[:, byte] = rows.fields.bytes[begins + byte]
            raw[:, 8 + byte] = rows.fields.bytes[rows.at + 28 + byte]
        bounds = np.arange(0, 32 * len(begins) + 1, 32, dtype=np.int32)
        text = pa.py_buffer(HEX[raw])
        return pa.Array.from_buffers(pa.string(), len(begins), [None, pa.py_buffer(bounds), text])

    def body(self) -> pa.Array:
        """Bodies, unpacked where they were compressed."""
        rows = self._rows
        bodies = slices(self._data, rows.body, rows.body_end, pa.binary())
        packed = np.flatnonzero(rows.sys_flag & SysFlag.COMPRESSED)
        if not len(packed):
            return bodies
        unpacked = [self._unpacked(n) for n in packed.tolist()]
        mask = np.zeros(len(rows.at), np.bool_)
        mask[packed] = True
        bits = pa.py_buffer(np.packbits(mask, bitorder="little"))
        chosen = pa.Array.from_buffers(pa.bool_(), len(mask), [None, bits])
        return pc.replace_with_mask(bodies, chosen, pa.array(unpacked, pa.binary()))

    def _unpacked(self, n: int) -> bytes | None:
        rows = self._rows
        kind = int(rows.sys_flag[n]) >> COMPRESSION_SHIFT & COMPRESSION_MASK
        try:
            return unpack(bytes(rows.view[rows.body[n] : rows.body_end[n]]), kind, limit=MAX_UNPACKED)
        except FormatError as e:
            begin, end = int(rows.at[n]) + self._start, int(rows.end[n]) + self._start
            self._damage.append(Piece(Kind.DAMAGE, begin, end, str(e)))
            return None

    def transaction(self) -> pa.Array:
        """none, prepared, commit or rollback."""
        state = (self._rows.sys_flag & Transaction.ROLLBACK) >> 2
        return pa.array([t.name.lower() for t in Transaction], pa.string()).take(array(state, pa.int64()))

    def entry(self, before: int) -> pa.Array:
        """A number of the entry's header, null where the message has none."""
        rows = self._rows
        if not self._entries:
            return array(rows.at, pa.int64(), np.zeros(len(rows.at), np.bool_))
        return self.long(rows.at - HEADER_SIZE + before)

    TAKE: Final[dict[str, Callable[[_Columns], pa.Array]]] = {
        "topic": lambda c: slices(c._data, c._rows.topic, c._rows.topic_end, pa.string()),
        "queue_id": lambda c: c.number(12),
        "queue_offset": lambda c: c.long(c._rows.at + 20),
        "physical_offset": lambda c: c.long(c._rows.at + 28),
        "message_id": message_id,
        "unique_key": lambda c: c.properties().values(UNIQUE_KEY),
        "keys": lambda c: c.properties().values(KEYS),
        "tags": lambda c: c.properties().values(TAGS),
        "body": body,
        "properties": lambda c: c.properties().map(),
        "born_timestamp": lambda c: c.time(c._rows.at + 40),
        "born_host": lambda c: c.host(c._rows.at + 48, c._rows.sys_flag >> 4 & 1),
        "store_timestamp": lambda c: c.time(c._rows.born_host_end),
        "store_host": lambda c: c.host(c._rows.born_host_end + 8, c._rows.sys_flag >> 5 & 1),
        "flag": lambda c: c.number(16),
        "sys_flag": lambda c: c.number(36),
        "transaction": transaction,
        "reconsume_times": reconsume_times,
        "prepared_transaction_offset": lambda c: c.long(c._rows.body - 12),
        "body_crc": lambda c: c.number(8),
        "stored_size": lambda c: c.number(0),
        "entry_index": lambda c: c.entry(8),
        "entry_term": lambda c: c.entry(16),
    }


HEX: Final = np.frombuffer(b"".join(f"{n:02X}".encode() for n in range(256)), "S2")


def _first_false(values: npt.NDArray[np.bool_]) -> int:
    """Number of the first False, or how many there are."""
    return len(values) if values.all() else int(np.argmin(values))
