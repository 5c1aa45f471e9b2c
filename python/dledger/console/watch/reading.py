"""Records for one page: only as many as it shows, and only as long as a reader waits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from dledger.client import Client
from dledger.console.views.record_filter import RecordFilter
from dledger.console.views.records import Taken
from dledger.environment import REAL
from dledger.protocol.messages.client import TopicInfo

MOST_ROWS: Final = 500
"""Of a page."""
FETCH_BYTES: Final = 1 << 20
LOOK_S: Final = 1.5
"""How long records are looked through for those that fit a filter."""
PAGE_VALUE_BYTES: Final = 8 << 20
"""Of values that are taken out of Arrow for a page; then it ends."""
VALUE_BYTES: Final = 64 << 10
"""Of one value, of which the rest is not shown."""


@dataclass(slots=True)
class FoundRecords:
    """Records of a partition, and how far it was looked through."""

    begin: int
    end: int
    """Offsets [begin, end) are kept."""
    start: int
    """Where the look began."""
    next: int
    """The first offset that was not looked at."""
    records: list[Taken] = field(default_factory=list)

    @property
    def more(self) -> bool:
        return self.next < self.end


def look(
    client: Client,
    info: TopicInfo,
    partition: int,
    start: int | None,
    count: int,
    wanted: RecordFilter | None = None,
) -> FoundRecords:
    """Up to ``count`` records from offset ``start`` on, or the last ones without it.

    Raises:
        DLedgerError: as `Client.read`.
    """
    begin = client.begin_offsets(info.name)[partition]
    end = client.end_offsets(info.name)[partition]
    first = end - count if start is None else start
    first = min(max(first, begin), end)
    found = FoundRecords(begin, end, first, first)
    wanted = wanted or RecordFilter()
    until_ms = REAL.now_ms() + 1000 * LOOK_S
    taken_bytes = 0
    batches = client.read(
        info.name, partition, first, end, max_bytes=FETCH_BYTES, value_format="json"
    )
    for batch in batches:
        offsets = batch.column("offset")
        for one in taken(wanted.of(batch)):
            found.records.append(one)
            taken_bytes += len(one.value or b"")
            if len(found.records) >= count or taken_bytes >= PAGE_VALUE_BYTES:
                found.next = one.offset + 1
                return found
        found.next = offsets[-1].as_py() + 1
        if REAL.now_ms() >= until_ms:
            break
    return found


def taken(batch: pa.RecordBatch) -> Iterator[Taken]:
    """Records out of Arrow, a few at a time, the beginning of each value."""
    for at in range(0, batch.num_rows, 64):
        some = batch.slice(at, 64)
        columns = (
            some.column("offset").to_pylist(),
            pc.cast(some.column("timestamp"), pa.int64()).to_pylist(),
            _beginnings(some.column("key")),
            _beginnings(some.column("value")),
            pc.binary_length(some.column("value")).to_pylist(),
            some.column("headers").to_pylist(),
        )
        for offset, time_us, key, value, size, headers in zip(*columns, strict=True):
            pairs = tuple((one["key"], one["value"]) for one in headers or ())
            yield Taken(offset, time_us or 0, key, value, size or 0, pairs)


def _beginnings(column: pa.Array) -> list[bytes | None]:
    cut: list[bytes | None] = pc.binary_slice(column.cast(pa.binary()), 0, VALUE_BYTES).to_pylist()
    return cut
