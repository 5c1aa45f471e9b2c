"""The leader's status, for fields that only the leader knows."""

from __future__ import annotations

import logging
from typing import Any

from dledger.errors import ConfigError, Unavailable
from dledger.node.context import NodeContext

logger = logging.getLogger(__name__)


async def leader_status(context: NodeContext) -> dict[str, Any]:
    """The values of the leader's status; empty where this node leads, no member does, or the leader
    does not answer."""
    leader = context.raft.leader_id
    if leader is None or leader == context.node_id:
        return {}
    try:
        return await context.peers.status_of(leader)
    except (Unavailable, ConfigError, LookupError) as error:
        logger.debug("%s does not tell its status: %s", leader, error)
        return {}
