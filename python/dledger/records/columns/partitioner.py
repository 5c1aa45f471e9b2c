"""Which partition a key goes to: Kafka's default partitioner, over whole columns.

The same key lands on the same partition number as with Kafka's Java client: murmur2 of the key's
bytes, its sign bit cleared, modulo the number of partitions. A batch is divided by one take of its
rows, in the order of their partitions. Without the compiled function the loop is over words, not
over rows, for as long as many keys are that long.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dledger.compiled import compiled
from dledger.records.columns.arrays import binary_parts, number_column
from dledger.types import Buffer

SEED: Final = np.uint32(0x9747B28C)
MULTIPLIER: Final = np.uint32(0x5BD1E995)
FEW: Final = 8
"""So many long keys, or fewer, are hashed one by one: a step over all keys costs as much as some
ten words of one."""
MOST_PARTITIONS: Final = 1 << 20
"""No topic has more."""
MOST_ROWS: Final = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class Division:
    """Which rows of a batch go to which partition; those of one partition keep their order."""

    parts: list[tuple[int, int, int]]
    """(partition, first, last): it has the rows [first, last) of `order`."""
    order: pa.Array | None = None
    """Places of rows; None: as they lie, all for one partition."""

    def of(self, batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
        """The partitions with their rows. Where there are several, these are slices of one copy."""
        if self.order is None:
            for partition, _, _ in self.parts:
                yield partition, batch
            return
        ordered = batch.take(self.order)
        for partition, first, last in self.parts:
            yield partition, ordered.slice(first, last - first)


def whole(partition: int, rows: int) -> Division:
    """All rows go to one partition."""
    return Division([(partition, 0, rows)])


def divided_by_key(keys: pa.Array, partitions: int, keyless: int) -> Division:
    """Rows by their binary keys; those without one go to partition ``keyless``."""
    valid, offsets, data = keys.buffers()
    order, counted = rows_by_key(
        offsets or b"", data or b"", valid or b"", keys.offset, len(keys), partitions, keyless
    )
    counts = np.frombuffer(counted, np.int32)
    found = np.flatnonzero(counts).tolist()
    if len(found) == 1:
        return whole(found[0], len(keys))
    borders = pairwise([0, *np.cumsum(counts[found]).tolist()])
    parts = [(at, first, last) for at, (first, last) in zip(found, borders, strict=True)]
    return Division(
        parts, pa.Array.from_buffers(pa.int32(), len(keys), [None, pa.py_buffer(order)])
    )


def divided_by_codes(codes: npt.NDArray[np.int64]) -> Division:
    """Rows by numbers that they have already, as partitions."""
    if not len(codes):
        return Division([])
    order = _order(codes, int(codes.max()))
    ordered = codes[order]
    borders = [0, *(np.flatnonzero(np.diff(ordered)) + 1).tolist(), len(codes)]
    parts = [(int(ordered[first]), first, last) for first, last in pairwise(borders)]
    return Division(parts, None if len(parts) == 1 else number_column(pa.int64(), order))


def _order(codes: npt.NDArray[np.int64], most: int) -> npt.NDArray[np.int64]:
    """Places of rows in the order of their codes; numpy sorts 16-bit numbers by counting them."""
    return np.argsort(codes.astype(np.uint16) if most < 1 << 16 else codes, kind="stable")


@compiled
def rows_by_key(
    offsets: Buffer,
    data: Buffer,
    valid: Buffer,
    first: int,
    rows: int,
    partitions: int,
    keyless: int,
) -> tuple[bytes, bytes]:
    """Places of rows in the order of their partitions, and how many rows each partition has; both
    as int32.

    Args:
        offsets: with ``data`` and ``valid`` the buffers of a binary column in Arrow; ``valid`` is
            empty where all rows have a key.
        first: the place of the first row in them.
        keyless: the partition of rows without a key.

    Raises:
        ValueError: rows or keys lie outside of the buffers, or there is no such partition.
    """
    if not 1 <= partitions <= MOST_PARTITIONS or not 0 <= keyless < partitions:
        raise ValueError(f"partition {keyless} of {partitions}")
    if first < 0 or not 0 <= rows <= MOST_ROWS:
        raise ValueError("rows that lead out of their column")
    if rows and (
        first + rows >= len(offsets) // 4 or (len(valid) and (first + rows - 1) // 8 >= len(valid))
    ):
        raise ValueError("rows that lead out of their column")
    if not rows:
        return b"", bytes(4 * partitions)
    places = np.frombuffer(offsets, np.int32, rows + 1, 4 * first)
    if places[0] < 0 or places[-1] > len(data) or (places[1:] < places[:-1]).any():
        raise ValueError("keys that lead out of their bytes")
    chosen = _partitions(_hashes(places, np.frombuffer(data, np.uint8)), partitions)
    if len(valid):
        bits = np.unpackbits(np.frombuffer(valid, np.uint8), bitorder="little")
        chosen[bits[first : first + rows] == 0] = keyless
    counts = np.bincount(chosen, minlength=partitions)
    return (
        _order(chosen, partitions).astype(np.int32).tobytes(),
        counts.astype(np.int32).tobytes(),
    )


def murmur2(column: pa.Array) -> npt.NDArray[np.uint32]:
    """The 32-bit murmur2 of each key's bytes, seeded as Kafka does; a null key counts as an empty
    one."""
    return _hashes(*binary_parts(column))


def _hashes(places: npt.NDArray[np.int32], data: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint32]:
    data = np.concatenate([data, np.zeros(4, np.uint8)])
    words = np.ndarray((len(data) - 3,), np.dtype("<u4"), data, strides=(1,))
    starts = places[:-1].astype(np.int64)
    lengths = places[1:].astype(np.int64) - starts
    hashes = SEED ^ lengths.astype(np.uint32)
    with np.errstate(over="ignore"):
        rows = np.arange(len(starts))
        for word in range(int(lengths.max(initial=0)) // 4):
            rows = rows[lengths[rows] >= 4 * word + 4]
            if len(rows) <= FEW:
                for row in rows:
                    rest = words[starts[row] + 4 * word : starts[row] + lengths[row] - 3 : 4]
                    hashes[row] = _with_words(int(hashes[row]), _mixed(rest))
                break
            hashes[rows] = hashes[rows] * MULTIPLIER ^ _mixed(words[starts[rows] + 4 * word])
        tails = lengths % 4
        rest = words[starts + lengths - tails] & (
            (np.uint32(1) << (8 * tails).astype(np.uint32)) - np.uint32(1)
        )
        hashes = np.where(tails > 0, (hashes ^ rest) * MULTIPLIER, hashes)
        hashes = (hashes ^ (hashes >> np.uint32(13))) * MULTIPLIER
        return hashes ^ (hashes >> np.uint32(15))


def _mixed(words: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    mixed = words * MULTIPLIER
    return (mixed ^ (mixed >> np.uint32(24))) * MULTIPLIER


def _with_words(hashed: int, mixed: npt.NDArray[np.uint32]) -> int:
    """A key's hash so far, with the rest of its words."""
    multiplier = int(MULTIPLIER)
    for word in mixed.tolist():
        hashed = hashed * multiplier & 0xFFFFFFFF ^ word
    return hashed


def partitions_for(keys: pa.Array, partitions: int) -> npt.NDArray[np.int64]:
    """The partition of each key."""
    return _partitions(murmur2(keys), partitions)


def _partitions(hashes: npt.NDArray[np.uint32], partitions: int) -> npt.NDArray[np.int64]:
    return ((hashes & np.uint32(0x7FFFFFFF)) % np.uint32(partitions)).astype(np.int64)


def murmur2_of(data: bytes) -> int:
    """`murmur2` of one key, without an array of it."""
    size, m, mask = len(data), int(MULTIPLIER), 0xFFFFFFFF
    h = int(SEED) ^ size
    whole = size - size % 4
    for i in range(0, whole, 4):
        k = int.from_bytes(data[i : i + 4], "little") * m & mask
        k = (k ^ k >> 24) * m & mask
        h = h * m & mask ^ k
    if whole < size:
        h = (h ^ int.from_bytes(data[whole:], "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    return h ^ h >> 15


def partition_for(key: bytes, partitions: int) -> int:
    """The partition of one key."""
    return (murmur2_of(key) & 0x7FFFFFFF) % partitions
