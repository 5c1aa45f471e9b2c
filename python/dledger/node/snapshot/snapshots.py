"""Whole states: given to members that need entries which nobody has any more, and taken from the
leader likewise."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Any, Final

from dledger.catalog.state_machine import Catalog
from dledger.config import GroupConfig, NodeConfig
from dledger.errors import CorruptEntry
from dledger.node.handlers.peers import Peers
from dledger.node.loop.ready_loop import ReadyLoop
from dledger.node.snapshot.checkpoint import Checkpoints
from dledger.node.snapshot.image import Head, Unpacker
from dledger.node.snapshot.receiver import SnapshotReceiver
from dledger.node.snapshot.sender import SnapshotSender
from dledger.protocol.messages.codes import Code
from dledger.raft.roles.snapshot_install import InstallMode
from dledger.raft.state.log import LogSummary
from dledger.raft.state.ready import Install, SafetyViolation
from dledger.storage.api import Fault, LogStore
from dledger.storage.disk.disk import Disk
from dledger.storage.recovery.snapshot_install import Staging
from dledger.types import Index, NodeId

logger = logging.getLogger(__name__)

SEEK_S: Final = 0.5
"""Between two looks of a node that needs a catalog whether somebody leads who has one."""


class Snapshots:
    """Decides what a fetched state is good for, with the core
    (`dledger.raft.roles.snapshot_install`), and has it taken over."""

    def __init__(
        self,
        group: GroupConfig,
        node: NodeConfig,
        driver: ReadyLoop,
        store: LogStore,
        catalog: Catalog,
        checkpoints: Checkpoints,
        peers: Peers,
        disk: Disk,
        on_damage: Callable[[CorruptEntry], None],
        save: Callable[[], object],
        restart: Callable[[Callable[[], None]], None],
        *,
        catalog_lost: bool,
    ) -> None:
        """``save`` has the catalog saved. ``restart`` stops the node, calls what it is given, and
        starts it again. ``catalog_lost``: ``catalog`` is none, and a leader's is fetched as soon as
        there is a leader."""
        self._node_id = node.node_id
        self._driver = driver
        self._raft = driver.raft
        self._store = store
        self._catalog = catalog
        self._checkpoints = checkpoints
        self._save = save
        self._restart = restart
        self._catalog_lost = catalog_lost
        self.images = SnapshotSender(
            group, node.node_id, driver, store, catalog, peers.send, on_damage
        )
        self.installer = SnapshotReceiver(
            group,
            node.node_id,
            driver,
            self.images,
            lambda: Staging(node.directory, disk, group.segment_bytes),
            peers.send,
            self._is_front_only,
            self._fetched,
        )
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Ask whoever leads for its state, again and again, if the catalog is lost."""
        if self._catalog_lost and not self._driver.failed:
            self._timer = asyncio.get_running_loop().call_later(SEEK_S, self.start)
            if self._raft.leader_id is not None:
                self.installer.wanted(self._raft.leader_id)

    @property
    def floor(self) -> Index | None:
        """The first entry that must stay for a member that fetches this node's state; None: nobody
        does."""
        return self.images.floor

    def wanted(self, install: Install) -> None:
        """The leader's log begins behind the end of this one."""
        self.installer.wanted(install.leader_id)

    def no_copy(self, refused: dict[NodeId, str]) -> None:
        """Nobody can mend what is damaged here, for these reasons: if the leader's is retention,
        its state helps."""
        leader = self._raft.leader_id
        if leader is not None and refused.get(leader) == Code.INDEX_LESS_THAN_LOCAL_BEGIN.name:
            self._save()  # damaged entries that are applied can go once that is on the disk
            self.installer.wanted(leader)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self.installer.stop()

    def status(self) -> dict[str, Any] | None:
        """For the node's status; None when no state is fetched."""
        return self.installer.status()

    def _mode(self, head: Head) -> InstallMode | None:
        if self._catalog_lost and head.first.index <= self._store.begin_index:
            return InstallMode.KEEP  # all of the log: it is only the catalog that is lost
        try:
            return self._raft.install_mode(head.first)
        except SafetyViolation as error:
            self._driver.fail(error)
            return None

    def _is_front_only(self, head: Head) -> bool:
        """Whether all that retention took elsewhere is applied here: then only damaged entries have
        to go."""
        has_rest = self._catalog.applied_index >= head.first.index - 1 and not self._catalog_lost
        return has_rest and self._mode(head) is InstallMode.KEEP

    def _fetched(self, fetched: Unpacker) -> None:
        """Another node's state is here: take it over, if it still is of use."""
        head = fetched.head
        assert head is not None
        mode, front_only = self._mode(head), self._is_front_only(head)
        if self._driver.failed:
            return
        known = max(self._catalog.applied_index, self._store.begin_index - 1)
        if mode is None or (not front_only and (fetched.first is None or head.index <= known)):
            self.installer.given_up("this node has got further meanwhile")
        elif front_only and self._checkpoints.index < head.first.index - 1:
            self.installer.given_up("this node's own catalog has to be saved before")
        else:
            begin = head.begin if head.first.index > self._store.begin_index else self._store.begin
            logger.warning(
                "%s takes over %s; its log begins at entry %d from now on",
                self._node_id,
                "no catalog" if front_only else f"the catalog as of entry {head.index}",
                begin.position.index + 1,
            )
            # nothing more is taken in, nor acknowledged, by what this node is now
            self._driver.failed = True
            first = fetched.first if mode is InstallMode.REPLACE else None
            self._restart(
                lambda: fetched.staging.commit(head.index, begin, first, catalog=not front_only)
            )


def known_committed(store: LogStore, catalog: Catalog) -> Index:
    """How far a log is known to be committed when its node starts. A catalog that was taken over
    says nothing of a log that has yet to come up to it, or to be compared with the leader's."""
    applied, before = catalog.applied_index, store.begin_index - 1
    summed_up = applied if applied > store.installed_index else before
    return Index(max(store.hard_state.commit_hint, before, summed_up))


def summary_of(store: LogStore, catalog: Catalog, faults: Iterable[Fault]) -> LogSummary:
    """What the core is to know of a log when its node starts."""
    return LogSummary(
        begin_index=store.begin_index,
        end=store.end,
        terms=store.terms,
        committed=known_committed(store, catalog),
        faulty=tuple(sorted((run.first, run.last) for run in faults)),
    )


__all__ = ["Snapshots", "known_committed", "summary_of"]
