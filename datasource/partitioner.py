"""Which partition a key goes to: Kafka's default partitioner, over whole columns.

The same key lands on the same partition number as with Kafka's Java client: murmur2 of the key's bytes, its sign bit
cleared, modulo the number of partitions. The loop is over words of the longest key, not over rows.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

SEED: Final = np.uint32(0x9747B28C)
MULTIPLIER: Final = np.uint32(0x5BD1E995)


def binary_parts(column: pa.Array) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint8]]:
    """Offsets (rows + 1) and bytes of a binary column, without a copy."""
    _, offsets, data = column.buffers()
    places = np.frombuffer(offsets, np.int32, len(column) + 1, column.offset * 4) if offsets else np.zeros(1, np.int32)
    return places, np.frombuffer(data, np.uint8) if data else np.zeros(0, np.uint8)


def murmur2(column: pa.Array) -> npt.NDArray[np.uint32]:
    """The 32-bit murmur2 of each key's bytes, seeded as Kafka does; a null key counts as an empty one."""
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
            mixed = words[starts[rows] + 4 * word] * MULTIPLIER
            mixed = (mixed ^ (mixed >> np.uint32(24))) * MULTIPLIER
            hashes[rows] = hashes[rows] * MULTIPLIER ^ mixed
        tails = lengths % 4
        rest = words[starts + lengths - tails] & ((np.uint32(1) << (8 * tails).astype(np.uint32)) - np.uint32(1))
        hashes = np.where(tails > 0, (hashes ^ rest) * MULTIPLIER, hashes)
        hashes = (hashes ^ (hashes >> np.uint32(13))) * MULTIPLIER
        return hashes ^ (hashes >> np.uint32(15))


def partitions_for(keys: pa.Array, partitions: int) -> npt.NDArray[np.int64]:
    """The partition of each key."""
    return ((murmur2(keys) & np.uint32(0x7FFFFFFF)) % np.uint32(partitions)).astype(np.int64)


__all__ = ["binary_parts", "murmur2", "partitions_for"]
