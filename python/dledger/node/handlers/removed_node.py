"""What becomes of a node that its group has removed: it ends, and says how it comes back.

A node that runs while it is removed gets the entry from the leader. One that was away hears of it
when its hello is refused: by the list of a committed entry, which a member shows it that has proved
to be one (`dledger.net.connections.handshake.Unlisted`). It keeps that list, so that its next start
knows. One with an empty disk knows no group by which it could check a list: it keeps nothing, and
is told again. What it counts for is not decided here: no list of the others has it.
"""

from __future__ import annotations

from dledger.config import NodeConfig
from dledger.errors import NodeRemoved
from dledger.node.context import NodeContext, NodePart
from dledger.protocol.messages.membership import Member, ids_of
from dledger.raft.state.ready import Fact
from dledger.types import Index, Role


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
        context.events.unlisted.subscribe(self._unlisted)

    def _unlisted(self, index: Index, listed: tuple[Member, ...]) -> None:
        """By the committed entry ``index`` this node is none of the members."""
        raft = self._raft
        known = raft.membership
        if raft.role is not Role.CANDIDATE:
            return  # it has a leader, who tells
        if not known.founded:
            if not self._members.joins:  # else it waits to be added
                about = ("node", str(self._node_id)), ("index", index)
                self._events.fact(Fact("removed", about))
            return
        was_member = known.of(self._node_id) is not None
        if not was_member or self._node_id in ids_of(listed):
            return
        # of a list from before it was added nothing is taken: it is older than the one known
        bound = {member.id: member.incarnation for member in listed}
        self._ready_loop.feed(raft.set_members, index, bound, self._now_ms(), listed, known.former)
