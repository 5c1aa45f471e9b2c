"""How a connection begins, seen from the side that opens it: pure, so that blocking and asyncio programs share it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dledger.environment import REAL, Environment
from dledger.errors import ConfigError, DLedgerError, Unavailable, WrongGroup
from dledger.messages.codes import Code
from dledger.messages.hello import PROTOCOL_VERSION, Ancestors, HelloProof, HelloRequest, HelloResponse
from dledger.release import RELEASE


@dataclass(frozen=True, slots=True, kw_only=True)
class Introduction:
    """What a program says of itself; see `HelloRequest`."""

    group: str = ""
    node_id: str = ""
    group_id: str = ""
    members: tuple[str, ...] = ()
    ancestors: Ancestors = ()


class Greeting:
    """One connection's beginning::

        send greeting.hello
        until greeting.welcome is there: give greeting.answered what came, and send what it returns

    ``peer`` is the node that must be there; empty: any one.
    """

    def __init__(self, own: Introduction, *, peer: str = "", environment: Environment = REAL) -> None:
        self.hello = HelloRequest(
            group=own.group, node_id=own.node_id, release=RELEASE, group_id=own.group_id, members=own.members,
            ancestors=own.ancestors, nonce=bytes.fromhex(environment.unique()),
        )  # fmt: skip
        self.welcome: HelloResponse | None = None
        """The node's last word, once it takes us."""
        self._peer = peer
        self._own = own

    def answered(self, answer: Any) -> HelloProof | None:
        """What to send next, if anything.

        Raises:
            WrongGroup: it is another group's node, or another node of the group.
            ConfigError: it is of a release that does not understand this one.
        Unavailable: it has no place for this connection now.
        """
        if not isinstance(answer, HelloResponse):
            raise WrongGroup("is no node of ours")
        if answer.code is not Code.SUCCESS:
            raise _refusal(answer)
        if self._peer and answer.node_id != self._peer:
            raise WrongGroup(f"{answer.node_id} answers where {self._peer} should: is an address wrong?")
        if text := other_group(self._own, answer):
            raise WrongGroup(text)
        self.welcome = answer
        return None


def _refusal(answer: HelloResponse) -> DLedgerError:
    text = answer.message or answer.code.name
    if answer.code is Code.LEADER_PENDING_FULL:
        return Unavailable(text)
    return ConfigError(text) if answer.code is Code.UNSUPPORTED else WrongGroup(text)


def other_group(own: Introduction, theirs: HelloRequest | HelloResponse) -> str:
    """Why two programs that give one group's name are not of one group; empty when they may be. A list of members is
    compared where both sides are members. What one of both does not know is no contradiction."""
    if own.members and theirs.members and theirs.node_id and set(own.members) != set(theirs.members):
        return (
            f"{theirs.node_id} was told that the group's members are {', '.join(sorted(theirs.members))}, "
            f"{own.node_id or 'this program'} that they are {', '.join(sorted(own.members))}: a majority of the one "
            "need not meet a majority of the other. Start all of them with the same list"
        )
    mine = {own.group_id, *(ancestor for ancestor, _ in own.ancestors)}
    others = {theirs.group_id, *(ancestor for ancestor, _ in theirs.ancestors)}
    if own.group_id and theirs.group_id and own.group_id not in others and theirs.group_id not in mine:
        return (
            f"{theirs.node_id or 'the program that connects'} belongs to the group {theirs.group_id}, and "
            f"{own.node_id or 'this program'} to the group {own.group_id}: both are called "
            f"{own.group or theirs.group!r}, but they were founded apart. Is an address or a directory wrong?"
        )
    return ""


def other_protocol(hello: HelloRequest) -> str:
    """What to tell a program that speaks another protocol; empty when it speaks this one."""
    if hello.version == PROTOCOL_VERSION:
        return ""
    release = hello.release or ("0.1.0" if hello.version == 1 else "")
    theirs = f"dledger {release}" if release else "another release"
    return (
        f"this node is dledger {RELEASE} and speaks protocol version {PROTOCOL_VERSION}, the program that connects is "
        f"{theirs} and speaks {hello.version}: upgrade the older one"
    )


__all__ = ["Greeting", "Introduction", "other_group", "other_protocol"]
