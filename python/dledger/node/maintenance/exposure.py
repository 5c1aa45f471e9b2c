"""The warning of a node that anybody on the network can use."""

from __future__ import annotations

import logging
from typing import Final

from dledger.node.context import NodeContext, NodePart
from dledger.node.peers.membership_secret import is_exposed, shows_metrics

logger = logging.getLogger(__name__)

AGAIN_MS: Final = 3_600_000


class Exposure(NodePart):
    """Says at each start and each hour that nothing tells clients from strangers, or that they may
    read its metrics, if that is so."""

    def __init__(self, context: NodeContext) -> None:
        super().__init__(context)
        self._is_exposed = is_exposed(context.node)
        self._shows_metrics = shows_metrics(context.node)
        self._again_ms = 0

    def tick(self, now_ms: int) -> None:
        """See `MaintenanceTask`."""
        if now_ms < self._again_ms:
            return
        self._again_ms = now_ms + AGAIN_MS
        if self._is_exposed:
            logger.warning(
                "%s listens on %s, where other machines reach it, and nothing tells its clients "
                "from strangers: whoever connects may read, write and delete. Give it certificates "
                "(docs/security.md)",
                self._node_id,
                self._node.host,
            )
        if self._shows_metrics:
            logger.warning(
                "%s serves metrics on %s, where other machines reach it, without TLS: the network "
                "may read them. Give it certificates (docs/metrics.md)",
                self._node_id,
                self._node.metrics_host,
            )
