"""The end of a partition as it was by an entry: how far a copy of a group shares its records."""

from __future__ import annotations

from dledger.catalog.topics.partition import Partition
from dledger.catalog.topics.table import MemoryTables


def partition() -> Partition:
    """Batches of two records in entries 10, 20, 30; the second one was committed by entry 35, and
    the third one by entry 40."""
    made = Partition(MemoryTables(), "t", 1, 0)
    for index, applied_at in ((10, 10), (20, 35), (30, 40)):
        made.append(
            index, index * 100, size=50, crc=1, count=2, last_us=index, applied_at=applied_at
        )
    return made


def test_end_by_an_entry_is_that_of_the_batches_that_had_offsets_by_then() -> None:
    made = partition()
    ends = {index: made.end_as_of(index) for index in (9, 10, 34, 35, 39, 40, 99)}
    assert ends == {9: 0, 10: 2, 34: 2, 35: 4, 39: 4, 40: 6, 99: 6}
    assert Partition(MemoryTables(), "t", 1, 0).end_as_of(5) == 0


def test_end_is_unknown_where_retention_has_deleted_the_batches_around_it() -> None:
    made = partition()
    made.drop_before(21)
    assert [made.end_as_of(index) for index in (34, 35, 39, 40)] == [-1, -1, -1, 6]
    made.drop_before(99)
    assert [made.end_as_of(index) for index in (35, 40, 99)] == [-1, -1, -1]
