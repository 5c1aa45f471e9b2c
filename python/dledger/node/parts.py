"""The parts of a node, and how they are put together: each is given the context and the parts that
it calls; the rest they hear by events."""

from __future__ import annotations

from dledger.compiled import native
from dledger.config import NodeConfig
from dledger.net.reloaded import Reloaded
from dledger.node.access.authorizer import Authorizer
from dledger.node.application import Application
from dledger.node.context import NodeContext
from dledger.node.handlers.audit_topic import AuditTopic
from dledger.node.handlers.backups import Backups
from dledger.node.handlers.consumer_sessions import ConsumerSessions
from dledger.node.handlers.fetches import Reads
from dledger.node.handlers.group_version import GroupVersions
from dledger.node.handlers.listings import Listings
from dledger.node.handlers.member_changes import MemberChanges
from dledger.node.handlers.member_places import MemberPlaces
from dledger.node.handlers.metadata import MetadataHandler
from dledger.node.handlers.offsets import LinearizableReads, Offsets
from dledger.node.handlers.parked_requests import LongPolls
from dledger.node.handlers.peer_messages import PeerMessages
from dledger.node.handlers.removed_node import RemovedNode
from dledger.node.handlers.replaced_disks import Admissions
from dledger.node.handlers.request_router import RequestHandlers, RequestRouter
from dledger.node.maintenance.clock_check import ClockCheck
from dledger.node.maintenance.disk_watch import DiskWatch
from dledger.node.maintenance.dynamic_settings import DynamicSettingsFollower
from dledger.node.maintenance.expiry import Expiry
from dledger.node.maintenance.exposure import Exposure
from dledger.node.maintenance.idle_timeout import IdleTimeout
from dledger.node.maintenance.maintenance import Maintenance
from dledger.node.maintenance.reload import Reload
from dledger.node.maintenance.retention import Retention
from dledger.node.maintenance.topic_retention import TopicRetention
from dledger.node.peers.handshake import Gate
from dledger.node.proposals.applier import Applier
from dledger.node.proposals.proposal_queue import ProposalQueue
from dledger.node.repair.repairs import Repairs
from dledger.node.repair.scrub import Scrubber
from dledger.node.rocketmq.foreign_entries import apply_foreign
from dledger.node.snapshot.checkpointer import Checkpointer
from dledger.node.snapshot.snapshots import Snapshots
from dledger.release import RELEASE


class NodeParts:
    """All parts of one run of a node. An event is told in the order in which the parts are made
    here."""

    def __init__(
        self, context: NodeContext, gate: Gate, *, settings: Reloaded[NodeConfig] | None = None
    ) -> None:
        self.context, self.gate, self._settings = context, gate, settings
        self.events, self.peers, self.ready_loop = context.events, context.peers, context.ready_loop
        context.events.committed.subscribe(context.store.note_commit)
        self.settings = DynamicSettingsFollower(context)
        self.proposals = ProposalQueue(context)
        self.admissions = Admissions(context, self.proposals)
        self.applier = Applier(context, self.proposals, apply_foreign=apply_foreign)
        context.events.secret_enforced.subscribe(gate.enforce)
        self.repairs = Repairs(context)
        self.checkpointer = Checkpointer(context, self.applier)
        self.snapshots = Snapshots(context, checkpointer=self.checkpointer)
        self.scrubber = Scrubber(context, self.repairs)
        self._make_handlers(context)
        self._make_maintenance(context)
        context.status.add(self._status)

    def _application(self, context: NodeContext) -> Application:
        """The purpose of the group's log."""
        if context.group.commit_log == "topics":
            return Application()
        # only here: without these modules a node of a group of topics starts sooner
        from dledger.node.rocketmq.dledger_commit_log import DLedgerCommitLog

        return DLedgerCommitLog(context, self.proposals, linearizable=self.linearizable)

    def _make_handlers(self, context: NodeContext) -> None:
        self.linearizable = LinearizableReads(context)
        events = context.events
        self.polls = LongPolls(
            context.catalog.partitions, applied=events.applied, watched=events.watched
        )
        events.access_changed.subscribe(self.polls.give_up_all)
        self.application = self._application(context)
        self.reads = Reads(context, self.polls)
        access = Authorizer(context)
        self.metadata = MetadataHandler(context, self.linearizable, access=access)
        self.sessions = ConsumerSessions(context, self.proposals, linearizable=self.linearizable)
        self.backups = Backups(context)
        self.member_changes = MemberChanges(
            context,
            self.proposals,
            places=MemberPlaces(context, self.gate),
            linearizable=self.linearizable,
        )
        RemovedNode(context)
        self.audit_topic = AuditTopic(context, self.proposals, gate=self.gate)
        handlers = RequestHandlers(
            access=access,
            proposals=self.proposals,
            reads=self.reads,
            offsets=Offsets(context, self.linearizable, polls=self.polls),
            metadata=self.metadata,
            admissions=self.admissions,
            member_changes=self.member_changes,
            listings=Listings(context, self.linearizable, access=access),
            sessions=self.sessions,
            backups=self.backups,
            peer_messages=PeerMessages(
                context.ready_loop,
                repairs=self.repairs,
                snapshots=self.snapshots.receiver,
                audit=self.audit_topic,
            ),
            application=self.application,
        )
        self.router = RequestRouter(context, self.gate, handlers=handlers)
        self.versions = GroupVersions(
            context, self.proposals, gate=self.gate, sessions=self.router.port_sessions
        )
        logins = self.gate.logins
        logins.users = lambda: context.catalog.users
        logins.now_ms = self.proposals.clocks.now_ms
        logins.is_current = self._is_current

    @property
    def waiting(self) -> int:
        """What a node that stops would rather see in the log before: writes, and audit lines."""
        return self.proposals.waiting + self.application.waiting + self.audit_topic.waiting

    def _is_current(self) -> bool:
        """Whether the catalog has all that is known to be committed."""
        raft, applied = self.ready_loop.raft, self.context.catalog.applied_index
        return raft.leader_id is not None and applied >= raft.committed_index

    def _make_maintenance(self, context: NodeContext) -> None:
        clocks = self.proposals.clocks
        self.disk_watch = DiskWatch(context)
        self.retention = Retention(
            context,
            clocks=clocks,
            snapshots=self.snapshots,
            backups=self.backups,
            application=self.application,
        )
        topic_retention = TopicRetention(
            context, clocks=clocks, snapshots=self.snapshots, backups=self.backups
        )
        self.idle_timeout = IdleTimeout(context, self.router)
        self.maintenance = Maintenance(
            context,
            (
                self.proposals,
                ClockCheck(context, clocks),
                self.disk_watch,
                Expiry(context, self.proposals),
                self.sessions,
                self.checkpointer,
                self.retention,
                topic_retention,
                context.audit,
                self.audit_topic,
                Reload(context, self.gate, router=self.router, settings=self._settings),
                self.idle_timeout,
                self.router.port_sessions,
                Exposure(context),
            ),
        )

    def _status(self) -> dict[str, object]:
        raft, strangers = self.ready_loop.raft, self.ready_loop.raft.strangers
        return {
            "release": RELEASE,
            "flush": self.context.node.flush,
            "compiled": native is not None,
            "group_id": raft.membership.group_id,
            "refused_peers": self.peers.refused(),
            "other_groups": {str(peer): stranger.tag for peer, stranger in strangers.items()},
            "peers_connected": self.peers.connected(),
            "pending_writes": self.proposals.waiting,
            "pending_bytes": self.proposals.unanswered.held_bytes,
            "pending_reads": len(self.polls),
            "catalog_lost": self.context.catalog_lost,
            "secret": self.gate.status(),
        }
