"""DLedgerCommitLog: a group's log as the commit log of a RocketMQ broker.

Each message is an entry of its own, so the bytes of the group's data files are those that a broker in DLedger mode
writes: header, message, header, message, padding (-1, size) at a file's end. RocketMQ's own blank (size, magic) stands
only in files of a plain commit log, never here.

    put       `dledger.server.puts`: physical and queue offsets are settled and written into the message
    commit    the group's own protocol; a message that is acknowledged is on the disks of a quorum
    get       `dledger.server.gets`: what is committed and applied, nothing else
"""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import AddressValueError, IPv4Address
from typing import Any

from dledger.catalog.catalog import Catalog
from dledger.config import GroupConfig
from dledger.errors import CorruptEntry
from dledger.messages.broker import PutMessageRequest, ViewMessageRequest
from dledger.messages.client import AppendRequest, AppendResponse, ExecuteRequest, ExecuteResponse
from dledger.messages.codes import Code
from dledger.raft.ready import Finished
from dledger.rocketmq.hosts import Host
from dledger.server.appends import Writes
from dledger.server.application import Application, Handler, refusing
from dledger.server.driver import Driver
from dledger.server.gets import Gets
from dledger.server.offsets import LinearizableReads
from dledger.server.puts import Puts
from dledger.store.api import LogStore


class DLedgerCommitLog(Application):
    """The application of a group with ``commit_log="rocketmq"``."""

    def __init__(
        self,
        group: GroupConfig,
        driver: Driver,
        catalog: Catalog,
        store: LogStore,
        writes: Writes,
        linearizable: LinearizableReads,
        address: Callable[[], str],
        on_damage: Callable[[CorruptEntry], None],
    ) -> None:
        """``address``: the ``host:port`` under which this node is known."""
        self._catalog = catalog
        self.puts = Puts(group, driver, catalog, writes, lambda: store_host(address()))
        self.gets = Gets(driver, catalog, store, linearizable, on_damage)

    def handlers(self) -> dict[type[Any], Handler]:
        """Messages are put and got; there are no topics to create or append to."""
        text = "this group keeps a RocketMQ commit log, which has no topics of its own: put messages into it"
        return {
            PutMessageRequest: self.puts.put,
            ViewMessageRequest: self.gets.view,
            AppendRequest: refusing(AppendResponse, text),
            ExecuteRequest: refusing(ExecuteResponse, text),
        }

    @property
    def waiting(self) -> int:
        return self.puts.waiting

    def on_pass(self) -> None:
        self.puts.applied()

    def on_finished(self, finished: Finished) -> None:
        self.puts.finished(finished)

    def fail_all(self, code: Code) -> None:
        self.puts.fail_all(code)

    def status(self) -> dict[str, Any]:
        return {"pending_puts": self.puts.waiting, "message_queues": len(self._catalog.queues.next)}


def application_of(
    group: GroupConfig,
    driver: Driver,
    catalog: Catalog,
    store: LogStore,
    writes: Writes,
    linearizable: LinearizableReads,
    address: Callable[[], str],
    on_damage: Callable[[CorruptEntry], None],
) -> Application:
    """What the log of a group is for."""
    if group.commit_log == "topics":
        return Application()
    return DLedgerCommitLog(group, driver, catalog, store, writes, linearizable, address, on_damage)


def store_host(address: str) -> Host:
    """What messages carry as their store host: where this node is known to serve, with IP 0.0.0.0 where that is not an
    IPv4 address but a name or an IPv6 one, for which a message need not have room."""
    host, _, port = address.rpartition(":")
    try:
        return Host(IPv4Address(host).packed, int(port))
    except AddressValueError:
        return Host(bytes(4), int(port))
