"""A node follows the list of members while it runs: links, connections, and clients' knowledge."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, suppress
from typing import Any

import pytest

from dledger.client.aio.client import AsyncClient
from dledger.config import GroupConfig
from dledger.embedded.ports import free_ports
from dledger.errors import Unavailable
from dledger.net.address import split_address
from dledger.node.node import NodeServer
from dledger.node.peers.members import GroupMembers, RulingAddresses
from dledger.protocol.messages.client import MetadataRequest, TransferRequest
from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.hello import HelloRequest
from dledger.protocol.messages.membership import Member, MemberRole
from dledger.types import NodeId
from tests.node.conftest import BareClient

HOST = "127.0.0.1"
IDS = tuple(map(NodeId, ("n0", "n1", "n2")))


def member(node: str, address: str, role: MemberRole = MemberRole.VOTER) -> Member:
    host, port = split_address(address)
    return Member(NodeId(node), host, port, role, 1)


def listed(group: Any, **moved: str) -> tuple[Member, ...]:
    """The group's members, some of them at another address or, with an empty one, left out."""
    found = {**group.addresses, **moved}
    return tuple(member(node, address) for node, address in found.items() if address)


def tell(nodes: Any, members: tuple[Member, ...]) -> None:
    """What the core says when an entry with these members is in the log of each node."""
    for node in nodes:
        node.parts.events.members(members)


def refusal_of(node: NodeServer, other: str) -> str | None:
    return node.parts.gate.refused.get(other)


class Door:
    """A second address of a node: bytes go to and fro."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._tasks: set[asyncio.Task[None]] = set()
        self.visits = 0
        self.address = ""

    async def _visit(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.visits += 1
        there, back = await asyncio.open_connection(HOST, self._port)
        for source, target in ((reader, back), (there, writer)):
            task = asyncio.create_task(self._carry(source, target))
            self._tasks.add(task)

    async def _carry(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with closing(target), suppress(OSError):
            while data := await source.read(1 << 16):
                target.write(data)

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Door]:
        server = await asyncio.start_server(self._visit, HOST, 0)
        self.address = f"{HOST}:{server.sockets[0].getsockname()[1]}"
        try:
            yield self
        finally:
            server.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)


# --- the list -------------------------------------------------------------------------------------


def test_list_of_the_log_comes_before_that_of_the_settings() -> None:
    given = {node: f"a:{number + 1}" for number, node in enumerate(IDS)}
    members = GroupMembers(GroupConfig(group="g", members=IDS), lambda: given)
    assert (members.ids, members.addresses(), members.is_listed) == (IDS, given, False)
    assert set(members.roles().values()) == {MemberRole.VOTER}
    members.follow((member("n1", "[::1]:7"), member("n3", "c:9", MemberRole.LEARNER)))
    assert members.ids == ("n1", "n3")
    assert members.addresses() == {"n1": "[::1]:7", "n3": "c:9"}
    assert members.roles() == {"n1": MemberRole.VOTER, "n3": MemberRole.LEARNER}
    assert members.addresses_of(NodeId("n1")) == ("[::1]:7", "a:2")
    assert members.addresses_of(NodeId("n0")) == ("a:1",)
    assert members.addresses_of(NodeId("n9")) == ()
    assert set(members.reached) == {"n0", "n1", "n2", "n3"}
    members.left(NodeId("n2"))
    assert set(members.reached) == {"n0", "n1", "n3"}
    members.follow(())
    assert (members.ids, members.addresses(), members.is_listed) == (IDS, given, False)


async def test_a_member_is_asked_at_each_of_its_addresses(
    group: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log has the one where it was before it moved, or where another one is by now."""
    leader = await group.leader()
    other = next(node for node in group.addresses if node != leader.node.node_id)
    (nowhere,) = free_ports(HOST, 1)
    places = f"{HOST}:{nowhere}", group.addresses[leader.node.node_id], group.addresses[other]
    members = leader.parts.context.members
    monkeypatch.setattr(members, "addresses_of", lambda node: places)
    assert (await leader.parts.peers.status_of(other))["node_id"] == other
    monkeypatch.setattr(members, "addresses_of", lambda node: places[:1])
    with pytest.raises(Unavailable, match=places[0]):
        await leader.parts.peers.status_of(other)


def test_addresses_of_a_path_come_before_those_of_the_log() -> None:
    """At the address in the log the original of a copied directory may listen."""

    class OfPath(RulingAddresses):
        def __call__(self) -> dict[NodeId, str]:
            return {NodeId("n0"): "a:1"}

    members = GroupMembers(GroupConfig(group="g", members=IDS), OfPath())
    members.follow((member("n0", "old:7"), member("n3", "c:9")))
    assert members.addresses() == {"n0": "a:1", "n3": "c:9"}
    assert members.addresses_of(NodeId("n0")) == ("a:1",)


# --- links ----------------------------------------------------------------------------------------


async def test_member_that_moved_is_reached_at_its_new_address(group: Any) -> None:
    """It alone makes the majority of the leader."""
    leader, follower = await group.leader(), await group.follower()
    name = follower.node.node_id
    (port,) = free_ports(HOST, 1)
    await group.restart(name, port=port)
    await group.until(lambda: not leader.parts.peers.connected()[name])
    tell(group.nodes.values(), listed(group, **{name: f"{HOST}:{port}"}))
    await group.until(lambda: leader.parts.peers.connected()[name])
    (third,) = set(group.nodes) - {name, leader.node.node_id}
    await group.kill(third)
    client = await group.client(leader)
    assert await client.create("t") >= 0


async def test_open_link_is_led_to_the_new_address(group: Any) -> None:
    leader, follower = await group.leader(), await group.follower()
    name = follower.node.node_id
    async with Door(follower.port).opened() as door:
        await group.until(lambda: leader.parts.peers.connected()[name])
        tell([leader], listed(group, **{name: door.address}))
        await group.until(lambda: door.visits and leader.parts.peers.connected()[name])
        tell([leader], listed(group, **{name: door.address}))  # no news
        client = await group.client(leader)
        await client.create("t")
        assert door.visits == 1


async def test_members_that_all_moved_at_once_meet_by_their_settings(group: Any) -> None:
    """While the group was down: no entry could say so."""
    leader, follower = await group.leader(), await group.follower()
    name = follower.node.node_id
    (nobody,) = free_ports(HOST, 1)
    tell([leader], listed(group, **{name: f"{HOST}:{nobody}"}))
    await group.until(lambda: not leader.parts.peers.connected()[name])
    await group.until(lambda: leader.parts.peers.connected()[name])


SOON = pytest.mark.group(heartbeat_ms=100, election_ms=600)
"""Removed members are let go after 3 s."""


@SOON
async def test_member_that_was_removed_is_disconnected(group: Any) -> None:
    leader, follower = await group.leader(), await group.follower()
    name = follower.node.node_id
    others = [node for node in group.nodes.values() if node is not follower]
    await group.until(lambda: all(follower.parts.peers.connected().values()))
    tell(others, listed(group, **{name: ""}))
    assert name not in leader.parts.peers.connected()
    assert leader.parts.peers.links[name].connected, "it could not be told"
    assert follower.parts.peers.connected()[leader.node.node_id], "it could not answer"
    await group.until(lambda: not any(follower.parts.peers.connected().values()))
    await group.until(lambda: all("is not a member" in (refusal_of(n, name) or "") for n in others))
    client = await group.client(leader)
    assert (await client.ask(TransferRequest(to=name))).code is Code.UNKNOWN_MEMBER
    assert await client.create("t") >= 0


@SOON
async def test_list_that_a_truncation_undoes_brings_a_member_back(group: Any) -> None:
    leader, follower = await group.leader(), await group.follower()
    name = follower.node.node_id
    tell([leader], listed(group, **{name: ""}))
    await group.until(lambda: not follower.parts.peers.connected()[leader.node.node_id])
    tell([leader], ())
    await group.until(lambda: leader.parts.peers.connected()[name])
    await group.until(lambda: follower.parts.peers.connected()[leader.node.node_id])
    await (await group.client(leader)).create("t")
    await group.agree()


async def test_member_that_is_added_gets_a_link_and_may_come(group: Any) -> None:
    leader = await group.leader()
    (port,) = free_ports(HOST, 1)
    hello = HelloRequest(group="test", node_id="n3", members=(*IDS, NodeId("n3")))
    before = await BareClient.dial(leader.port)
    assert (await before.ask(hello)).code is Code.UNKNOWN_MEMBER
    tell([leader], listed(group, n3=f"{HOST}:{port}"))
    assert leader.parts.peers.connected()["n3"] is False
    after = await BareClient.dial(leader.port)
    assert (await after.ask(hello)).code is Code.SUCCESS
    heard = asyncio.Event()

    async def visited(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.set()
        writer.close()

    server = await asyncio.start_server(visited, HOST, port)
    await heard.wait()
    tell([leader], ())
    server.close()


async def test_members_that_know_different_lists_meanwhile_accept_each_other(group: Any) -> None:
    leader, follower = await group.leader(), await group.follower()
    tell([leader], listed(group, n3=f"{HOST}:1"))
    for one, other in ((leader, follower), (follower, leader)):
        one.parts.peers.links[other.node.node_id].reconnect()
    for one, other in ((leader, follower), (follower, leader)):
        name = other.node.node_id
        await group.until(lambda one=one, name=name: one.parts.peers.connected()[name])
    await (await group.client(leader)).create("t")
    await group.agree()


# --- clients --------------------------------------------------------------------------------------


async def test_metadata_and_status_have_the_list_of_the_log(group: Any) -> None:
    leader = await group.leader()
    client = await group.client(leader)
    assert (await client.ask(MetadataRequest())).peers == group.addresses
    tell([leader], listed(group, n0=f"{HOST}:5", n3=f"{HOST}:6"))
    told = (await client.ask(MetadataRequest())).peers
    assert told == {**group.addresses, "n0": f"{HOST}:5", "n3": f"{HOST}:6"}
    status = await client.status()
    assert list(status["members"]) == ["n0", "n1", "n2", "n3"]
    assert set(status["member_roles"].values()) == {"VOTER"}


async def test_client_with_one_old_address_finds_members_that_moved(group: Any) -> None:
    """Also one that already knew the others at their former addresses."""
    follower = await group.follower()
    stays = follower.node.node_id
    moved = [name for name in group.nodes if name != stays]
    async with AsyncClient(group.addresses[stays]) as old:
        await old.create_topic("t")
        ports = dict(zip(moved, free_ports(HOST, len(moved)), strict=True))
        for name in moved:
            await group.restart(name, port=ports[name])
        news = listed(group, **{name: f"{HOST}:{port}" for name, port in ports.items()})
        tell(group.nodes.values(), news)
        await group.hand_over(moved[0])
        async with AsyncClient(group.addresses[stays]) as new:
            for number, client in enumerate((old, new)):
                done = await client.append("t", b"x")
                assert done.start == number
