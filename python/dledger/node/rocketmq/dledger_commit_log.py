"""DLedgerCommitLog: a group's log as the commit log of a RocketMQ broker.

Each message is an entry of its own, so the bytes of the group's data files are those that a broker
in DLedger mode writes: header, message, header, message, padding (-1, size) at a file's end.
RocketMQ's own blank (size, magic) stands only in files of a plain commit log, never here.

    put       `dledger.node.rocketmq.puts`: physical and queue offsets are settled and written into
    the message commit    the group's own protocol; a message that is acknowledged is on the disks
    of a quorum reput     `dledger.node.rocketmq.reput_service`: committed messages go into this
    node's consume queues and index get       `dledger.node.rocketmq.gets`: by place, queue offset
    or key; what is committed, nothing else

A log that goes on behind an old plain commit log (`dledger.rocketmq.upgrade.old_commit_log`) begins
with an entry that has the queue offsets of that one, and has its messages in queues and index; a
get by a place in front of the log reads there.

Roles change without any of this being started or stopped: a node that leads no more refuses puts,
one that leads takes them when it has applied all that was committed before, and every node
dispatches what is committed.
"""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import AddressValueError, IPv4Address
from typing import Any

from dledger.catalog.state_machine import Catalog
from dledger.config import GroupConfig, NodeConfig
from dledger.errors import CorruptEntry
from dledger.node.application import Application, Handler, refusing
from dledger.node.handlers.offsets import LinearizableReads
from dledger.node.loop.proposals import ProposalQueue
from dledger.node.loop.ready_loop import ReadyLoop
from dledger.node.rocketmq.gets import Gets
from dledger.node.rocketmq.puts import Puts
from dledger.node.rocketmq.reput_service import ReputMessageService
from dledger.protocol.messages.client import (
    AppendRequest,
    AppendResponse,
    ExecuteRequest,
    ExecuteResponse,
)
from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.rocketmq import (
    GetMessageRequest,
    PutMessageRequest,
    QueryMessageRequest,
    ViewMessageRequest,
)
from dledger.raft.state.ready import Finished
from dledger.rocketmq.format.hosts import Host
from dledger.storage.api import LogStore
from dledger.storage.recovery.open_files import StoreSettings
from dledger.types import Index, NodeId


class DLedgerCommitLog(Application):
    """The application of a group with ``commit_log="rocketmq"``."""

    def __init__(
        self,
        group: GroupConfig,
        node: NodeConfig,
        driver: ReadyLoop,
        catalog: Catalog,
        store: LogStore,
        writes: ProposalQueue,
        linearizable: LinearizableReads,
        addresses: Callable[[], dict[NodeId, str]],
        on_damage: Callable[[CorruptEntry], None],
    ) -> None:
        """``addresses``: the ``host:port`` under which each node is known."""
        self._catalog = catalog
        self._settings = StoreSettings.of(group, node)
        self.puts = Puts(
            group, driver, catalog, writes, lambda: store_host(addresses()[node.node_id])
        )
        self.reput = ReputMessageService(node, driver, store, on_damage)
        self.gets = Gets(driver, catalog, store, linearizable, self.reput, on_damage)

    def handlers(self) -> dict[type[Any], Handler]:
        """Messages are put and got; there are no topics to create or append to."""
        text = (
            "this group keeps a RocketMQ commit log, which has no topics of its own: put "
            "messages into it"
        )
        return {
            PutMessageRequest: self.puts.put,
            ViewMessageRequest: self.gets.view,
            GetMessageRequest: self.gets.get,
            QueryMessageRequest: self.gets.query,
            AppendRequest: refusing(AppendResponse, text),
            ExecuteRequest: refusing(ExecuteResponse, text),
        }

    @property
    def waiting(self) -> int:
        return self.puts.waiting

    def start(self, committed: Index) -> None:
        self.reput.start(committed)

    def on_committed(self, index: Index) -> None:
        self.reput.committed(index)

    def on_pass(self) -> None:
        self.puts.applied()

    def on_finished(self, finished: Finished) -> None:
        self.puts.finished(finished)

    def fail_all(self, code: Code) -> None:
        self.puts.fail_all(code)

    async def retain_old(self, now_ms: int) -> bool:
        return await self.reput.retain_old(self._settings, now_ms)

    async def stop(self, *, clean: bool) -> None:
        await self.reput.stop(clean=clean)

    def status(self) -> dict[str, Any]:
        values = {
            "pending_puts": self.puts.waiting,
            "message_queues": len(self._catalog.queues.next),
        }
        return {**values, **self.reput.status()}


def application_of(
    group: GroupConfig,
    node: NodeConfig,
    driver: ReadyLoop,
    catalog: Catalog,
    store: LogStore,
    writes: ProposalQueue,
    linearizable: LinearizableReads,
    addresses: Callable[[], dict[NodeId, str]],
    on_damage: Callable[[CorruptEntry], None],
) -> Application:
    """What the log of a group is for."""
    if group.commit_log == "topics":
        return Application()
    return DLedgerCommitLog(
        group, node, driver, catalog, store, writes, linearizable, addresses, on_damage
    )


def store_host(address: str) -> Host:
    """What messages carry as their store host: where this node is known to serve, with IP 0.0.0.0
    where that is not an IPv4 address but a name or an IPv6 one, for which a message need not have
    room."""
    host, _, port = address.rpartition(":")
    try:
        return Host(IPv4Address(host).packed, int(port))
    except AddressValueError:
        return Host(bytes(4), int(port))
