"""Elections: I1 one leader in a term, I4 it has all that is committed, I8 one vote, I9 terms never
go back, D11 no new term without a pre-vote."""

from __future__ import annotations

from collections.abc import Iterable

from dledger.protocol.messages.peer import PeerMessage, VoteRequest, VoteResponse, VoteResult
from dledger.types import NodeId, Role
from verification.invariants.broken import Broken
from verification.invariants.truth import Truth
from verification.invariants.view import Memory, WatchedNode


class Elections:
    """The leader of each term."""

    def __init__(self, truth: Truth) -> None:
        self._truth = truth
        self.leaders: dict[int, tuple[str, int]] = {}
        """Term -> (node, life)."""
        self._committed_in: dict[int, int] = {}
        """Term -> the last index that its leader committed."""
        self._would_vote: dict[tuple[str, int], set[str]] = {}
        """Candidate and term -> the nodes that said in a pre-vote that they would vote so."""

    def started(self, view: WatchedNode) -> None:
        """I8, I9: a node that comes back remembers its term and its vote."""
        memory = view.memory
        if view.term < memory.saved_term:
            raise Broken(
                "I9", f"{view} comes back in term {view.term} after it told of {memory.saved_term}"
            )
        vote = memory.votes.get(view.term)
        if vote is not None and view.voted_for != vote:
            raise Broken(
                "I8",
                f"{view} voted for {vote} in term {view.term} and comes back with {view.voted_for}",
            )

    def changed(self, view: WatchedNode) -> None:
        """Term, role or vote is another one."""
        machine = view.machine
        if machine.term < view.term:
            raise Broken("I9", f"{view} goes back from term {view.term} to {machine.term}")
        if machine.term == view.term and view.voted_for not in {None, machine.voted_for}:
            raise Broken(
                "I8",
                f"{view} changes its vote in term {view.term}: {view.voted_for}, "
                f"{machine.voted_for}",
            )
        if machine.role is Role.LEADER and (
            view.role is not Role.LEADER or machine.term != view.term
        ):
            if view.store.hard_state.term < machine.term:
                # its own vote is not on its disk yet; if it never is, no other node hears of this
                # leader
                return
            self._leads(view)
        view.term, view.role, view.voted_for = machine.term, machine.role, machine.voted_for

    def _leads(self, view: WatchedNode) -> None:
        term, me = view.machine.term, (view.name, view.life)
        other = self.leaders.setdefault(term, me)
        if other != me:
            raise Broken(
                "I1", f"{view} leads term {term}, which {other[0]} led in its life {other[1]}"
            )
        self.complete(view, self._owed(term))

    def _owed(self, term: int) -> int:
        """The last index that was committed in a term before ``term``. A leader of an old term that
        learns of its votes when a later one has committed already owes none of those entries."""
        return max(
            (index for earlier, index in self._committed_in.items() if earlier < term), default=-1
        )

    def complete(self, view: WatchedNode, index: int) -> None:
        """I4: a leader has every entry that was committed in an earlier term."""
        if index < view.log.begin_index:
            return
        term = view.log.term_at(index)  # type: ignore[arg-type]
        if term != self._truth.term_of(index) and index >= 0:
            raise Broken(
                "I4",
                f"{view} leads term {view.machine.term} without the committed entry {index}: "
                f"{term}",
            )

    def committed(self, by: WatchedNode, views: Iterable[WatchedNode]) -> None:
        """I4, too: an entry that is committed late in an old term must be in the logs of the later
        terms' leaders."""
        if self._truth.committed_index > max(self._committed_in.values(), default=-1):
            self._committed_in[by.machine.term] = self._truth.committed_index
        for view in views:
            if view.machine.role is Role.LEADER and view.machine.term > by.machine.term:
                self.complete(view, self._owed(view.machine.term))

    def sent(self, view: WatchedNode, message: PeerMessage) -> None:
        """I8: a node keeps the votes that its messages promise. A candidate that asks for votes has
        given its own, and D11: a quorum would give theirs (Ongaro's thesis, 9.6), unless the leader
        told it to take over."""
        if isinstance(message, VoteResponse) and message.result is VoteResult.ACCEPT:
            if message.pre_vote:
                self._would_vote.setdefault((message.remote_id, message.request_term), set()).add(
                    view.name
                )
            else:
                vote(view.memory, view.name, message.request_term, message.remote_id)
        elif isinstance(message, VoteRequest) and not message.pre_vote:
            vote(view.memory, view.name, message.term, message.local_id)
            voters = 1 + len(self._would_vote.get((message.local_id, message.term), ()))
            if voters < view.machine.quorum and not message.transfer:
                raise Broken(
                    "D11",
                    f"{view} asks for votes in term {message.term}, which {voters} would give",
                )


def vote(memory: Memory, name: str, term: int, candidate: NodeId) -> None:
    """Note a vote, which must be the only one of its term."""
    known = memory.votes.setdefault(term, candidate)
    if known != candidate:
        raise Broken("I8", f"{name} votes for {candidate} in term {term}, and voted for {known}")
