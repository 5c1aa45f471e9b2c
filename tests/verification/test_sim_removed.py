"""A removed node that was away, in virtual time: whole nodes, their handshakes among it."""

from __future__ import annotations

import pytest

from dledger.catalog.versions import SINCE
from dledger.net.address import split_address
from dledger.protocol.messages.catalog_commands import ChangeMembers
from dledger.protocol.messages.membership import Member, MemberRole
from dledger.types import Role
from tests.verification.watching import server_of, with_topic
from verification.invariants.view import Memory
from verification.sim.cluster import Node
from verification.sim.scene import Scene

AWAY_MS = 30_000
"""Longer than anybody still waits for a removed node."""


def remove(scene: Scene, gone: Node) -> None:
    """The leader takes this node out of the list, and the others know that it is committed."""
    leader = scene.leader()
    assert leader is not gone
    assert leader.loop is not None
    server = server_of(leader)
    known, addresses = server.raft.membership, server.parts.context.members.addresses()
    listed = tuple(
        Member(node, *split_address(addresses[node]), MemberRole.VOTER, known.of(node) or 0)
        for node in addresses
        if node != gone.name
    )
    loop = server.parts.ready_loop
    now_ms = loop.environment.now_ms
    leader.loop.call_soon(lambda: loop.feed(server.raft.propose_members, listed, now_ms()))
    others = scene.group.others(gone)
    scene.until(
        lambda: all(server_of(one).raft.membership.listed == listed for one in others), 9000
    )


@pytest.mark.parametrize("disk_is_there", [True, False])
def test_a_node_removed_while_it_was_away_ends_and_disturbs_nobody(
    disk_is_there: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SINCE, ChangeMembers, 0)
    with Scene(4, group={"election_ms": 1000}) as scene:
        with_topic(scene)
        leader = scene.leader()
        gone = scene.group.others(leader)[0]
        scene.group.restart_ms = AWAY_MS, AWAY_MS + 1
        gone.stop()
        scene.until(lambda: not gone.is_up, 9000)
        if not disk_is_there:
            gone.disk.exchange()
            assert scene.world.watch is not None
            scene.world.watch.exchanged(gone.name, Memory())
        remove(scene, gone)
        leader = scene.leader()
        term = server_of(leader).raft.term
        scene.until(lambda: gone.server is not None, 2 * AWAY_MS)
        back = server_of(gone)
        scene.until(back.removed.is_set, 2000, "the end of the removed node")
        scene.wait(AWAY_MS)
        assert back.raft.role is Role.CANDIDATE
        assert (server_of(leader).raft.role, server_of(leader).raft.term) == (Role.LEADER, term)
