"""Retention: expired files at the front of the log go."""

from __future__ import annotations

import logging
from collections.abc import Coroutine
from typing import Any, Final, NamedTuple

from dledger.errors import StorageError
from dledger.node.application import Application
from dledger.node.context import NodeContext, NodePart
from dledger.node.handlers.backups import Backups
from dledger.node.maintenance.leader_status import leader_status
from dledger.node.maintenance.retention_holds import Laggards, RetentionHolds
from dledger.node.proposals.clocks import Clocks
from dledger.node.snapshot.snapshots import Snapshots
from dledger.storage.api import Held
from dledger.types import Index, Role

logger = logging.getLogger(__name__)

RETAIN_MS: Final = 2_000
EACH_TURN: Final = 64
"""Partitions whose begin moves in one turn of the loop."""


class KeptFiles(NamedTuple):
    """Consumer groups and members for which expired files are kept."""

    groups: Held | None
    members: Held | None


class Retention(NodePart):
    """Decides which files may go, and keeps the catalog in step with the log's begin."""

    def __init__(
        self,
        context: NodeContext,
        *,
        clocks: Clocks,
        snapshots: Snapshots,
        backups: Backups,
        application: Application,
    ) -> None:
        super().__init__(context)
        self._clocks = clocks
        self._snapshots = snapshots
        self._backups = backups
        self._application = application
        self.holds = RetentionHolds(context.current, context.catalog)
        """Which consumer groups hold retention back."""
        self.laggards = Laggards(context.current)
        """Which members do."""
        self.due_ms = 0
        self._trimmed = False
        self._dropped = Index(0)
        context.status.add(self._status)

    def tick(self, now_ms: int) -> Coroutine[Any, Any, None] | None:
        """See `MaintenanceTask`."""
        self._trim_catalog()
        if now_ms < self.due_ms or not (self._node.retention_ms or self._node.retention_bytes):
            return None
        self.due_ms = now_ms + RETAIN_MS
        return self.retain()

    def _status(self) -> dict[str, Any]:
        return {"retention": self.holds.status() | self.laggards.status(self._now_ms())}

    def _trim_catalog(self) -> None:
        """After a restart, once everything known is applied: begin offsets are where the log
        begins."""
        if not self._trimmed and self._catalog.applied_index >= self._raft.committed_index:
            self._trimmed = True
            if self._store.begin_index > 0:
                self._drop_before(self._store.begin_index)

    def _drop_before(self, begin: Index) -> None:
        """The rows of entries before ``begin`` go, of some partitions in each turn of the loop: of
        ten thousand at once they would hold up all appends for 200 ms."""
        self._dropped = begin
        self._drop_some(begin, self._catalog.used_keys)

    def _drop_some(self, begin: Index, keys: list[int]) -> None:
        if self._ready_loop.failed or begin < self._dropped:  # a later deletion has begun anew
            return
        try:
            self._catalog.drop_before(begin, keys[:EACH_TURN])
        except StorageError as error:
            self._ready_loop.fail(error)
            return
        if len(keys) > EACH_TURN:
            self._loop.call_soon(self._drop_some, begin, keys[EACH_TURN:])

    async def retain(self) -> None:
        """Let expired files go. Only the leader knows what every member has, so only the leader
        decides, and waits for those that are behind as long as the settings allow; the others keep
        the same. The application's old files, before the log, go first; each node has its own."""
        if await self._application.retain_old(self._clocks.wall_ms()):
            return
        raft = self._raft
        limit = min(
            # the first entry that stays is committed: no cut goes back into deleted files
            raft.committed_index - 1,
            self._catalog.applied_index,
            self._checkpoints.oldest_index,
            self._catalog.retention_floor() - 1,
        )
        held = KeptFiles(None, None)
        for wanted in (self._snapshots.sender.floor, self._backups.floor):
            if wanted is not None:
                limit = min(limit, wanted - 1)
        if raft.role is Role.LEADER:
            marks = raft.watermarks
            limit = min(limit, marks.pop(self._node.node_id))
            held = KeptFiles(self.holds.look(), self.laggards.look(marks))
        else:
            self.holds.rest()
            self.laggards.rest()
            begin = (await leader_status(self._context)).get("begin_index")
            limit = min(limit, begin - 1 if isinstance(begin, int) else -1)
        if limit >= self._store.begin_index and not self._ready_loop.failed:
            now_ms = self._clocks.wall_ms()
            self._ready_loop.log_writer.run(lambda: self._delete(Index(limit), now_ms, held))

    def _delete(self, limit: Index, now_ms: int, held: KeptFiles) -> None:
        """On the log writer's thread."""
        before = self._store.begin_index
        begin = self._store.retain(limit, now_ms, held=[each for each in held if each is not None])
        self._loop.call_soon_threadsafe(self._deleted, before, begin, held)

    def _deleted(self, before: Index, begin: Index, held: KeptFiles) -> None:
        if held.groups is not None:
            self.holds.tell(held.groups, begin if begin > before else Index(0))
        if held.members is not None:
            self.laggards.tell(held.members, begin, self._now_ms())
        if begin == before:
            return
        logger.info("retention: entries %d to %d are gone", before, begin - 1)
        self._raft.forget(begin)
        self._drop_before(begin)
