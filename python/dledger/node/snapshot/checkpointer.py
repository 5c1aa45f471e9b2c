"""When the catalog is saved."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from dledger.errors import DiskFull
from dledger.node.context import NodeContext, NodePart
from dledger.node.proposals.applier import Applier
from dledger.types import Index

logger = logging.getLogger(__name__)

FULL_RETRY_MS: Final = 1_000
"""After a checkpoint for which there was no room."""


class Checkpointer(NodePart):
    """Saves the catalog whenever a restart would replay more than the settings allow."""

    def __init__(self, context: NodeContext, applier: Applier) -> None:
        super().__init__(context)
        self._applier = applier
        self._pos = -1
        """Log position of the last checkpoint; of the first applied entry while there is none."""
        self.due_ms = 0
        """Not before then is the next checkpoint tried."""
        self.saving: asyncio.Future[None] | None = None
        """The checkpoint that is under way."""
        context.status.add(lambda: {"checkpoint_index": context.checkpoints.index})

    def tick(self, now_ms: int) -> None:
        """See `MaintenanceTask`."""
        if now_ms >= self.due_ms and self._is_due():
            self.save()

    def _is_due(self) -> bool:
        """Whether a restart would replay more than the settings allow, in bytes or in entries."""
        if self._pos < 0:
            self._pos = self._applier.applied_pos
        replayed = self._catalog.applied_index - self._checkpoints.index
        grown = self._applier.applied_pos - self._pos
        return grown >= self._node.checkpoint_bytes or replayed >= self._node.checkpoint_entries

    def save(self) -> asyncio.Future[None] | None:
        """Save the catalog on a thread; None when that is under way or there is nothing new."""
        index = self._catalog.applied_index
        if self.saving is not None or index <= self._checkpoints.index or self._ready_loop.failed:
            return None
        data = self._catalog.snapshot()
        pos = self._applier.applied_pos
        self._store.note_commit(index)
        self.saving = self._ready_loop.on_reader(self._checkpoints.save, data, index, self._store)
        self.saving.add_done_callback(lambda done: self._saved(index, pos, done))
        return self.saving

    def _saved(self, index: Index, pos: int, done: asyncio.Future[None]) -> None:
        self.saving = None
        if done.cancelled():
            return
        try:
            done.result()
            self._catalog.saved(self._checkpoints.oldest_index)
        except DiskFull as error:
            self._no_room(error)
        except Exception as error:
            self._ready_loop.fail(error)
        else:
            if self._checkpoints.index < index:  # the log is slower than the catalog
                self.due_ms = self._now_ms() + FULL_RETRY_MS
                return
            self._pos = pos
            logger.debug("catalog saved as of entry %d", index)

    def _no_room(self, error: DiskFull) -> None:
        """The last checkpoint still counts: a restart has more to replay, and retention less to
        delete."""
        logger.warning("the catalog is not saved: %s", error)
        self.due_ms = self._now_ms() + FULL_RETRY_MS
