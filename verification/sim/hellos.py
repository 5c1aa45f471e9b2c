"""Hellos that a node of the simulator answers, looked at."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace
from functools import partial
from typing import Protocol

from dledger.node.node import NodeServer
from dledger.node.peers.handshake import Gate
from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.hello import HelloRequest, HelloResponse
from dledger.types import NodeId


class OtherMachine(Protocol):
    """See `verification.sim.namesake.Stay`."""

    def look(self, server: NodeServer) -> None: ...


class Greeted(Protocol):
    """See `verification.sim.cluster.Node`."""

    name: NodeId
    namesake: OtherMachine | None


class Judge(Protocol):
    """See `verification.sim.cluster.World`."""

    def breaks(self, invariant: str, text: str) -> None: ...


def watch_hellos(world: Judge, node: Greeted, server: NodeServer) -> None:
    """Each answer to a hello is checked. Later messages of peers have the group's id too, so that a
    hello that is taken from another group need not have an effect by itself."""
    gate = server.parts.gate
    gate.answer = partial(_answer, world, node, gate)  # type: ignore[method-assign]


def _answer(
    world: Judge, node: Greeted, gate: Gate, hello: HelloRequest, certified: Set[str] | None = None
) -> HelloResponse:
    answer, own = Gate.answer(gate, hello, certified), gate.known().group_id
    if answer.code is not Code.SUCCESS:
        return answer
    if own and hello.group_id and own != hello.group_id:
        who = hello.node_id or "a client"
        world.breaks(
            "I17", f"{node.name} of group {own} takes the hello of {who} of group {hello.group_id}"
        )
    if node.namesake is not None and not hello.group_id:
        return replace(
            answer, code=Code.LEADER_PENDING_FULL, message="this is another group's machine"
        )
    return answer
