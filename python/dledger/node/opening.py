"""How a node begins on the files of its store: the catalog, the core on it, and the context of its
parts. Nothing runs yet."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from dledger.catalog.state_machine import Catalog
from dledger.catalog.topics.table import MemoryTables
from dledger.config import GroupConfig, NodeConfig
from dledger.environment import Environment
from dledger.errors import CatalogLost, ConfigError, CorruptStore
from dledger.node.audit import AuditLog
from dledger.node.audit.audit_file import AuditFile
from dledger.node.checkpoints import Checkpoints
from dledger.node.context import CurrentSettings, NodeContext
from dledger.node.events import NodeEvents
from dledger.node.handlers.removed_node import removal
from dledger.node.handlers.replaced_disks import (
    COMMAND_PREFIX,
    body_of,
    change_of,
    put_on_record,
)
from dledger.node.loop.ready_loop import ReadyLoop
from dledger.node.meters import Meters
from dledger.node.peers.handshake import Gate
from dledger.node.peers.links import Peers
from dledger.node.peers.members import GroupMembers
from dledger.node.snapshot.snapshots import summary_of
from dledger.protocol.messages.membership import (
    Membership,
    check_members,
    ids_of,
    is_outdated,
)
from dledger.raft.raft_node import RaftNode
from dledger.raft.state.saved_state import RaftOptions, SavedState
from dledger.storage.api import Fault, LogStore
from dledger.storage.disk.disk import Disk

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Opened:
    """A node that may begin."""

    context: NodeContext
    faults: tuple[Fault, ...]
    """The entries to be repaired."""


def open_context(
    group: GroupConfig,
    node: NodeConfig,
    *,
    store: LogStore,
    gate: Gate,
    disk: Disk,
    members: GroupMembers,
    environment: Environment,
    meters: Meters | None,
) -> Opened:
    """The context of a node's parts, with the catalog that its store has.

    Raises:
        ConfigError: the settings do not go together, or the group has removed the node.
        CorruptStore: the catalog is lost, and no other node has it.
        StorageError: the disk failed.
    """
    checkpoints = Checkpoints(node.directory, disk)
    catalog, is_lost = _catalog(members, checkpoints, store)
    faults = (*store.recovery.faulty, *put_on_record(store, catalog))
    raft = _core(
        group,
        node,
        SavedState(store.hard_state, summary_of(store, catalog, faults), store.membership),
        environment=environment,
        members=members,
    )
    if is_lost:
        raft.follow_only()
    gate.known = lambda: raft.membership
    gate.group_version = lambda: catalog.version.active
    events = NodeEvents()
    events.members.subscribe(members.follow)
    peers = Peers(group, node, members=members, gate=gate, events=events)
    ready_loop = ReadyLoop(
        raft,
        store,
        links=peers.links,
        events=events,
        lazy=node.flush == "async",
        environment=environment,
    )
    ready_loop.log_writer.meters = meters
    context = NodeContext(
        current=CurrentSettings(group, node),
        environment=environment,
        disk=disk,
        store=store,
        catalog=catalog,
        catalog_lost=is_lost,
        members=members,
        events=events,
        peers=peers,
        ready_loop=ready_loop,
        checkpoints=checkpoints,
        audit=_audit_log(group, node, disk, environment),
        meters=meters,
    )
    return Opened(context, faults)


def _core(
    group: GroupConfig,
    node: NodeConfig,
    saved: SavedState,
    *,
    environment: Environment,
    members: GroupMembers,
) -> RaftNode:
    """The core, which tells ``members`` its list.

    Raises:
        NodeRemoved: the group has removed the node.
        ConfigError: it never had the list of the settings.
    """
    founders = saved.membership.members if saved.membership is not None else ()
    joins = node.node_id not in founders if founders else node.joins
    raft = RaftNode(
        group,
        node.node_id,
        saved=saved,
        dice=environment.below,
        now_ms=environment.now_ms(),
        options=RaftOptions(
            node.cache_bytes, change_of, COMMAND_PREFIX, body_of, joins, only_asks=node.joins
        ),
    )
    if raft.is_removed:
        raise removal(node)
    _check_told(group, node, raft.membership)
    if not members.settings_rule:  # a path's nodes are told their founders at each start
        _warn_of_told(group, node, raft.membership)
    members.begin(raft.members, joins=joins)
    return raft


def _check_told(group: GroupConfig, node: NodeConfig, known: Membership) -> None:
    """The settings' list, of a node that is more than a founder by now. With ``joins`` that only
    says whom to ask.

    Raises:
        ConfigError: the group never had it.
    """
    if node.joins or not known.founded:
        return
    if node.node_id not in known.members:
        check_members(known, group.members)


def _warn_of_told(group: GroupConfig, node: NodeConfig, known: Membership) -> None:
    """Of a list that is not today's."""
    if not node.joins and known.founded and is_outdated(known, group.members):
        logger.warning(
            "%s was told that the members are %s, which the group once had (--peers); the list in "
            "its log counts: %s. Tell it these at its next start",
            node.node_id,
            ", ".join(group.members),
            ", ".join(ids_of(known.listed)),
        )


def _catalog(
    members: GroupMembers, checkpoints: Checkpoints, store: LogStore
) -> tuple[Catalog, bool]:
    """The catalog, and whether it is empty in place of one that was lost."""
    try:
        return checkpoints.restore(store), False
    except CatalogLost as error:
        if members.is_one:
            raise CorruptStore(
                f"{error}. No other node has it: put back a backup of the directory"
            ) from error
        logger.error("%s; the leader's is fetched", error)
        return Catalog(MemoryTables()), True


def check_audit_topic(group: GroupConfig, node: NodeConfig) -> None:
    """Raises `ConfigError` where the group has no topics."""
    if node.audit_topic and group.commit_log != "topics":
        raise ConfigError(
            f"audit_topic: there is no such topic where commit_log is {group.commit_log}; "
            "each node's audit.log has the lines"
        )


def _audit_log(
    group: GroupConfig, node: NodeConfig, disk: Disk, environment: Environment
) -> AuditLog:
    check_audit_topic(group, node)
    file = None
    if node.audit_files:
        file = AuditFile(
            disk,
            node.directory,
            environment=environment,
            max_bytes=node.audit_file_bytes,
            files=node.audit_files,
        )
    return AuditLog(node.node_id, file, environment=environment)
