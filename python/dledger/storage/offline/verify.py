"""Checking every byte of a stopped store: headers, bodies, padding, free space, index, records,
tables, snapshots."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dledger.protocol.messages.entry import (
    HEADER,
    HEADER_SIZE,
    Entry,
    LogEnd,
    body_is_sound,
    chain_is_sound,
    parse,
)
from dledger.storage.disk.disk import Disk, DiskFile
from dledger.storage.disk.file_names import NEW_SUFFIX, is_file_name
from dledger.storage.log.index import UNIT_SIZE, LogIndexUnit
from dledger.storage.log.walker import Bad, Finish, Padding, Walker
from dledger.storage.log.zeros import CHUNK, first_nonzero
from dledger.storage.meta.snapshots import SNAPSHOTS, unpack_snapshot
from dledger.storage.meta.tables import TABLES, verify_table_file
from dledger.storage.offline.inspect import Inspection, inspect_store
from dledger.storage.recovery.snapshot_install import DATA, INSTALL_SUFFIX, InstallRecord


def verify_store(directory: str | Path, disk: Disk | None = None) -> dict[str, Any]:
    """Read everything and change nothing.

    Returns:
        JSON values: ``ok``, ``problems`` (each with ``index`` of the entry or -1, ``pos`` in the
        log or -1, ``file``, ``reason``), the kept range (``begin_index``, ``end_index``,
        ``end_pos`` where the last entry ends, ``entries``, ``bytes``), ``unverified_entries`` that
        carry no checksums because DLedger wrote them, and the identity of the store.

    Raises:
        PathError: there is no store, or a node runs on it.
    """
    look = inspect_store(directory, disk)
    walker = look.walker()
    begin = walker.end.position.index + 1
    log = _Log(look, walker)
    log.verify()
    _verify_files(look, None)
    if look.waiting is not None:
        _verify_files(look, look.waiting)
    state = look.state
    return {
        "directory": str(look.directory),
        "ok": not look.problems,
        "begin_index": begin,
        "end_index": walker.end.position.index,
        "end_term": walker.end.position.term,
        "end_pos": walker.end.end_pos,
        "entries": log.entries,
        "bytes": log.bytes,
        "unverified_entries": log.unverified,
        "group": state.identity.group if state else None,
        "node_id": state.identity.node_id if state else None,
        "term": state.hard_state.term if state else None,
        "commit_hint": look.mark.commit if look.mark else None,
        "problems": look.problems,
    }


class _Log:
    """The walk over data and index."""

    def __init__(self, look: Inspection, walker: Walker) -> None:
        self._look = look
        self._walker = walker
        self.entries = self.bytes = self.unverified = 0

    def verify(self) -> None:
        look, data, note = self._look, self._look.data, self._look.problems.note
        for event in self._walker.walk():
            if isinstance(event, Entry):
                self._count(event)
            elif isinstance(event, Bad):
                for index in range(event.first, event.last + 1) or (event.last,):
                    note(data.path(event.pos), event.reason, index=index, pos=event.pos)
            elif isinstance(event, Padding):
                found = first_nonzero(data, event.pos + 8, event.pos + event.size)
                if found is not None:
                    note(
                        data.path(found),
                        "the padding behind this entry is not zero",
                        index=self._walker.end.position.index,
                        pos=found,
                    )
            else:
                self._finish(event)
        end = self._walker.end
        if look.mark is not None and look.mark.durable.position.index > end.position.index:
            reason = (
                f"the log ends at entry {end.position.index}, but entries up to "
                f"{look.mark.durable.position.index} were durable"
            )
            note(data.directory, reason, index=end.position.index + 1, pos=end.end_pos)
        self._index_behind(end)

    def _count(self, entry: Entry) -> None:
        look, note = self._look, self._look.problems.note
        self.entries += 1
        self.bytes += entry.size
        self.unverified += not entry.verified
        offset = entry.index * UNIT_SIZE
        if look.index is None or not look.index.files.has(offset):
            return
        files = look.index.files
        if files.pread(offset, UNIT_SIZE) != LogIndexUnit.of(entry).pack():
            reason = "the index unit is not that of the entry"
            note(files.path(offset), reason, index=entry.index, pos=entry.pos)
        durable = None if look.mark is None else look.mark.durable
        if (
            durable is not None
            and entry.index == durable.position.index
            and LogEnd.after(entry) != durable
        ):
            reason = "not the entry that the mark names"
            note(look.data.path(entry.pos), reason, index=entry.index, pos=entry.pos)

    def _finish(self, event: Finish) -> None:
        if not event.reason:
            return
        look, last = self._look, self._walker.end.position
        if look.mark is not None and last == look.mark.durable.position:
            index, reason = int(last.index), f"behind the last entry: {event.reason}"
        else:
            index = last.index + 1
            reason = f"{event.reason}: a torn write, or a damaged last entry"
        look.problems.note(event.file, reason, index=index, pos=event.pos)

    def _index_behind(self, end: LogEnd) -> None:
        look = self._look
        if look.index is None:
            if self.entries:
                look.problems.note(look.directory / "index", "there are no index files")
            return
        files = look.index.files
        offset = max((end.position.index + 1) * UNIT_SIZE, files.starts[0])
        found = first_nonzero(files, offset)
        if found is not None:
            reason = "the index has something behind the last entry's unit"
            look.problems.note(files.path(found), reason, index=end.position.index)


def _verify_files(look: Inspection, waiting: InstallRecord | None) -> None:
    """Tables and snapshots; with ``waiting`` those of another node's state that have yet to get
    their names, and its log."""
    for path in (
        look.directory / directory / name
        for directory in ((TABLES, SNAPSHOTS) if waiting is None else (DATA, TABLES, SNAPSHOTS))
        for name in look.disk.listdir(look.directory / directory)
        if name.endswith(INSTALL_SUFFIX) == (waiting is not None) and not name.endswith(NEW_SUFFIX)
    ):
        file, reason, index, pos = look.disk.open_read_only(path), "", -1, -1
        name = path.name.removesuffix(INSTALL_SUFFIX)
        if path.parent.name == TABLES:
            reason = verify_table_file(file)
        elif path.parent.name == SNAPSHOTS:
            reason = _wrong_in_snapshot(file, int(name)) if is_file_name(name) else ""
        elif waiting is not None:
            index, pos = waiting.begin.position.index + 1, waiting.begin.end_pos
            reason = _wrong_in_log(file, waiting)
        if reason:
            look.problems.note(path, reason, index=index, pos=pos)


def _wrong_in_snapshot(file: DiskFile, index: int) -> str:
    found = unpack_snapshot(b"".join(file.pread(CHUNK, at) for at in range(0, file.size(), CHUNK)))
    return "the snapshot is damaged" if found is None or found[0] != index else ""


def _wrong_in_log(file: DiskFile, record: InstallRecord) -> str:
    """A log that begins, and ends, with the entry that the record names."""
    head = file.pread(HEADER_SIZE, 0)
    size = HEADER.unpack(head)[1] if len(head) == HEADER_SIZE else 0
    try:
        entry = parse(file.pread(min(max(size, 0), file.size()), 0))
    except ValueError as error:
        return str(error)
    chain = record.begin.chain_crc
    sound = body_is_sound(entry) and (chain < 0 or chain_is_sound(entry, chain))
    if not sound or LogEnd.after(entry) != record.end:
        return "it is damaged, or not the entry that the state's log begins with"
    at = file.next_data(size)
    while at is not None and at < file.size():
        block = file.pread(CHUNK, at)
        if block.count(0) != len(block):
            return "there is something behind the entry"
        at = file.next_data(at + len(block))
    return ""
