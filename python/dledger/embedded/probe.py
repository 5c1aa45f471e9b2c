"""Asking a node for its identity and its leader, over a plain socket: no event loop, no Arrow, one
question."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
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
ASK_S: Final = 1.0
HAND_OVER_S: Final = 10.0


def ask_node(address: str, group: str, tls: Tls | None) -> tuple[NodeId, Role] | None:
    """Name and role of the node at ``address``; None when no node answers there in time, or it is
    none of ``group``."""
    answer = _metadata(address, group, tls)
    if answer is None:
        return None
    if not answer.leader_id:
        return answer.node_id, Role.CANDIDATE
    leads = answer.leader_id == answer.node_id
    return answer.node_id, Role.LEADER if leads else Role.FOLLOWER


def _metadata(address: str, group: str, tls: Tls | None) -> MetadataResponse | None:
    answer = _question(address, group, MetadataRequest(), ASK_S, tls)
    return answer if isinstance(answer, MetadataResponse) else None


def ask_to_lead(leader_address: str, group: str, node_id: NodeId, tls: Tls | None) -> bool:
    """Ask the leader to hand over to ``node_id``; whether it did."""
    answer = _question(leader_address, group, TransferRequest(to=node_id), HAND_OVER_S, tls)
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


def ask_all(addresses: dict[NodeId, str], group: str, tls: Tls | None) -> dict[NodeId, Role]:
    """The roles of those that answer, asked at the same time."""
    with ThreadPoolExecutor(len(addresses)) as pool:
        answers = pool.map(lambda address: ask_node(address, group, tls), addresses.values())
        return {node: answer[1] for node, answer in zip(addresses, answers, strict=True) if answer}


def wait_for_leader(
    addresses: dict[NodeId, str], group: str, timeout_s: float, tls: Tls | None
) -> NodeId | None:
    """The leader as soon as there is one; None when there is none by then. One of these nodes says
    itself that it leads; of one elsewhere another node's word is enough."""
    deadline = time.monotonic() + timeout_s
    while True:
        # one after the other: on loopback that is quicker than threads
        for address in addresses.values():
            answer = _metadata(address, group, tls)
            leader = NodeId(answer.leader_id) if answer is not None else NodeId("")
            if (
                answer is not None
                and leader
                and (leader == answer.node_id or leader not in addresses)
            ):
                return leader
        if time.monotonic() > deadline:
            return None
        time.sleep(POLL_S)
