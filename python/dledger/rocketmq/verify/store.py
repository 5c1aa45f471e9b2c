"""The check of a store's files against each other: the commit log's messages, and beside them
consume queues, index, checkpoints and the sequence of files. Read, and not changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from dledger.errors import FormatError, PathError
from dledger.rocketmq.dispatch.build_consume_queue import IN_QUEUE, ROLLBACK, Dispatcher
from dledger.rocketmq.files.dledger_end import ledger_end
from dledger.rocketmq.files.layout import DLEDGER, Store, open_store
from dledger.rocketmq.files.storage import Storage
from dledger.rocketmq.format.checkpoint import TIMES
from dledger.rocketmq.format.index_file import key_hash
from dledger.rocketmq.format.scan import scan
from dledger.rocketmq.format.scanned_piece import PieceKind, ScannedPiece
from dledger.rocketmq.store.files import mapped
from dledger.rocketmq.store.store_lock import CheckpointFile
from dledger.rocketmq.store.topic_configs import TopicConfigs
from dledger.rocketmq.verify.index import IndexAudit
from dledger.rocketmq.verify.ledger import LedgerAudit
from dledger.rocketmq.verify.queues import PUT_BACK, Problem, QueueAudit

ENTRIES: Final = (PieceKind.ENTRY, PieceKind.NOOP)


class Audit:
    """A walk over a store's commit log files.

    Args:
        directory: the store's root, or a folder with log files, beside which nothing else is looked
            at.
        files: the log files, in order.
        index_slots: of each index file (maxHashSlotNum).
    """

    def __init__(self, directory: Path, files: Sequence[Path], *, index_slots: int) -> None:
        self._directory = directory
        self._files = files
        self.problems: list[Problem] = []
        self.notes: list[str] = []
        self.report: dict[str, Any] = {"ok": True, "files": [], "messages": 0, "damage": []}
        self._store = self._find_store()
        forms = () if self._store is None else self._store.forms
        form = next((form for form in forms if form.name == DLEDGER), None)
        self._ledger_end: int | None = None
        self._ledger: LedgerAudit | None = None
        if self._store is not None and form is not None:
            self._ledger_end = ledger_end(self._store.storage, form)
            if form.base is not None and (directory / form.base / "index").is_dir():
                self._ledger = LedgerAudit(directory / form.base)
        is_root = all(path.parent != directory for path in files) and self._store is not None
        self._queues = QueueAudit(directory / "consumequeue") if is_root else None
        self._index = IndexAudit(directory / "index", index_slots) if is_root else None
        self._dispatcher = Dispatcher()
        self._begin, self._end, self._stored = -1, 0, 0

    def _find_store(self) -> Store | None:
        try:
            return open_store(Storage.of(str(self._directory)), "rocketmq")
        except PathError as error:
            nodes = {path.parent for path in self._files if path.parent.name == "data"}
            if len(nodes) > 1:
                self.notes.append(f"queues and index are not compared: {error}")
            else:
                self.problems.append(Problem(self._directory, str(error)))
            return None

    def run(self) -> dict[str, Any]:
        """Look at everything; the report as plain values.

        Raises:
            PathError, StorageError: a file cannot be read.
        """
        for path in self._files:
            self._walk(path)
        self._check_sequence()
        if self._queues is not None and self._index is not None:
            self._finish_queues(self._queues)
            self._finish_index(self._index)
            self._check_checkpoint()
        if self._ledger is not None:
            self.problems += self._ledger.finish(self._files[-1])
        report = self.report
        report["problems"] = [problem.as_json() for problem in self.problems]
        report["notes"] = self.notes
        report["ok"] = not report["damage"] and not report["problems"]
        return report

    # --- the log ----------------------------------------------------------------------------------

    def _walk(self, path: Path) -> None:
        counts = Counter[PieceKind]()
        messages: dict[tuple[str, int], list[tuple[int, int, int, int]]] = {}
        keys: list[tuple[int, int]] = []
        start, size = int(path.name), path.stat().st_size
        for piece, view in pieces_of(path):
            counts[piece.kind] += 1
            if piece.kind is PieceKind.DAMAGE:
                damage = {"start": piece.start, "end": piece.end, "reason": piece.reason}
                self.report["damage"].append({"file": str(path), **damage})
            elif piece.kind in (PieceKind.MESSAGE, *ENTRIES) and self._is_kept(piece):
                self._take(piece, view, messages, keys)
        count = counts[PieceKind.MESSAGE] + counts[PieceKind.ENTRY]
        file = {"file": str(path), "messages": count, "damage": counts[PieceKind.DAMAGE]}
        self.report["files"].append(file)
        self.report["messages"] += count
        if self._queues is not None:
            for key, rows in messages.items():
                self._queues.compare(key, rows)
        if self._index is not None and self._index.is_there:
            self._index.compare(keys, start, start + size)

    def _is_kept(self, piece: ScannedPiece) -> bool:
        """Whether it is not one of the entries that DLedger gave up."""
        end = self._ledger_end
        return piece.kind is PieceKind.MESSAGE or end is None or piece.start < end

    def _take(
        self,
        piece: ScannedPiece,
        view: memoryview,
        messages: dict[tuple[str, int], list[tuple[int, int, int, int]]],
        keys: list[tuple[int, int]],
    ) -> None:
        if piece.kind in ENTRIES and self._ledger is not None:
            self._ledger.compare(view)
        if piece.kind is PieceKind.NOOP:
            return
        place = piece.message_offset
        found = self._dispatcher.message(view[place - piece.start :], place)
        if found is None:
            return
        self._begin = place if self._begin < 0 else self._begin
        self._end, self._stored = place + found.size, max(self._stored, found.store_timestamp)
        state = found.sys_flag & ROLLBACK
        if state in IN_QUEUE:
            row = (found.queue_offset, place, found.size, found.tags_code)
            messages.setdefault((found.topic, found.queue_id), []).append(row)
        if state != ROLLBACK:
            keys += [(place, key_hash(found.topic, key)) for key in found.keys]

    # --- beside it --------------------------------------------------------------------------------

    def _check_sequence(self) -> None:
        """Files that are missing, cut off, or of another size."""
        for form in () if self._store is None else self._store.forms:
            folder = self._directory / form.files[0].path
            for fault in form.faults:
                self.problems.append(Problem(folder.parent, fault.reason, fault.start))
            for file in form.files:
                path, span = self._directory / file.path, file.span
                size, full = span.data_end - span.start, span.file_end - span.start
                if 0 < size < full:
                    reason = f"the file has {size:,} bytes, and others {full:,}: {PUT_BACK}"
                    self.problems.append(Problem(path, reason, span.data_end))
        if self._store is not None and (begin := self._store.forms[0].begin):
            first = self._directory / self._store.forms[0].files[0].path
            self.notes.append(
                f"the log begins with {first}: retention has taken what was before {begin:,}, "
                "or it is lost"
            )

    def _finish_queues(self, queues: QueueAudit) -> None:
        problems, lost = queues.finish(max(self._begin, 0), self._end, self._files[-1])
        topics = self._topics()
        if not queues.queues:
            count = sum(map(len, queues.unknown.values()))
            if count and self._says("logics_msg_timestamp"):
                reason = "there are no consume queues, and the checkpoint says that there were"
                problems.append(Problem(queues.root, reason, count=count))
            elif count:
                note = f"{queues.root}: there are no consume queues to compare with the log"
                self.notes.append(note)
        else:
            for topic, places in queues.unknown.items():
                if topics is not None and topic not in topics:
                    note = f"{len(places):,} messages of topic {topic}, which was deleted"
                    self.notes.append(note)
                else:
                    reason = "the topic has no consume queue, and the log has messages of it"
                    problems.append(Problem(queues.root / topic, reason, min(places), len(places)))
        for (topic, number), queue in queues.queues.items():
            if queue.reborn:
                self.notes.append(
                    f"{queue.reborn:,} messages of queue {number} of topic {topic} are older than "
                    "the queue: the topic was deleted and made again"
                )
        self.problems += problems + lost
        self._lag(queues.root, "messages at the log's end are in no queue", queues.lag)

    def _finish_index(self, index: IndexAudit) -> None:
        root = self._directory / "index"
        if not index.is_there:
            if self._says("index_msg_timestamp"):
                reason = "there is no index file, and the checkpoint says there was one"
                self.problems.append(Problem(root, reason))
            return
        begin, end = max(self._begin, 0), self._end
        self.problems += index.finish(root, begin, end, self._files[-1])
        self._lag(root, "keys of messages at the log's end are in no index file", index.lag)

    def _lag(self, path: Path, reason: str, places: list[int]) -> None:
        """Messages that are not dispatched yet: the next start does it, where the last one did not
        end well."""
        if not places:
            return
        if (self._directory / "abort").exists():
            self.notes.append(
                f"{path}: {reason}, {len(places):,} from {min(places):,} on: the broker was not "
                "stopped well, or runs; when it starts it puts them there"
            )
        else:
            self.problems.append(Problem(path, reason, min(places), len(places)))

    def _topics(self) -> TopicConfigs | None:
        if not (self._directory / "config" / "topics.json").exists():
            return None
        try:
            return TopicConfigs(self._directory / "config")
        except FormatError as error:
            self.problems.append(Problem(self._directory / "config", str(error)))
            return None

    def _says(self, field: str) -> int:
        """The field of the store's checkpoint, 0 without one."""
        try:
            return int(getattr(CheckpointFile(self._directory).read(), field))
        except FormatError:
            return 0

    def _check_checkpoint(self) -> None:
        path = self._directory / "checkpoint"
        if not path.exists():
            how_far = "how far log, queues and index were on the disk"
            self.notes.append(f"there is no {path}, which would say {how_far}")
        try:
            found = CheckpointFile(self._directory).read()
        except FormatError as error:
            self.problems.append(Problem(path, str(error)))
            return
        for name in TIMES:
            if getattr(found, name) > self._stored:
                reason = (
                    f"the last message was stored at {self._stored} ms, and the checkpoint's "
                    f"{name} is {getattr(found, name)}: the log has lost its end ({PUT_BACK}), or "
                    "the checkpoint is damaged"
                )
                self.problems.append(Problem(self._files[-1], reason, self._end))
                return


def pieces_of(path: Path) -> Iterator[tuple[ScannedPiece, memoryview]]:
    """All pieces of a file and their bytes; the file is mapped and not read at once."""
    view, start = mapped(path), int(path.name)
    if not view:
        return
    for piece in scan(view, start):
        yield piece, view[piece.start - start : piece.end - start]
