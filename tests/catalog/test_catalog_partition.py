"""The topic index: what binary search finds is what a look at every batch finds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger.catalog.topics.batch_rows import ROW_SIZE
from dledger.catalog.topics.partition import MIN_RUN, Partition
from dledger.catalog.topics.table import MemoryTables
from dledger.errors import OffsetOutOfRange
from dledger.protocol.messages.entry import HEADER_SIZE
from dledger.protocol.messages.fetched import FETCHED_ROW, MOST_ROWS, RUN_ROW
from dledger.protocol.wire import FrameLimits


@dataclass
class Batch:
    base: int
    count: int
    index: int
    size: int
    time: int

    @property
    def end(self) -> int:
        return self.base + self.count


ROW = st.tuples(st.integers(1, 5), st.integers(1, 100), st.integers(-20, 20), st.integers(0, 30))
"""(count, size, time, entries that the batch waited for its commit)"""
BATCHES = st.lists(ROW, min_size=1, max_size=200)


def build(batches: list[tuple[int, int, int, int]]) -> tuple[Partition, list[Batch]]:
    partition = Partition(MemoryTables(), "t", topic_id=1, number=0)
    made: list[Batch] = []
    for at, (count, size, time, waited) in enumerate(batches):
        applied = 2 * at + 1
        index = max(0, applied - waited)
        base = partition.append(index, index * 1000, size, at, count, time, applied)
        made.append(Batch(base, count, index, size, time))
    return partition, made


def begin_after(batches: list[Batch], index: int) -> int:
    """How many batches are out of reach when the entries below ``index`` are gone."""
    return max((at + 1 for at, batch in enumerate(batches) if batch.index < index), default=0)


@given(BATCHES, st.data())
def test_find_gives_the_batches_that_a_look_at_each_gives(
    rows: list[Any], data: st.DataObject
) -> None:
    partition, batches = build(rows)
    partition.drop_before(dropped := data.draw(st.integers(0, 2 * len(rows) + 2)))
    kept = batches[begin_after(batches, dropped) :]
    end = batches[-1].end
    begin = kept[0].base if kept else end
    assert (partition.begin_offset, partition.next_offset) == (begin, end)
    offset = data.draw(st.integers(begin, end + 2))
    until = data.draw(st.integers(-1, end + 2))
    max_bytes = data.draw(st.integers(0, 400))
    expected, total = [], 0
    for batch in kept:
        if batch.end > offset and (until < 0 or (batch.base < until and offset < until)):
            total += batch.size
            if expected and total > max_bytes:
                break
            expected.append((batch.base, batch.count, batch.index, batch.index * 1000, batch.size))
    found = partition.find(offset, until, max_bytes)
    assert [ref[:5] for ref in found] == expected
    if begin:
        with pytest.raises(OffsetOutOfRange) as refused:
            partition.find(begin - 1, until, max_bytes)
        assert (refused.value.begin, refused.value.end) == (begin, end)


NEIGHBOURS = st.lists(
    st.tuples(st.integers(1, 5), st.integers(64, 99), st.sampled_from([0] * 60 + [1])),
    min_size=MIN_RUN,
    max_size=4 * MIN_RUN,
)
"""(count, size, bytes of others in front of the entry)"""


@given(NEIGHBOURS, st.data())
def test_run_has_entries_that_lie_one_behind_the_other(rows: Any, data: st.DataObject) -> None:
    partition, pos, places = Partition(MemoryTables(), "t", topic_id=1, number=0), 0, []
    for index, (count, size, others) in enumerate(rows):
        pos += others
        partition.append(index, pos, size, 7 * index, count, 0, index)
        places.append((pos, partition.next_offset))
        pos += size + HEADER_SIZE
    end = partition.next_offset
    partition.drop_before(dropped := data.draw(st.integers(0, 9)))
    offset = data.draw(st.integers(partition.begin_offset, end + 1))
    until = data.draw(st.integers(offset, end + 1) | st.just(end))
    max_bytes = data.draw(st.integers(0, pos) | st.just(pos))
    due = [at for at in range(dropped, len(rows)) if places[at][1] > offset]
    first = due[0] if due else len(rows)
    stop = first
    while (
        stop < len(rows)
        and (places[stop - 1][1] if stop else 0) < until
        and places[stop][0] + rows[stop][1] + HEADER_SIZE - places[first][0] <= max_bytes
        and (stop == first or not rows[stop][2])
    ):
        stop += 1
    for _ in range(2):  # the second time by the place that was kept for the reader
        found = partition.find_run(offset, until, max_bytes)
        if stop - first < MIN_RUN:
            assert found is None
            continue
        last = places[stop - 1][0] + rows[stop - 1][1] + HEADER_SIZE
        size = last - places[first][0]
        assert found is not None
        assert found[1:] == (first, stop - 1, places[first][0], size, places[stop - 1][1])
        assert [row[1] for row in RUN_ROW.iter_unpack(found.rows)] == list(range(first, stop))


@pytest.mark.parametrize("waited", [0, 1])
def test_answer_has_no_more_batches_than_a_header_has_room_for(waited: int) -> None:
    partition = Partition(MemoryTables(), "t", topic_id=1, number=0)
    for index in range(MOST_ROWS + MIN_RUN):
        partition.append(index, 100 * index, 100 - HEADER_SIZE, 0, 1, 0, index + waited)
    end = MOST_ROWS + MIN_RUN
    found = partition.find(0, end, 1 << 30)
    assert (len(found), found[-1].base_offset) == (MOST_ROWS, MOST_ROWS - 1)
    run = partition.find_run(0, end, 1 << 30)
    assert waited or (run is not None and len(run.rows) == MOST_ROWS * RUN_ROW.size)
    for size in (MOST_ROWS * RUN_ROW.size, MOST_ROWS * FETCHED_ROW.size):
        assert size < FrameLimits().header_bytes * 9 // 10


def test_partition_with_transactions_has_no_runs() -> None:
    """The entries of its rows need not be in their order."""
    for waited in (0, 1):
        partition = Partition(MemoryTables(), "t", topic_id=1, number=0)
        for index in range(MIN_RUN):
            partition.append(index, 100 * index, 100 - HEADER_SIZE, 0, 1, 0, index + waited)
        assert (partition.find_run(0, MIN_RUN, 1 << 20) is None) == bool(waited)


@given(BATCHES, st.integers(0, 300), st.integers(1, 3))
def test_readers_that_go_on_see_every_batch_once(
    rows: list[Any], max_bytes: int, readers: int
) -> None:
    """Several at once, each at its own pace, while batches are added and dropped."""
    partition, batches = build(rows)
    places = [0] * readers
    seen: list[list[int]] = [[] for _ in places]
    while min(places) < batches[-1].end:
        for which in range(readers):
            for ref in partition.find(places[which], -1, max_bytes * (which + 1)):
                seen[which].append(ref.base_offset)
                places[which] = ref.base_offset + ref.count
    assert seen == [[batch.base for batch in batches]] * readers
    last = batches[-1].end
    base = partition.append(10_000, 0, 1, 0, 3, 0, 10_000)
    assert [ref.base_offset for ref in partition.find(last, -1, 1)] == [base] == [last]
    partition.drop_before(10_001)
    with pytest.raises(OffsetOutOfRange):
        partition.find(last, -1, 1)


@given(BATCHES, st.data())
def test_time_finds_the_first_batch_that_new(rows: list[Any], data: st.DataObject) -> None:
    partition, batches = build(rows)
    time = data.draw(st.integers(-21, 21))
    assert partition.offset_for_time(time) == next(
        (batch.base for batch in batches if batch.time >= time), -1
    )
    partition.drop_before(dropped := data.draw(st.integers(0, 2 * len(rows) + 2)))
    kept = batches[begin_after(batches, dropped) :]
    found = partition.offset_for_time(time)
    before = [batch for batch in kept if found < 0 or batch.base < found]
    assert all(batch.time < time for batch in before), "nothing that new may be left out"


@given(BATCHES, st.data())
def test_split_cuts_at_batch_borders_into_pieces_of_the_size_asked_for(
    rows: list[Any], data: st.DataObject
) -> None:
    partition, batches = build(rows)
    whole = batches[-1].end
    start = data.draw(st.integers(0, whole))
    end = data.draw(st.integers(start, whole))
    target = data.draw(st.integers(1, 500))
    cuts = partition.split(start, end, target, 10_000)
    if start == end:
        assert cuts == []
        return
    ends = [cut for cut, _ in cuts]
    assert ends == sorted(set(ends))
    assert ends[-1] == end
    assert set(ends[:-1]) <= {batch.base for batch in batches}
    assert sum(size for _, size in cuts) == sum(
        b.size for b in batches if b.end > start and b.base < end
    )
    assert all(target <= size < target + 100 for _, size in cuts[:-1])
    few = partition.split(start, end, target, 2)
    assert few == cuts[:2]
    restarted = replace(partition, last_base=0, last_before=0)
    restarted.reopen()
    assert restarted.split(start, end, target, 10_000) == cuts


def test_split_of_a_range_that_is_not_all_there_is_refused() -> None:
    """A shorter answer would lose records without a word."""
    partition, _ = build([(5, 10, 0, 0)] * 10)
    partition.drop_before(4)
    for start, end in [(0, 20), (10, 51), (9, 20), (60, 70)]:
        with pytest.raises(OffsetOutOfRange):
            partition.split(start, end, 10, 10)
    assert partition.split(10, 50, 1000, 10) == [(50, 80)]
    assert partition.split(50, 50, 1000, 10) == []


def test_reader_below_what_is_kept_is_told_and_never_moved_on(log: Any) -> None:
    """B34."""
    for _ in range(10):
        log.data(5)
    log.catalog.drop_before(4)
    assert log.catalog.begin_offset(1, 0) == 15
    with pytest.raises(OffsetOutOfRange) as refused:
        log.catalog.find(1, 0, 14, -1, 1000)
    assert (refused.value.begin, refused.value.end) == (15, 50)
    assert log.catalog.find(1, 0, 15, -1, 0)[0].index == 4


def test_committed_batch_that_is_gone_moves_the_begin_behind_it(log: Any) -> None:
    """It lies in an older file than the entry that gave it its offsets."""
    stage = log.staged(5)
    staged = log.catalog.applied_index
    log.data(2)
    log.commit(stage)
    log.data(3)
    assert [ref[0] for ref in log.catalog.find(1, 0, 0, -1, 1000)] == [0, 2, 7]
    log.catalog.drop_before(staged + 1)
    assert log.catalog.begin_offset(1, 0) == 7
    log.catalog.drop_before(staged)
    assert log.catalog.begin_offset(1, 0) == 7, "what is gone does not come back"


def test_empty_partition_has_nothing_to_find(log: Any) -> None:
    log.catalog.drop_before(5)
    assert log.catalog.find(1, 0, 0, -1, 10) == []
    assert log.catalog.find(1, 0, 5, -1, 10) == []
    assert log.catalog.offset_for_time(1, 0, 0) == -1
    assert log.catalog.partition_at(1, 0).split(0, 0, 10, 1) == []


def test_a_million_batches_take_56_bytes_each() -> None:
    """The index of a long log must not cost gigabytes."""
    tables = MemoryTables()
    partition = Partition(tables, "t", topic_id=1, number=0)
    for index in range(1_000_000):
        partition.append(index, index * 200, 100, 0, 10, index, index)
    assert ROW_SIZE == 56
    assert len(partition.table.read(0, partition.rows)) == 56_000_000
    assert partition.find(9_999_995, -1, 1)[0].index == 999_999
    assert partition.split(0, 10_000_000, 1 << 20, 10)[0] == (104_860, 1_048_600)


@given(BATCHES, st.data())
def test_entry_range_has_exactly_the_batches_that_lie_in_it(
    rows: list[Any], data: st.DataObject
) -> None:
    """The time of a batch's commit does not matter."""
    partition, batches = build(rows)
    first = data.draw(st.integers(0, 2 * len(rows)))
    last = data.draw(st.integers(first, 2 * len(rows)))
    assert partition.batches_of(first, last) == [
        (b.base, b.count) for b in batches if first <= b.index <= last
    ]
