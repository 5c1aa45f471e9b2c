"""One node: the only place where raft, store, catalog and net meet."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

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
from dledger.node.context import NodeContext
from dledger.node.meters import Meters
from dledger.node.opening import open_context
from dledger.node.parts import NodeParts
from dledger.node.peers.handshake import Gate
from dledger.node.peers.members import GroupMembers
from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.membership import MemberRole
from dledger.raft.state.ready import RoleChange
from dledger.storage.api import LogStore
from dledger.storage.disk.disk import Disk, RealDisk
from dledger.storage.disk.modes import OWNER, UNIX_GROUP
from dledger.storage.opening import open_store
from dledger.types import NodeId, Role

if TYPE_CHECKING:
    from dledger.node.monitoring.monitor import Monitor

logger = logging.getLogger(__name__)

STUCK_MS: Final = 5000
"""A loop that is only busy calls the core sooner."""
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
        modes = UNIX_GROUP if node.unix_group_reads else OWNER
        real = RealDisk(direct=node.flush == "sync", modes=modes)
        self._disk: Disk = disk if disk is not None else real
        self._settings = settings
        self.on_settings: Callable[[NodeConfig], object] = lambda node: None
        """Told when some of the node's settings are others."""
        self._error: BaseException | None = None
        self._failed = asyncio.Event()
        self._idle = asyncio.Event()
        self.removed = asyncio.Event()
        self._running = False
        self._closed = False
        self._restarting: asyncio.Task[bool] | None = None
        self._monitor: Monitor | None = None
        """Serves metrics and health, from the beginning of `start` on."""
        if node.metrics_port >= 0:
            # only here: without these modules a node starts sooner
            from dledger.node.monitoring.monitor import Monitor

            self._monitor = Monitor(node, environment)

    # --- life -------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open the store, restore the catalog, listen, and take part.

        Raises:
            WrongGroup: the directory belongs to another group or node.
            CorruptStore: the files contradict one another in a way that no crash explains.
            PortInUse: another process listens on the port.
            PathError: the directory cannot be used.
        """
        if self._monitor is not None:
            self._monitor.open()
        try:
            await self._start()
        except BaseException:
            self._end_monitor()
            raise

    async def _start(self) -> None:
        members = GroupMembers(self.group, self._addresses)
        gate = Gate(
            self.group,
            self.node,
            members=members,
            disk=self._disk,
            environment=self._environment,
        )
        self.store: LogStore = open_store(
            self.group, self.node, self._disk, environment=self._environment
        )
        try:
            opened = open_context(
                self.group,
                self.node,
                store=self.store,
                gate=gate,
                disk=self._disk,
                members=members,
                environment=self._environment,
                meters=self._meters,
            )
            self._make_parts(gate, opened.context)
            await self.parts.router.open()
        except BaseException:
            self.store.close()
            raise
        self._running = True
        parts, committed = self.parts, self.raft.committed_index
        parts.versions.start()
        parts.peers.start()
        parts.ready_loop.start()
        parts.repairs.found(opened.faults)
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

    def _make_parts(self, gate: Gate, context: NodeContext) -> None:
        self.catalog, self.checkpoints, self.raft = (
            context.catalog, context.checkpoints, context.raft,
        )  # fmt: skip
        # by an entry that is not applied again, or in a state of the leader's
        if context.catalog.secret_enforced:
            gate.enforce()
        self.parts = NodeParts(context, gate, settings=self._settings)
        events = context.events
        events.damage.subscribe(self._end_if_alone)
        events.role.subscribe(self._log_role)
        events.idle.subscribe(self._idle.set)
        events.fact.subscribe(lambda fact: self.removed.set() if fact.event == "removed" else None)
        events.settings.subscribe(self._new_settings)
        events.restart.subscribe(self._restart)
        events.fatal.subscribe(self._fatal)
        if self._monitor is not None:
            self._monitor.watches(self.parts)

    async def stop(self) -> None:
        """Hand leadership over, answer pending requests, save everything, close. Safe to call
        twice."""
        if self._closed or not self._running:
            return
        self._closed = True
        if self._restarting is not None and not await self._restarting:
            self._end_monitor()
            return
        if self._error is None:
            parts = self.parts
            await self._hand_over()
            await self._until(lambda: parts.waiting == 0)
        await self._end_parts()
        self._close_files()
        self._end_monitor()
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
        parts.member_changes.stop()
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
        parts.audit_topic.close()

    def _restart(self, between: Callable[[], None]) -> None:
        """Stop, carry out ``between``, and start again on the files that the disk has then."""
        self._restarting = asyncio.get_running_loop().create_task(self._stop_and_start(between))

    async def _stop_and_start(self, between: Callable[[], None]) -> bool:
        """Whether it runs again: not after an error, nor when it was asked to stop meanwhile."""
        self.node = replace(self.node, port=self.port)
        try:
            if self._monitor is not None:
                self._monitor.rests("it starts again on other files")
            await self._end_parts()
            try:
                between()
            except DiskFull as error:
                logger.warning("%s goes on as it was: %s", self.node.node_id, error)
            self._close_files()
            if not self._closed:
                await self._start()
                return True
        except Exception as error:
            self._fatal(error)
        return False

    def _end_monitor(self) -> None:
        if self._monitor is not None:
            self._monitor.close()

    def _close_files(self) -> None:
        self.checkpoints.close()
        self.store.close()

    async def _hand_over(self) -> None:
        """Let the follower with the most entries take over, so that clients wait for no
        election."""
        raft = self.raft
        members = self.parts.context.members
        if raft.role is not Role.LEADER or members.is_one:
            return
        roles = members.roles()
        others = {
            peer: mark
            for peer, mark in raft.watermarks.items()
            if peer != self.node.node_id and roles.get(peer) is MemberRole.VOTER
        }
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

    @property
    def metrics_port(self) -> int:
        """Where it serves metrics; 0 where it does not."""
        return self._monitor.port if self._monitor is not None else 0

    @property
    def _meters(self) -> Meters | None:
        return self._monitor.meters if self._monitor is not None else None

    @property
    def summary(self) -> str:
        """The state in one line."""
        raft, end = self.raft, self.store.end.position.index
        return (
            f"{raft.role.name} in term {raft.term}, leader {raft.leader_id or 'unknown'}; log "
            f"{self.store.begin_index} to {end}, committed {raft.committed_index}, applied "
            f"{self.catalog.applied_index}"
        )

    @property
    def is_stuck(self) -> bool:
        """The core wanted to be called long ago and was not, though the loop runs. A node that
        starts again within its process has no core meanwhile."""
        late_ms = self._environment.now_ms() - self.raft.deadline_ms()
        restarts = self._restarting is not None and not self._restarting.done()
        return late_ms > STUCK_MS and not restarts

    # --- events -----------------------------------------------------------------------------------

    def _end_if_alone(self, error: CorruptEntry) -> None:
        """Entries that a node without other members cannot read stay lost."""
        if self.parts.context.members.is_one and error.index == self.catalog.applied_index + 1:
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
            not self.store.begin_index or not self.parts.context.members.is_one
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
