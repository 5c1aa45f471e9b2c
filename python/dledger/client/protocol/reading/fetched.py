"""The bodies of one answer, and their records."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple

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


@compiled
def fetched_rows(rows: Buffer, end_offset: int, term: int) -> tuple[bytes, int]:
    """The rows of a run as those of batches, and how many bytes their bodies have.

    Args:
        rows: a RUN_ROW of each body.
        end_offset: behind the last record.

    Raises:
        ValueError: a body has no records, or more than a batch may say.
    """
    runs = list(RUN_ROW.iter_unpack(rows))
    ends = [run[0] for run in runs[1:]] + [end_offset]
    packed: list[bytes] = []
    for (base, index, _, _, _, _, size, crc), end in zip(runs, ends, strict=False):
        if not base < end < base + (1 << 32):
            raise ValueError(f"row {len(packed)} does not lie in front of the next one")
        packed.append(FETCHED_ROW.pack(base, end - base, size, crc, index, term))
    return b"".join(packed), sum(run[6] for run in runs)


@compiled
def stretches(rows: Buffer, gap: int) -> tuple[bytes, list[tuple[int, int]]]:
    """Where bodies of one record each begin, and where others do.

    Args:
        rows: a FETCHED_ROW of each body.
        gap: bytes in front of each body.

    Returns:
        The size of each body, as int64; the row and the byte at which a stretch begins, that of its
        first body's gap, and those behind all.
    """
    if not 0 <= gap < 1 << 16:
        raise ValueError(f"a gap of {gap} bytes")
    sizes, borders, at, was_single = array("q"), [], 0, None
    for row, (_, count, size, _, _, _) in enumerate(FETCHED_ROW.iter_unpack(rows)):
        if (count == 1) is not was_single:
            was_single = count == 1
            borders.append((row, at))
        sizes.append(size)
        at += gap + size
    return sizes.tobytes(), [*borders, (len(sizes), at)]


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
        count = len(run.rows) // RUN_ROW.size
        try:
            packed, size = fetched_rows(run.rows, run.end_offset, run.term)
        except ValueError as error:
            raise ProtocolError(f"a run of {count} batches: {error}") from None
        size += count * HEADER_SIZE
        if size != len(payload):
            raise ProtocolError(
                f"a run of {count} batches with {size} bytes, in {len(payload)} bytes"
            )
        return cls(FetchedBatches(packed), payload, HEADER_SIZE, damage)

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
        sizes, borders = stretches(self.batches.packed, self.gap)
        for (first, start), (end, behind) in pairwise(borders):
            batches = self.batches.part(first, end)
            part = FetchedBodies(batches, self.payload[start:behind], self.gap, self.damage)
            records = None
            if end - first > 1 and next(batches.rows())[1] == 1:
                records = decode_one_records(part.payload, sizes[8 * first : 8 * end], self.gap)
            if records is not None:
                yield Decoded(records, batches)
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
