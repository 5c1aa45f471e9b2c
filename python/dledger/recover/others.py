"""Whether the other members are gone: what answers at their addresses."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from dledger.config import Tls
from dledger.errors import ConfigError, DLedgerError
from dledger.interrupts import is_interrupt
from dledger.net.address import join_address, split_address
from dledger.net.connections.blocking import BlockingConnection
from dledger.net.connections.handshake import Greeting
from dledger.net.connections.tls import client_context
from dledger.protocol.messages.hello import HelloResponse
from dledger.protocol.wire import FrameLimits
from dledger.recover.survivor import Survivor
from dledger.types import NodeId

_LIMITS: Final = FrameLimits(header_bytes=1 << 20, payload_bytes=0)


class Presence(Enum):
    """What is at a member's address."""

    ABSENT = "does not answer"
    MEMBER = "is there"
    STRANGER = "is of another group, or of none"
    UNCLEAR = "answers, and does not say which group it is of"


@dataclass(frozen=True, slots=True)
class MemberAnswer:
    """What one address says."""

    node: NodeId
    """The one that should be there."""
    address: str
    presence: Presence
    detail: str = ""

    @property
    def may_be_member(self) -> bool:
        return self.presence in {Presence.MEMBER, Presence.UNCLEAR}

    def __str__(self) -> str:
        detail = f" ({self.detail})" if self.detail else ""
        return f"{self.node} at {self.address} {self.presence.value}{detail}"


class _Ear(Greeting):
    """Hears who is there, and proves nothing: any answer to the hello is the last one."""

    heard: HelloResponse | None = None

    def answered(self, answer: Any, certified: object = None) -> None:
        if isinstance(answer, HelloResponse):
            self.heard = self.welcome = answer


def other_addresses(survivor: Survivor, given: Mapping[NodeId, str]) -> dict[NodeId, str]:
    """Where the other members are: as ``given``, else as the log's list has it.

    Raises:
        ConfigError: nobody tells of a voter, or those that are given are other members.
    """
    known = {one.id: join_address(one.host, one.port) for one in survivor.members}
    members = tuple(known) or survivor.voters
    if strange := sorted(set(given) - {*members, *survivor.membership.members}):
        raise ConfigError(
            f"--peers names {', '.join(strange)}: the members are {', '.join(members)}, as "
            f"{survivor.directory} has them"
        )
    places = {**known, **{node: where for node, where in given.items() if node in members}}
    if missing := [node for node in survivor.voters if node not in places]:
        raise ConfigError(
            f"no file here says where {', '.join(missing)} are: give --peers with the addresses of "
            "all members, as their nodes had it"
        )
    return {node: where for node, where in places.items() if node != survivor.node_id}


def own_address(survivor: Survivor, given: Mapping[NodeId, str]) -> str:
    """Where this node will be reached.

    Raises:
        ConfigError: nobody tells.
    """
    if survivor.node_id in given:
        return given[survivor.node_id]
    for member in survivor.members:
        if member.id == survivor.node_id:
            return join_address(member.host, member.port)
    raise ConfigError(f"no file here says where {survivor.node_id} is: name it in --peers")


def ask_all(
    survivor: Survivor, addresses: Mapping[NodeId, str], tls: Tls | None, timeout_s: float
) -> list[MemberAnswer]:
    """Ask all of them at once."""
    if not addresses:
        return []

    def ask(place: tuple[NodeId, str]) -> MemberAnswer:
        return _ask(*place, survivor.group_id, tls=tls, timeout_s=timeout_s)

    with ThreadPoolExecutor(len(addresses)) as pool:
        return list(pool.map(ask, addresses.items()))


def _ask(
    node: NodeId, address: str, group_id: str, *, tls: Tls | None, timeout_s: float
) -> MemberAnswer:
    try:
        socket.create_connection(split_address(address), timeout_s).close()
    except OSError as error:
        if is_interrupt(error):
            raise
        return MemberAnswer(node, address, Presence.ABSENT, error.strerror or str(error))
    ear = _Ear()
    try:
        BlockingConnection(
            address, ear, limits=_LIMITS, timeout_s=timeout_s, tls=client_context(tls)
        ).close()
    except DLedgerError as error:
        return MemberAnswer(node, address, Presence.UNCLEAR, str(error))
    heard = ear.heard
    if heard is None:
        return MemberAnswer(node, address, Presence.UNCLEAR, "it does not speak as a node does")
    if heard.group_id != group_id:
        detail = f"{heard.node_id} of group {heard.group} ({heard.group_id or 'no id yet'})"
        return MemberAnswer(node, address, Presence.STRANGER, detail)
    return MemberAnswer(NodeId(heard.node_id), address, Presence.MEMBER)


def check_gone(survivor: Survivor, answers: list[MemberAnswer]) -> None:
    """That this member and those that answer are no majority.

    Raises:
        ConfigError: they may be one, so the group goes on by itself.
    """
    counted = {one.node for one in answers if one.may_be_member} | {survivor.node_id}
    living = sorted(counted & set(survivor.voters))
    if 2 * len(living) <= len(survivor.voters):
        return
    said = "; ".join(str(one) for one in answers if one.may_be_member)
    raise ConfigError(
        f"this is not needed: {', '.join(living)} are a majority of {', '.join(survivor.voters)} "
        f"({said}). Start {survivor.node_id}, and the group goes on with nothing lost. Where they "
        "elect no leader, because the disk of one was replaced and never admitted, or where that "
        "is no member, stop what answers there first; members with TLS say who they are when "
        "DLEDGER_TLS_CA is set"
    )
