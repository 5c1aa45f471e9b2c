"""The warning of a node that anybody on the network can use."""

from __future__ import annotations

import logging
from typing import Final

from dledger.node.context import NodeContext, NodePart
from dledger.node.peers.membership_secret import is_exposed

logger = logging.getLogger(__name__)

AGAIN_MS: Final = 3_600_000


class Exposure(NodePart):
    """Says at each start and each hour that nothing tells clients from strangers, if that is so."""

    def __init__(self, context: NodeContext) -> None:
        super().__init__(context)
        self._is_exposed = is_exposed(context.node)
        self._again_ms = 0

    def tick(self, now_ms: int) -> None:
        """See `MaintenanceTask`."""
        if self._is_exposed and now_ms >= self._again_ms:
            self._again_ms = now_ms + AGAIN_MS
            logger.warning(
                "%s listens on %s, where other machines reach it, and nothing tells its clients "
                "from strangers: whoever connects may read, write and delete. Give it certificates "
                "(docs/security.md)",
                self._node_id,
                self._node.host,
            )
