"""The parts of a node, and how they are put together: each is given the context and the parts that
it calls; the rest they hear by events."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dledger.catalog.state_machine import Catalog
from dledger.config import GroupConfig, NodeConfig
from dledger.environment import Environment
from dledger.node.application import Application
from dledger.node.checkpoints import Checkpoints
from dledger.node.context import NodeContext
from dledger.node.events import NodeEvents
from dledger.node.handlers.fetches import Reads
from dledger.node.handlers.listings import Listings
from dledger.node.handlers.metadata import MetadataHandler
from dledger.node.handlers.offsets import LinearizableReads, Offsets
from dledger.node.handlers.parked_requests import LongPolls
from dledger.node.handlers.replaced_disks import Admissions, change_of
from dledger.node.handlers.request_router import RequestHandlers, RequestRouter
from dledger.node.loop.ready_loop import ReadyLoop
from dledger.node.maintenance.clock_check import ClockCheck
from dledger.node.maintenance.disk_watch import DiskWatch
from dledger.node.maintenance.expiry import Expiry
from dledger.node.maintenance.idle_timeout import IdleTimeout
from dledger.node.maintenance.leader_status import LeaderStatus
from dledger.node.maintenance.maintenance import Maintenance
from dledger.node.maintenance.retention import Retention
from dledger.node.peers.handshake import Gate
from dledger.node.peers.links import Peers
from dledger.node.proposals.applier import Applier
from dledger.node.proposals.proposal_queue import ProposalQueue
from dledger.node.repair.repairs import Repairs
from dledger.node.repair.scrub import Scrubber
from dledger.node.rocketmq.dledger_commit_log import application_of
from dledger.node.rocketmq.foreign_entries import apply_foreign
from dledger.node.snapshot.checkpointer import Checkpointer
from dledger.node.snapshot.snapshots import Snapshots, summary_of
from dledger.raft.raft_node import RaftNode
from dledger.raft.state.saved_state import RaftOptions, SavedState
from dledger.storage.api import Fault, LogStore
from dledger.storage.disk.disk import Disk
from dledger.types import NodeId


@dataclass(frozen=True, slots=True)
class OpenFiles:
    """The files that a start of a node has opened and restored."""

    disk: Disk
    store: LogStore
    checkpoints: Checkpoints
    catalog: Catalog
    catalog_lost: bool
    """``catalog`` is empty in place of one that is lost."""
    faults: tuple[Fault, ...]
    """Damage that the start has met."""


class NodeParts:
    """All parts of one run of a node. An event is told in the order in which the parts are made
    here."""

    def __init__(
        self,
        group: GroupConfig,
        node: NodeConfig,
        *,
        files: OpenFiles,
        gate: Gate,
        addresses: Callable[[], dict[NodeId, str]],
        environment: Environment,
    ) -> None:
        self.gate = gate
        self.events = events = NodeEvents()
        self.peers = Peers(group, node, addresses=addresses, gate=gate, events=events)
        self.ready_loop = ReadyLoop(
            self._raft(group, node, files, environment),
            files.store,
            links=self.peers,
            events=events,
            lazy=node.flush == "async",
            environment=environment,
        )
        gate.known = lambda: self.ready_loop.raft.membership
        self.context = context = NodeContext(
            group=group,
            node=node,
            environment=environment,
            disk=files.disk,
            store=files.store,
            catalog=files.catalog,
            catalog_lost=files.catalog_lost,
            addresses=addresses,
            events=events,
            ready_loop=self.ready_loop,
            checkpoints=files.checkpoints,
        )
        events.committed.subscribe(files.store.note_commit)
        self.proposals = ProposalQueue(context, self.peers)
        self.admissions = Admissions(context, self.proposals)
        self.applier = Applier(context, self.proposals, apply_foreign=apply_foreign)
        events.secret_enforced.subscribe(gate.enforce)
        self.repairs = Repairs(context, self.peers)
        self.checkpointer = Checkpointer(context, self.applier)
        self.snapshots = Snapshots(context, self.peers, checkpointer=self.checkpointer)
        self.scrubber = Scrubber(context, self.repairs)
        self._make_handlers(context)
        self._make_maintenance(context)
        context.status.add(self._status)

    @staticmethod
    def _raft(
        group: GroupConfig, node: NodeConfig, files: OpenFiles, environment: Environment
    ) -> RaftNode:
        raft = RaftNode(
            group,
            node.node_id,
            saved=SavedState(
                files.store.hard_state,
                summary_of(files.store, files.catalog, files.faults),
                files.store.membership,
            ),
            dice=environment.below,
            now_ms=environment.now_ms(),
            options=RaftOptions(cache_bytes=node.cache_bytes, change_of=change_of),
        )
        if files.catalog_lost:
            raft.follow_only()
        return raft

    def _make_handlers(self, context: NodeContext) -> None:
        self.linearizable = LinearizableReads(context)
        self.polls = LongPolls(context.catalog.partitions)
        context.events.applied.subscribe(self.polls.applied)
        self.application: Application = application_of(
            context, self.proposals, linearizable=self.linearizable
        )
        self.reads = Reads(context, self.polls)
        self.metadata = MetadataHandler(context, self.linearizable)
        handlers = RequestHandlers(
            proposals=self.proposals,
            reads=self.reads,
            offsets=Offsets(context, self.linearizable, polls=self.polls),
            metadata=self.metadata,
            admissions=self.admissions,
            listings=Listings(context, self.linearizable),
            repairs=self.repairs,
            snapshots=self.snapshots.receiver,
            application=self.application,
        )
        self.router = RequestRouter(context, self.gate, handlers=handlers)

    def _make_maintenance(self, context: NodeContext) -> None:
        clocks, leader = self.proposals.clocks, LeaderStatus(context, self.peers)
        self.disk_watch = DiskWatch(context)
        self.retention = Retention(
            context,
            clocks=clocks,
            snapshots=self.snapshots,
            application=self.application,
            leader=leader,
        )
        self.idle_timeout = IdleTimeout(context, self.router)
        self.maintenance = Maintenance(
            context,
            (
                self.proposals,
                ClockCheck(context, clocks, leader=leader),
                self.disk_watch,
                Expiry(context, self.proposals),
                self.checkpointer,
                self.retention,
                self.idle_timeout,
            ),
        )

    def _status(self) -> dict[str, object]:
        raft, strangers = self.ready_loop.raft, self.ready_loop.raft.strangers
        return {
            "flush": self.context.node.flush,
            "group_id": raft.membership.group_id,
            "refused_peers": dict(self.gate.refused),
            "other_groups": {str(peer): stranger.tag for peer, stranger in strangers.items()},
            "peers_connected": self.peers.connected(),
            "pending_writes": self.proposals.waiting,
            "pending_bytes": self.proposals.held_bytes,
            "pending_reads": len(self.polls),
            "catalog_lost": self.context.catalog_lost,
            "secret": self.gate.status(),
        }
