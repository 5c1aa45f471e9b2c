"""How long a leader's appends and commits take."""

from __future__ import annotations

from collections import deque

from dledger.node.context import NodeContext
from dledger.node.meters import Meters
from dledger.node.proposals.proposal import Proposal
from dledger.types import Index


class WriteTimes:
    """Times what becomes of proposals, for the meters of a node."""

    def __init__(self, context: NodeContext, meters: Meters) -> None:
        self._now_s = context.environment.now_s
        self._append, self._commit = meters.append, meters.commit
        self._proposed: deque[tuple[Index, float]] = deque()
        """Last entry and time of what was proposed together and is not committed."""
        context.events.committed.subscribe(self._committed)
        # what is not committed by then may be cut, and its indexes be another leader's
        context.events.role.subscribe(lambda change: self._proposed.clear())

    @classmethod
    def of(cls, context: NodeContext) -> WriteTimes | None:
        """None on a node that serves no metrics."""
        return None if context.meters is None else cls(context, context.meters)

    def asked(self, proposal: Proposal) -> None:
        """It has come."""
        proposal.asked_s = self._now_s()

    def proposed(self, last: Index) -> None:
        """Entries up to this one are on their way to the disks."""
        self._proposed.append((last, self._now_s()))

    def _committed(self, index: Index) -> None:
        now_s = self._now_s()
        while self._proposed and self._proposed[0][0] <= index:
            self._commit.observe(now_s - self._proposed.popleft()[1])

    def written(self, proposal: Proposal) -> None:
        """Its appends are answered with their offsets."""
        self._append.observe(self._now_s() - proposal.asked_s, len(proposal.request_ids))
