"""Opening the files of a store: its identity, its promises, and the pieces that recovery works
on."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from dledger.config import NOTHING_ACCEPTED, GroupConfig, NodeConfig
from dledger.environment import REAL, Environment
from dledger.errors import ConfigError, CorruptStore, PathError, WrongGroup
from dledger.protocol.messages.entry import HardState
from dledger.protocol.messages.group_version import check_supported
from dledger.protocol.messages.membership import voters_of
from dledger.storage.api import Identity
from dledger.storage.disk.disk import Disk, Lock, Witness
from dledger.storage.disk.file_names import NEW_SUFFIX, file_name
from dledger.storage.disk.small_files import (
    read_all,
    remove,
    replace_whole,
    sync_names_above,
)
from dledger.storage.log.index import UNIT_SIZE, LogIndex
from dledger.storage.log.segments import SegmentFiles
from dledger.storage.meta.hard_state import (
    STATE_FILE,
    STATE_MAGIC,
    StateRecord,
    imported_hard_state,
)
from dledger.storage.meta.members import MEMBERS_FILE, MemberFile
from dledger.storage.meta.recovery_point import MARK_FILE, MARK_MAGIC, RecoveryPoint
from dledger.storage.meta.slots import SLOT_SIZE, SlotFile, create_slots
from dledger.storage.recovery.snapshot_install import INSTALL_FILE, finish_install
from dledger.types import Index, NodeId

LOCK_FILE: Final = "lock"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSettings:
    """The settings that a store needs; see GroupConfig and NodeConfig."""

    directory: Path
    node_id: NodeId
    group: str = "default"
    segment_bytes: int = 1 << 30
    index_file_bytes: int = 5 * 32 << 20
    retention_ms: int = 0
    retention_bytes: int = 0
    delete_when: str = ""
    disk_warn_ratio: float = 0.90
    disk_full_ratio: float = 0.97
    disk_reserve_bytes: int = 64 << 20
    is_alone: bool = False
    """The group was founded with one node, as far as the settings say; see `Parts.is_alone`."""
    accept_loss: int | None = None
    """See `dledger.storage.recovery.lost_entries`."""
    begin_pos: int = 0
    """Position of the first entry of a log that is made now: the begin of a file. A log that is
    there knows its own."""

    @staticmethod
    def of(group: GroupConfig, node: NodeConfig) -> StoreSettings:
        return StoreSettings(
            directory=node.directory,
            group=group.group,
            node_id=node.node_id,
            segment_bytes=group.segment_bytes,
            index_file_bytes=group.index_file_bytes,
            is_alone=len(group.members) == 1,
            accept_loss=None if node.accept_loss == NOTHING_ACCEPTED else node.accept_loss,
        ).with_limits(node)

    def with_limits(self, node: NodeConfig) -> StoreSettings:
        """With the settings that may change while the store is open."""
        return replace(
            self,
            retention_ms=node.retention_ms,
            retention_bytes=node.retention_bytes,
            delete_when=node.delete_when,
            disk_warn_ratio=node.disk_warn_ratio,
            disk_full_ratio=node.disk_full_ratio,
            disk_reserve_bytes=node.disk_reserve_bytes,
        )


@dataclass(slots=True)
class Parts:
    """The open files of one store."""

    settings: StoreSettings
    disk: Disk
    lock: Lock
    state: SlotFile
    record: StateRecord
    mark_slots: SlotFile
    mark: RecoveryPoint | None
    """None: none can be read, or there never was one."""
    data: SegmentFiles
    index: LogIndex
    members: MemberFile
    notes: list[str]
    imported: bool
    """The files are DLedger's, opened for the first time."""
    installed: Index
    """As of which entry the last catalog is that was taken over from another node; -1: none."""

    @property
    def is_alone(self) -> bool:
        """Whether the group has no other voter, by the record of its members: nobody else can say
        what was committed, or admit this node. So it is only by each list that may be in force."""
        known, me = self.members.membership, self.settings.node_id
        lists = [change.members for change in known.changes if change.members]
        if not known.listed:
            is_one = len(known.members) == 1 if known.members else self.settings.is_alone
        else:
            is_one = voters_of(known.listed) == {me}
        return is_one and all(voters_of(listed) == {me} for listed in lists)


def take_lock(disk: Disk, directory: Path) -> Lock:
    """Make the directory, see that it can be written, and lock it.

    Raises:
        PathError: it is a file, may not be written, another process has it open, or its file system
            has no locks.
    """
    try:
        disk.mkdir(directory)
        return disk.lock(directory / LOCK_FILE)
    except PathError:
        raise
    except (BlockingIOError, InterruptedError) as error:
        raise PathError(
            f"{directory} is in use by another node process (it holds {directory / LOCK_FILE}): "
            "stop that one first, or give this node a directory of its own"
        ) from error
    except (FileExistsError, NotADirectoryError) as error:
        raise PathError(
            f"{directory} is a file, or below one: give a directory for the node's files"
        ) from error
    except OSError as error:
        raise PathError(
            f"{directory} cannot be used for the node's files: {os.strerror(error.errno or 0)}"
        ) from error


def open_parts(settings: StoreSettings, disk: Disk, environment: Environment = REAL) -> Parts:
    """Open the store's files, creating them in an empty directory.

    Raises:
        PathError, WrongGroup, ConfigError, CorruptStore: as their messages say.
        OSError: the disk failed.
    """
    lock = take_lock(disk, settings.directory)
    try:
        return _open_locked(settings, disk, lock, environment)
    except BaseException:
        lock.release()
        raise


def _open_locked(
    settings: StoreSettings, disk: Disk, lock: Lock, environment: Environment
) -> Parts:
    root, notes = settings.directory, list[str]()
    disk.restrict(root)
    sync_names_above(disk, root, {root.parent} if disk.exists(root / STATE_FILE) else None)
    for name in (STATE_FILE, MARK_FILE, MEMBERS_FILE, INSTALL_FILE):
        remove(disk, root / (name + NEW_SUFFIX))
    installed = finish_install(disk, root, settings.index_file_bytes, notes)
    if not disk.exists(root / STATE_FILE):
        _create_state(settings, disk, environment, notes)
    state = SlotFile(disk.open(root / STATE_FILE), STATE_MAGIC)
    if state.payload is None:
        raise CorruptStore(
            f"{root / STATE_FILE}: neither copy of the hard state can be read, so this node "
            f"cannot know what it voted: "
            "put the file back, or empty the directory and let it back in with 'dledger admit'"
        )
    record = StateRecord.unpack(state.payload)
    _check_identity(settings, record)
    state.note_damage(notes)
    # the bytes read may be a page that a killed process left unsynced (D15)
    state.write_both(state.payload)
    data = SegmentFiles(disk, root / "data", file_size=settings.segment_bytes)
    index = SegmentFiles(disk, root / "index", file_size=settings.index_file_bytes)
    if not disk.exists(root / MARK_FILE):
        replace_whole(disk, root / MARK_FILE, bytes(2 * SLOT_SIZE))
    mark_slots = SlotFile(disk.open(root / MARK_FILE), MARK_MAGIC)
    mark = RecoveryPoint.unpack(mark_slots.payload) if mark_slots.payload else None
    notes += data.check_layout(spare_behind=None if mark is None else mark.durable.end_pos)
    _check_index(index, notes)
    if mark is None and data.starts:
        notes.append(f"{MARK_FILE}: not there or not readable; the whole log was scanned")
    members = MemberFile(
        disk,
        root,
        incarnation=record.identity.incarnation,
        notes=notes,
        draw=lambda: environment.below(1 << 63),
    )
    imported = mark is None and disk.exists(root / "currterm")
    return Parts(
        settings,
        disk,
        lock,
        state,
        record,
        mark_slots,
        mark,
        data,
        LogIndex(index),
        members,
        notes,
        imported,
        installed,
    )


def _check_identity(settings: StoreSettings, record: StateRecord) -> None:
    check_supported(record.group_version, record.release)
    identity = record.identity
    if (identity.group, identity.node_id) != (settings.group, settings.node_id):
        raise WrongGroup(
            f"{settings.directory} belongs to node {identity.node_id!r} of group "
            f"{identity.group!r}, not to node "
            f"{settings.node_id!r} of group {settings.group!r}: give each node its own directory"
        )
    for name in ("segment_bytes", "index_file_bytes"):
        if getattr(record, name) != getattr(settings, name):
            raise ConfigError(
                f"{settings.directory} was created with {name} {getattr(record, name)}, not "
                f"{getattr(settings, name)}: all nodes of a group use one size, for ever"
            )


def _check_index(index: SegmentFiles, notes: list[str]) -> None:
    """The index can be rebuilt, so a file that does not fit goes."""
    try:
        index.check_layout()
    except (ConfigError, CorruptStore) as error:
        notes.append(f"index files thrown away, to be rebuilt: {error}")
        for start in reversed(index.starts):
            index.disk.unlink(index.directory / file_name(start))
        index.disk.fsync_dir(index.directory)
        index.close()
        index.starts = []


def _create_state(
    settings: StoreSettings, disk: Disk, environment: Environment, notes: list[str]
) -> None:
    root = settings.directory
    hard_state = HardState()
    if disk.exists(root / "currterm"):
        _check_sizes(disk, root / "data", "segment_bytes", settings.segment_bytes)
        _check_sizes(disk, root / "index", "index_file_bytes", settings.index_file_bytes)
        hard_state = _import(disk, root)
        notes.append(f"hard state taken over from DLedger's currterm: {hard_state}")
    elif disk.listdir(root / "data"):
        raise CorruptStore(
            f"{root} has a log but no file {STATE_FILE!r}, so this node cannot know what it "
            f"voted: put the file back, "
            "or empty the directory and let it back in with 'dledger admit'"
        )
    identity = Identity(settings.group, settings.node_id, environment.below(1 << 63))
    record = StateRecord(identity, hard_state, settings.segment_bytes, settings.index_file_bytes)
    create_slots(disk, root / STATE_FILE, STATE_MAGIC, record.pack())


def _check_sizes(disk: Disk, directory: Path, setting: str, size: int) -> None:
    """DLedger's files say nothing of their size but by having it, each of them."""
    for name in disk.listdir(directory):
        found = disk.open_read_only(directory / name).size()
        if found != size:
            raise ConfigError(
                f"{directory / name} has {found} bytes, not {size}: set {setting}={found}"
            )


def _import(disk: Disk, root: Path) -> HardState:
    texts = [read_all(disk, root / name) or b"" for name in ("currterm", "checkpoint")]
    try:
        return imported_hard_state(*texts)
    except (ValueError, KeyError) as error:
        raise CorruptStore(f"{root / 'currterm'} is not DLedger's: {error}") from error


def vouch_for(parts: Parts, witness: Witness, mark: RecoveryPoint, before: RecoveryPoint) -> None:
    """Have a disk of a test check whether a mark is true: a sync covers all that it calls durable,
    and the units that it calls indexed and the one before did not. Units before that may have been
    written again, as they were."""
    indexed = ((end.position.index + 1) * UNIT_SIZE for end in (before.indexed, mark.indexed))
    witness(parts.data.directory, mark.begin_pos, mark.durable.end_pos)
    witness(parts.index.files.directory, *indexed)
