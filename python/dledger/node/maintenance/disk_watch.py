"""How full the disk is, and the consequence: a node with a full disk takes no writes."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import Any

from dledger.errors import StorageError
from dledger.node.context import NodeContext, NodePart
from dledger.storage.api import DiskLevel

logger = logging.getLogger(__name__)


class DiskWatch(NodePart):
    """Refuses writes while the disk is full; raft then also looks for another leader (D12)."""

    def __init__(self, context: NodeContext) -> None:
        super().__init__(context)
        self.level = DiskLevel.OK
        context.status.add(self._status)

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

    def _status(self) -> dict[str, Any]:
        """The level, and why it is that: sizes in bytes, and the limits of the settings."""
        node = self._node
        told: dict[str, Any] = {"disk_level": self.level.name}
        with suppress(OSError):  # the tick fails the node, where it cannot be measured
            space = self._context.disk.statvfs(node.directory)
            told["disk"] = {
                "directory": str(node.directory),
                "size_bytes": space.total,
                "free_bytes": space.free,
                "warn_ratio": node.disk_warn_ratio,
                "full_ratio": node.disk_full_ratio,
                "reserve_bytes": node.disk_reserve_bytes,
            }
        return told
