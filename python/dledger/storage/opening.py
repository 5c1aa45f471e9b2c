"""Opening the store of a node, with its settings."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from dledger.config import GroupConfig, NodeConfig
from dledger.environment import REAL, Environment
from dledger.errors import PathError
from dledger.storage.background import BackgroundState
from dledger.storage.disk.disk import Disk, RealDisk, fatal
from dledger.storage.file_store import FileStore
from dledger.storage.recovery.open_files import StoreSettings, open_parts

UNFINISHED: Final = "restore-is-not-finished"
"""A file in a directory of a restore that is not complete; see `dledger.backup.restore_mark`."""


def open_store(
    config: GroupConfig,
    node: NodeConfig,
    disk: Disk | None = None,
    keeping: BackgroundState = BackgroundState.THREAD,
    environment: Environment = REAL,
) -> FileStore:
    """Open this node's store, creating it in an empty directory; recovers by itself, see
    `FileStore.recovery`.

    Raises:
        PathError: the directory is a file, may not be written, is in use by another process, or is
            of a restore that was killed.
        WrongGroup: it belongs to another group or node.
        ConfigError: it was created with other file sizes.
        CorruptStore: the files contradict one another in a way that no crash explains.
        StorageError: the disk failed.
    """
    if (Path(node.directory) / UNFINISHED).exists():
        raise PathError(
            f"{node.directory} is of a restore that was killed before the directories of all nodes "
            "were there: run the same 'dledger restore' again, which ends it or makes them anew"
        )
    return open_settings(StoreSettings.of(config, node), disk or RealDisk(), keeping, environment)


def open_settings(
    settings: StoreSettings,
    disk: Disk,
    keeping: BackgroundState = BackgroundState.THREAD,
    environment: Environment = REAL,
) -> FileStore:
    """`open_store` for given settings."""
    with fatal("open", settings.directory):
        parts = open_parts(settings, disk, environment)
    try:
        with fatal("recover", settings.directory):
            return FileStore(parts, keeping, environment=environment)
    except BaseException:
        parts.lock.release()
        raise
