"""What a node makes of connections with its peers that end and open."""

from __future__ import annotations

from typing import Any

import pytest

from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.hello import HelloRequest
from tests.node.conftest import BareClient

FOR_EVER_MS = 3_600_000


@pytest.mark.group(election_ms=FOR_EVER_MS)
async def test_a_killed_leader_is_replaced_without_waiting_for_an_election_time(group: Any) -> None:
    """Its followers see its connections end; with such an election time nothing else could tell
    them."""
    old = await group.leader()
    await group.client(old)
    term = old.raft.term
    await group.kill(old.node.node_id)
    new = await group.leader(but=old.node.node_id)
    assert new.raft.term > term
    client = await group.client(new)
    assert await client.create("t") >= 0


@pytest.mark.group(
    heartbeat_ms=FOR_EVER_MS // 3, election_ms=FOR_EVER_MS, push_timeout_ms=FOR_EVER_MS
)
async def test_returning_node_hears_its_leader_without_awaiting_heartbeat(
    group: Any,
) -> None:
    follower = await group.follower()
    name = follower.node.node_id
    leader = await group.leader()
    await group.kill(name)
    client = await group.client(leader)
    await client.create("t")
    await group.start(name)
    await group.until(lambda: group.nodes[name].raft.leader_id == leader.node.node_id)
    await group.until(
        lambda: group.nodes[name].catalog.applied_index == leader.catalog.applied_index
    )


@pytest.mark.group(election_ms=FOR_EVER_MS)
async def test_an_old_connection_of_a_leader_that_has_a_new_one_may_end(group: Any) -> None:
    """A link is opened anew before the other side hears that the old one is dead."""
    leader, follower = await group.leader(), await group.follower()
    await group.until(lambda: follower.raft.leader_id == leader.node.node_id)
    second = await BareClient.dial(follower.port)
    answer = await second.ask(HelloRequest(group="test", node_id=leader.node.node_id))
    assert answer.code is Code.SUCCESS
    connections = follower.parts.router.connections
    second.close()
    await group.until(lambda: follower.parts.router.connections < connections)
    assert follower.raft.leader_id == leader.node.node_id
