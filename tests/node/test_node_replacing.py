"""Members take the places of others, and move to other addresses, while a group works."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dledger.catalog.versions import SINCE
from dledger.embedded.ports import free_ports
from dledger.node.node import NodeServer
from dledger.node.peers.handshake import Gate
from dledger.protocol.messages.catalog_commands import ChangeMembers
from dledger.protocol.messages.client import MetadataRequest
from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.member_requests import MemberAction
from dledger.storage.api import DiskLevel
from tests.node.conftest import played
from tests.node.growing import (
    ADD,
    HOST,
    PROMOTE,
    READDRESS,
    REMOVE,
    Newcomer,
    ask,
    done,
    moved,
    once,
)


@pytest.fixture(autouse=True)
def any_group_takes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever its version."""
    monkeypatch.setitem(SINCE, ChangeMembers, 0)


def where(server: NodeServer) -> dict[str, Any]:
    return {"host": HOST, "port": server.port}


async def refused(group: Any, action: MemberAction, node: str, **fields: Any) -> str:
    """The reason of a refusal that changed nothing."""
    leader = await group.leader()
    before = leader.raft.members
    answer = await ask(group, action, node, **fields)
    assert answer.code is Code.UNEXPECTED_ARGUMENT
    assert leader.raft.members == before
    return str(answer.message)


async def by_metadata(group: Any, server: NodeServer) -> dict[str, str]:
    """The addresses that a client learns from this node."""
    answer = await (await group.client(server)).ask(MetadataRequest())
    return dict(answer.peers)


@pytest.mark.parametrize("leads", [False, True])
async def test_a_member_that_has_moved_is_reached_and_told_to_clients(
    group: Any, leads: bool
) -> None:
    await (await group.client()).create("t")
    server = await group.leader() if leads else await group.follower()
    name, incarnation = server.node.node_id, server.raft.membership.incarnation
    await group.stop(name)
    server = await moved(group, name)
    leader = await group.leader()
    await (await group.client(leader)).create("u")
    assert server.raft.committed_index < leader.raft.committed_index
    assert not leader.parts.peers.connected()[name]
    await done(group, READDRESS, name, **where(server))
    await group.until(lambda: leader.parts.peers.connected()[name])
    await group.agree()
    assert server.raft.membership.of(name) == incarnation
    assert len(server.raft.voters) == 3
    for node in group.nodes.values():
        assert (await by_metadata(group, node))[name] == f"{HOST}:{server.port}"


async def test_a_move_survives_a_restart_of_all(group: Any) -> None:
    name = (await group.follower()).node.node_id
    await group.stop(name)
    server = await moved(group, name)
    await done(group, READDRESS, name, **where(server))
    await group.agree()
    others = [node for node in group.nodes if node != name]
    await group.restart(*others, kill=True)
    leader = await group.leader()
    await group.until(lambda: leader is server or leader.parts.peers.connected()[name])
    assert (await by_metadata(group, group.nodes[others[0]]))[name] == f"{HOST}:{server.port}"


async def test_a_member_is_reached_at_another_address_without_a_restart(group: Any) -> None:
    """It has two, as behind a name that is new."""
    leader = await group.leader()
    name = leader.node.node_id
    await done(group, READDRESS, name, host="localhost", port=leader.port)
    await group.agree()
    for node in group.nodes.values():
        assert (await by_metadata(group, node))[name] == f"localhost:{leader.port}"
    index = leader.raft.membership.index
    await done(group, READDRESS, name, host="localhost", port=leader.port)
    assert leader.raft.membership.index == index


async def test_an_address_where_another_member_answers_is_refused(group: Any) -> None:
    """Also by a name that no member has."""
    follower, leader = await group.follower(), await group.leader()
    fields = {"host": "localhost", "port": leader.port}
    said = await refused(group, READDRESS, follower.node.node_id, **fields)
    assert f"{leader.node.node_id} answers where {follower.node.node_id} should" in said


async def test_an_address_where_another_group_answers_is_refused(
    group: Any, tmp_path: Path
) -> None:
    """One of the same name, with members of the same names."""
    follower = await group.follower()
    async with played(tmp_path / "other") as other:
        await other.leader()
        stranger = other.nodes[follower.node.node_id]
        said = await refused(group, READDRESS, follower.node.node_id, **where(stranger))
        assert "they were founded apart" in said
        async with played(tmp_path / "joined") as joined:
            foreign = Newcomer(joined, "n3")
            await done(joined, ADD, "n3", **foreign.place)
            await foreign.start()
            await joined.agree()
            said = await refused(other, ADD, "n3", **foreign.place, replaces="n0")
            assert "they were founded apart" in said


async def test_an_address_where_nobody_answers_can_be_taken_later(group: Any) -> None:
    (port,) = free_ports(HOST, 1)
    name = (await group.follower()).node.node_id
    answer = await once(group, READDRESS, name, host=HOST, port=port)
    assert answer.code is Code.LEADER_NOT_READY
    assert f"{name} does not answer there: start it with dledger serve (" in answer.message
    assert (await group.leader()).raft.members == ()


async def test_a_member_that_moves_without_its_disk_is_refused(group: Any) -> None:
    name = (await group.follower()).node.node_id
    await group.stop(name)
    server = await moved(group, name, folder="empty")
    said = await refused(group, READDRESS, name, **where(server))
    assert "with another directory than the group counts" in said


async def test_a_member_that_replaces_another_one_has_to_run(group: Any) -> None:
    newcomer = Newcomer(group, "n3")
    answer = await once(group, ADD, "n3", **newcomer.place, replaces="n0")
    assert answer.code is Code.LEADER_NOT_READY
    assert "n3 does not answer there: start it with dledger serve --join" in answer.message
    assert (await group.leader()).raft.members == ()
    await newcomer.start()
    await done(group, ADD, "n3", **newcomer.place, replaces="n0")


async def test_one_replacement_at_a_time(group: Any) -> None:
    """Of two operators the second one hears of the first."""
    third, fourth = Newcomer(group, "n3"), Newcomer(group, "n4")
    await third.start()
    await fourth.start()
    await done(group, ADD, "n3", **third.place, replaces="n0")
    said = await refused(group, ADD, "n4", **fourth.place, replaces="n0")
    assert f"'dledger members replace n0 n3={HOST}:{third.port}'" in said
    await done(group, PROMOTE, "n3")
    await done(group, REMOVE, "n0")
    await group.until(lambda: "n3" in group.nodes["n1"].raft.voters)
    await done(group, ADD, "n4", **fourth.place, replaces="n1")


async def test_a_full_node_is_not_added(group: Any) -> None:
    newcomer = Newcomer(group, "n3")
    server = await newcomer.start()
    for action in ({"replaces": "n0"}, {}):
        server.store.disk_level = lambda: DiskLevel.FULL  # type: ignore[method-assign]
        await group.until(lambda: server.parts.disk_watch.level is DiskLevel.FULL)
        said = await refused(group, ADD, "n3", **newcomer.place, **action)
        assert "the disk of n3 is full" in said


async def test_a_node_of_an_older_release_is_not_added(
    group: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    newcomer = Newcomer(group, "n3")
    server = await newcomer.start()
    gate: Gate = server.parts.gate
    gate.versions, gate._introduction = (0, 0), None
    leader = await group.leader()
    monkeypatch.setattr(leader.parts.gate, "group_version", lambda: 1)
    assert "n3" in await refused(group, ADD, "n3", **newcomer.place)
