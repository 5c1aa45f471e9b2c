"""The wall clock of a follower, compared with the leader's now and then."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, Final

from dledger.node.context import NodeContext, NodePart
from dledger.node.maintenance.leader_status import leader_status
from dledger.node.proposals.clocks import Clocks
from dledger.types import Role

FIRST_COMPARE_MS: Final = 5_000
COMPARE_MS: Final = 60_000
"""How often a follower compares its wall clock with the leader's."""


class ClockCheck(NodePart):
    """Notices a jump of the wall clock, and one that is far off."""

    def __init__(self, context: NodeContext, clocks: Clocks) -> None:
        super().__init__(context)
        self._clocks = clocks
        self._compare_ms = self._now_ms() + FIRST_COMPARE_MS
        context.status.add(lambda: {"clock": clocks.status()})

    def tick(self, now_ms: int) -> Coroutine[Any, Any, None] | None:
        """See `MaintenanceTask`."""
        self._clocks.now_ms()
        if self._raft.role is Role.LEADER:
            self._clocks.leads()
        elif now_ms >= self._compare_ms:
            self._compare_ms = now_ms + COMPARE_MS
            return self._compare()
        return None

    async def _compare(self) -> None:
        asked_ms = self._now_ms()
        wall = (await leader_status(self._context)).get("clock", {}).get("wall_ms")
        if isinstance(wall, int):
            self._clocks.compare(wall, asked_ms)
