"""Whole states: given to members that need entries of which no member has a copy, and taken from
the leader likewise."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Final

from dledger.catalog.state_machine import Catalog
from dledger.node.context import NodeContext, NodePart
from dledger.node.snapshot.checkpointer import Checkpointer
from dledger.node.snapshot.image import ImageHead, Unpacker
from dledger.node.snapshot.receiver import SnapshotReceiver
from dledger.node.snapshot.sender import SnapshotSender
from dledger.protocol.messages.codes import Code
from dledger.raft.roles.snapshot_install import InstallMode
from dledger.raft.state.log import LogSummary
from dledger.raft.state.ready import SafetyViolation
from dledger.storage.api import Fault, LogStore
from dledger.types import Index, NodeId

logger = logging.getLogger(__name__)

SEEK_S: Final = 0.5
"""How often a node that needs a catalog checks whether there is a leader that has one."""


class Snapshots(NodePart):
    """Decides the use of a fetched state, with the core (`dledger.raft.roles.snapshot_install`),
    and has it taken over."""

    def __init__(self, context: NodeContext, *, checkpointer: Checkpointer) -> None:
        super().__init__(context)
        self._checkpointer = checkpointer
        self.sender = SnapshotSender(context)
        self.receiver = SnapshotReceiver(
            context,
            sender=self.sender,
            is_enough=self._is_front_only,
            on_fetched=self._fetched,
        )
        context.events.install.subscribe(lambda install: self.receiver.wanted(install.leader_id))
        context.events.no_copy.subscribe(self.no_copy)
        context.status.add(lambda: {"install": self.receiver.status()})
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Ask the leader for its state, again and again, if the catalog is lost."""
        if self._context.catalog_lost and not self._ready_loop.failed:
            self._timer = self._loop.call_later(SEEK_S, self.start)
            if self._raft.leader_id is not None:
                self.receiver.wanted(self._raft.leader_id)

    def no_copy(self, refused: dict[NodeId, str]) -> None:
        """No member has a copy of the damaged entries, for these reasons: if the leader's is
        retention, its state helps."""
        leader = self._raft.leader_id
        if leader is not None and refused.get(leader) == Code.INDEX_LESS_THAN_LOCAL_BEGIN.name:
            # damaged entries that are applied can go once the catalog is on the disk
            self._checkpointer.save()
            self.receiver.wanted(leader)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self.receiver.stop()

    def _mode(self, head: ImageHead) -> InstallMode | None:
        if self._context.catalog_lost and head.first.index <= self._store.begin_index:
            return InstallMode.KEEP  # all of the log: it is only the catalog that is lost
        try:
            return self._raft.install_mode(head.first)
        except SafetyViolation as error:
            self._ready_loop.fail(error)
            return None

    def _is_front_only(self, head: ImageHead) -> bool:
        """Whether all that retention took elsewhere is applied here: then only damaged entries have
        to go."""
        has_rest = (
            self._catalog.applied_index >= head.first.index - 1 and not self._context.catalog_lost
        )
        return has_rest and self._mode(head) is InstallMode.KEEP

    def _fetched(self, fetched: Unpacker) -> None:
        """Another node's state is here: take it over, if it still is of use."""
        head = fetched.head
        assert head is not None
        mode, front_only = self._mode(head), self._is_front_only(head)
        if self._ready_loop.failed:
            return
        known = max(self._catalog.applied_index, self._store.begin_index - 1)
        if mode is None or (not front_only and (fetched.first is None or head.index <= known)):
            self.receiver.given_up("this node has got further meanwhile")
        elif front_only and self._checkpoints.index < head.first.index - 1:
            self.receiver.given_up("this node's own catalog has to be saved before")
        else:
            begin = head.begin if head.first.index > self._store.begin_index else self._store.begin
            logger.warning(
                "%s takes over %s; its log begins at entry %d from now on",
                self._node_id,
                "no catalog" if front_only else f"the catalog as of entry {head.index}",
                begin.position.index + 1,
            )
            # this run of the node takes in and acknowledges no more entries
            self._ready_loop.failed = True
            first = fetched.first if mode is InstallMode.REPLACE else None
            self._events.restart(
                lambda: fetched.staging.commit(head.index, begin, first, catalog=not front_only)
            )


def known_committed(store: LogStore, catalog: Catalog) -> Index:
    """How far a log is known to be committed when its node starts. A catalog that was taken over
    says nothing of a log that has yet to come up to it, or to be compared with the leader's."""
    applied, before = catalog.applied_index, store.begin_index - 1
    summed_up = applied if applied > store.installed_index else before
    return Index(max(store.hard_state.commit_hint, before, summed_up))


def summary_of(store: LogStore, catalog: Catalog, faults: Iterable[Fault]) -> LogSummary:
    """The summary of a log that the core is given when its node starts."""
    return LogSummary(
        begin_index=store.begin_index,
        end=store.end,
        terms=store.terms,
        committed=known_committed(store, catalog),
        faulty=tuple(sorted((run.first, run.last) for run in faults)),
    )
