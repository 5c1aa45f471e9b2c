"""Between two leaders: what is asked then waits a moment, and is answered with the name of the next
one."""

from __future__ import annotations

from typing import Any

import pytest

from dledger.node.snapshot import snapshots
from dledger.protocol.messages.client import AppendRequest, MetadataRequest, TransferRequest
from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.peer import LeadershipTransferRequest
from tests.node.bodies import body
from tests.node.elections import SLOW_VOTES
from tests.node.holding import between

FOR_EVER_S = 3600.0


@pytest.fixture(autouse=True)
def wait_s(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """By default nothing is answered only because its wait is over."""
    for module in ("handlers.metadata", "proposals.proposal_queue"):
        seconds = getattr(request, "param", FOR_EVER_S)
        monkeypatch.setattr(f"dledger.node.{module}.BETWEEN_S", seconds)


@pytest.mark.group(**SLOW_VOTES)
async def test_appends_during_a_hand_over_are_taken_or_sent_to_the_new_leader(group: Any) -> None:
    """Never "ask again" and never "nobody leads": a client goes on at once, at the right place."""
    leader, heir = await group.leader(), (await group.follower()).node.node_id
    await group.until(lambda: list(leader.parts.peers.connected().values()) == [True, True])
    client = await group.client(leader)
    topic = await client.create("t")
    before = [client.start(AppendRequest(), body(topic)) for _ in range(20)]
    transfer = client.start(TransferRequest(to=heir))
    after = [client.start(AppendRequest(), body(topic)) for _ in range(300)]
    assert (await transfer)[0].code is Code.SUCCESS
    answers = [(await future)[0] for future in (*before, *after)]
    found = {(answer.code, answer.leader_id) for answer in answers}
    assert found <= {(Code.SUCCESS, ""), (Code.NOT_LEADER, heir)}
    assert (Code.NOT_LEADER, heir) in found
    assert leader.parts.proposals.unanswered.held_bytes == 0


@pytest.mark.group(election_ms=300)
async def test_appends_go_on_when_a_hand_over_comes_to_nothing(group: Any) -> None:
    leader, heir = await group.leader(), (await group.follower()).node.node_id
    client = await group.client(leader)
    topic = await client.create("t")
    between(
        leader,
        lambda message, send: isinstance(message, LeadershipTransferRequest) or send(message),
    )
    transfer = client.start(TransferRequest(to=heir))
    waiting = client.start(AppendRequest(timeout_ms=60_000), body(topic))
    assert (await transfer)[0].code is Code.TAKE_LEADERSHIP_FAILED
    assert (await waiting)[0].code is Code.SUCCESS


@pytest.mark.group(start=False)
async def test_who_asks_a_node_that_knows_no_leader_is_told_when_there_is_one(group: Any) -> None:
    client = await group.client(await group.start("n0"))
    asked = client.start(MetadataRequest())
    append = client.start(AppendRequest(timeout_ms=60_000), body(1))
    await client.offsets("t", stale=True)
    assert not asked.done()
    assert not append.done()
    await group.start("n1", "n2")
    metadata, answer = (await asked)[0], (await append)[0]
    leader = await group.leader()
    assert metadata.leader_id == leader.node.node_id
    assert answer.code is (Code.UNKNOWN_TOPIC if leader.node.node_id == "n0" else Code.NOT_LEADER)
    assert answer.leader_id == leader.node.node_id


async def test_a_node_that_comes_to_lead_tells_all_topics_to_who_has_waited(
    group: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a crash of all nodes no list is empty only because the leader has just come to lead.
    How far the log was committed is a hint on disk, and may be missing there."""
    monkeypatch.setattr(snapshots, "known_committed", lambda store, catalog: catalog.applied_index)
    await group.leader()
    short = (await group.follower()).node.node_id
    await group.stop(short)
    client = await group.client(await group.leader())
    await client.create("t")
    await group.kill()
    first = "n0" if short != "n0" else "n1"
    client = await group.client(await group.start(first))
    asked = client.start(MetadataRequest(all_topics=True))
    await client.offsets("t", stale=True)
    assert not asked.done()
    await group.start(short)  # it lacks the topic's entry: no vote makes it a leader
    told = (await asked)[0]
    assert (told.code, told.leader_id) == (Code.SUCCESS, first)
    assert [info.name for info in told.topics] == ["t"]


@pytest.mark.group(start=False)
@pytest.mark.parametrize("wait_s", [0.001], indirect=True)
async def test_a_node_that_knows_no_leader_says_so_after_a_moment(group: Any) -> None:
    client = await group.client(await group.start("n0"))
    for _ in range(2):
        assert (await client.ask(MetadataRequest())).leader_id == ""
        answer = await client.append(body(1))
        assert (answer.code, answer.leader_id) == (Code.NOT_LEADER, "")


@pytest.mark.group(start=False)
async def test_a_node_that_stops_leaves_nobody_waiting_for_a_leader(group: Any) -> None:
    client = await group.client(await group.start("n0"))
    waiting = client.start(AppendRequest(timeout_ms=60_000), body(1))
    await client.offsets("t", stale=True)
    assert not waiting.done()
    group.nodes["n0"].parts.proposals.fail_all(Code.TERM_CHANGED)
    assert (await waiting)[0].code is Code.TERM_CHANGED
