"""Another state in the place of this store's: log, topic index and snapshot change at once, or not
at all.

New files are written beside those in use, under a name with ``.install`` behind it. Then the record
``install`` says ``ready``, and from there on a store that is opened carries it out, however often
it is interrupted: the old files go (``cleared``), the new ones take their names, the mark is set
(``done``). Before ``ready`` nothing counts on the new files, and a store that is opened removes
them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from dledger.errors import CorruptStore, DiskFull
from dledger.protocol.messages.entry import Entry, LogEnd
from dledger.storage.disk.allocated_blocks import make_room
from dledger.storage.disk.disk import Disk, is_full, storage_error
from dledger.storage.disk.file_names import file_name, is_file_name
from dledger.storage.log.index import UNIT_SIZE
from dledger.storage.meta.recovery_point import MARK_FILE, MARK_MAGIC, RecoveryPoint
from dledger.storage.meta.slots import SlotFile, create_slots
from dledger.storage.meta.snapshots import SNAPSHOTS, pack_snapshot
from dledger.storage.meta.tables import TABLES, pack_header, pack_rows
from dledger.types import NO_INDEX, Index, Position, Term

INSTALL_FILE: Final = "install"
INSTALL_MAGIC: Final = b"DLin"
INSTALL_SUFFIX: Final = ".install"
DATA: Final = "data"
INDEX: Final = "index"
READY: Final = "ready"
CLEARED: Final = "cleared"
DONE: Final = "done"


@dataclass(frozen=True, slots=True)
class InstallRecord:
    """The installation to be done, or done last."""

    step: str
    index: Index
    """The catalog that was taken over last is as of this entry; the log may still end before it."""
    begin: LogEnd = LogEnd()  # noqa: RUF009 - frozen
    """The place before the first kept entry; chain_crc -1: unknown."""
    end: LogEnd | None = None
    """Where a new log ends; None: the log stays and loses the entries before ``begin``."""
    catalog: bool = True
    """Whether topic index and snapshots are replaced."""

    def pack(self) -> bytes:
        value = {
            "step": self.step,
            "index": self.index,
            "catalog": self.catalog,
            "begin": _numbers(self.begin),
            "end": None if self.end is None else _numbers(self.end),
        }
        return json.dumps(value, separators=(",", ":"), sort_keys=True).encode()

    @staticmethod
    def unpack(payload: bytes) -> InstallRecord:
        value: dict[str, Any] = json.loads(payload)
        end = None if value["end"] is None else _end(value["end"])
        return InstallRecord(
            value["step"], Index(value["index"]), _end(value["begin"]), end, value["catalog"]
        )


def _numbers(end: LogEnd) -> list[int]:
    return [end.position.term, end.position.index, end.end_pos, end.chain_crc]


def _end(numbers: list[int]) -> LogEnd:
    term, index, pos, chain = numbers
    return LogEnd(Position(Term(term), Index(index)), pos, chain)


class StagedTable:
    """Rows of one table on their way into a new file."""

    def __init__(self, disk: Disk, root: Path, *, name: str, row_size: int, first: int) -> None:
        self._file = disk.open(
            root / TABLES / f"{name}.{file_name(first)}{INSTALL_SUFFIX}", create=True
        )
        self._row_size = row_size
        self._number = first
        header = pack_header(row_size, first)
        self._file.pwritev([header], 0)
        self._at = len(header)

    def append(self, rows: bytes) -> None:
        """Whole rows, back to back."""
        data = pack_rows(rows, self._row_size, self._number)
        self._file.pwritev([data], self._at)
        self._at += len(data)
        self._number += len(rows) // self._row_size

    def sync(self) -> None:
        self._file.fdatasync()


class Staging:
    """A state that is being fetched. Blocks; methods belong to one thread at a time.

    Raises:
        DiskFull: there is no room for it; `drop` it.
        StorageError: the disk failed.
    """

    def __init__(self, root: Path, disk: Disk, *, segment_bytes: int) -> None:
        self._root = root
        self._disk = disk
        self._segment_bytes = segment_bytes
        self.drop()

    def table(self, name: str, row_size: int, first: int) -> StagedTable:
        """A table whose first row has the number ``first``."""
        return StagedTable(self._disk, self._root, name=name, row_size=row_size, first=first)

    def snapshot(self, index: Index, data: bytes) -> None:
        """The catalog as of ``index``; durable on return."""
        self._write(
            self._root / SNAPSHOTS / (file_name(index) + INSTALL_SUFFIX),
            pack_snapshot(index, data),
            0,
        )

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Tell a full disk, after which only this state is given up, from one that failed (D2)."""
        try:
            yield
        except OSError as error:
            if is_full(error):
                raise DiskFull(
                    f"{self._root}: no room for the state of another node; free space on that disk"
                ) from error
            raise storage_error("write the state of another node to", self._root, error) from error

    def drop(self) -> None:
        """Remove the written files."""
        with self.writing():
            drop_staged(self._disk, self._root)

    def commit(self, index: Index, begin: LogEnd, first: Entry | None, *, catalog: bool) -> None:
        """From now on this state is the store's: close it, and open it again. Durable on return.

        Args:
            index: the catalog's.
            begin: the place before the first kept entry.
            first: that entry, which a new log consists of; None: the log that is there stays from
                ``begin`` on.
            catalog: False: topic index and snapshots stay as they are; they need no removed entry.
        """
        disk, root = self._disk, self._root
        if not catalog:
            self.drop()
        with self.writing():
            if first is not None:
                path = root / DATA / (file_name(begin.end_pos) + INSTALL_SUFFIX)
                self._write(path, bytes(first.header) + bytes(first.body), self._segment_bytes)
            for name in (DATA, TABLES, SNAPSHOTS):
                disk.fsync_dir(root / name)
        end = None if first is None else LogEnd.after(first)
        try:
            before = read_record(disk, root, notes=[])
            known = before.index if before is not None else NO_INDEX
            index = index if catalog else known
            _save(disk, root, InstallRecord(READY, index, begin, end, catalog))
        except OSError as error:  # it may be there or not, so no caller may go on as if it were not
            raise storage_error("take over the state of another node in", root, error) from error

    def _write(self, path: Path, data: bytes, size: int) -> None:
        file = self._disk.open(path, create=True)
        if size:
            make_room(self._disk, file, size, len(data))
        else:
            file.fallocate(len(data))
        file.pwritev([data], 0)
        file.fdatasync()


def read_record(disk: Disk, root: Path, notes: list[str]) -> InstallRecord | None:
    """The record; None when no state was ever taken over here. ``notes`` get the remarks on it.

    Raises:
        CorruptStore: it cannot be read, and files are there that it may speak of.
    """
    path = root / INSTALL_FILE
    if not disk.exists(path):
        return None
    slots = SlotFile(disk.open_read_only(path), INSTALL_MAGIC)
    if slots.payload is not None:
        slots.note_damage(notes)
        return InstallRecord.unpack(slots.payload)
    if _staged(disk, root):
        raise CorruptStore(
            f"{path}: neither copy can be read, so nobody knows which of the files in {root} "
            "count: empty the directory and let it back in with 'dledger admit'"
        )
    return None


def finish_install(disk: Disk, root: Path, index_file_bytes: int, notes: list[str]) -> Index:
    """Carry out a record, or remove the files that no record names. To be called before anything
    else of the store.

    Returns:
        As of which entry the last catalog is that was taken over; -1: none was.

    Raises:
        CorruptStore: as `read_record`.
        OSError: the disk failed.
    """
    record = read_record(disk, root, notes)
    if record is not None:
        # what was read may be a page that a killed process left unsynced (D15),
        _save(disk, root, record)
        disk.fsync_dir(root)  # and so may the name of its file
    if record is None or record.step == DONE:
        drop_staged(disk, root)
        return NO_INDEX if record is None else record.index
    # Every step can be repeated after a crash. CLEARED is durable before the first rename, because
    # a repeated clear would remove the new files under their final names.
    if record.step == READY:
        _clear(disk, root, record, index_file_bytes)
        record = replace(record, step=CLEARED)
        _save(disk, root, record)
    for path in _staged(disk, root):
        disk.rename(path, path.with_name(path.name.removesuffix(INSTALL_SUFFIX)))
    for name in (DATA, TABLES, SNAPSHOTS):
        if disk.listdir(root / name):
            disk.fsync_dir(root / name)
    _set_mark(disk, root, record)
    _save(disk, root, replace(record, step=DONE))
    return record.index


def drop_staged(disk: Disk, root: Path) -> None:
    """Remove the files of a state that was not committed."""
    for path in _staged(disk, root):
        disk.unlink(path)


def _staged(disk: Disk, root: Path) -> list[Path]:
    return [
        root / directory / name
        for directory in (DATA, TABLES, SNAPSHOTS)
        for name in disk.listdir(root / directory)
        if name.endswith(INSTALL_SUFFIX)
    ]


def _save(disk: Disk, root: Path, record: InstallRecord) -> None:
    path = root / INSTALL_FILE
    if disk.exists(path):
        SlotFile(disk.open(path), INSTALL_MAGIC).write_both(record.pack())
    else:
        create_slots(disk, path, INSTALL_MAGIC, record.pack())


def _clear(disk: Disk, root: Path, record: InstallRecord, index_file_bytes: int) -> None:
    """Remove the old files; only those that stay and the new ones, under their longer names, are
    left."""
    begin, whole = record.begin, record.end is not None
    units = (begin.position.index + 1) * UNIT_SIZE
    for name in disk.listdir(root / DATA):
        if is_file_name(name) and (whole or int(name) < begin.end_pos):
            disk.unlink(root / DATA / name)
    for name in disk.listdir(root / INDEX):
        if is_file_name(name) and (whole or int(name) + index_file_bytes <= units):
            disk.unlink(root / INDEX / name)
    if record.catalog:
        for directory in (root / TABLES, root / SNAPSHOTS):
            for name in disk.listdir(directory):
                if not name.endswith(INSTALL_SUFFIX):
                    disk.unlink(directory / name)
    for name in (DATA, INDEX, TABLES, SNAPSHOTS):
        if disk.exists(root / name):
            disk.fsync_dir(root / name)


def _set_mark(disk: Disk, root: Path, record: InstallRecord) -> None:
    """Set the log's mark durably: so much of it is there, and its first entry is committed."""
    begin, end = record.begin, record.end
    slots = SlotFile(disk.open(root / MARK_FILE), MARK_MAGIC)
    first = Index(begin.position.index + 1)
    if end is not None:
        mark = RecoveryPoint(durable=end, indexed=end, commit=first, boot_id=disk.boot_id())
    elif slots.payload is not None:
        mark = RecoveryPoint.unpack(slots.payload)
        mark = replace(mark, commit=max(mark.commit, first))
    else:
        return  # recovery scans the whole log then
    mark = replace(mark, begin_index=first, begin_pos=begin.end_pos, begin_chain=begin.chain_crc)
    slots.write_both(mark.pack())
