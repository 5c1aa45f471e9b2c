"""The context that every part of a node is given."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from dledger.catalog.state_machine import Catalog
from dledger.config import GroupConfig, NodeConfig
from dledger.config.dynamic import texts_of, with_texts
from dledger.environment import Environment
from dledger.net.limits.accounts import Accounts
from dledger.node.audit import AuditLog
from dledger.node.checkpoints import Checkpoints
from dledger.node.events import NodeEvents
from dledger.node.loop.ready_loop import ReadyLoop
from dledger.node.meters import Meters
from dledger.node.peers.links import Peers
from dledger.node.peers.members import GroupMembers
from dledger.protocol.messages.membership import MemberRole
from dledger.raft.raft_node import RaftNode
from dledger.storage.api import LogStore
from dledger.storage.disk.disk import Disk
from dledger.types import NodeId


class StatusSections:
    """The sections that the parts of a node add to its status; see docs/operations.md."""

    def __init__(self) -> None:
        self._sections: list[Callable[[], Mapping[str, Any]]] = []

    def add(self, section: Callable[[], Mapping[str, Any]]) -> None:
        """``section()`` gives values by name, each time that the status is asked for."""
        self._sections.append(section)

    def values(self) -> dict[str, Any]:
        """The values of all sections."""
        return {name: value for section in self._sections for name, value in section().items()}


class CurrentSettings:
    """The settings of a node as they are now: its own, and over them those that its group keeps."""

    def __init__(self, group: GroupConfig, node: NodeConfig) -> None:
        """``group``, ``node``: the node's own."""
        self.group = self.own_group = group
        self.node = self.own_node = node
        self.kept: dict[str, str] = {}
        """As texts, by name."""

    def use_own(self, node: NodeConfig) -> None:
        """The node's own settings have changed."""
        self.own_node = node
        self.node = with_texts(node, self.kept)

    def keep(self, texts: Mapping[str, str]) -> None:
        """The group keeps these from now on."""
        self.kept = dict(texts)
        self.group = with_texts(self.own_group, self.kept)
        self.node = with_texts(self.own_node, self.kept)

    @property
    def own_texts(self) -> dict[str, str]:
        """The node's own values of dynamic settings."""
        return texts_of(self.own_group) | texts_of(self.own_node)


@dataclass(frozen=True, slots=True)
class NodeContext:
    """Settings, state and events that the parts of one node share."""

    current: CurrentSettings
    environment: Environment
    disk: Disk
    store: LogStore
    catalog: Catalog
    catalog_lost: bool
    """``catalog`` is empty in place of one that was lost: nothing is applied, and no client is
    answered, before a leader's is there."""
    members: GroupMembers
    events: NodeEvents
    peers: Peers
    ready_loop: ReadyLoop
    checkpoints: Checkpoints
    audit: AuditLog
    status: StatusSections = field(default_factory=StatusSections)
    meters: Meters | None = None
    """Where parts count their work, on a node that serves metrics."""
    accounts: Accounts = field(default_factory=Accounts)
    """The principals of the clients that are connected, and what they hold."""

    @property
    def group(self) -> GroupConfig:
        """As they are now; a part that keeps a value of `DYNAMIC` does not see it change."""
        return self.current.group

    @property
    def node(self) -> NodeConfig:
        """As they are now; a part that keeps a value of `LIVE` does not see it change."""
        return self.current.node

    @property
    def raft(self) -> RaftNode:
        return self.ready_loop.raft

    @property
    def is_admitted(self) -> bool:
        """Whether the group knows this incarnation of the node; nothing else is wanted of one that
        is no voter, or of a group that is not founded yet."""
        is_voter = self.members.roles().get(self.node_id) is MemberRole.VOTER
        return self.raft.is_admitted or not is_voter or self.raft.awaits_founding

    @property
    def node_id(self) -> NodeId:
        return self.node.node_id


class NodePart:
    """A part of a node: the shared settings and state, by the names that all parts have for them.
    Made and used on the node's loop."""

    def __init__(self, context: NodeContext) -> None:
        self._context = context
        self._node_id = context.node_id
        self._environment = context.environment
        self._now_ms = context.environment.now_ms
        self._store = context.store
        self._catalog = context.catalog
        self._checkpoints = context.checkpoints
        self._events = context.events
        self._members = context.members
        self._peers = context.peers
        self._ready_loop = context.ready_loop
        self._raft = context.raft
        self._loop = asyncio.get_running_loop()

    @property
    def _group(self) -> GroupConfig:
        return self._context.group

    @property
    def _node(self) -> NodeConfig:
        return self._context.node

    @property
    def _leader_id(self) -> NodeId:
        """The member that leads, as answers name it: empty where none is known."""
        return self._raft.leader_id or NodeId("")
