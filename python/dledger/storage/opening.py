"""Opening the store of a node, with its settings."""

from __future__ import annotations

from dledger.config import GroupConfig, NodeConfig
from dledger.environment import REAL, Environment
from dledger.errors import PathError
from dledger.storage.background import BackgroundState
from dledger.storage.disk.disk import Disk, RealDisk, storage_error
from dledger.storage.file_store import FileStore
from dledger.storage.recovery.open_files import StoreSettings, open_parts


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
        PathError: the directory is a file, may not be written, or is in use by another process.
        WrongGroup: it belongs to another group or node.
        ConfigError: it was created with other file sizes.
        CorruptStore: the files contradict one another in a way that no crash explains.
        StorageError: the disk failed.
    """
    return open_settings(StoreSettings.of(config, node), disk or RealDisk(), keeping, environment)


def open_settings(
    settings: StoreSettings,
    disk: Disk,
    keeping: BackgroundState = BackgroundState.THREAD,
    environment: Environment = REAL,
) -> FileStore:
    """`open_store` for given settings."""
    try:
        parts = open_parts(settings, disk, environment)
    except PathError:
        raise
    except OSError as error:
        raise storage_error("open", settings.directory, error) from error
    try:
        return FileStore(parts, keeping, environment=environment)
    except BaseException as error:
        parts.lock.release()
        if isinstance(error, OSError):
            raise storage_error("recover", settings.directory, error) from error
        raise
