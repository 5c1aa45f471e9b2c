"""Reads: I12 no entry above the commit index is shown, I13 fresh reads are fresh, I18 a leader
without a quorum steps down."""

from __future__ import annotations

from dledger.protocol.messages.codes import Code
from dledger.raft.roles.leader import Leader
from dledger.raft.state.ready import ReadDone
from verification.invariants.broken import Broken
from verification.invariants.truth import Truth
from verification.invariants.view import WatchedNode


class ReadIndexes:
    """Linearizable reads of all nodes, from the question to the answer."""

    def __init__(self, truth: Truth) -> None:
        self._truth = truth
        self._asked: dict[tuple[str, int, int], int] = {}
        """(node, life, token) -> the last committed index of the group when it was asked."""

    def asked(self, view: WatchedNode, token: int) -> None:
        """A node wants to know how far a read must have applied."""
        self._asked[view.name, view.life, token] = self._truth.committed_index

    def answered(self, view: WatchedNode, done: ReadDone) -> None:
        """I13: the read index covers every entry that a node had committed when the read was asked
        for."""
        committed = self._asked.pop((view.name, view.life, done.token), None)
        if done.code is not Code.SUCCESS:
            return
        if committed is None:
            raise Broken("I13", f"{view} answers read {done.token}, which nobody asks")
        if done.index < committed:
            raise Broken(
                "I13",
                f"{view} serves a read at {done.index}, {committed} was committed when it was "
                f"asked",
            )

    @staticmethod
    def applied(view: WatchedNode) -> None:
        """I12: the catalog, which readers see, is made of committed entries only, and never goes
        back."""
        applied = view.catalog.applied_index
        if applied > view.log.committed_index:
            raise Broken(
                "I12", f"{view} shows entry {applied}; committed is {view.log.committed_index}"
            )
        if applied < view.applied:
            raise Broken("I13", f"{view} goes back from applied {view.applied} to {applied}")
        view.applied = applied


def leads_with_quorum(view: WatchedNode, now_ms: int) -> None:
    """I18: a leader that has just looked at the clock has heard a quorum within an election
    time-out.

    It looks once a heartbeat, so one interval more can have passed. A leader that hears no quorum
    steps down there. Until then each answer needs a quorum: a read (`ReadIndexes`) as much as an
    append (I7).
    """
    leader = view.machine.acting
    if not isinstance(leader, Leader):
        return
    config = view.machine.config
    since = now_ms - config.election_ms - config.heartbeat_ms
    heard = sum(
        voter == view.name or leader.dispatchers[voter].heard_ms >= since
        for voter in view.machine.voters
    )
    if heard < view.machine.quorum:
        raise Broken(
            "I18",
            f"{view} still leads term {view.machine.term}, but has heard {heard} nodes since "
            f"{since}",
        )
