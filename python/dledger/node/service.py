"""A node as a service: its manager hears what it does, and that it gets on."""

from __future__ import annotations

import asyncio
import logging
from typing import Final, Protocol

from dledger.net.service_manager import ServiceManager

logger = logging.getLogger(__name__)

STATUS_S: Final = 5.0
"""Between two looks at the node where the manager wants no pings."""


class WatchedNode(Protocol):
    """What is asked of a `dledger.node.node.NodeServer`."""

    @property
    def is_stuck(self) -> bool: ...
    @property
    def summary(self) -> str: ...


async def tell(manager: ServiceManager, node: WatchedNode) -> None:
    """Say that the node serves, then how it is, until this is cancelled. Pings come from the node's
    own loop, and only while the node gets on: one that hangs is started again by the manager."""
    if not manager.is_there:
        return
    manager.ready(node.summary)
    was_stuck = False
    while True:
        await asyncio.sleep(STATUS_S if manager.ping_s is None else manager.ping_s)
        manager.tell(node.summary)
        is_stuck = node.is_stuck
        if not is_stuck:
            manager.ping()
        elif not was_stuck:
            logger.error("the node does not get on; the service manager will start it again")
        was_stuck = is_stuck
