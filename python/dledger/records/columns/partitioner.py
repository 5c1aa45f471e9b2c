"""Which partition a key goes to: Kafka's default partitioner, over whole columns.

The same key lands on the same partition number as with Kafka's Java client: murmur2 of the key's
bytes, its sign bit cleared, modulo the number of partitions. The loop is over words, not over rows,
for as long as many keys are that long.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dledger.records.columns.arrays import binary_parts, number_column

SEED: Final = np.uint32(0x9747B28C)
MULTIPLIER: Final = np.uint32(0x5BD1E995)
FEW: Final = 8
"""So many long keys, or fewer, are hashed one by one: a step over all keys costs as much as some
ten words of one."""


def murmur2(column: pa.Array) -> npt.NDArray[np.uint32]:
    """The 32-bit murmur2 of each key's bytes, seeded as Kafka does; a null key counts as an empty
    one."""
    places, data = binary_parts(column)
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
    return ((murmur2(keys) & np.uint32(0x7FFFFFFF)) % np.uint32(partitions)).astype(np.int64)


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


def rows_by_code(codes: npt.NDArray[np.int64]) -> Iterator[tuple[int, pa.Array]]:
    """Each code, as a partition, with the places of its rows, in order."""
    if not len(codes):
        return
    order = np.argsort(codes, kind="stable")
    ordered = codes[order]
    borders = [0, *(np.flatnonzero(np.diff(ordered)) + 1).tolist(), len(codes)]
    for first, last in itertools.pairwise(borders):
        yield int(ordered[first]), number_column(pa.int64(), order[first:last])
