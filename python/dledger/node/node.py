"""One node: the only place where raft, store, catalog and net meet."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

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
from dledger.node.handlers.admission import Admissions, change_of, explain, put_on_record
from dledger.node.handlers.fetches import Reads
from dledger.node.handlers.handshake import Gate
from dledger.node.handlers.listings import Listings
from dledger.node.handlers.metadata import MetadataHandler
from dledger.node.handlers.offsets import LinearizableReads, Offsets
from dledger.node.handlers.parked_requests import LongPolls
from dledger.node.handlers.peers import Peers
from dledger.node.handlers.request_router import RequestRouter, frame_limits
from dledger.node.loop.applier import Applier
from dledger.node.loop.proposals import ProposalQueue
from dledger.node.loop.ready_loop import ReadyLoop
from dledger.node.maintenance.maintenance import Maintenance
from dledger.node.maintenance.repair import Repairs
from dledger.node.maintenance.scrub import Scrubber
from dledger.node.rocketmq.dledger_commit_log import application_of
from dledger.node.snapshot.checkpoint import Checkpoints
from dledger.node.snapshot.snapshots import Snapshots, summary_of
from dledger.protocol.messages.codes import Code
from dledger.raft.raft_node import RaftNode
from dledger.raft.state.ready import Fact, Finished, Install, ReadDone, RoleChange, TransferDone
from dledger.storage.api import LogStore
from dledger.storage.disk.disk import Disk, RealDisk
from dledger.storage.file_store import open_store
from dledger.types import Index, NodeId, Role

logger = logging.getLogger(__name__)

HAND_OVER_S: Final = 2.0
"""Longest wait at a graceful stop for another node to take over, and again for pending writes to be
answered."""


class NodeServer:
    """A member of a group that serves its peers and clients on one port.

    Args:
        group: what all members agree on.
        node: what this one has for itself.
        addresses: where the members can be reached, ``host:port`` each; asked again whenever it
            matters.
        disk, environment: for tests; the real ones otherwise.
    """

    def __init__(
        self,
        group: GroupConfig,
        node: NodeConfig,
        addresses: Callable[[], dict[NodeId, str]],
        *,
        disk: Disk | None = None,
        environment: Environment = REAL,
    ) -> None:
        self.group = group
        self.node = node
        self._addresses = addresses
        self._environment = environment
        self._disk: Disk = disk if disk is not None else RealDisk(direct=node.flush == "sync")
        self._error: BaseException | None = None
        self._failed = asyncio.Event()
        self._idle = asyncio.Event()
        self._running = False
        self._closed = False
        self._is_lost = False
        """Its catalog is: until it has the leader's it applies nothing, leads nobody and answers no
        client."""
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
        self.gate = Gate(self.group, self.node, self._disk, self._environment)
        self.store: LogStore = open_store(
            self.group, self.node, self._disk, environment=self._environment
        )
        try:
            self.checkpoints = Checkpoints(self.node.directory, self._disk)
            self.catalog = self._restore()
            # by an entry that is not applied again, or in a state of the leader's
            if self.catalog.secret_enforced:
                self.gate.enforce()
            self._faults = (*self.store.recovery.faulty, *put_on_record(self.store, self.catalog))
            self._build()
            await self.front.open()
        except BaseException:
            self.store.close()
            raise
        self._running = True
        self.peers.start()
        self.driver.start()
        self.repairs.found(self._faults)
        self.admissions.start()
        self._apply(self.raft.committed_index)
        self.application.start(self.raft.committed_index)
        self.house.start()
        self.scrubber.start()
        self.states.start()
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

    def _restore(self) -> Catalog:
        """The catalog, or an empty one in its place while the group's is fetched."""
        self._is_lost = False
        try:
            return self.checkpoints.restore(self.store)
        except CatalogLost as error:
            if len(self.group.members) == 1:
                raise CorruptStore(
                    f"{error}. No other node has it: put back a backup of the directory"
                ) from error
            logger.error("%s; the leader's is fetched", error)
            self._is_lost = True
            return Catalog(MemoryTables())

    def _build(self) -> None:
        group, node, store, machine, gate = (
            self.group,
            self.node,
            self.store,
            self._environment,
            self.gate,
        )
        self.raft = RaftNode(
            group,
            node.node_id,
            store.hard_state,
            summary_of(store, self.catalog, self._faults),
            machine.below,
            machine.now_ms(),
            node.cache_bytes,
            store.membership,
            change_of,
        )
        gate.known = lambda: self.raft.membership
        if self._is_lost:
            self.raft.follow_only()
        self.peers = Peers(
            group,
            node,
            self._addresses,
            frame_limits(group),
            lambda peer: self.driver.peer_found(peer),
            gate,
        )
        self.driver = ReadyLoop(
            self.raft,
            store,
            self.peers.send,
            self.peers.flush,
            self,
            self._fatal,
            lazy=node.flush == "async",
            environment=machine,
        )
        self.writes = ProposalQueue(
            group, self.driver, self.catalog, lambda: self.front.relieved(), self.peers.shut_out
        )
        self.admissions = Admissions(group, self.driver, self.catalog, self.writes)
        self.applier = Applier(
            self.catalog,
            self.raft,
            store,
            self.driver.on_reader,
            self.writes.known_header,
            self.writes.applied,
            self._on_pass,
            self.driver.fail,
            self.on_damage,
            gate.enforce,
        )
        self.repairs = Repairs(
            group,
            node.node_id,
            self.driver,
            store,
            self.catalog,
            self.peers.send,
            self.applier.resume,
            lambda refused: self.states.no_copy(refused),
        )
        self.states = Snapshots(
            group,
            node,
            self.driver,
            store,
            self.catalog,
            self.checkpoints,
            self.peers,
            self._disk,
            self.on_damage,
            lambda: self.house.checkpoint(),
            self._restart,
            catalog_lost=self._is_lost,
        )
        self.scrubber = Scrubber(node, self.driver, store, self.repairs.found)
        self.polls = LongPolls(self.catalog.partitions)
        self.reads = Reads(self.driver, self.catalog, store, self.polls, self.on_damage)
        self.linearizable = LinearizableReads(self.driver, self.catalog)
        self.offsets = Offsets(self.driver, self.catalog, self.linearizable, self.polls)
        self.answers = MetadataHandler(
            group,
            node.node_id,
            self.driver,
            self.catalog,
            store,
            self.linearizable,
            self._addresses,
            self._more_status,
        )
        self.application = application_of(
            group,
            node,
            self.driver,
            self.catalog,
            store,
            self.writes,
            self.linearizable,
            self._addresses,
            self.on_damage,
        )
        self.listings = Listings(
            self.driver, self.catalog, store, self.linearizable, self.on_damage
        )
        self.front = RequestRouter(
            group,
            node,
            self.driver,
            self.writes,
            self.reads,
            self.offsets,
            self.answers,
            self.repairs,
            self.admissions,
            self.listings,
            self.states.installer,
            self.application,
            gate,
        )
        self.front.catalog_lost = self._is_lost
        self.house = Maintenance(
            node,
            self.driver,
            store,
            self.catalog,
            self.applier,
            self.writes,
            self.front,
            self.peers,
            self.checkpoints,
            lambda: self.states.floor,
            self._idle.set,
            self.application.retain_old,
        )

    async def stop(self) -> None:
        """Hand leadership over, answer what is pending, save everything, close. Safe to call
        twice."""
        if self._closed or not self._running:
            return
        self._closed = True
        if self._restarting is not None and not await self._restarting:
            return
        if self._error is None:
            await self._hand_over()
            await self._until(lambda: self.writes.waiting + self.application.waiting == 0)
        await self._end_parts()
        self._close_files()
        logger.info("%s of group %s has stopped", self.node.node_id, self.group.group)

    async def _end_parts(self) -> None:
        """Everything ends but the files, which have all that was given to them."""
        self.writes.fail_all(Code.TERM_CHANGED)
        self.application.fail_all(Code.TERM_CHANGED)
        self.linearizable.fail_all(Code.NOT_LEADER)
        self.reads.stop()
        self.polls.stop()
        await self.front.close()
        if self._error is None:
            saving = self.house.checkpoint()
            if saving is not None:
                await asyncio.wait([saving])
        self.applier.stop()
        self.scrubber.stop()
        self.repairs.stop()
        self.states.stop()
        self.admissions.stop()
        await self.house.stop()
        await self.peers.close()
        await self.driver.stop()
        await self.application.stop(clean=self._error is None)

    def _restart(self, between: Callable[[], None]) -> None:
        """Stop, carry out ``between``, and start again on what the disk has then."""
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
        """Let the follower that has most take over, so that nobody has to wait for an election."""
        raft = self.raft
        if raft.role is not Role.LEADER or len(self.group.members) == 1:
            return
        others = {peer: mark for peer, mark in raft.watermarks.items() if peer != self.node.node_id}
        connected = self.peers.connected()
        heard = raft.heard
        candidates = [
            p for p in others if connected.get(str(p)) and raft.membership.of(p) == heard.get(p)
        ]
        if not candidates:
            return
        best = max(candidates, key=lambda peer: others[peer])
        self.driver.transfer(best)
        await self._until(lambda: raft.role is not Role.LEADER)

    async def _until(self, condition: Callable[[], bool]) -> None:
        """Wait for ``condition``, which other events make true, but not for ever."""
        end = self._environment.now_ms() + int(HAND_OVER_S * 1000)
        now_ms = self._environment.now_ms
        while not condition() and now_ms() < end and self._error is None:  # noqa: ASYNC110 - many events can make it so
            await asyncio.sleep(0.005)

    async def wait_failed(self) -> None:
        """Returns never; raises what this node cannot go on with.

        Raises:
            StorageError: the disk failed, or a promise was found broken.
        """
        await self._failed.wait()
        assert self._error is not None
        raise self._error

    async def wait_idle(self) -> None:
        """Until nobody has used the node for ``idle_timeout_ms``."""
        await self._idle.wait()

    # --- what others ask --------------------------------------------------------------------------

    @property
    def port(self) -> int:
        """Where it listens."""
        return self.front.port

    @property
    def client_requests(self) -> int:  # see `RequestRouter`
        return self.front.client_requests

    def _more_status(self) -> dict[str, Any]:
        return {
            "host": self.node.host,
            "port": self.port,
            "flush": self.node.flush,
            "connections": self.front.connections,
            "clients": self.front.clients,
            "group_id": self.raft.membership.group_id,
            "refused_peers": dict(self.gate.refused),
            "other_groups": {
                str(peer): stranger.tag for peer, stranger in self.raft.strangers.items()
            },
            "peers_connected": self.peers.connected(),
            "client_requests": self.client_requests,
            "pending_writes": self.writes.waiting,
            "pending_bytes": self.writes.held_bytes,
            "pending_reads": len(self.polls),
            "checkpoint_index": self.checkpoints.index,
            "scrub": self.scrubber.status(),
            "repair": self.repairs.status(),
            "admission": self.admissions.status(),
            **self.house.status(),
            "install": self.states.status(),
            "catalog_lost": self._is_lost,
            "secret": self.gate.status(),
            **self.application.status(),
        }

    # --- news -------------------------------------------------------------------------------------

    def on_committed(self, index: Index) -> None:
        self.store.note_commit(index)
        self._apply(index)
        self.application.on_committed(index)

    def _apply(self, committed: Index) -> None:
        if not self._is_lost:
            self.applier.advance(committed)

    def on_finished(self, finished: Finished) -> None:
        self.writes.finished(finished)
        self.application.on_finished(finished)

    def on_read(self, done: ReadDone) -> None:
        self.linearizable.done(done)

    def on_transfer(self, done: TransferDone) -> None:
        self.writes.leadership_changed()
        self.answers.transferred(done)

    def on_install(self, install: Install) -> None:
        self.states.wanted(install)

    def on_damage(self, error: CorruptEntry) -> None:
        """A committed entry cannot be read; the others may have it."""
        self.repairs.met(error)
        if len(self.group.members) == 1 and error.index == self.catalog.applied_index + 1:
            self.driver.fail(
                CorruptStore(
                    f"{self.node.directory}: a committed entry cannot be applied: {error}. No "
                    f"other node has a copy: "
                    "put back a backup of this directory; 'dledger verify' tells all that is "
                    "damaged"
                )
            )

    def on_cut_waits(self, error: CorruptEntry) -> None:
        self.repairs.cut_waits(error)

    def on_cut(self, end: Index) -> None:
        self.repairs.cut(end)

    def on_role(self, change: RoleChange) -> None:
        self.writes.leadership_changed()
        self.answers.leadership_changed()
        logger.info(
            "%s is %s in term %d, leader %s",
            self.node.node_id,
            change.role.name,
            change.term,
            change.leader_id or "unknown",
        )

    def on_fact(self, fact: Fact) -> None:
        explain(fact)

    def _on_pass(self) -> None:
        self.admissions.applied()
        self.linearizable.applied()
        self.polls.applied()
        self.application.on_pass()

    def _fatal(self, error: BaseException) -> None:
        """The end: whoever waits for an acknowledgement never gets one from this node (D2). Not
        where only the catalog is lost that can be had again, from the log or from another node."""
        self.applier.stop()  # it may have read what it wants to write into the topic index
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
        self.front.abort()
        self._failed.set()
