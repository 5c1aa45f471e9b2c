"""What becomes of a node that its group has removed: it ends, and says how it comes back.

A node that runs while it is removed gets the entry from the leader. One that was away hears of it
when its hello is refused: by the list of a committed entry, which a member shows it that has proved
to be one (`dledger.net.connections.handshake.Unlisted`). `dledger.raft.roles.removal` has when it
concludes from either that it is removed; it keeps that, so that its next start knows. One with an
empty disk knows no group by which it could check a list: refused for an election time, and taken by
nobody, it ends; it keeps nothing, and is told again. What it counts for is not decided here: no
list of the others has it.
"""

from __future__ import annotations

from dledger.config import NodeConfig
from dledger.errors import NodeRemoved
from dledger.node.context import NodeContext, NodePart
from dledger.protocol.messages.membership import Member
from dledger.raft.state.ready import Fact
from dledger.types import Index, NodeId, Role


def removal(node: NodeConfig) -> NodeRemoved:
    """The error that ends the node."""
    return NodeRemoved(
        f"{node.node_id} was removed from the group: it counts nowhere, and does not start again "
        f"on the files in {node.directory}. To let it in again, empty that directory, say 'dledger "
        f"members add {node.node_id} HOST:PORT', and start it with --join"
    )


class RemovedNode(NodePart):
    """Hears that this node is removed from those that refuse it."""

    def __init__(self, context: NodeContext) -> None:
        super().__init__(context)
        self._since_ms: int | None = None
        """When it was first refused since a member took a connection, of a node that knows no
        group."""
        context.events.unlisted.subscribe(self._unlisted)

    def _unlisted(self, peer: NodeId, index: Index, listed: tuple[Member, ...]) -> None:
        """By the committed entry ``index`` this node is none of the members of ``peer``."""
        raft = self._raft
        if raft.membership.founded:
            self._ready_loop.feed(raft.refused, peer, index, listed)
        elif raft.role is Role.CANDIDATE and not self._members.joins:  # else it waits to be added
            self._refused(index)

    def _refused(self, index: Index) -> None:
        """A member that is behind may not know yet that this node was added again: then others take
        its connections."""
        now_ms = self._now_ms()
        if any(self._peers.connected().values()):
            self._since_ms = None
            return
        if self._since_ms is None:
            self._since_ms = now_ms
        if now_ms - self._since_ms >= self._group.election_ms:
            self._events.fact(Fact("removed", (("node", self._node_id), ("index", index))))
