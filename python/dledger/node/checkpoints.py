"""The catalog on disk: a snapshot now and then, so that a restart replays little and old entries
can go.

Snapshots and the rows of the topic index lie in the node's directory beside the log (``snapshot/``,
``tables/``). Both can be rebuilt from a log that still has its first entry.
"""

from __future__ import annotations

import logging
from pathlib import Path

from dledger.catalog.state_machine import Catalog
from dledger.errors import CatalogLost, CorruptStore, StorageError
from dledger.storage.api import LogStore
from dledger.storage.disk.disk import Disk
from dledger.storage.meta.snapshots import SNAPSHOTS, SnapshotFiles
from dledger.storage.meta.tables import TABLES, TableFiles
from dledger.types import NO_INDEX, Index

logger = logging.getLogger(__name__)


class Checkpoints:
    """Saves and restores one node's catalog.

    Raises:
        StorageError: the disk failed; so do all methods.
    """

    def __init__(self, directory: Path, disk: Disk) -> None:
        self._directory = directory
        try:
            self._tables = TableFiles(directory / TABLES, disk)
            self._snapshots = SnapshotFiles(directory / SNAPSHOTS, disk)
        except OSError as error:
            raise self._failed("open", error) from error
        self.index: Index = NO_INDEX
        """Applied index of the newest durable snapshot."""
        self.oldest_index: Index = NO_INDEX
        """Of the oldest one that is kept: entries above it are needed for the next start."""

    def restore(self, store: LogStore) -> Catalog:
        """The newest sound catalog, or an empty one when the log is whole and everything can be
        applied again.

        Raises:
            CatalogLost: there is no usable snapshot, and the log's oldest entries are gone.
        """
        reason = "there is no usable snapshot of the catalog"
        try:
            found = self._snapshots.load(max(store.end.position.index, store.installed_index))
            for skipped in self._snapshots.skipped:
                logger.error("%s", skipped)
            if found is not None and found[0] >= store.begin_index - 1:
                try:
                    catalog = Catalog.restore(found[1], self._tables)
                except CorruptStore as error:
                    reason = str(error)
                else:
                    self._note(found[0])
                    return catalog
            if store.begin_index > 0:
                raise CatalogLost(
                    f"{self._directory}: {reason}, and the log begins at entry "
                    f"{store.begin_index}, so the catalog cannot be built again from it"
                )
            if store.end.position.index >= 0:
                lost = found is not None or self._snapshots.skipped
                level = logging.WARNING if lost else logging.INFO
                logger.log(level, "%s: %s; the whole log is applied again", self._directory, reason)
            return Catalog(self._tables)
        except OSError as error:
            raise self._failed("read", error) from error

    def save(self, data: bytes, index: Index, store: LogStore) -> None:
        """Make ``data``, the catalog as of ``index``, the newest snapshot, and durable the rows of
        the topic index that it counts on; more rows do no harm. While the log on the disk does not
        come up to ``index``, nothing is saved. Blocks; runs on a thread of its own.

        Raises:
            DiskFull: there is no room for it now.
        """
        try:
            if store.durable.index < index:
                durable = store.sync()  # a snapshot is never ahead of the log it sums up
                # a follower applies entries from memory that still wait for its disk
                if durable.index < index:
                    logger.info(
                        "%s: no checkpoint at entry %d, which is not on the disk yet",
                        self._directory,
                        index,
                    )
                    return
            self._tables.sync()
            self._snapshots.save(index, data)
            self._note(index)
        except OSError as error:
            raise self._failed("save", error) from error

    def forget(self) -> None:
        """Remove every snapshot: the topic index that they count on is damaged. Durable on
        return."""
        self._snapshots.remove()

    def close(self) -> None:
        self._tables.close()

    def _note(self, index: Index) -> None:
        oldest = self._snapshots.oldest()
        self.index, self.oldest_index = index, index if oldest is None else oldest

    def _failed(self, what: str, error: OSError) -> StorageError:
        return StorageError(f"{self._directory}: cannot {what} the catalog: {error}")
