"""The catalog on disk: a snapshot now and then, so that a restart replays little and old entries can go.

``catalog/snapshot`` in the node's directory is replaced as a whole; the rows of the topic index lie beside it in the
tables of `dledger.store.tables`. Both can be rebuilt from a log that still has its first entry.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from pathlib import Path
from typing import Final

from dledger.catalog.catalog import Catalog
from dledger.errors import CorruptStore, StorageError
from dledger.store.api import LogStore
from dledger.store.files import Disk
from dledger.store.tables import TableFiles
from dledger.types import NO_INDEX, Index

logger = logging.getLogger(__name__)

DIRECTORY: Final = "catalog"
SNAPSHOT: Final = "snapshot"
TEMPORARY: Final = "snapshot.tmp"


class Checkpoints:
    """Saves and restores one node's catalog."""

    def __init__(self, directory: Path, disk: Disk) -> None:
        self._directory = directory / DIRECTORY
        self._disk = disk
        disk.mkdir(self._directory)
        self._tables = TableFiles(self._directory, disk)
        self.index: Index = NO_INDEX
        """Applied index of the snapshot that is durable; entries above it are needed for the next start."""

    def restore(self, store: LogStore) -> Catalog:
        """The newest saved catalog, or an empty one when the log is whole and everything can be applied again.

        Raises:
            CorruptStore: there is no usable snapshot, and the log's oldest entries are gone.
        """
        reason = "there is no catalog snapshot"
        data = self._load()
        if data is not None:
            try:
                catalog = Catalog.restore(data, self._tables)
            except CorruptStore as error:
                reason = str(error)
            else:
                if store.begin_index - 1 <= catalog.applied_index <= store.end.position.index:
                    self.index = catalog.applied_index
                    return catalog
                reason = (
                    f"the catalog snapshot is of entry {catalog.applied_index}, "
                    f"the log has {store.begin_index} to {store.end.position.index}"
                )
        if store.begin_index > 0:
            raise CorruptStore(
                f"{self._directory}: {reason}, and the log begins at entry {store.begin_index}, so it cannot be "
                f"rebuilt; let this node start anew with an empty directory"
            )
        if store.end.position.index >= 0:
            logger.warning("%s: %s; the whole log is applied again", self._directory, reason)
        return Catalog(self._tables)

    def save(self, data: bytes, index: Index, store: LogStore) -> None:
        """Make ``data``, the catalog as of ``index``, the snapshot. Blocks; runs on a thread of its own.

        Raises:
            StorageError: the disk failed.
        """
        try:
            if store.durable.index < index:
                store.sync()  # a snapshot is never ahead of the log it sums up
            self._tables.sync()
            temporary, target = self._directory / TEMPORARY, self._directory / SNAPSHOT
            with suppress(FileNotFoundError):
                self._disk.unlink(temporary)
            file = self._disk.open(temporary, create=True)
            file.pwritev([data], 0)
            file.fdatasync()
            self._disk.rename(temporary, target)
            self._disk.fsync_dir(self._directory)
        except OSError as error:
            raise StorageError(f"{self._directory}: cannot save the catalog: {error}") from error
        self.index = index

    def close(self) -> None:
        self._tables.close()

    def _load(self) -> bytes | None:
        path = self._directory / SNAPSHOT
        try:
            if not self._disk.exists(path):
                return None
            file = self._disk.open_read_only(path)
            return file.pread(file.size(), 0)
        except OSError as error:
            raise StorageError(f"{path}: cannot be read: {error}") from error
