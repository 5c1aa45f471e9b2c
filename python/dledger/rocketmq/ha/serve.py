"""Serve a store's log to the slaves of a RocketMQ master."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from dledger.rocketmq.ha.ha_service import HAService
from dledger.rocketmq.ha_protocol.group_transfer_service import BrokerRole
from dledger.rocketmq.ha_protocol.messages import HASettings
from dledger.rocketmq.store.message_store import MessageStore


async def serve_store(
    store: MessageStore,
    host: str,
    port: int,
    settings: HASettings,
    on_ready: Callable[[HAService], None] = lambda _: None,
) -> None:
    """Let slaves follow the store's log until cancelled.

    Args:
        settings: ``mapped_file_size_commit_log`` is the store's.
        on_ready: called when the port is open.

    Raises:
        PortInUse, ConfigError: the port cannot be opened.
    """
    service = HAService(store.log, BrokerRole.ASYNC_MASTER, settings=settings)
    await service.start(host, port)
    on_ready(service)
    try:
        await asyncio.Event().wait()
    finally:
        await service.stop()
