"""How full the disk is, and the consequence: a node with a full disk takes no writes."""

from __future__ import annotations

import logging

from dledger.errors import StorageError
from dledger.node.context import NodeContext, NodePart
from dledger.storage.api import DiskLevel

logger = logging.getLogger(__name__)


class DiskWatch(NodePart):
    """Refuses writes while the disk is full; raft then also looks for another leader (D12)."""

    def __init__(self, context: NodeContext) -> None:
        super().__init__(context)
        self.level = DiskLevel.OK
        context.status.add(lambda: {"disk_level": self.level.name})

    def tick(self, now_ms: int) -> None:
        """See `MaintenanceTask`."""
        try:
            level = self._store.disk_level()
        except StorageError as error:
            self._ready_loop.fail(error)
            return
        if self._ready_loop.log_writer.is_full:
            level = DiskLevel.FULL
        if level == self.level:
            return
        log = logger.info if level is DiskLevel.OK else logger.warning
        log("disk level is %s, was %s; %s", level.name, self.level.name, self._node.directory)
        self.level = level
        self._ready_loop.set_writable(level is not DiskLevel.FULL)
