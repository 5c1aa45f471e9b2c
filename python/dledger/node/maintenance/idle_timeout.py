"""The end of a node that no client uses."""

from __future__ import annotations

import os

from dledger.node.context import NodeContext, NodePart
from dledger.node.handlers.request_router import RequestRouter


class IdleTimeout(NodePart):
    """Tells the event ``idle`` when no client has used the node for ``idle_timeout_ms``."""

    def __init__(self, context: NodeContext, router: RequestRouter) -> None:
        super().__init__(context)
        self._router = router

    def tick(self, now_ms: int) -> None:
        """See `MaintenanceTask`."""
        if self.is_over(now_ms):
            self._events.idle()

    def is_over(self, now_ms: int) -> bool:
        """Whether the time is over, and the process that started the node has ended."""
        timeout = self._node.idle_timeout_ms
        if not timeout or self._router.clients or now_ms - self._router.used_ms < timeout:
            return False
        return not process_lives(self._node.parent_pid)


def process_lives(pid: int) -> bool:
    """Whether a process with this number is there; none has number 0."""
    if pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
