"""A slave's store: its log follows a master's, while queues and index are made of it in another
thread."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from dledger.rocketmq.dispatch.reput_message_service import ReputMessageService
from dledger.rocketmq.ha.checked_log import CheckedLog
from dledger.rocketmq.ha.first_ended import first_ended
from dledger.rocketmq.ha.follower import BrokerFollower
from dledger.rocketmq.ha_protocol.messages import HASettings
from dledger.rocketmq.store.message_store import MessageStore

logger = logging.getLogger(__name__)


async def follow_master(
    store: MessageStore,
    address: str,
    settings: HASettings,
    on_appended: Callable[[], None] = lambda: None,
) -> None:
    """Follow the master at ``address`` until cancelled. The store is then whole, but not closed.

    Args:
        settings: ``mapped_file_size_commit_log`` is the store's.
        on_appended: called on the loop after each append.

    Raises:
        ProtocolError: the master sends bytes that cannot be this log's; the store is as it was.
        FormatError: the master's bytes are no sound messages; the log ends before them, and none of
            them were reported.
        DiskFull, StorageError: the store cannot be written.
    """
    loop = asyncio.get_running_loop()
    broken = asyncio.Event()

    def dispatch_failed() -> None:
        loop.call_soon_threadsafe(broken.set)

    def appended() -> None:
        reput.notify_appended()
        on_appended()

    def connected(there: bool) -> None:
        state = "follows" if there else "has lost"
        logger.info("%s %s %s, at offset %d", store.root, state, address, store.log.max_offset)

    log = CheckedLog(store.log, store.log.next_offsets, units_in_file=store.queues.units_in_file)
    follower = BrokerFollower(
        log, address, settings=settings, on_appended=appended, on_connected=connected
    )
    reput = ReputMessageService(store, dispatch_failed, busy=lambda: follower.in_bulk)
    reput.start()
    try:
        done = await first_ended(follower.run(), broken.wait())
    finally:
        await asyncio.to_thread(reput.stop)
    for task in done:
        task.result()
