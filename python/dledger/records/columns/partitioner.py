"""Which partition a key goes to: Kafka's default partitioner, over whole columns.

The same key lands on the same partition number as with Kafka's Java client: murmur2 of the key's
bytes, its sign bit cleared, modulo the number of partitions. A batch is divided by one take of its
rows, in the order of their partitions. Without the compiled function the loop is over words, not
over rows, for as long as many keys are that long.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate, compress, pairwise
from operator import neg
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from dledger.compiled import compiled, native
from dledger.records.columns.arrays import number, number_column, numbers_of
from dledger.records.columns.words import cut_into_words
from dledger.types import Buffer

SEED: Final = 0x9747B28C
MULTIPLIER: Final = 0x5BD1E995
MASK: Final = 0xFFFFFFFF
FEW: Final = 64
"""So many keys, or fewer, are hashed one by one: a step over all keys costs as much as some hundred
words of one."""
MOST_PARTITIONS: Final = 1 << 20
"""No topic has more."""
MOST_ROWS: Final = (1 << 31) - 1
_BYTES: Final = {pa.binary().id, pa.string().id}


@dataclass(frozen=True, slots=True)
class Division:
    """Which rows of a batch go to which partition; those of one partition keep their order."""

    parts: list[tuple[int, int, int]]
    """(partition, first, last): it has the rows [first, last) of `order`."""
    order: pa.Array | None = None
    """Places of rows, each of them once, as int32; None: as they lie, all for one partition."""

    def of(self, batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
        """The partitions with their rows. Where there are several, these are slices of one copy."""
        if self.order is None:
            for partition, _, _ in self.parts:
                yield partition, batch
            return
        columns = [_taken(column, self.order) for column in batch.columns]
        ordered = pa.RecordBatch.from_arrays(columns, schema=batch.schema)
        for partition, first, last in self.parts:
            yield partition, ordered.slice(first, last - first)


def whole(partition: int, rows: int) -> Division:
    """All rows go to one partition."""
    return Division([(partition, 0, rows)])


def divided_by_key(keys: pa.Array, partitions: int, keyless: int) -> Division:
    """Rows by their binary keys; those without one go to partition ``keyless``."""
    order, counts = _rows_by_key(keys, partitions, keyless)
    found = list(compress(range(partitions), counts))
    if len(found) == 1:
        return whole(found[0], len(keys))
    borders = pairwise(accumulate(compress(counts, counts), initial=0))
    parts = [(at, first, last) for at, (first, last) in zip(found, borders, strict=True)]
    return Division(parts, number_column(pa.int32(), order))


def divided_by_codes(codes: pa.Array) -> Division:
    """Rows by whole numbers that they have already, as partitions."""
    if not len(codes):
        return Division([])
    order = pc.array_sort_indices(codes)
    ordered = codes.take(order)
    changes = pc.indices_nonzero(pc.not_equal(ordered.slice(1), ordered.slice(0, len(codes) - 1)))
    borders = [0, *(before + 1 for before in numbers_of(changes)), len(codes)]
    found = numbers_of(ordered)
    parts = [(found[first], first, last) for first, last in pairwise(borders)]
    return Division(parts, None if len(parts) == 1 else order.cast(pa.int32()))


def partitions_for(keys: pa.Array, partitions: int, keyless: int = 0) -> pa.Array:
    """The partition of each key, as int32."""
    order, counts = _rows_by_key(keys, partitions, keyless)
    ordered = b"".join(at.to_bytes(4, "little") * count for at, count in enumerate(counts) if count)
    return number_column(pa.int32(), ordered).take(
        pc.array_sort_indices(number_column(pa.int32(), order))
    )


def _taken(column: pa.Array, order: pa.Array) -> pa.Array:
    """The rows of a column in another order. Arrow's take waits for the memory of each value, and
    takes twice as long."""
    if native is None or column.null_count or column.type.id not in _BYTES:
        return column.take(order)
    _, offsets, data = column.buffers()
    rows, first = len(column), column.offset
    bounds = memoryview(offsets).cast("i")[: first + rows + 1]
    starts = pa.allocate_buffer(4 * (rows + 1))
    room = pa.allocate_buffer(bounds[first + rows] - bounds[first])
    spread_bytes(bounds, data or b"", first, order.buffers()[1], starts, room)
    return pa.Array.from_buffers(column.type, rows, [None, starts, room])


@compiled
def spread_bytes(
    offsets: Buffer, data: Buffer, first: int, order: Buffer, starts: Buffer, room: Buffer
) -> None:
    """Copy the values of a binary column in another order.

    Args:
        offsets: with ``data`` the buffers of the column in Arrow.
        first: the place of its first row in them.
        order: places of rows, as int32, none of them twice.
        starts: gets the offsets of the copies, as int32: one more than there are places.
        room: gets their bytes, which fill it.

    Raises:
        ValueError: rows or values lie outside of the buffers, a row stands twice, or ``starts`` or
            ``room`` is of another size. What these have then is not said.
    """
    given = offsets, data, order, starts, room
    bounds, values, places, to, into = (memoryview(part).cast("B") for part in given)
    if first < 0 or len(bounds) // 4 <= first or len(places) % 4 or len(to) != len(places) + 4:
        raise ValueError("rows that lead out of their column")
    bounds, places = bounds[: len(bounds) // 4 * 4].cast("i"), places.cast("i")
    rows, sizes = len(bounds) - 1 - first, [0]
    if len(set(places)) < len(places) or not all(0 <= row < rows for row in places):
        raise ValueError("rows that lead out of their column, or stand twice")
    for row in places:
        start, end = bounds[first + row], bounds[first + row + 1]
        if not 0 <= start <= end <= len(values) or end - start > len(into) - sizes[-1]:
            raise ValueError("values that lead out of their bytes, or of the room for them")
        into[sizes[-1] : sizes[-1] + end - start] = values[start:end]
        sizes.append(sizes[-1] + end - start)
    if sizes[-1] != len(into) or len(into) > MOST_ROWS:
        raise ValueError("values that do not fill the room")
    to[:] = array("i", sizes).tobytes()


def _rows_by_key(keys: pa.Array, partitions: int, keyless: int) -> tuple[bytes, list[int]]:
    valid, offsets, data = keys.buffers()
    order, counts = rows_by_key(
        offsets or b"", data or b"", valid or b"", keys.offset, len(keys), partitions, keyless
    )
    return order, memoryview(counts).cast("i").tolist()


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
    places = pa.Array.from_buffers(pa.int32(), rows + 1, [None, pa.py_buffer(offsets)], 0, first)
    starts, ends = places.slice(0, rows), places.slice(1)
    if (
        places[0].as_py() < 0
        or places[rows].as_py() > len(data)
        or pc.any(pc.less(ends, starts)).as_py()
    ):
        raise ValueError("keys that lead out of their bytes")
    bits = pa.py_buffer(valid) if len(valid) else None
    buffers = [bits, places.buffers()[1], pa.py_buffer(data)]
    keys = pa.Array.from_buffers(pa.binary(), rows, buffers, -1, first)
    positive = pc.bit_wise_and(murmur2(keys), _word(0x7FFFFFFF))
    turns = pc.multiply(pc.divide(positive, _word(partitions)), _word(partitions))
    chosen = pc.subtract(positive, turns)
    if keys.null_count:
        chosen = pc.if_else(keys.is_valid(), chosen, _word(keyless))
    counts = memoryview(bytearray(4 * partitions)).cast("i")
    for partition, count in zip(*pc.value_counts(chosen).flatten(), strict=True):
        counts[partition.as_py()] = count.as_py()
    order = pc.array_sort_indices(chosen).cast(pa.int32())
    return numbers_of(order).tobytes(), counts.tobytes()


def murmur2(keys: pa.Array) -> pa.Array:
    """The 32-bit murmur2 of each key's bytes, seeded as Kafka does; that of a null key is not
    said."""
    if len(keys) <= FEW:
        hashed = (murmur2_of(key or b"") for key in keys.to_pylist())
        return number_column(pa.uint32(), array("I", hashed))
    lengths, words, rests = cut_into_words(keys, pa.uint32())
    lengths = lengths.view(pa.uint32())
    hashes = _with_words(pc.bit_wise_xor(lengths, _word(SEED)), lengths, _mixed(words))
    tailed = pc.multiply(pc.bit_wise_xor(hashes, rests), _word(MULTIPLIER))
    has_tail = pc.not_equal(pc.bit_wise_and(lengths, _word(3)), _word(0))
    hashes = pc.multiply(_folded(pc.if_else(has_tail, tailed, hashes), 13), _word(MULTIPLIER))
    return _folded(hashes, 15)


def _mixed(words: pa.Array) -> pa.Array:
    mixed = _folded(pc.multiply(words, _word(MULTIPLIER)), 24)
    return pc.multiply(mixed, _word(MULTIPLIER))


def _with_words(hashes: pa.Array, lengths: pa.Array, mixed: pa.Array) -> pa.Array:
    """The keys' hashes with their whole words: a word of each key at a time, the longest keys
    first, so that those which still have words lie side by side."""
    counts = pc.shift_right(lengths, _word(2))
    order = pc.array_sort_indices(counts, order="descending")
    hashes, places = (
        part.take(order) for part in (hashes, pc.subtract(pc.cumulative_sum(counts), counts))
    )
    sizes, ready, rows = numbers_of(counts.take(order)), [], len(hashes)
    for at in range(sizes[0] + 1):
        rows = bisect_left(sizes, -at, hi=rows, key=neg)  # they have more words than this
        ready.append(hashes.slice(rows))
        hashes, places = hashes.slice(0, rows), places.slice(0, rows)
        if rows <= FEW:
            words, spans = numbers_of(mixed), zip(numbers_of(places), sizes[:rows], strict=True)
            left = (words[place + at : place + size] for place, size in spans)
            ready.append(_with_rest(hashes, left))
            break
        words = mixed.take(pc.add(places, _word(at)))
        hashes = pc.bit_wise_xor(pc.multiply(hashes, _word(MULTIPLIER)), words)
    return pa.concat_arrays(ready[::-1]).take(pc.array_sort_indices(order))


def _with_rest(hashes: pa.Array, words: Iterable[memoryview]) -> pa.Array:
    """The hashes of a few keys with the rest of their words."""
    found = array("I")
    for hashed, rest in zip(hashes.to_pylist(), words, strict=True):
        for word in rest:
            hashed = (hashed * MULTIPLIER ^ word) & MASK
        found.append(hashed)
    return number_column(pa.uint32(), found)


def _folded(words: pa.Array, bits: int) -> pa.Array:
    """Each word, xor itself shifted to the right."""
    return pc.bit_wise_xor(words, pc.shift_right(words, _word(bits)))


def _word(value: int) -> pa.Scalar:
    return number(pa.uint32(), value)


def murmur2_of(data: bytes) -> int:
    """`murmur2` of one key, without an array of it."""
    size, m, mask = len(data), MULTIPLIER, MASK
    h = SEED ^ size
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
