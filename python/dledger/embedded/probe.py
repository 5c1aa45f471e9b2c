"""Asking a node for its identity and its leader, over a plain socket: no event loop, no Arrow, one
question."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from dledger.config import Tls
from dledger.errors import AccessDenied, ConfigError, Unavailable, WrongGroup
from dledger.net.connections.blocking import BlockingConnection, Lost
from dledger.net.connections.handshake import Greeting
from dledger.net.connections.tls import client_context
from dledger.net.user_directory import group_secret
from dledger.protocol.messages.client import (
    MetadataRequest,
    MetadataResponse,
    TransferRequest,
    TransferResponse,
)
from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.hello import HelloRequest
from dledger.protocol.wire import FrameLimits, Message
from dledger.types import NodeId, Role

_LIMITS: Final = FrameLimits(header_bytes=1 << 20, payload_bytes=0)
POLL_S: Final = 0.01


@dataclass(frozen=True, slots=True)
class NodeView:
    """One node's view of itself and of its group."""

    node_id: NodeId
    group: str
    role: Role
    term: int
    leader_id: NodeId


def ask_node(
    address: str, group: str = "", timeout_s: float = 1.0, tls: Tls | None = None
) -> NodeView | None:
    """The view of the node at ``address``; None when no node answers there in time, or it is none
    of ``group``."""
    answer = _question(address, group, MetadataRequest(), timeout_s, tls)
    if not isinstance(answer, MetadataResponse):
        return None
    role = Role.CANDIDATE
    if answer.leader_id:
        role = Role.LEADER if answer.leader_id == answer.node_id else Role.FOLLOWER
    return NodeView(answer.node_id, answer.group, role, answer.term, answer.leader_id)


def ask_to_lead(
    leader_address: str, group: str, node_id: NodeId, tls: Tls | None, timeout_s: float = 10.0
) -> bool:
    """Ask the leader to hand over to ``node_id``; whether it did."""
    answer = _question(leader_address, group, TransferRequest(to=node_id), timeout_s, tls)
    return isinstance(answer, TransferResponse) and answer.code == Code.SUCCESS


def _question(
    address: str, group: str, request: Message, timeout_s: float, tls: Tls | None
) -> Message | None:
    greeting = Greeting(HelloRequest(group=group), secret=lambda answer: group_secret(answer.group))
    try:
        connection = BlockingConnection(
            address, greeting, limits=_LIMITS, timeout_s=timeout_s, tls=client_context(tls)
        )
    # the last one: TLS files that are not there
    except (Unavailable, WrongGroup, AccessDenied, ConfigError):
        return None
    try:
        answer: Message = connection.ask(request, (), time.monotonic() + timeout_s)[0]
        return answer
    except Lost:
        return None
    finally:
        connection.close()


def ask_all(addresses: dict[NodeId, str], group: str, tls: Tls | None) -> dict[NodeId, NodeView]:
    """The answers of those that answer, asked at the same time."""
    with ThreadPoolExecutor(len(addresses)) as pool:
        views = pool.map(lambda address: ask_node(address, group, tls=tls), addresses.values())
        return {node: view for node, view in zip(addresses, views, strict=True) if view is not None}


def wait_for_leader(
    addresses: dict[NodeId, str], group: str, timeout_s: float, tls: Tls | None
) -> NodeId | None:
    """The leader as soon as there is one; None when there is none by then."""
    deadline = time.monotonic() + timeout_s
    while True:
        # one after the other: on loopback that is quicker than threads
        for address in addresses.values():
            view = ask_node(address, group, tls=tls)
            if view and view.role is Role.LEADER:
                return view.node_id
        if time.monotonic() > deadline:
            return None
        time.sleep(POLL_S)
