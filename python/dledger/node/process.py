"""A node as a process: runs until a signal, until it is idle, or until its disk fails."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import sys
from collections.abc import Callable
from functools import partial
from typing import Final

from dledger.config import GroupConfig, NodeConfig
from dledger.environment import REAL, Environment
from dledger.logs.output import Output
from dledger.net import run
from dledger.net.reloaded import Reloaded
from dledger.net.service_manager import ServiceManager
from dledger.node.handlers.removed_node import removal
from dledger.node.node import NodeServer
from dledger.node.service import tell
from dledger.storage.disk.disk import Disk
from dledger.types import NodeId

logger = logging.getLogger(__name__)

SWEEP_S: Final = 1.0
"""Between two looks for log records that were only counted."""
SWITCH_S: Final = 0.0005
"""How soon the loop lets the flusher's thread go on when both have something to do. Python's own 5
ms would be added to every sync."""


def run_node(
    group: GroupConfig,
    node: NodeConfig,
    addresses: Callable[[], dict[NodeId, str]],
    on_ready: Callable[[int], None] | None = None,
    *,
    disk: Disk | None = None,
    environment: Environment = REAL,
    settings: Reloaded[NodeConfig] | None = None,
) -> None:
    """Run one node in this process; returns after a graceful end (SIGTERM, SIGINT, or unused for
    long enough).

    Args:
        addresses: where the members can be reached, ``host:port`` each.
        on_ready: told the port once the node listens.
        disk, environment: for tests; the real ones otherwise.
        settings: as `NodeServer` takes them.

    Raises:
        StorageError: the disk failed, and the node stopped acknowledging at once; exit with an
            error.
        NodeRemoved: the group has removed it, before or now.
        CorruptStore, WrongGroup, PathError, PortInUse: it could not start.
    """
    output = log_to_stderr()
    if output is not None:
        output.use(node.log_format, node.log_level)
    server = partial(
        NodeServer,
        group,
        node,
        addresses=addresses,
        disk=disk,
        environment=environment,
        settings=settings,
    )
    run(serve(server, on_ready, output))


async def serve(
    make: Callable[[], NodeServer],
    on_ready: Callable[[int], None] | None = None,
    output: Output | None = None,
) -> None:
    """`run_node` on a loop that runs already. ``output``: of the process' log records."""
    tune_interpreter()
    loop = asyncio.get_running_loop()
    signalled = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, signalled.set)
    server = make()
    loop.add_signal_handler(signal.SIGHUP, server.reload)  # does nothing before it has started
    if output is not None:
        server.on_settings = lambda node: output.use(node.log_format, node.log_level)
    manager = ServiceManager()
    manager.tell("reads its files")
    await server.start()
    telling = asyncio.create_task(tell(manager, server))
    loop.add_signal_handler(signal.SIGHUP, partial(_reload, manager, server))
    if on_ready is not None:
        on_ready(server.port)
    counting = asyncio.create_task(tell_counted(output)) if output is not None else None
    waits = {
        asyncio.create_task(signalled.wait(), name="asked to by a signal"),
        asyncio.create_task(server.wait_idle(), name="nobody has used it"),
        asyncio.create_task(_end_of(server), name="it was removed from the group"),
        asyncio.create_task(server.wait_failed(), name="it failed"),
    }
    done, rest = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for wait in rest:
        wait.cancel()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.remove_signal_handler(number)  # a second one ends the process at once
    if counting is not None:
        counting.cancel()
    first = next(iter(done))
    logger.info("%s ends: %s", server.node.node_id, first.get_name())
    telling.cancel()
    manager.stopping()
    await server.stop()
    first.result()


async def _end_of(server: NodeServer) -> None:
    """Raises the error of a node that its group has removed, once it has."""
    await server.removed.wait()
    raise removal(server.node)


def _reload(manager: ServiceManager, server: NodeServer) -> None:
    manager.reloading()
    server.reload()
    manager.ready(server.summary)


def tune_interpreter() -> None:
    """For a process that is a node and nothing else: objects made at start-up are never collected,
    and collections are rare because nearly all objects here are freed by reference counts."""
    sys.setswitchinterval(SWITCH_S)
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


def log_to_stderr() -> Output | None:
    """One line for each record; None: the program has set up logging itself."""
    return None if logging.getLogger().handlers else Output(logging.StreamHandler())


async def tell_counted(output: Output) -> None:
    """Log now and then what the output has only counted; ends when it is cancelled."""
    while True:
        await asyncio.sleep(SWEEP_S)
        output.sweep()
