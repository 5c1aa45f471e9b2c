"""Cutting a read into tasks, against any layout of stored batches."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger.datasource.read import planning
from dledger.datasource.read.planning import Shape, Slice, Slices, plan, together
from tests.datasource.stored_layout import Layout

MIB = 1 << 20
layouts = st.dictionaries(
    st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 3)),
    st.lists(st.tuples(st.integers(1, 50), st.integers(1, 40 * MIB)), max_size=30),
    max_size=5,
).map(lambda batches: Layout(batches, most=7))


def records(slices: Iterable[Slice]) -> list[tuple[str, int, int]]:
    return [(s.topic, s.partition, offset) for s in slices for offset in range(s.start, s.end)]


def test_a_partition_with_one_new_record_is_read_and_one_without_is_not() -> None:
    starts = {"a": {0: 4, 1: 5, 2: 6}}
    assert list(planning.ranges(starts, {"a": {0: 5, 1: 5, 2: 9}})) == [
        Slice("a", 0, 4, 5),
        Slice("a", 2, 6, 9),
    ]


@given(
    layouts,
    st.integers(0, 40),
    st.integers(0, 3),
    st.one_of(st.none(), st.integers(1, 60)),
    st.one_of(st.none(), st.integers(1, 80 * MIB)),
)
def test_a_plan_reads_every_record_once_and_in_order(
    layout: Layout, min_partitions: int, skip: int, most_rows: int | None, most_bytes: int | None
) -> None:
    ends = layout.ends
    starts = {t: {p: min(skip, end) for p, end in parts.items()} for t, parts in ends.items()}
    slices = plan(starts, ends, layout, Shape(min_partitions, most_rows, most_bytes))
    wanted = [
        (t, p, o)
        for t in sorted(ends)
        for p in sorted(ends[t])
        for o in range(starts[t][p], ends[t][p])
    ]
    assert records(slices) == wanted
    assert all(s.rows > 0 for s in slices)
    assert len(slices) >= min(min_partitions, len(wanted))
    assert all(s.rows <= (most_rows or s.rows) for s in slices)
    for one in slices:
        stored = layout.stored(one.topic, one.partition, one.start, one.end)
        assert most_bytes is None or len(stored) == 1 or sum(stored) <= most_bytes


@given(
    st.lists(st.tuples(st.integers(1, 50), st.integers(0, MIB // 2)), min_size=60, max_size=300),
    st.integers(0, 100),
    st.one_of(st.none(), st.integers(1, 60)),
    st.one_of(st.none(), st.integers(1, MIB)),
)
def test_joined_slices_stay_in_order_and_within_task_limits(
    sizes: list[tuple[int, int]], least: int, most_rows: int | None, most_bytes: int | None
) -> None:
    slices = [Slice("a", number, 0, rows, size) for number, (rows, size) in enumerate(sizes)]
    tasks = together(Slices.of(slices), Shape(least, most_rows, most_bytes))
    assert [one for task in tasks for one in task] == slices
    assert len(tasks) >= min(len(slices), max(least, planning.MANY_TASKS))
    for task in tasks:
        assert len(task) == 1 or sum(one.bytes for one in task) <= min(
            planning.LITTLE_BYTES, most_bytes or MIB
        )
        assert len(task) == 1 or sum(one.rows for one in task) <= (most_rows or 1 << 30)


def test_small_partitions_share_few_tasks_and_large_ones_do_not() -> None:
    """A thousand partitions are few tasks with little to read, and a thousand with much."""
    little, much = (
        Slices.of(Slice("a", number, 0, 1, size) for number in range(1000)) for size in (100, MIB)
    )
    assert len(together(little)) == planning.MANY_TASKS
    assert len(together(much)) == 1000
    assert len(together(little.part(0, planning.MANY_TASKS))) == planning.MANY_TASKS, "as ever"
    assert len(together(little, Shape(least=500))) == 500


def test_a_small_read_has_one_task_for_each_partition() -> None:
    layout = Layout({("a", 0): [(10, 100)] * 3, ("a", 1): [(10, 100)], ("a", 2): []})
    slices = plan({"a": {0: 0, 1: 0, 2: 0}}, layout.ends, layout)
    assert [(s.partition, s.start, s.end) for s in slices] == [(0, 0, 30), (1, 0, 10)]


def test_a_large_partition_is_cut_between_stored_batches_for_its_cores() -> None:
    layout = Layout({("a", 0): [(1000, 4 * MIB)] * 64})
    slices = plan({"a": {0: 0}}, layout.ends, layout, Shape(cores=2))
    assert [s.bytes // MIB for s in slices] == [32] * 8
    assert all(s.start % 1000 == 0 for s in slices)
    for cores, sizes in ((64, [16] * 16), (1, [64] * 4)):
        slices = plan({"a": {0: 0}}, layout.ends, layout, Shape(cores=cores))
        assert [s.bytes // MIB for s in slices] == sizes


def test_few_tasks_are_as_many_for_each_core() -> None:
    layout = Layout({("a", 0): [(20_000, 2 * MIB)] * 46})
    wanted = {2: [12, 12, 12, 10], 3: [16, 16, 14], 4: [12, 12, 12, 10], 5: [10, 10, 10, 10, 6]}
    for cores, pieces in wanted.items():
        slices = plan({"a": {0: 0}}, layout.ends, layout, Shape(cores=cores))
        assert [s.bytes // (2 * MIB) for s in slices] == pieces, f"{cores} cores"


def test_a_partition_that_is_more_than_a_task_is_cut_evenly() -> None:
    layout = Layout({("a", p): [(10, MIB)] * 26 for p in range(4)})
    slices = plan({"a": dict.fromkeys(range(4), 0)}, layout.ends, layout, Shape(cores=2))
    assert [s.bytes // MIB for s in slices] == [13] * 8


def test_a_huge_read_has_larger_tasks_in_place_of_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    layout = Layout({("a", p): [(1, 40 * MIB)] * 30 for p in range(4)})
    monkeypatch.setattr(planning, "MOST_TASKS", 16)
    slices = plan({"a": dict.fromkeys(range(4), 0)}, layout.ends, layout)
    assert 4 <= len(slices) <= 16 + 4
    assert len(records(slices)) == 120
