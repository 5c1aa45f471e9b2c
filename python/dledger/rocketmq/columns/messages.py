"""The columns of a message, each taken out of many messages at once."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from dledger.errors import FormatError
from dledger.protocol.messages.entry import HEADER_SIZE
from dledger.rocketmq.columns.borders import Rows
from dledger.rocketmq.columns.properties import PropertyColumns, array, slices
from dledger.rocketmq.format.compression import unpack
from dledger.rocketmq.format.hosts import Host
from dledger.rocketmq.format.message import (
    COMPRESSION_MASK,
    COMPRESSION_SHIFT,
    SysFlag,
    TransactionType,
)
from dledger.rocketmq.format.properties import KEYS, TAGS, UNIQUE_KEY
from dledger.rocketmq.format.scanned_piece import PieceKind, ScannedPiece
from dledger.rocketmq.with_numpy import np, npt

TIME: Final = pa.timestamp("us", "UTC")
FIRST_TIME: Final = -62_135_596_800_000
"""The year 1 in milliseconds: neither Python nor Spark has a time before it, or behind the year
9999."""
LAST_TIME: Final = 253_402_300_799_999
SCHEMA: Final = pa.schema(
    [
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
    ]
)
"""All columns. ``keys`` is the property as it stands, words with blanks between them;
``entry_index`` and ``entry_term`` are null in a plain commit log; ``stored_size`` counts the
message's bytes in the log."""


class MessageColumns:
    """Takes columns out of sound rows."""

    def __init__(self, rows: Rows, entries: bool = False, *, start: int) -> None:
        self._rows = rows
        self._entries = entries
        self._start = start
        self._data = pa.py_buffer(rows.view)
        self.damage: list[ScannedPiece] = []
        """Messages whose body was asked for, and cannot be unpacked."""

    def column(self, name: str) -> pa.Array:
        """A column by its name in ``SCHEMA``."""
        return self.TAKE[name](self)

    @cached_property
    def properties(self) -> PropertyColumns:
        """Split once for all columns that need it."""
        return PropertyColumns(self.properties_text())

    def properties_text(self) -> pa.Array:
        """As it stands in the log; it was not checked whether it is UTF-8."""
        return slices(self._data, self._rows.properties, self._rows.end, pa.string())

    def number(self, places: npt.NDArray[np.int64]) -> pa.Array:
        return array(self._rows.fields.int32(places).astype(np.int32), pa.int32())

    def long(self, places: npt.NDArray[np.int64]) -> pa.Array:
        return array(self._rows.fields.int64(places), pa.int64())

    def time(self, places: npt.NDArray[np.int64]) -> pa.Array:
        """Milliseconds as a timestamp; null outside the years 1 to 9999."""
        values = self._rows.fields.int64(places)
        possible = (values >= FIRST_TIME) & (values <= LAST_TIME)
        return array(np.where(possible, values, 0) * 1000, TIME, possible)

    def host(self, begins: npt.NDArray[np.int64], v6: npt.NDArray[np.int64]) -> pa.Array:
        """``address:port``, made once for each address that there is."""
        taken = self._packed_hosts(begins, v6).dictionary_encode()
        texts = [str(Host.decode(packed)) for packed in taken.dictionary.to_pylist()]
        return pa.array(texts, pa.string()).take(taken.indices)

    def _packed_hosts(self, begins: npt.NDArray[np.int64], v6: npt.NDArray[np.int64]) -> pa.Array:
        return slices(self._data, begins, begins + 8 + 12 * v6, pa.binary())

    def message_id(self) -> pa.Array:
        """Hexadecimal digits of store host and physical offset."""
        rows = self._rows
        begins, v6 = rows.born_host_end + 8, rows.sys_flag >> 5 & 1
        if v6.any():
            offsets = (rows.at + self._start).tolist()
            hosts = self._packed_hosts(begins, v6).to_pylist()
            ids = [
                (h + o.to_bytes(8, "big", signed=True)).hex().upper()
                for h, o in zip(hosts, offsets, strict=True)
            ]
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
            return unpack(bytes(rows.view[rows.body[n] : rows.body_end[n]]), kind)
        except FormatError as e:
            begin, end = int(rows.at[n]) + self._start, int(rows.end[n]) + self._start
            self.damage.append(ScannedPiece(PieceKind.DAMAGE, begin, end, str(e)))
            return None

    def transaction(self) -> pa.Array:
        """none, prepared, commit or rollback."""
        state = (self._rows.sys_flag & TransactionType.ROLLBACK) >> 2
        names = pa.array([t.name.lower() for t in TransactionType], pa.string())
        return names.take(array(state, pa.int64()))

    def entry(self, before: int) -> pa.Array:
        """A number of the entry's header, null where the message has none."""
        rows = self._rows
        if not self._entries:
            return array(rows.at, pa.int64(), np.zeros(len(rows.at), np.bool_))
        return self.long(rows.at - HEADER_SIZE + before)

    TAKE: Final[dict[str, Callable[[MessageColumns], pa.Array]]] = {
        "topic": lambda c: slices(c._data, c._rows.topic, c._rows.topic_end, pa.string()),
        "queue_id": lambda c: c.number(c._rows.at + 12),
        "queue_offset": lambda c: c.long(c._rows.at + 20),
        "physical_offset": lambda c: c.long(c._rows.at + 28),
        "message_id": message_id,
        "unique_key": lambda c: c.properties.values(UNIQUE_KEY),
        "keys": lambda c: c.properties.values(KEYS),
        "tags": lambda c: c.properties.values(TAGS),
        "body": body,
        "properties": lambda c: c.properties.map(),
        "born_timestamp": lambda c: c.time(c._rows.at + 40),
        "born_host": lambda c: c.host(c._rows.at + 48, c._rows.sys_flag >> 4 & 1),
        "store_timestamp": lambda c: c.time(c._rows.born_host_end),
        "store_host": lambda c: c.host(c._rows.born_host_end + 8, c._rows.sys_flag >> 5 & 1),
        "flag": lambda c: c.number(c._rows.at + 16),
        "sys_flag": lambda c: c.number(c._rows.at + 36),
        "transaction": transaction,
        "reconsume_times": lambda c: c.number(c._rows.body - 16),
        "prepared_transaction_offset": lambda c: c.long(c._rows.body - 12),
        "body_crc": lambda c: c.number(c._rows.at + 8),
        "stored_size": lambda c: c.number(c._rows.at),
        "entry_index": lambda c: c.entry(8),
        "entry_term": lambda c: c.entry(16),
    }


HEX: Final = np.frombuffer(b"".join(f"{n:02X}".encode() for n in range(256)), "S2")
