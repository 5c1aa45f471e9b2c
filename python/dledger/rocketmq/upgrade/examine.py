"""The plain commit log in a store, where it ends and how far its queues have come: read, and not
changed."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from dledger.checksum import crc32
from dledger.errors import CorruptStore, FormatError, PathError
from dledger.rocketmq.columns.commit_log import column_batches
from dledger.rocketmq.dispatch.build_consume_queue import IN_QUEUE, ROLLBACK
from dledger.rocketmq.dispatch.reput_columns import CQ_UNIT
from dledger.rocketmq.format.consume_queue_unit import FILLER, UNIT_SIZE
from dledger.rocketmq.format.index_file import HEADER as INDEX_HEADER
from dledger.rocketmq.format.index_file import is_index_name
from dledger.rocketmq.format.message import BLANK_SIZE
from dledger.rocketmq.format.scanned_piece import PieceKind, ScannedPiece
from dledger.rocketmq.store.files import (
    HOST,
    FileHandles,
    folders,
    log_names,
    mapped,
    read_whole,
    storing,
)
from dledger.rocketmq.store.mapped_file_queue import MappedFileQueue
from dledger.rocketmq.store.store_lock import AbortFile, CheckpointFile
from dledger.rocketmq.upgrade.adoption import Adoption
from dledger.rocketmq.with_numpy import np
from dledger.storage.disk.disk import Disk
from dledger.storage.disk.file_names import file_name

COLUMNS: Final = ("topic", "queue_id", "queue_offset", "sys_flag", "store_timestamp", "entry_index")


def examine(root: Path, disk: Disk = HOST) -> Adoption:
    """Read the log in a broker's store through, and find out where it ends and how far its queues
    have come.

    Args:
        root: the broker's storePathRootDir.

    Raises:
        PathError: there is no plain commit log, or its broker runs, or was not stopped.
        CorruptStore: it is damaged, and must not be built on.
    """
    sizes = log_names(root / "commitlog", disk)
    if not sizes:
        raise PathError(
            f"{root / 'commitlog'} has no files of a commit log: name the root of a broker's store"
        )
    if AbortFile(root, disk).exists:
        raise PathError(
            f"{root} has a file abort: its broker runs, or was not stopped well. Stop it; after a "
            "crash start it once more, so that it recovers its store, and stop it then"
        )
    file_size = max(sizes.values())
    if not file_size:
        raise CorruptStore(f"{root / 'commitlog'} has empty files only: put the whole files back")
    handles = FileHandles(disk=disk)
    files = MappedFileQueue(root / "commitlog", file_size, handles=handles)
    found = Adoption(root, file_size, files.starts, disk)
    for start in found.starts:
        _walk(found, start, mapped(files.path(start), disk))
    _add_queues(found)
    _check_end(found)
    crc = crc32(struct.pack(">qqq", found.end, found.divided_offset, found.file_size))
    head = mapped(found.last_file, disk)[: found.end - found.starts[-1]]
    found.fingerprint = crc32(head, crc)
    return found


def _walk(found: Adoption, start: int, data: memoryview) -> None:
    """Count the messages of a file, and see that it has no damage but behind the end of the log."""
    is_last, path = start == found.starts[-1], found.root / "commitlog" / f"{start:020d}"
    damage: list[ScannedPiece] = []
    goes_on = closed = False
    found.end = start
    for batch in column_batches(data, start, columns=COLUMNS):
        if batch.kind in (PieceKind.NOOP, PieceKind.DLEDGER_BLANK) or not _is_plain(batch.rows):
            raise PathError(
                f"{path} has entries of DLedger mode in it: this is no plain commit log"
            )
        goes_on = goes_on or bool(damage and batch.kind is not PieceKind.UNUSED)
        damage += batch.damage
        closed = batch.kind is PieceKind.BLANK
        if batch.rows is not None and not damage:
            found.end = batch.end
            _count(found, batch.rows)
    if damage and (goes_on or not is_last):
        piece = damage[0]
        raise CorruptStore(
            f"{path}, bytes {piece.start:,} to {piece.end:,}: {piece.reason}. 'dledger rocketmq "
            "verify' tells all that is damaged; put a sound copy of the file in its place"
        )
    if not is_last and not closed:
        raise CorruptStore(
            f"{path} ends at {found.end:,}, before its file does, and there is another file "
            "behind it: put the whole file back"
        )
    if damage:
        found.tail = (
            f"bytes {damage[0].start:,} to {damage[-1].end:,} are no messages: {damage[0].reason}"
        )
    found.has_blank = closed
    if not closed and start + found.file_size - found.end < BLANK_SIZE:
        raise CorruptStore(
            f"{path} has no room for the blank that closes it, and no broker leaves such a file"
        )


def _check_end(found: Adoption) -> None:
    """See that index and checkpoint know of nothing that the log has not.

    Raises:
        CorruptStore: the log has lost its end.
    """
    mend = "put back the whole file, or those that are missing at its end"
    index = found.root / "index"
    for path in (index / name for name in found.disk.listdir(index) if is_index_name(name)):
        with storing("read", path):
            head = found.disk.open_read_only(path).pread(INDEX_HEADER.size, 0)
        if len(head) == INDEX_HEADER.size:
            *_, end, _, count = INDEX_HEADER.unpack(head)
            if count > 1 and end >= found.end:
                raise CorruptStore(
                    f"{path} names a message at {end:,}, and the commit log ends at {found.end:,}: "
                    f"{mend}. If the log is whole, move this file out of the folder"
                )
    try:
        says = CheckpointFile(found.root, found.disk).read().physic_msg_timestamp
    except FormatError as error:
        raise CorruptStore(
            f"{found.root / 'checkpoint'}: {error}. Start the broker once more, and stop it"
        ) from None
    if says > found.store_ms:
        raise CorruptStore(
            f"{found.last_file}: the last message of the log, which ends at {found.end:,}, was "
            f"stored at {found.store_ms} ms, and the checkpoint knows of one stored at {says} ms: "
            f"{mend}. If there are none, start the broker once more, which writes another "
            "checkpoint, and stop it"
        )


def _is_plain(rows: pa.RecordBatch | None) -> bool:
    """Whether these messages stand by themselves, and not in entries."""
    return rows is None or rows.column("entry_index").null_count == rows.num_rows


def _count(found: Adoption, rows: pa.RecordBatch) -> None:
    """How far these messages bring the queues."""
    found.messages += rows.num_rows
    stored_us = pc.max(rows.column("store_timestamp")).cast(pa.int64()).as_py()
    found.store_ms = max(found.store_ms, (stored_us or 0) // 1000)
    in_queue = np.isin(rows.column("sys_flag").to_numpy() & ROLLBACK, IN_QUEUE)
    table = pa.table({name: rows.column(name) for name in COLUMNS[:3]}).filter(pa.array(in_queue))
    ends = table.group_by(["topic", "queue_id"]).aggregate([("queue_offset", "max")])
    for row in ends.to_pylist():
        _reaches(found, row["topic"], row["queue_id"], row["queue_offset_max"] + 1)


def _reaches(found: Adoption, topic: str, queue_id: int, end: int) -> None:
    ends = found.queues.setdefault(topic, {})
    ends[queue_id] = max(end, ends.get(queue_id, 0))


def _add_queues(found: Adoption) -> None:
    """Queues of which the log has no message any more go on where their consume queue ends. Where
    one ends before the log's last message of it, a topic of this name was deleted."""
    root, disk = found.root / "consumequeue", found.disk
    in_log = {
        (topic, queue_id): end
        for topic, ends in found.queues.items()
        for queue_id, end in ends.items()
    }
    known: dict[tuple[str, int], int] = {}
    for topic in folders(root, disk):
        for name in folders(root / topic, disk):
            if name.isascii() and name.isdigit() and str(int(name)) == name:
                end = _end_of_queue(root / topic / name, found)
                known[topic, int(name)] = end
                if end:
                    _reaches(found, topic, int(name), end)
    if disk.is_dir(root):
        found.reborn = sorted(
            f"{topic}/{number}"
            for (topic, number), end in in_log.items()
            if end > known.get((topic, number), 0)
        )
    found.queues = {
        topic: dict(sorted(ends.items())) for topic, ends in sorted(found.queues.items())
    }


def _end_of_queue(directory: Path, found: Adoption) -> int:
    """Behind the queue's last message; 0 where there is none.

    Raises:
        CorruptStore: that one lies behind the log's end.
    """
    log_end = found.end
    for start in reversed(log_names(directory, found.disk)):
        path = directory / file_name(start)
        data = read_whole(path, found.disk) or b""
        units = np.frombuffer(data, CQ_UNIT, len(data) // UNIT_SIZE)
        numbers = np.flatnonzero((units["size"] > 0) & (units["size"] != FILLER.size))
        if len(numbers):
            places = units["place"][numbers]
            if places[-1] >= log_end:
                count = int((places >= log_end).sum())
                raise CorruptStore(
                    f"{path} names {count:,} messages up to {places[-1]:,}, and the commit log "
                    f"ends at {log_end:,}: put back the files that are missing at its end. If none "
                    "are, start the broker once more, which cuts its queues off there, and stop it"
                )
            return start // UNIT_SIZE + int(numbers[-1]) + 1
    return 0
