"""The leader's status, for fields that only the leader knows."""

from __future__ import annotations

import logging
from typing import Any

from dledger.errors import ConfigError, Unavailable
from dledger.node.context import NodePart

logger = logging.getLogger(__name__)


class LeaderStatus(NodePart):
    """Asks the member that leads now."""

    async def ask(self) -> dict[str, Any]:
        """The values of its status; empty where this node leads, no member does, or the leader does
        not answer."""
        leader = self._raft.leader_id
        if leader is None or leader == self._node_id:
            return {}
        try:
            return await self._peers.status_of(leader)
        except (Unavailable, ConfigError, LookupError) as error:
            logger.debug("%s does not tell its status: %s", leader, error)
            return {}
