"""Reading the files of a stopped store without changing any of them; `verify` and `dump` start from
it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from dledger.errors import PathError
from dledger.protocol.messages.entry import LogEnd
from dledger.storage.disk.disk import Disk, RealDisk
from dledger.storage.disk.file_names import file_name, is_file_name
from dledger.storage.log.index import UNIT_SIZE, LogIndex
from dledger.storage.log.index_rebuild import first_index
from dledger.storage.log.segments import SegmentFiles
from dledger.storage.log.walker import Walker
from dledger.storage.meta.hard_state import STATE_FILE, STATE_MAGIC, StateRecord
from dledger.storage.meta.members import MEMBERS_FILE, MEMBERS_MAGIC
from dledger.storage.meta.recovery_point import MARK_FILE, MARK_MAGIC, RecoveryPoint, before_first
from dledger.storage.meta.slots import SLOT_SIZE, SlotFile
from dledger.storage.recovery.open_files import LOCK_FILE
from dledger.storage.recovery.snapshot_install import (
    DONE,
    INSTALL_FILE,
    INSTALL_MAGIC,
    InstallRecord,
)
from dledger.types import Index


class Problems(list[dict[str, Any]]):
    """The faults found so far, as JSON values."""

    def note(self, file: Path | str, reason: str, *, index: int = -1, pos: int = -1) -> None:
        """Add one; -1: no entry, or no place in the log."""
        self.append({"index": index, "pos": pos, "file": str(file), "reason": reason})


@dataclass(slots=True)
class Inspection:
    """The files of one store, read-only, and the faults on the way to them."""

    directory: Path
    disk: Disk
    data: SegmentFiles
    index: LogIndex | None
    state: StateRecord | None
    mark: RecoveryPoint | None
    problems: Problems
    waiting: InstallRecord | None
    """The state of another node that the next start takes over, or goes on to."""

    def walker(self) -> Walker:
        """A walk over the whole log, from the first kept entry."""
        begin = self.data.starts[0] if self.data.starts else 0
        mark = self.mark
        if mark is not None and mark.begin_pos == begin:
            start = mark.begin
        else:
            start = before_first(self._first_index(begin), begin, -1 if begin else 0)
        known = None
        if (
            mark is not None
            and mark.durable.position.index > start.position.index
            and self.data.has(mark.durable.end_pos - 1)
        ):
            known = mark.durable
        return Walker(self.data, start, known=known)

    def _first_index(self, begin: int) -> Index:
        if begin == 0:
            return Index(0)
        found = first_index(self.data, begin) if self.data.starts else Index(0)
        if found is None:
            path = self.data.path(begin)
            self.problems.note(path, "the first entry's header is damaged", pos=begin)
            later = Walker(self.data, LogEnd()).search(begin + 1, 0)
            return Index(later.index - 1 if later is not None else 0)
        return found


def inspect_store(
    directory: str | Path, disk: Disk | None = None, *, is_locked: bool = False
) -> Inspection:
    """Open a stopped store for reading; one that DLedger wrote as well. ``is_locked``: the caller
    holds its lock.

    Raises:
        PathError: there is no store, or a node runs on it.
    """
    root, disk = Path(directory), disk or RealDisk()
    if not disk.exists(root / "data") and not disk.listdir(root / "data"):
        raise PathError(f"{root}: no log here (there is no {root / 'data'})")
    if not is_locked:
        _check_stopped(root, disk)
    problems = Problems()
    state = _slots(disk, root / STATE_FILE, STATE_MAGIC, problems)
    mark = _slots(disk, root / MARK_FILE, MARK_MAGIC, problems)
    _slots(disk, root / MEMBERS_FILE, MEMBERS_MAGIC, problems)
    install = _slots(disk, root / INSTALL_FILE, INSTALL_MAGIC, problems)
    record = None if install is None else InstallRecord.unpack(install)
    waiting = None if record is None or record.step == DONE else record
    if waiting is not None:
        reason = (
            "the state of another node is being taken over: start the node, which goes on with that"
        )
        problems.note(root / INSTALL_FILE, reason)
    data_size = _file_size(disk, root / "data", 1, problems)
    index_size = _file_size(disk, root / "index", UNIT_SIZE, problems)
    data = SegmentFiles(disk, root / "data", file_size=data_size, read_only=True)
    index = SegmentFiles(disk, root / "index", file_size=index_size, read_only=True)
    for files in (data, index):
        for before, after in pairwise(files.starts):
            if after != before + files.file_size:
                reason = f"a file is missing between {file_name(before)} and {file_name(after)}"
                problems.note(files.directory, reason, pos=before)
    return Inspection(
        root,
        disk,
        data,
        LogIndex(index) if index.starts else None,
        StateRecord.unpack(state) if state else None,
        RecoveryPoint.unpack(mark) if mark else None,
        problems,
        waiting,
    )


def _check_stopped(root: Path, disk: Disk) -> None:
    if not disk.exists(root / LOCK_FILE):
        return
    try:
        disk.lock(root / LOCK_FILE).release()
    except BlockingIOError as error:
        raise PathError(f"{root}: a node runs on this store; stop it first") from error
    except PermissionError:
        return  # may be read but not locked: no process that could write it need be running


def _slots(disk: Disk, path: Path, magic: bytes, problems: Problems) -> bytes | None:
    """The payload that counts; every damaged slot is a problem."""
    if not disk.exists(path):
        return None
    file = disk.open_read_only(path)
    slots = SlotFile(file, magic)
    for number in slots.damaged:
        problems.note(path, f"copy {number} of the record is damaged")
    if file.size() != 2 * SLOT_SIZE:
        problems.note(path, f"has {file.size()} bytes, not {2 * SLOT_SIZE}")
    return slots.payload


def _file_size(disk: Disk, directory: Path, least: int, problems: Problems) -> int:
    """The size of the directory's files, which is the largest one's; others are problems."""
    names = filter(is_file_name, disk.listdir(directory))
    sizes = {name: disk.size(directory / name) for name in names}
    size = max([*sizes.values(), least])
    for name, own in sizes.items():
        if own != size or int(name) % size:
            reason = f"has {own} bytes where the largest file has {size}"
            problems.note(directory / name, reason, pos=int(name))
    return size
