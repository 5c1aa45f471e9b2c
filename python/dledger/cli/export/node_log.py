"""The export of a stopped node's log: all entries for DLedger, or the messages for a broker."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dledger.cli.node.files import check_directory
from dledger.errors import ConfigError, CorruptEntry, CorruptStore, PathError

if TYPE_CHECKING:
    from dledger.protocol.messages.entry import Entry
    from dledger.rocketmq.upgrade.old_commit_log import OldCommitLog
    from dledger.storage.offline.inspect import Inspection

FILE_SIZE: Final = 1 << 30
"""Bytes of a log file where none are asked for."""


def export_node(node: Path, place: Path, self_id: str, file_size: int) -> dict[str, Any]:
    """Write every entry of a stopped node's log with its index, term and body; returns the counts.

    DLedger 0.3 and before knows one kind of entry: those that a leader opens its term with become
    plain ones with the same body, so that indexes stay. A RocketMQ message that says where it lies
    goes on saying so.

    Raises:
        CorruptEntry: an entry is damaged.
        PathError: there is no log, or a node runs on it.
    """
    from dledger.rocketmq.export.ledger_files import LedgerFiles
    from dledger.rocketmq.export.moved_messages import moved_message

    look = _inspect(node)
    left_out: list[str] = []
    entries = _entries(look, left_out)
    first = next(entries, None)
    if first is None:
        raise PathError(f"{node} has no entry yet")
    files = LedgerFiles(
        place / f"dledger-{self_id}",
        data_file_size=file_size,
        first_index=first.index,
        first_pos=first.pos,
    )
    for entry in chain([first], entries):
        files.append(entry.term, entry.body, moved_message(entry.pos))
    last = files.next_index - 1
    hard = look.state.hard_state if look.state else None
    committed = check_committed(look, last, left_out[0])
    files.close(committed if hard else None, hard.term if hard else 0)
    return {
        "first_index": first.index,
        "end_index": last,
        "committed_index": committed,
        "term": files.term,
        "too_large_to_replicate": files.oversize,
        "left_out": left_out[0],
    }


def _inspect(node: Path) -> Inspection:
    """Look at a stopped node's store.

    Raises:
        CorruptStore: files are missing, or have another size.
        PathError: there is no log, or a node runs on it.
    """
    from dledger.storage.offline.inspect import inspect_store

    check_directory(node)
    look = inspect_store(node)
    told = [one for one in look.problems if Path(one["file"]).is_relative_to(look.data.directory)]
    if told:
        raise CorruptStore(
            f"{told[0]['file']}: {told[0]['reason']}. Put the file back, or export another "
            f"member's log"
        )
    return look


def check_committed(look: Inspection, last: int, left_out: str) -> int:
    """The last entry that the node knew to be committed.

    Args:
        last: index of the last entry that is there.
        left_out: describes the bytes behind it.

    Raises:
        CorruptStore: entries that were on the disk are not there.
    """
    hard, mark = look.state.hard_state if look.state else None, look.mark
    committed = max(hard.commit_hint if hard else -1, mark.commit if mark else -1)
    known = committed if mark is None else max(mark.commit, mark.durable.position.index)
    if last < known:
        raise CorruptStore(
            f"{look.directory}: the log ends with entry {last}, and {known - last:,} more were on "
            f"the disk{f' ({left_out})' if left_out else ''}: put the whole last file back, or "
            "export another member's log"
        )
    return committed


def export_messages(
    node: Path, place: Path, self_id: str, file_size: int, *, index: bool
) -> dict[str, Any]:
    """Write the messages of a stopped node's commit log, and those of the old one in front of it,
    as the store of a broker in DLedger mode; how many there are.

    Old messages stay where they were. The others move, since the other entries of the group's log
    go: their queue offsets stay, their physical offsets and the broker's ids of them do not.

    Raises:
        ConfigError: the node's files have another size than the broker's.
        CorruptEntry: an entry is damaged.
        PathError: there is no log, a node runs on it, or there is no message in it.
    """
    from dledger.rocketmq.export.group_log import CommitLogExport
    from dledger.rocketmq.upgrade.old_commit_log import OldCommitLog

    look = _inspect(node)
    size = look.data.file_size
    if file_size not in (FILE_SIZE, size):
        raise ConfigError(
            f"--file-size {file_size}: the node's files have {size} bytes, and the broker's must "
            f"too"
        )
    if not look.data.starts:
        raise PathError(f"{node} has no entry yet")
    old = OldCommitLog.find(node)
    try:
        if old is not None:
            _check_old(old, node)
        store = CommitLogExport(
            place, self_id, file_size=size, begin=look.data.starts[0], old=old, index=index
        )
        try:
            last, left_out = -1, list[str]()
            for entry in _entries(look, left_out):
                store.put(entry)
                last = entry.index
            check_committed(look, last, left_out[0])
            report = store.close()
        finally:
            store.abandon()
    finally:
        if old is not None:
            old.close()
    if not report["messages"]:
        raise PathError(
            f"{node} has no message of a RocketMQ commit log; its group has commit_log=topics, or "
            f"is new"
        )
    return {**report, "file_size": size, "left_out": left_out[0]}


def _check_old(old: OldCommitLog, node: Path) -> None:
    """Raises `PathError` for files of the old commit log that are not those that were adopted."""
    from dledger.rocketmq.upgrade.examine import examine

    if not old.is_gone and f"{examine(old.root).fingerprint:08x}" != old.fingerprint:
        raise PathError(
            f"the old commit log in front of {node} is not what was adopted: put its files back"
        )


def _entries(look: Inspection, left_out: list[str]) -> Iterator[Entry]:
    """Each entry of the node's log; in the end ``left_out`` gets a description of the bytes behind
    the last one.

    Raises:
        CorruptEntry: an entry is damaged.
    """
    from dledger.protocol.messages.entry import Entry
    from dledger.storage.log.walker import Bad, Finish

    for event in look.walker().walk():
        if isinstance(event, Bad):
            text = (
                f"{look.directory}, entry {event.first}: {event.reason}; export a sound node's log"
            )
            raise CorruptEntry(text, event.first)
        if isinstance(event, Finish):
            left_out.append(event.reason)
        if isinstance(event, Entry):
            yield event
