"""One node: the only place where raft, store, catalog and net meet."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from dledger.catalog.state_machine import Catalog
from dledger.catalog.topics.table import MemoryTables
from dledger.config import GroupConfig, NodeConfig
from dledger.environment import REAL, Environment
from dledger.errors import (
    CatalogLost,
    CorruptEntry,
    CorruptStore,
    DiskFull,
    DLedgerError,
    StorageError,
)
from dledger.net.reloaded import Reloaded
from dledger.node.audit import AuditLog
from dledger.node.audit.audit_file import AuditFile
from dledger.node.checkpoints import Checkpoints
from dledger.node.context import CurrentSettings, NodeContext
from dledger.node.events import NodeEvents
from dledger.node.handlers.replaced_disks import COMMAND_PREFIX, change_of, put_on_record
from dledger.node.loop.ready_loop import ReadyLoop
from dledger.node.parts import NodeParts
from dledger.node.peers.handshake import Gate
from dledger.node.peers.links import Peers
from dledger.node.snapshot.snapshots import summary_of
from dledger.protocol.messages.codes import Code
from dledger.raft.raft_node import RaftNode
from dledger.raft.state.ready import RoleChange
from dledger.raft.state.saved_state import RaftOptions, SavedState
from dledger.storage.api import LogStore
from dledger.storage.disk.disk import Disk, RealDisk
from dledger.storage.opening import open_store
from dledger.types import NodeId, Role

logger = logging.getLogger(__name__)

HAND_OVER_S: Final = 2.0
"""Longest wait at a graceful stop for another node to take over, and again for pending writes to be
answered."""


class NodeServer:
    """A member of a group that serves its peers and clients on one port.

    Args:
        group: the settings that all members agree on.
        node: the settings of this one.
        addresses: where the members can be reached, ``host:port`` each; read again for each use.
        disk, environment: for tests; the real ones otherwise.
        settings: where the node's are read again when their file changes; those in `LIVE` are used
            then.
    """

    def __init__(
        self,
        group: GroupConfig,
        node: NodeConfig,
        *,
        addresses: Callable[[], dict[NodeId, str]],
        disk: Disk | None = None,
        environment: Environment = REAL,
        settings: Reloaded[NodeConfig] | None = None,
    ) -> None:
        self.group = group
        self.node = node
        self._addresses = addresses
        self._environment = environment
        self._disk: Disk = disk if disk is not None else RealDisk(direct=node.flush == "sync")
        self._settings = settings
        self.on_settings: Callable[[NodeConfig], object] = lambda node: None
        """Told when some of the node's settings are others."""
        self._error: BaseException | None = None
        self._failed = asyncio.Event()
        self._idle = asyncio.Event()
        self._running = False
        self._closed = False
        self._restarting: asyncio.Task[bool] | None = None

    # --- life -------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open the store, restore the catalog, listen, and take part.

        Raises:
            WrongGroup: the directory belongs to another group or node.
            CorruptStore: the files contradict one another in a way that no crash explains.
            PortInUse: another process listens on the port.
            PathError: the directory cannot be used.
        """
        gate = Gate(self.group, self.node, disk=self._disk, environment=self._environment)
        self.store: LogStore = open_store(
            self.group, self.node, self._disk, environment=self._environment
        )
        try:
            self._make_parts(gate, self._open(gate))
            await self.parts.router.open()
        except BaseException:
            self.store.close()
            raise
        self._running = True
        parts, committed = self.parts, self.raft.committed_index
        parts.peers.start()
        parts.ready_loop.start()
        parts.repairs.found(self._faults)
        parts.admissions.start()
        parts.applier.advance(committed)
        parts.application.start(committed)
        parts.maintenance.start()
        parts.scrubber.start()
        parts.snapshots.start()
        logger.info(
            "%s of group %s listens on %s:%d; log %d to %d, applied to %d",
            self.node.node_id,
            self.group.group,
            self.node.host,
            self.port,
            self.store.begin_index,
            self.store.end.position.index,
            self.catalog.applied_index,
        )

    def _open(self, gate: Gate) -> NodeContext:
        """The catalog and the core on it, both without a part that uses them."""
        store, is_lost = self.store, False
        self.checkpoints = checkpoints = Checkpoints(self.node.directory, self._disk)
        try:
            catalog = checkpoints.restore(store)
        except CatalogLost as error:
            if len(self.group.members) == 1:
                raise CorruptStore(
                    f"{error}. No other node has it: put back a backup of the directory"
                ) from error
            logger.error("%s; the leader's is fetched", error)
            catalog, is_lost = Catalog(MemoryTables()), True
        self.catalog = catalog
        self._faults = (*store.recovery.faulty, *put_on_record(store, catalog))
        self.raft = raft = self._core()
        if is_lost:
            raft.follow_only()
        gate.known = lambda: raft.membership
        events = NodeEvents()
        peers = Peers(self.group, self.node, addresses=self._addresses, gate=gate, events=events)
        return NodeContext(
            group=self.group,
            current=CurrentSettings(self.node),
            environment=self._environment,
            disk=self._disk,
            store=store,
            catalog=catalog,
            catalog_lost=is_lost,
            addresses=self._addresses,
            events=events,
            peers=peers,
            ready_loop=ReadyLoop(
                raft,
                store,
                links=peers.links,
                events=events,
                lazy=self.node.flush == "async",
                environment=self._environment,
            ),
            checkpoints=checkpoints,
            audit=self._audit_log(),
        )

    def _audit_log(self) -> AuditLog:
        node, file = self.node, None
        if node.audit_files:
            file = AuditFile(
                self._disk,
                node.directory,
                environment=self._environment,
                max_bytes=node.audit_file_bytes,
                files=node.audit_files,
            )
        return AuditLog(node.node_id, file, environment=self._environment)

    def _core(self) -> RaftNode:
        store = self.store
        log = summary_of(store, self.catalog, self._faults)
        return RaftNode(
            self.group,
            self.node.node_id,
            saved=SavedState(store.hard_state, log, store.membership),
            dice=self._environment.below,
            now_ms=self._environment.now_ms(),
            options=RaftOptions(self.node.cache_bytes, change_of, COMMAND_PREFIX),
        )

    def _make_parts(self, gate: Gate, context: NodeContext) -> None:
        # by an entry that is not applied again, or in a state of the leader's
        if context.catalog.secret_enforced:
            gate.enforce()
        self.parts = NodeParts(context, gate, settings=self._settings)
        events = context.events
        events.damage.subscribe(self._end_if_alone)
        events.role.subscribe(self._log_role)
        events.idle.subscribe(self._idle.set)
        events.settings.subscribe(self._new_settings)
        events.restart.subscribe(self._restart)
        events.fatal.subscribe(self._fatal)

    async def stop(self) -> None:
        """Hand leadership over, answer pending requests, save everything, close. Safe to call
        twice."""
        if self._closed or not self._running:
            return
        self._closed = True
        if self._restarting is not None and not await self._restarting:
            return
        if self._error is None:
            parts = self.parts
            await self._hand_over()
            await self._until(lambda: parts.proposals.waiting + parts.application.waiting == 0)
        await self._end_parts()
        self._close_files()
        logger.info("%s of group %s has stopped", self.node.node_id, self.group.group)

    def reload(self) -> None:
        """Read the files again that may change while it runs: certificates, secret and settings."""
        if self._running and not self._closed:
            self.parts.events.reload()

    def _new_settings(self) -> None:
        self.node = self.parts.context.node
        self.on_settings(self.node)

    async def kill(self) -> None:
        """For tests: what SIGKILL does, as far as a process can do it to one of its nodes. Nothing
        is answered, handed over or saved; only the store closes its files as ever."""
        self.parts.ready_loop.failed = True
        self._error = self._error or StorageError(f"{self.node.node_id} was killed")
        self.parts.router.abort()
        await self.stop()

    async def _end_parts(self) -> None:
        """Everything ends but the files, which have all that was given to them."""
        parts = self.parts
        parts.proposals.fail_all(Code.TERM_CHANGED)
        parts.application.fail_all(Code.TERM_CHANGED)
        parts.linearizable.fail_all(Code.NOT_LEADER)
        parts.reads.stop()
        parts.polls.stop()
        await parts.router.close()
        if self._error is None:
            parts.checkpointer.save()
        parts.maintenance.stop()
        if parts.checkpointer.saving is not None:
            await asyncio.wait([parts.checkpointer.saving])
        parts.applier.stop()
        parts.scrubber.stop()
        parts.repairs.stop()
        parts.snapshots.stop()
        parts.admissions.stop()
        await parts.peers.close()
        await parts.ready_loop.stop()
        await parts.application.stop(clean=self._error is None)
        parts.context.audit.close()

    def _restart(self, between: Callable[[], None]) -> None:
        """Stop, carry out ``between``, and start again on the files that the disk has then."""
        self._restarting = asyncio.get_running_loop().create_task(self._stop_and_start(between))

    async def _stop_and_start(self, between: Callable[[], None]) -> bool:
        """Whether it runs again: not after an error, nor when it was asked to stop meanwhile."""
        self.node = replace(self.node, port=self.port)
        try:
            await self._end_parts()
            try:
                between()
            except DiskFull as error:
                logger.warning("%s goes on as it was: %s", self.node.node_id, error)
            self._close_files()
            if not self._closed:
                await self.start()
                return True
        except Exception as error:
            self._fatal(error)
        return False

    def _close_files(self) -> None:
        self.checkpoints.close()
        self.store.close()

    async def _hand_over(self) -> None:
        """Let the follower with the most entries take over, so that clients wait for no
        election."""
        raft = self.raft
        if raft.role is not Role.LEADER or len(self.group.members) == 1:
            return
        others = {peer: mark for peer, mark in raft.watermarks.items() if peer != self.node.node_id}
        connected = self.parts.peers.connected()
        heard = raft.heard
        candidates = [
            p for p in others if connected.get(str(p)) and raft.membership.of(p) == heard.get(p)
        ]
        if not candidates:
            return
        best = max(candidates, key=lambda peer: others[peer])
        self.parts.ready_loop.transfer(best)
        await self._until(lambda: raft.role is not Role.LEADER)

    async def _until(self, condition: Callable[[], bool]) -> None:
        """Wait for ``condition``, which other events make true, but not for ever."""
        end = self._environment.now_ms() + int(HAND_OVER_S * 1000)
        now_ms = self._environment.now_ms
        while not condition() and now_ms() < end and self._error is None:  # noqa: ASYNC110 - many events can make it so
            await asyncio.sleep(0.005)

    async def wait_failed(self) -> None:
        """Returns never; raises the error that ends this node.

        Raises:
            StorageError: the disk failed, or a promise was found broken.
        """
        await self._failed.wait()
        assert self._error is not None
        raise self._error

    async def wait_idle(self) -> None:
        """Until the node was not used for ``idle_timeout_ms``."""
        await self._idle.wait()

    # --- waiting --------------------------------------------------------------------------

    @property
    def port(self) -> int:
        """Where it listens."""
        return self.parts.router.port

    # --- events -----------------------------------------------------------------------------------

    def _end_if_alone(self, error: CorruptEntry) -> None:
        """Entries that a node without other members cannot read stay lost."""
        if len(self.group.members) == 1 and error.index == self.catalog.applied_index + 1:
            self.parts.ready_loop.fail(
                CorruptStore(
                    f"{self.node.directory}: a committed entry cannot be applied: {error}. No "
                    "other node has a copy: put back a backup of this directory; 'dledger verify' "
                    "tells all that is damaged"
                )
            )

    def _log_role(self, change: RoleChange) -> None:
        logger.info(
            "%s is %s in term %d, leader %s",
            self.node.node_id,
            change.role.name,
            change.term,
            change.leader_id or "unknown",
        )

    def _fatal(self, error: BaseException) -> None:
        """The end: a request that waits for an acknowledgement never gets one from this node (D2).
        Not where only the catalog is lost that can be had again, from the log or from another
        node."""
        self.parts.applier.stop()  # it may have read what it wants to write into the topic index
        can_rebuild = not self._closed and (
            not self.store.begin_index or len(self.group.members) > 1
        )
        if isinstance(error, CatalogLost) and can_rebuild:
            logger.error("%s: the catalog and its tables are made again", error)
            self._restart(self.checkpoints.forget)
            return
        self.store.abandon()
        self._error = error
        if isinstance(error, DLedgerError):
            logger.critical("%s stops: %s", self.node.node_id, error)
        else:
            logger.critical("%s stops because of a defect", self.node.node_id, exc_info=error)
            self._error = StorageError(
                f"{self.node.node_id} stopped because of a defect: {error!r}"
            )
            self._error.__cause__ = error
        self.parts.router.abort()
        self._failed.set()
