"""Streams that find another group than their checkpoint's where they look for it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dledger.client.protocol.results import Lineage
from dledger.errors import WrongGroup
from tests.streaming.stream_engine import Query, numbers

BOTH = (
    r"are of group A, and at fake:\d+ is group B:.*new "
    r"checkpointLocation.*onTopicRecreate.*bootstrap\.servers"
)


@pytest.mark.parametrize("topics", [("t",), ("u",)])
@pytest.mark.parametrize("restarts", [True, False])
@pytest.mark.parametrize("lenient", [{}, {"failOnDataLoss": "false"}])
def test_a_checkpoint_of_another_group_stops_the_query_and_names_both(
    log: Any, topics: tuple[str, ...], restarts: bool, lenient: dict[str, str]
) -> None:
    query = Query(log, groupId="g", **lenient)
    query.trigger()
    log.append("t", 0, numbers(3))
    query.trigger()
    if restarts:
        query.crash()
    log.make_anew("B", *topics)
    log.told.clear()
    with pytest.raises(WrongGroup, match=BOTH) as caught:
        query.trigger()
    assert caught.value.definite
    assert log.told == []


def test_new_query_stops_if_its_group_changes_before_the_first_batch(log: Any) -> None:
    query = Query(log)
    query.start().initialOffset()
    log.make_anew("B", "t")
    with pytest.raises(WrongGroup, match=BOTH):
        query.trigger()


@pytest.mark.parametrize("when", ["after the plan is kept", "while reading"])
def test_a_planned_batch_of_another_group_is_refused(log: Any, when: str) -> None:
    query = Query(log, startingOffsets="earliest")
    query.dies(when)
    log.make_anew("B", "t")
    log.append("t", 0, numbers(0, 1, 2))
    with pytest.raises(WrongGroup, match=BOTH):
        query.trigger()
    assert query.values() == []


def test_offsets_that_were_seen_in_another_group_make_no_batch(
    log: Any,
) -> None:
    """The other group comes while a trigger asks for them, and has a topic of the same log id."""
    query = Query(log)
    query.trigger()
    log.append("t", 0, numbers(3))
    log.before("offsets", lambda: setattr(log, "is_group", Lineage("B")))
    with pytest.raises(WrongGroup, match=BOTH):
        query.trigger()


def test_checkpoint_goes_on_with_a_copy_of_its_group_and_not_back(
    log: Any,
) -> None:
    """A checkpoint of the copy is refused by the original group."""
    query = Query(log, startingOffsets="earliest")
    query.trigger()
    query.crash()
    log.is_group = Lineage("B", (("0", 3), ("A", 17)))
    log.append("t", 0, numbers(3))
    assert query.drain() == numbers(0, 1, 2, 3)
    assert [query.offset(batch).group for batch in (0, 1)] == ["A", "B"]
    query.crash()
    log.is_group = Lineage("A")
    with pytest.raises(WrongGroup, match=r"are of group B, and at .* is group A"):
        query.trigger()


@pytest.mark.parametrize("end", [1, -1])
def test_checkpoint_behind_the_backup_is_refused_by_the_copy(log: Any, end: int) -> None:
    """Also when the copy has got other records in their place."""
    query = Query(log, startingOffsets="earliest")
    query.trigger()
    query.crash()
    log.append("t", 0, numbers(3))
    log.is_group, log.shares = Lineage("B", (("A", 17),)), {"t": {0: end}}
    for _ in range(2):
        with pytest.raises(
            WrongGroup, match=r"has read up to offset 3 of t/0 \((both share it|it is too old)"
        ):
            query.trigger()
        query.crash()


def test_checkpoint_without_a_group_is_accepted_and_gets_it_next_batch(log: Any) -> None:
    """One of the commit before, or of a group that got its id later."""
    log.is_group = Lineage()
    query = Query(log, startingOffsets="earliest")
    query.trigger()
    assert "group" not in json.loads(query.offsets[0])
    query.crash()
    log.is_group = Lineage("A")
    assert not query.trigger()
    log.append("t", 0, numbers(3))
    assert query.drain() == numbers(0, 1, 2, 3)
    assert query.offset(1).group == "A"


def test_a_group_that_does_not_say_its_id_leaves_the_checkpoints(log: Any) -> None:
    """A node of an earlier release answers."""
    query = Query(log, startingOffsets="earliest")
    query.trigger()
    query.crash()
    log.is_group = Lineage()
    log.append("t", 0, numbers(3))
    assert query.drain() == numbers(0, 1, 2, 3)
    assert [query.offset(batch).group for batch in (0, 1)] == ["A", "A"]


def test_another_group_is_read_from_its_first_records_when_that_is_wanted(
    log: Any, caplog: pytest.LogCaptureFixture
) -> None:
    query = Query(log, startingOffsets="earliest", onTopicRecreate="restart")
    query.trigger()
    query.crash()
    log.make_anew("B", "t")
    log.append("t", 0, numbers(10, 11))
    query.dies()
    assert query.drain() == numbers(0, 1, 2, 10, 11)
    assert query.offset().group == "B"
    assert "are of group A, and at" in caplog.text
    assert "records behind offset 3 of partition 0 of its former life" in caplog.text


def test_a_task_is_for_the_group_for_which_it_was_planned(log: Any) -> None:
    """Its topic is a number, which another group may have given to another topic."""
    reader = Query(log, startingOffsets="earliest").start()
    start = reader.initialOffset()
    (one,) = reader.partitions(start, reader.latestOffset(start, reader.getDefaultReadLimit()))
    assert one.address.group_id == "A"


def test_progress_says_of_which_group_it_is(log: Any) -> None:
    query = Query(log)
    query.trigger()
    report = query.start().reportLatestOffset()
    assert report is not None
    assert report["group"] == "A"
