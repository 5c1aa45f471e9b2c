"""Time-outs of stages and producer sessions."""

from __future__ import annotations

from typing import Final

from dledger.node.context import NodeContext, NodePart
from dledger.node.proposals.proposal_queue import ProposalQueue
from dledger.protocol.messages.catalog_commands import Expire
from dledger.protocol.messages.client import ExecuteRequest
from dledger.types import Role

EXPIRE_MS: Final = 10_000
"""Time that an Expire command has to be committed before another one is proposed for the same
time-out."""


class Expiry(NodePart):
    """Stages and sessions expire by catalog time, once the leader has written it into the log."""

    def __init__(self, context: NodeContext, proposals: ProposalQueue) -> None:
        super().__init__(context)
        self._proposals = proposals
        self._again_ms = 0
        self._due_ms = 0

    def tick(self, now_ms: int) -> None:
        """See `MaintenanceTask`."""
        proposals = self._proposals
        if self._raft.role is not Role.LEADER or not proposals.caught_up:
            return
        due = self._catalog.next_expiry_ms()
        if due is None or (due == self._due_ms and now_ms < self._again_ms):
            return
        if due <= proposals.clocks.now_ms():
            self._due_ms, self._again_ms = due, now_ms + EXPIRE_MS
            # the proposal queue stamps it
            proposals.execute(None, 0, ExecuteRequest(command=Expire(time_ms=0)))
