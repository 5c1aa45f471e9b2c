"""Asking a group for changes of its members, and a node that joins it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dledger.embedded.ports import free_ports
from dledger.node.node import NodeServer
from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.member_requests import (
    AlterMemberRequest,
    AlterMemberResponse,
    MemberAction,
)
from dledger.types import NodeId

HOST = "127.0.0.1"
ADD, PROMOTE, DEMOTE, REMOVE, READDRESS, LABEL = MemberAction


async def ask(group: Any, action: MemberAction, node: str, **fields: Any) -> AlterMemberResponse:
    """The leader's answer, asked again where that may help."""
    request = AlterMemberRequest(action=action, node_id=NodeId(node), timeout_ms=10_000, **fields)
    elsewhere = {Code.NOT_LEADER, Code.TERM_CHANGED}
    client = await group.client()
    while True:
        answer: AlterMemberResponse = await client.ask(request)
        if answer.code in elsewhere:
            client.close()
            client = await group.client()
        elif answer.code is not Code.LEADER_NOT_READY:
            return answer


async def once(group: Any, action: MemberAction, node: str, **fields: Any) -> AlterMemberResponse:
    """The leader's answer, not asked again."""
    request = AlterMemberRequest(action=action, node_id=NodeId(node), timeout_ms=10_000, **fields)
    answer: AlterMemberResponse = await (await group.client()).ask(request)
    return answer


async def done(group: Any, action: MemberAction, node: str, **fields: Any) -> None:
    answer = await ask(group, action, node, **fields)
    assert answer.code is Code.SUCCESS, answer


class Newcomer:
    """A node that is no founder."""

    def __init__(self, group: Any, name: str) -> None:
        (self.port,) = free_ports(HOST, 1)
        self.name = NodeId(name)
        self._group = group

    @property
    def place(self) -> dict[str, Any]:
        return {"host": HOST, "port": self.port}

    async def start(self, told: tuple[NodeId, ...] = (), *, joins: bool = True) -> NodeServer:
        """``told``: its list of members, the founders and itself unless given."""
        group = self._group
        addresses = {**group.addresses, self.name: f"{HOST}:{self.port}"}
        made = group.make("n0").node
        config = replace(group.config, members=told or tuple(addresses))
        node = replace(
            made, node_id=self.name, directory=group.folder / self.name, port=self.port, joins=joins
        )
        server = NodeServer(config, node, addresses=lambda: addresses)
        await server.start()
        group.nodes[self.name] = server
        return server


async def grown(group: Any, newcomer: Newcomer | None = None) -> NodeServer:
    """Three founders and a fourth voter."""
    newcomer = newcomer or Newcomer(group, "n3")
    await (await group.client()).create("t")
    await done(group, ADD, "n3", **newcomer.place)
    server = await newcomer.start()
    await done(group, PROMOTE, "n3")
    return server


async def moved(group: Any, name: str, folder: str = "") -> NodeServer:
    """The node starts at another port, which no other node was told, with its directory, or with
    the one of that name."""
    (port,) = free_ports(HOST, 1)
    made, addresses = group.make(name), dict(group.addresses)
    node = replace(made.node, port=port, directory=group.folder / (folder or name))
    server = NodeServer(group.config, node, addresses=lambda: addresses)
    await server.start()
    group.nodes[NodeId(name)] = server
    return server
