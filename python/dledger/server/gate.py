"""Who may come in: what a node says of itself when a connection begins, and whom it goes on with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from dledger.config import GroupConfig, NodeConfig
from dledger.environment import REAL, Environment
from dledger.messages.codes import Code
from dledger.messages.hello import HelloRequest, HelloResponse
from dledger.messages.membership import Membership
from dledger.net.handshake import Greeting, Introduction, other_group, other_protocol
from dledger.release import RELEASE
from dledger.types import NodeId


class Gate:
    """The accepting side of the handshake; `dledger.net.handshake` is the other one."""

    def __init__(self, group: GroupConfig, node: NodeConfig, environment: Environment = REAL) -> None:
        self._group = group
        self._node = node
        self._environment = environment
        self.known: Callable[[], Membership] = Membership
        """What the node knows of its group."""
        self.refused: dict[str, str] = {}
        """Why the last connection of each member, by the name that it gave, was not taken; of this life."""

    def introduction(self) -> Introduction:
        """What this node says of itself."""
        known = self.known()
        return Introduction(
            group=self._group.group, node_id=self._node.node_id, members=self._group.members,
            group_id=known.group_id, ancestors=known.ancestors,
        )  # fmt: skip

    def to_peer(self, peer: NodeId) -> Greeting:
        """How a connection to another node begins."""
        return Greeting(self.introduction(), peer=peer, environment=self._environment)

    def as_client(self, peer: NodeId) -> Greeting:
        """How a connection to another node begins that is asked what clients ask."""
        return Greeting(replace(self.introduction(), node_id=""), peer=peer, environment=self._environment)

    def answer(self, hello: HelloRequest) -> HelloResponse:
        """The answer to the first frame of a connection; any other code than SUCCESS ends it."""
        code, text = self._judge(hello)
        own = self.introduction()
        if code is not Code.SUCCESS and hello.node_id:
            self.refused[hello.node_id] = text
        elif hello.node_id:
            self.refused.pop(hello.node_id, None)
        if hello.version == 1:  # whose programs take these four fields and no more
            return HelloResponse(code=code, message=text, group=own.group, node_id=NodeId(own.node_id))
        return HelloResponse(
            code=code, message=text, group=own.group, node_id=NodeId(own.node_id), release=RELEASE,
            group_id=own.group_id, members=own.members, ancestors=own.ancestors,
        )  # fmt: skip

    def _judge(self, hello: HelloRequest) -> tuple[Code, str]:
        own, members = self._group.group, self._group.members
        if text := other_protocol(hello):
            return Code.UNSUPPORTED, text
        if hello.group != own and (hello.group or hello.node_id):
            return Code.UNKNOWN_GROUP, f"this node belongs to group {own!r}, not {hello.group!r}"
        if hello.node_id and hello.node_id not in members:
            text = f"{hello.node_id!r} is not a member; members: {', '.join(members)}"
            return Code.UNKNOWN_MEMBER, other_group(self.introduction(), hello) or text
        if hello.node_id == self._node.node_id:
            text = f"{hello.node_id} is this node itself: two nodes have one id, or an address is wrong"
            return Code.UNEXPECTED_MEMBER, text
        if text := other_group(self.introduction(), hello):
            return Code.UNKNOWN_GROUP, text
        return Code.SUCCESS, ""


__all__ = ["Gate"]
