"""The bodies of one answer, and their records."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dledger.checksum import crc32
from dledger.client.protocol.reading.damage import DamagePolicy
from dledger.compiled import compiled, python
from dledger.errors import CorruptEntry, ProtocolError
from dledger.protocol.messages.entry import HEADER_SIZE
from dledger.protocol.messages.fetched import (
    FETCHED_ROW,
    RUN_ROW,
    FetchedBatch,
    FetchedBatches,
    FetchedRun,
)
from dledger.records.body.one_records import decode_one_records
from dledger.records.body.read_one_record import decode_record
from dledger.records.body.records import decode_batch
from dledger.types import Buffer

Decode = Callable[[Buffer], pa.RecordBatch]
"""The records of a body, in one schema for all bodies of a reader."""
LARGE_BYTES: Final = 4 << 10
"""Of a body: from here on to compute its CRC costs more than to look at it."""
_ROW: Final = np.dtype(
    [
        ("base_offset", ">i8"),
        ("count", ">u4"),
        ("size", ">u4"),
        ("crc", ">u4"),
        ("index", ">i8"),
        ("term", ">i8"),
    ]
)
_RUN_ROW: Final = np.dtype(
    [
        ("base_offset", "<i8"),
        ("index", "<i8"),
        ("pos", "<i8"),
        ("own", "<i8", 2),
        ("before", "<i8"),
        ("size", "<u4"),
        ("crc", "<u4"),
    ]
)
assert (_ROW.itemsize, _RUN_ROW.itemsize) == (FETCHED_ROW.size, RUN_ROW.size)


def batch_columns(batches: FetchedBatches) -> npt.NDArray[np.void]:
    """The fields of FetchedBatch, each as a column."""
    return np.frombuffer(batches.packed, _ROW)


@compiled
def count_sound(rows: Buffer, payload: Buffer, gap: int, position: int) -> tuple[int, int, bool]:
    """How many bodies of an answer, from the first on, are what a reader at ``position`` takes: the
    records that come next, and the bytes of their CRC. The first one may have records before them.

    Args:
        rows: a FETCHED_ROW of each body.
        payload: has them one behind the other, with ``gap`` bytes in front of each; with a gap the
            node has looked at none, so that each needs a CRC.

    Returns:
        Their number, the offset behind them, and whether the bytes of the next one are damaged.
    """
    sound = at = 0
    for base, count, size, crc, _, _ in FETCHED_ROW.iter_unpack(rows):
        behind = base + count
        if (base != position if sound else base > position) or not position < behind < 1 << 63:
            break
        at += gap
        # a node looks at an entry without a CRC before it sends it
        if crc32(payload[at : at + size]) != crc if crc else gap:
            return sound, position, True
        at += size
        position = behind
        sound += 1
    return sound, position, False


class Decoded(NamedTuple):
    """Records of neighbouring bodies; ``batches`` says of each body where it lies in the log."""

    records: pa.RecordBatch
    batches: FetchedBatches


@dataclass(frozen=True, slots=True)
class FetchedBodies:
    """One answer's bodies; ``payload`` has them one behind the other, with ``gap`` bytes in front
    of each."""

    batches: FetchedBatches
    payload: memoryview
    gap: int = 0
    damage: DamagePolicy | None = None
    """What the reader does about a body that cannot be opened; None: CorruptEntry, as it is."""

    @classmethod
    def of_run(
        cls, run: FetchedRun, payload: memoryview, damage: DamagePolicy | None = None
    ) -> FetchedBodies:
        """Raises ProtocolError: the rows are not those of the entries."""
        rows = np.frombuffer(run.rows, _RUN_ROW)
        counts = np.diff(rows["base_offset"], append=run.end_offset)
        size = int(rows["size"].sum(dtype=np.int64)) + len(rows) * HEADER_SIZE
        if size != len(payload) or counts.min() < 1:
            raise ProtocolError(
                f"a run of {len(rows)} batches with {size} bytes, in {len(payload)} bytes"
            )
        batches = np.empty(len(rows), _ROW)
        for name in ("base_offset", "size", "crc", "index"):
            batches[name] = rows[name]
        batches["count"], batches["term"] = counts, run.term
        return cls(FetchedBatches(batches.tobytes()), payload, HEADER_SIZE, damage)

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[tuple[FetchedBatch, memoryview]]:
        at = 0
        for batch in self.batches:
            at += self.gap
            yield batch, self.payload[at : at + batch.size]
            at += batch.size

    def count_sound(self, position: int) -> tuple[int, int, bool]:
        """`count_sound` of these. Of large bodies the CRC alone counts, which a library has
        faster than the compiled function."""
        is_small = len(self.payload) <= LARGE_BYTES * len(self)
        count = count_sound if is_small else python["count_sound"]
        found: tuple[int, int, bool] = count(self.batches.packed, self.payload, self.gap, position)
        return found

    @property
    def end_offset(self) -> int:
        """The offset behind the last record."""
        return self.batches.end_offset

    def one_record(self, start: int, end: int | None) -> pa.RecordBatch | None:
        """The record of the first body in the READ_SCHEMA, where that is a plain one whose offset
        is within [start, end); None where `plain_records` has to look."""
        base, count, size, *_ = next(self.batches.rows())
        if count != 1 or base < start or (end is not None and base >= end):
            return None
        return decode_record(self.payload[self.gap : self.gap + size], base)

    def plain_records(self) -> Iterator[Decoded]:
        """Plain records in the RECORD_SCHEMA; neighbouring bodies of one record each together.

        Raises:
            As `decoded`.
        """
        if len(self) == 1:
            yield from self.decoded(_plain)
            return
        rows = batch_columns(self.batches)
        sizes = rows["size"].astype(np.int64)
        ends = np.cumsum(sizes + self.gap)
        single = rows["count"] == 1
        borders = [0, *(np.flatnonzero(single[1:] != single[:-1]) + 1).tolist(), len(rows)]
        for first, end in pairwise(borders):
            part = FetchedBodies(
                self.batches.part(first, end),
                self.payload[ends[first] - sizes[first] - self.gap : ends[end - 1]],
                self.gap,
                self.damage,
            )
            records = None
            if end - first > 1 and single[first]:
                records = decode_one_records(part.payload, sizes[first:end], self.gap)
            if records is not None:
                yield Decoded(records, part.batches)
            else:
                yield from part.decoded(_plain)

    def decoded(self, decode: Decode) -> Iterator[Decoded]:
        """The records of one body after the other; the reader's `damage` may leave some out.

        Raises:
            ProtocolError: a body has not as many records as the log says.
            CorruptEntry: a body contradicts itself; UnreadableBatch, which names it, where the
                reader says what to do about it.
        """
        at = 0
        for place, (base, count, size, *_) in enumerate(self.batches.rows()):
            at += self.gap
            body = self.payload[at : at + size]
            at += size
            try:
                records = decode(body)
            except CorruptEntry as error:
                if self.damage is None:
                    raise
                self.damage.met(base, base + count, error)
                continue
            if records.num_rows != count:
                raise ProtocolError(
                    f"a body of {records.num_rows} records at offset {base} where {count} were "
                    f"announced"
                )
            yield Decoded(records, self.batches.part(place, place + 1))

    def singles(self) -> Iterator[FetchedBodies]:
        """Each body alone."""
        for at, (_, body) in enumerate(self):
            yield FetchedBodies(self.batches.part(at, at + 1), body, damage=self.damage)


def _plain(body: Buffer) -> pa.RecordBatch:
    return decode_batch(body)[1]


NO_BODIES: Final = FetchedBodies(FetchedBatches(b""), memoryview(b""))
