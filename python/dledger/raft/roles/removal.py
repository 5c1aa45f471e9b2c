"""Whether the group has removed this node: by a list that is in force now, and by no old one.

A machine with an empty disk under an id that was removed and added again gets the log from its
beginning, with the entry that removed the former machine. A member that is behind may tell it that
list as well. So a committed list without this node is no reason to end. One of these is:

- This node leads and has committed that list itself.
- The leader pushes to this node, with a commit index of its own term: this log has everything up to
  there, and the newest list in it is without this node. So it was in force when the push left the
  leader, and this node was there.
- This node has no leader, and a majority of the voters of the newest list that it was told have it
  in none. A list that added it is in the log of a majority of its voters.

Until then the node counts for nothing anyway: by the lists of the others, and by its own. What it
concludes is durable, since nobody may be there to tell it again at its next start.
"""

from __future__ import annotations

from dledger.protocol.messages.membership import Member, ids_of, voters_of
from dledger.protocol.messages.peer import PushEntryRequest
from dledger.raft.state.quorum_ack_checker import quorum_size
from dledger.raft.state.raft_state import RaftState
from dledger.types import NO_INDEX, Index, NodeId, Role


class Removal:
    """One node's part in it, one life long."""

    def __init__(self, core: RaftState) -> None:
        self._core = core
        self._said: set[NodeId] = set()
        """The members that have this node in no list, by `_index`, since it had a leader."""
        self._index = NO_INDEX
        self._tell()

    def relisted(self) -> None:
        """The newest list is another one, or is committed now."""
        if not self._core.is_unlisted:
            self._said.clear()
        elif self._core.role is Role.LEADER:
            self._conclude()

    def followed(self) -> None:
        """This node has a leader."""
        self._said.clear()

    def pushed(self, request: PushEntryRequest) -> None:
        """This leader's push has been carried out."""
        core, told = self._core, request.commit_index
        log, index = core.log, core.admission.membership.index
        if index <= told <= log.committed_index and log.term_at(told) == core.term:
            self._conclude()

    def refused(self, peer: NodeId, index: Index, listed: tuple[Member, ...]) -> None:
        """This member takes no connection from this node, which is in no list of its log;
        ``listed`` are the members by the committed entry ``index``."""
        core = self._core
        known = core.admission.membership
        if core.role is not Role.CANDIDATE or core.me in ids_of(listed):
            return  # it has a leader, who tells
        if index > max(known.index, core.admission.shared_index):
            bound = [(member.id, member.incarnation) for member in listed]
            core.admission.bind(index, bound, listed=listed, former=known.former)
        self.told(peer, index)

    def told(self, peer: NodeId, index: Index) -> None:
        """This member knows no later list than that of entry ``index`` to be committed."""
        core = self._core
        known = core.admission.membership
        if core.role is not Role.CANDIDATE or not core.is_unlisted or index != known.index:
            return
        if index != self._index:
            self._index = index
            self._said.clear()
        self._said.add(peer)
        voters = voters_of(known.listed)
        if len(voters & self._said) >= quorum_size(len(voters)):
            self._conclude()

    def _conclude(self) -> None:
        if not self._core.is_removed:
            self._core.admission.end()
            self._tell()

    def _tell(self) -> None:
        core = self._core
        if core.is_removed:
            core.out.fact("removed", node=core.me, index=core.admission.membership.index)
