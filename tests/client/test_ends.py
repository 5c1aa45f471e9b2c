"""A client that has seen an end offset, or the records below it, never shows a smaller one."""

from __future__ import annotations

from typing import Any

import pytest

from dledger.client import Client
from dledger.client.protocol.seen_end_offsets import LOGS, SeenEndOffsets, behind
from dledger.errors import Behind, Unavailable
from dledger.protocol.messages.client import (
    MetadataRequest,
    OffsetKind,
    OffsetsRequest,
    OffsetsResponse,
)
from dledger.protocol.messages.codes import Code


@pytest.fixture
def client(either: Any) -> Any:
    either.append("t", [b"x"] * 5)
    return either


def answer(end: int, log_id: str = "a") -> OffsetsResponse:
    return OffsetsResponse(code=Code.SUCCESS, offsets={"t": {0: end}}, log_ids={"t": log_id})


@pytest.mark.parametrize("stale", [True, False])
def test_a_node_that_lags_is_asked_again_until_it_has_caught_up(
    group: Any, client: Any, stale: bool
) -> None:
    assert client.end_offsets("t") == {0: 5}
    group.lag = dict.fromkeys(group.nodes, 3)
    group.fault(OffsetsRequest, None, None, lambda: group.lag.clear())
    assert client.end_offsets("t", stale=stale) == {0: 5}
    assert len(group.requests(OffsetsRequest)) == 4


def test_a_deposed_leader_that_lags_is_left_for_the_next_one(group: Any, client: Any) -> None:
    group.leader, group.lag = "n1", {"n0": 3}
    assert client.end_offsets("t") == {0: 5}
    client.core.routes.leader = group.nodes["n0"].address
    assert client.end_offsets("t", stale=True) == {0: 5}


def test_an_end_below_the_one_seen_is_an_error_when_the_time_is_over(
    group: Any, connect_either: Any
) -> None:
    client = connect_either(2, request_timeout_ms=300)
    client.append("t", [b"x"] * 5, partition=1)
    client.end_offsets("t")
    group.lag = dict.fromkeys(group.nodes, 3)
    with pytest.raises(Behind, match="ends 't' partition 1 at 2, and this client has seen 5"):
        client.end_offsets("t", stale=True)
    for kind in (OffsetKind.END, OffsetKind.EDGES):
        with pytest.raises(Behind):
            client.offsets(["t"], kind)


def test_records_that_were_read_bind_the_next_end(group: Any, client: Any) -> None:
    """A reader that follows asks nobody for the end, and a reader of bodies need not."""
    next(iter(client.read("t", 0, 0, follow=True)))
    group.lag = dict.fromkeys(group.nodes, 3)
    group.fault(OffsetsRequest, None, lambda: group.lag.clear())
    assert client.end_offsets("t", stale=True) == {0: 5}

    client.append("t", [b"y"])
    list(client.fetch_bodies(client.topic("t"), 0, 5, 6))
    group.lag = dict.fromkeys(group.nodes, 1)
    group.fault(OffsetsRequest, None, lambda: group.lag.clear())
    assert client.end_offsets("t", stale=True) == {0: 6}


def test_another_client_may_see_an_older_end(group: Any, client: Any, fast: dict[str, Any]) -> None:
    """Only what was seen binds."""
    client.end_offsets("t")
    group.lag = dict.fromkeys(group.nodes, 3)
    with Client(group.bootstrap, **fast) as other:
        assert other.end_offsets("t", stale=True) == {0: 2}


def test_begin_offsets_and_offsets_by_time_are_no_ends(client: Any) -> None:
    client.end_offsets("t")
    assert client.begin_offsets("t") == {0: 0}
    assert client.offsets(["t"], OffsetKind.TIME, timestamp_us=0).offsets == {"t": {0: 0}}
    assert client.end_offsets("t") == {0: 5}


def test_a_topic_that_is_created_again_begins_anew(client: Any) -> None:
    assert client.end_offsets("t") == {0: 5}
    client.delete_topic("t")
    client.create_topic("t")
    assert client.end_offsets("t", stale=True) == {0: 0}


def test_a_stale_answer_comes_from_any_node_when_nobody_leads(
    group: Any, client: Any, fast: dict[str, Any]
) -> None:
    group.leader = ""
    with Client(group.bootstrap, **{**fast, "request_timeout_ms": 200}) as other:
        before = len(group.requests(MetadataRequest))
        assert other.end_offsets("t", stale=True) == {0: 5}
        assert other.begin_offsets("t", stale=True) == {0: 0}
        assert len(group.requests(MetadataRequest)) == before
        with pytest.raises(Unavailable):
            other.end_offsets("t")


def test_only_what_was_seen_before_a_question_binds_its_answer() -> None:
    """Two questions at once: the later may be answered first, and the earlier is none the worse for
    it."""
    ends = SeenEndOffsets()
    ends.told(answer(5))
    seen = ends.of(["t"])
    ends.told(answer(9))
    assert behind(answer(7), seen) == ""
    assert behind(answer(4), seen)
    assert behind(answer(7), ends.of(["t", "u"]))


def test_ends_only_grow_and_each_log_id_has_its_own() -> None:
    ends = SeenEndOffsets()
    ends.told(answer(5))
    ends.told(answer(3))
    ends.reached("t", "b", 0, 1)
    assert ends.of(["t"]) == {"t": {"a": {0: 5}, "b": {0: 1}}}
    assert behind(answer(0, "c"), ends.of(["t"])) == ""


def test_a_topic_that_is_created_again_and_again_takes_no_more_memory() -> None:
    ends = SeenEndOffsets()
    for number in range(100):
        ends.reached("t", f"log {number}", 0, number)
    assert list(ends.of(["t"])["t"]) == [f"log {number}" for number in range(100 - LOGS, 100)]
