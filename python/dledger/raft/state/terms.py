"""How far ahead a term may be that another member says, and where terms end.

Any message may raise a node's term, for good, so a single false one could spend all terms that
elections have left. The rules, with their reasons:

- A term more than `TERM_JUMP` ahead of the own one is refused, and changes nothing. A term begins
  with a candidate that a quorum has promised its votes to (pre-vote), and a round takes at least
  ``vote_interval_ms``: with the default, a group would have to elect without a pause, and without a
  leader that stays, for 20 years to get so far ahead of a member that is away.
- No term above `MAX_TERM` is taken, and a node that has reached it asks for no votes: ``term + 1``
  always fits the wire and the files. From 0 it is 2**30 such jumps away.
- Entries are of no later term than the message that brings them, or than the own one: each was
  written by the leader of its term. A node checks that in pushes, whole states and repairs.

A node whose term is absurd already, from before these rules, is brought back by ``dledger
reset-term``.
"""

from __future__ import annotations

from dataclasses import dataclass

from dledger.protocol.messages.peer import PeerMessage
from dledger.raft.state.raft_state import RaftState
from dledger.types import MAX_TERM, TERM_JUMP, NodeId, Term

TELL_MS = 10_000
"""Between two facts about the same sender."""


@dataclass(slots=True)
class Refused:
    """The refused terms of one member."""

    term: Term
    """The last one."""
    messages: int
    told_ms: int


class TermWatch:
    """Refuses absurd terms, and remembers whose they were."""

    def __init__(self, core: RaftState) -> None:
        self.core = core
        self.refused: dict[NodeId, Refused] = {}
        """By member."""
        if core.term_is_spent:
            core.out.fact("term_spent", node=core.me, term=core.term)

    def refuses(self, message: PeerMessage, now_ms: int) -> bool:
        """Whether ``message``, of a member and to this node, says a term that no history
        reaches."""
        term, own = message.term, self.core.term
        if term <= (limit := min(own + TERM_JUMP, MAX_TERM)):
            return False
        refused = self.refused.get(message.local_id)
        if refused is None:
            refused = self.refused[message.local_id] = Refused(term, 0, now_ms - TELL_MS)
        refused.term = term
        refused.messages += 1
        if now_ms - refused.told_ms >= TELL_MS:
            refused.told_ms = now_ms
            self.core.out.fact(
                "term_refused",
                node=message.local_id,
                message=type(message).__name__,
                term=term,
                own=own,
                limit=limit,
            )
        return True
