"""``dledger rocketmq follow`` and ``serve-ha``: slave and master of RocketMQ brokers."""

from __future__ import annotations

import signal
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from dledger.cli.common import PATH, set_option
from dledger.errors import ConfigError, FormatError, PathError, PortInUse, ProtocolError

if TYPE_CHECKING:
    from dledger.rocketmq.ha.ha_service import HAService
    from dledger.rocketmq.store.message_store import MessageStore

F = TypeVar("F", bound=Callable[..., Any])


def store_options(function: F) -> F:
    """``--store`` and the broker's settings."""
    function = set_option(
        "A setting of the broker's configuration, e.g. mappedFileSizeCommitLog, which must "
        "be the other side's."
    )(function)
    return click.option(
        "--store", "root", required=True, type=PATH, metavar="DIR", help="The store's root."
    )(function)


@click.command()
@click.argument("master", metavar="HOST:PORT")
@store_options
@click.option("--listen", metavar="HOST:PORT", help="Let other slaves follow this one.")
def follow(master: str, root: Path, settings: tuple[str, ...], listen: str | None) -> None:
    """Be a slave of the RocketMQ master at HOST:PORT (its listenPort + 1), until SIGTERM or SIGINT.

    The master's commit log goes into the store in DIR, which is made if there is none, with consume
    queues and index. A sync master's sends are acknowledged once they are on this disk. Spark's
    readStream over DIR shows each message. It may be killed at any time and goes on where it was.
    """
    from dledger.net.address import split_address
    from dledger.rocketmq.config import HA, STORE
    from dledger.rocketmq.ha.slave import follow_master

    split_address(master)
    at = split_listen(listen) if listen else None
    ha = {name: value for name, value in HA.items() if at or name != "haTransferBatchSize"}

    async def work(store: MessageStore, ha_settings: Any) -> None:
        if at is None:
            await follow_master(store, master, ha_settings)
            return
        from dledger.rocketmq.ha.ha_service import HAService

        service = HAService(store.log, settings=ha_settings)
        await service.start(*at)
        ready(service)
        try:
            await follow_master(store, master, ha_settings, service.notify_appended)
        finally:
            await service.stop()

    run_over(root, settings, {**STORE, **ha}, work, create=True)


@click.command("serve-ha")
@store_options
@click.option(
    "--listen",
    required=True,
    metavar="HOST:PORT",
    help="Where slaves find it; they look at the port behind "
    "their master's listenPort, or where haMasterAddress says.",
)
def serve_ha(root: Path, settings: tuple[str, ...], listen: str) -> None:
    """Be the master that RocketMQ slaves follow: serve the store in DIR, until SIGTERM or SIGINT.

    An empty slave gets the last file of the commit log only, from any RocketMQ master; older files
    can be copied.
    """
    from dledger.rocketmq.config import HA, STORE
    from dledger.rocketmq.ha.serve import serve_store

    host, port = split_listen(listen)

    async def work(store: MessageStore, ha_settings: Any) -> None:
        await serve_store(store, host, port, ha_settings, ready)

    run_over(root, settings, {**STORE, **HA}, work, create=False)


def split_listen(text: str) -> tuple[str, int]:
    """``host:port``, where the port may be 0 for any free one.

    Raises:
        ConfigError: it is not of that form.
    """
    from dledger.net.address import split_address

    return (
        (text[:-2].strip("[]"), 0) if text.endswith(":0") and len(text) > 2 else split_address(text)
    )


def ready(service: HAService) -> None:
    """Say where slaves can connect."""
    accepts = service.accept_socket_service
    click.echo(
        f"listening on {accepts.host}:{accepts.port}, log {service.log.min_offset} to "
        f"{service.log.max_offset}"
    )


def run_over(
    root: Path,
    texts: tuple[str, ...],
    known: Any,
    work: Callable[[MessageStore, Any], Coroutine[Any, Any, None]],
    *,
    create: bool,
) -> None:
    """Open the store, work until a signal, close it.

    Raises:
        ConfigError, PathError, CorruptStore: the store cannot be opened like this.
        DLedgerError: the error that ended the work; a store not in doubt is closed all the same.
    """
    from dledger.net import run
    from dledger.node.process import log_to_stderr, tune_interpreter
    from dledger.rocketmq.config import STORE, parse_broker_settings
    from dledger.rocketmq.dispatch.reput_columns import ColumnReput
    from dledger.rocketmq.ha_protocol.messages import HASettings
    from dledger.rocketmq.store.message_store import MessageStore
    from dledger.storage.disk.disk import RealDisk
    from dledger.storage.disk.modes import OWNER, UMASK

    given = parse_broker_settings(texts, known)
    of_store = {name: given.pop(name) for name, _ in STORE.values() if name in given}
    if not create and not (root / "commitlog").is_dir():
        raise PathError(
            f"--store {root}: there is no commitlog in it; name the root of a broker's store"
        )
    log_to_stderr()
    # a copy is of this service alone, a broker's own store is the broker's
    disk = RealDisk(modes=OWNER if create else UMASK)
    store = MessageStore(root, reput=ColumnReput, disk=disk, **of_store)
    try:
        ha_settings = HASettings(mapped_file_size_commit_log=store.log.file_size, **given)
        tune_interpreter()
        run(until_signalled(work(store, ha_settings)))
    except (ConfigError, PortInUse, ProtocolError, FormatError):
        store.close()
        raise
    except BaseException:
        store.abandon()
        raise
    store.close()


async def until_signalled(work: Coroutine[Any, Any, None]) -> None:
    """Work until SIGTERM or SIGINT; a second one ends the process at once."""
    import asyncio

    loop = asyncio.get_running_loop()
    task = loop.create_task(work)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, task.cancel)
    await asyncio.wait([task])
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.remove_signal_handler(number)
    if not task.cancelled():
        task.result()
