"""Retention of one topic's records: those that are too old, or too many, are shown no more.

Topics share the files of the log, which go by the retention of the group. So what a topic gives up
earlier is out of its partitions, on each node by itself, and out of the files when those go.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from typing import Final

from dledger.catalog.topics.partition import APPLIED, BASE, BYTES, NEWEST, Partition

_number_at: Final = struct.Struct("<q").unpack_from


def expire(
    partition: Partition, *, before_us: int | None, max_bytes: int, up_to: int, held: int | None
) -> int:
    """Begin behind the batches that are expired; the number of those that go now.

    Args:
        before_us: batches go without a record at or after this time; None: none for their age.
        max_bytes: the oldest go where there are more; 0: none for their size.
        up_to: entries that a checkpoint of the catalog has; what later ones brought stays.
        held: batches with records from this offset on stay; None: none for that.
    """
    begin = partition.begin_row
    gone = begin
    if before_us is not None:
        gone = _first_above(partition, NEWEST, before_us - 1)
    if max_bytes:
        gone = max(gone, _first_above(partition, BYTES, partition.bytes - max_bytes - 1))
    if gone == begin:
        return 0
    gone = min(gone, _first_above(partition, APPLIED, up_to))
    if held is not None and held < partition.next_offset:
        gone = min(gone, _first_above(partition, BASE, held) - 1)
    if gone <= begin:
        return 0
    partition.begin_row = gone
    is_empty = gone == partition.rows
    partition.begin_offset = partition.next_offset if is_empty else _number(partition, gone, BASE)
    partition.table.drop_front(gone)
    return gone - begin


def _number(partition: Partition, row: int, column: int) -> int:
    value: int = _number_at(partition.table.read(row, row + 1), column)[0]
    return value


def _first_above(partition: Partition, column: int, value: int) -> int:
    """The first kept row whose ``column`` is above ``value``, or the number of rows."""
    kept = range(partition.begin_row, partition.rows)
    return kept.start + bisect_right(kept, value, key=lambda row: _number(partition, row, column))
