"""The catalog as rows, page by page."""

from __future__ import annotations

from typing import Any

import pytest

from dledger.catalog import listing
from dledger.catalog.listing import first_offsets, list_commits, list_partitions


def test_partitions_come_page_by_page_with_what_they_hold(log: Any) -> None:
    other = log.topic("other")
    log.data(10, time=5, size=100)
    log.data(10, time=9, size=50, partition=1)
    rows: list[Any] = []
    start = 0
    while start >= 0:
        page, start = list_partitions(log.catalog, start, 1)
        assert len(page) == 1
        rows += page
    named = [
        (r["topic"], r["partition"], r["begin_offset"], r["end_offset"], r["bytes"], r["newest_us"])
        for r in rows
    ]
    assert named == [("t", 0, 0, 10, 100, 5), ("t", 1, 0, 10, 50, 9), ("other", 0, 0, 0, 0, 0)]
    assert rows[2]["topic_id"] == other


def committed(log: Any, partition: int = 0) -> int:
    """A transaction of six records; the entry that committed it."""
    stage = log.stage(sequence=len(log.entries))
    log.data(4, stage=stage)
    log.data(2, stage=stage, sequence=1, partition=partition)
    log.commit((stage, 2, 6), sequence=log.entries[stage][0].sequence)
    return len(log.entries) - 1


def test_commits_are_listed_with_their_offsets_and_plain_appends_are_not(log: Any) -> None:
    log.data(3)
    first, second = committed(log), committed(log, partition=1)
    found, following = list_commits(log.catalog, 0, 10)
    assert following == -1
    assert found == {first: {"t": {0: [3, 9]}}, second: {"t": {0: [9, 13], 1: [0, 2]}}}


@pytest.mark.parametrize("entries", [1, 3, 7, 1000])
def test_commits_are_all_listed_whatever_the_size_of_a_page(
    log: Any, monkeypatch: pytest.MonkeyPatch, entries: int
) -> None:
    wanted = []
    for _ in range(6):
        log.data(1)
        wanted.append(committed(log, partition=1))
    monkeypatch.setattr(listing, "COMMIT_ENTRIES", entries)
    for limit in (1, 2, 100):
        found: dict[int, Any] = {}
        start = 0
        while start >= 0:
            page, following = list_commits(log.catalog, start, limit)
            assert not found.keys() & page.keys()
            assert following == -1 or following > start
            found |= page
            start = following
        assert list(found) == wanted
        assert (
            sum(e - s for o in found.values() for spans in o.values() for s, e in spans.values())
            == 36
        )


def test_commits_of_many_ranges_are_cut_but_for_a_single_one(
    log: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = [committed(log, partition=1) for _ in range(3)]
    monkeypatch.setattr(listing, "COMMIT_SPANS", 1)
    assert list(list_commits(log.catalog, 0, 10)[0]) == wanted[:1]
    assert list_commits(log.catalog, 0, 10)[1] == wanted[1]


def test_each_batch_has_its_first_offset_also_when_it_was_placed_later(log: Any) -> None:
    log.data(3)
    at = committed(log)
    staged = [at - 2, at - 1]
    assert first_offsets(log.catalog, 0, at) == {1: 0, staged[0]: 3, staged[1]: 7}
    assert first_offsets(log.catalog, staged[1], at) == {staged[1]: 7}
    assert first_offsets(log.catalog, *staged) == {staged[0]: 3, staged[1]: 7}, (
        "a page may end before the commit"
    )


def test_listing_opens_no_table_of_a_partition_that_never_had_a_record(log: Any) -> None:
    """In a file store that would be a new file for each of them."""
    log.data(3)
    log.topic("idle", 50)
    list_partitions(log.catalog, 0, 100)
    list_commits(log.catalog, 0, 100)
    first_offsets(log.catalog, 0, 100)
    log.catalog.records_of(0, 100)
    assert log.tables.names() == ["topic-1-0"]
