"""A RocketMQ store as a broker has it: commit log, consume queues, index, checkpoint, lock and
abort file, topics.

A put message is in queues and index at once, and on the disk after `MessageStore.flush`, in an
order that a crash at any point leaves recoverable: commit log, then queues and index, then the
checkpoint that says so. A store that was not closed is recovered from the last commit log file that
the checkpoint vouches for: the part of queues and index behind that is made again from the log.
Where the store's mark does not say that queues and index are whole, they are compared with all of
the log: a queue that was lost would number its messages from 0 again.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self, Unpack

from dledger.errors import CorruptStore
from dledger.rocketmq.dispatch.build_consume_queue import Reput
from dledger.rocketmq.format.checkpoint import StoreCheckpoint
from dledger.rocketmq.format.index_file import DEFAULT_SLOTS, DEFAULT_UNITS
from dledger.rocketmq.format.message import Message
from dledger.rocketmq.store.commit_log import COMMIT_LOG_FILE, CommitLog
from dledger.rocketmq.store.completeness import WITHOUT_ITS_END, Survey, is_in, lost_end
from dledger.rocketmq.store.consume_queue import UNITS_IN_FILE
from dledger.rocketmq.store.consume_queues import ConsumeQueues
from dledger.rocketmq.store.dispatch_checkpoint import StoreMark
from dledger.rocketmq.store.files import HOST, FileHandles
from dledger.rocketmq.store.index_service import IndexService, now_ms
from dledger.rocketmq.store.placed import Placed, RecoveredLog
from dledger.rocketmq.store.settings import MessageStoreSettings
from dledger.rocketmq.store.store_lock import AbortFile, CheckpointFile, StoreLock, make_root
from dledger.rocketmq.store.topic_configs import TopicConfigs
from dledger.types import Buffer

logger = logging.getLogger(__name__)


class MessageStore:
    """A store in a folder, which is made where there is none. Close it, or use it as a context
    manager."""

    def __init__(self, root: Path, **settings: Unpack[MessageStoreSettings]) -> None:
        """Take the store's lock, recover it, and dispatch the rest of its log.

        Args:
            root: the broker's storePathRootDir.
            settings: see `MessageStoreSettings`.

        Raises:
            PathError: another process has the store open, it is one of DLedger mode, or the folder
                cannot be used.
            CorruptStore: files have other sizes, are missing, or are damaged where no crash
                explains it; or queues or index are not whole, nor is the log that they could be
                made of.
            DiskFull, StorageError: the disk failed.
        """
        self._disk = disk = settings.get("disk", HOST)
        make_root(root, disk)
        self.root = root
        self.lent_to: int | None = None
        """The only thread that may dispatch, flush, look into queues and index, and delete; None:
        any one thread. Appending to `log`, flushing and reading it is open to others meanwhile."""
        self._lock = StoreLock(root, disk)
        try:
            self._abort, self._checkpoint_file = AbortFile(root, disk), CheckpointFile(root, disk)
            self._was_clean = not self._abort.exists
            self._abort.make()
            self._cut_damage = settings.get("cut_damage", False)
            self._open(settings)
            self._start()
        except BaseException:
            self._lock.release()
            raise

    def _open(self, settings: MessageStoreSettings) -> None:
        root, disk, clock = self.root, self._disk, settings.get("clock", now_ms)
        self._handles = FileHandles(disk=disk)
        size = settings.get("file_size", COMMIT_LOG_FILE)
        self.log = CommitLog(root, size, handles=FileHandles(disk=disk), clock=clock)
        units = settings.get("units_in_file", UNITS_IN_FILE)
        self.queues = ConsumeQueues(root / "consumequeue", units, handles=self._handles)
        self.index = None
        if settings.get("index", True):
            slots = settings.get("index_slots", DEFAULT_SLOTS)
            units = settings.get("index_units", DEFAULT_UNITS)
            self.index = IndexService(root / "index", slots, units=units, clock=clock, disk=disk)
        self.reput = settings.get("reput", Reput)(self.queues, self.index, offset=0)
        self.topics = TopicConfigs(root / "config", clock, disk=disk)
        self.checkpoint = self._checkpoint_file.read()

    def _start(self) -> None:
        """Recover the state from the files."""
        self._mark = StoreMark.load(self.root, self._disk)
        self._is_mark_due = True  # until `_recover` knows that no file has another name now
        self.topics.settle()
        self.queues.recover()
        self.recovered = self._recover()
        self.queues.correct_min_offset(self.log.min_offset)
        mark = self._mark or StoreMark(0)
        self.log.next_offsets = mark.next_offsets(self.queues, self.log.max_offset)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.close()
        else:
            self.abandon()

    def _recover(self) -> RecoveredLog:
        mark, log, was_clean = self._mark, self.log, self._was_clean
        if mark is not None and 0 <= mark.begin < log.min_offset:
            text = "%s: the log begins at %d, and began at %d: files of it are gone"
            logger.warning(text, self.root, log.min_offset, mark.begin)
        # before anything is cut
        is_met = mark is not None and mark.is_met(self.queues, self.index, log.min_offset)
        begin = None if was_clean else log.recovery_start(self.checkpoint.recovery_timestamp)
        found = self._recover_normally() if begin is None else self._recover_abnormally(begin)
        if found.reason:
            logger.warning("%s: the log ends at %d: %s", self.root, found.end, found.reason)
        least = found.end if begin is None else begin
        if mark is None or not is_met or not least <= mark.end <= found.end:
            self._compare_with_log()
            if was_clean and not log.files.is_empty:  # so that the next start need not ask again
                self.flush()
        elif was_clean:
            self._is_mark_due = False
        return found

    def _compare_with_log(self) -> None:
        """Put the messages of the log that queues and index should have and do not.

        Raises:
            CorruptStore: they lack something, and so does the log.
        """
        log = self.log
        survey = Survey(log.files, self.queues, index=self.index)
        lacking = survey.lacking()
        if lacking or survey.lacks_keys:
            what = survey.parts_lacking()
            lost = f"{self.root}: not whole: {', '.join(what[:5])}{', ...' * (len(what) > 5)}"
            if survey.damage:
                raise CorruptStore(
                    f"{lost}; and the commit log, of which they could be made, is damaged: "
                    f"{survey.damage}. Put a copy of the damaged file in its place"
                )
            logger.warning("%s; made again from the commit log, from %d on", lost, log.min_offset)
            # A start after a crash meanwhile trusts nothing of queues and index.
            self._checkpoint_file.write(replace(self.checkpoint, logics_msg_timestamp=0))
            for key in lacking:
                self.queues.forget(key, log.min_offset)
            if self.index is not None and survey.lacks_keys:
                self.index.truncate_dirty(log.min_offset)
            self.reput.offset = log.min_offset
            self.dispatch()
        elif survey.damage:
            logger.warning("%s: the commit log is damaged: %s", self.root, survey.damage)

    def _recover_normally(self) -> RecoveredLog:
        """After a clean stop everything has been dispatched; messages put behind it all the same
        are put here."""
        found = self.log.recover_normally(cut_damage=self._cut_damage, check=self._check_end)
        self._forget(found.end)
        self.reput.offset = max(self.log.min_offset, self.queues.max_physical)
        self.dispatch()
        return found

    def _forget(self, end: int) -> None:
        if self.log.files.is_empty:
            self.queues.destroy()
        self.queues.truncate_dirty(end)
        if self.index is not None:
            self.index.truncate_dirty(end)

    def _recover_abnormally(self, start: int) -> RecoveredLog:
        """The parts that a crash may have torn, in queues and index too, are made anew from the
        log."""
        self.queues.truncate_dirty(start)
        again = start if self.index is None else self.index.truncate_dirty(start, doubted=True)
        begin = min(start, again)
        for (topic, queue_id), queue in self.queues.items():
            dropped = queue.drop_torn(partial(is_in, self.log, topic, queue_id))
            if dropped is not None:  # the place may be wrong, and its file is looked through
                begin = min(begin, dropped - dropped % self.log.file_size)
        begin = max(self.log.min_offset, min(begin, self.queues.max_physical))
        physic = self.checkpoint.physic_msg_timestamp
        found = self.log.recover_abnormally(
            begin, physic, self.reput.put, cut_damage=self._cut_damage, check=self._check_end
        )
        self._forget(found.end)
        self.reput.offset = found.end
        return found

    def _check_end(self, end: int, latest: int) -> None:
        """Refuse a log that has lost its end, see `lost_end`.

        Raises:
            CorruptStore: it has.
        """
        known, queues = self.checkpoint, self.queues if self._was_clean else None
        since = known.physic_msg_timestamp if self._was_clean else known.recovery_timestamp
        lost = lost_end(end, latest, since, queues, self.index)
        if not lost:
            return
        path = self.log.files.path(end - end % self.log.file_size)
        if not self._cut_damage:
            if self._was_clean:  # nothing has been changed: the next start must ask again
                self._abort.remove()
            raise CorruptStore(WITHOUT_ITS_END.format(path=path, lost=lost, root=self.root))
        logger.warning("%s: %s", path, lost)

    def _check_thread(self) -> None:
        is_mine = self.lent_to in (None, threading.get_ident())
        assert is_mine, f"{self.root}: queues and index belong to the thread that dispatches"

    def put_messages(self, messages: Iterable[Message], *, stamped: bool = False) -> list[Placed]:
        """Put messages, all or none, and dispatch them; see `CommitLog.put_messages`.

        A topic that is not in `topics` is served by a broker only when it is put there.
        """
        placed = self.log.put_messages(messages, stamped=stamped)
        self.dispatch()
        return placed

    def put_message(self, message: Message) -> Placed:
        """Put one message; as `put_messages`."""
        return self.put_messages([message])[0]

    def append_raw(self, offset: int, data: Buffer) -> int:
        """Take bytes of a master's log, see `CommitLog.append_raw`, and dispatch the whole
        messages; the new end."""
        end = self.log.append_raw(offset, data)
        self.dispatch()
        return end

    def dispatch(self, most: int | None = None) -> int:
        """Put the messages of the log that are not yet in queues and index there; the place up to
        which all are.

        Args:
            most: bytes of the log at most, about; None for all.

        Raises:
            FormatError: the log has something else than messages there.
        """
        self._check_thread()
        reput = self.reput
        reput.catch_up(self.log.files, None if most is None else reput.offset + most)
        self.log.store_timestamp = max(self.log.store_timestamp, reput.store_timestamp)
        return reput.offset

    def message_at(self, physical_offset: int) -> Message:
        """The message at a place in the commit log; see `CommitLog.message_at`."""
        return self.log.message_at(physical_offset)

    def messages(
        self, topic: str, queue_id: int, queue_offset: int, count: int = 32
    ) -> list[Message]:
        """Up to ``count`` messages of a queue from an offset on, or from its first one; none at its
        end."""
        self._check_thread()
        queue = self.queues.get(topic, queue_id)
        first = queue_offset if queue is None else max(queue_offset, queue.min_offset)
        if queue is None or first >= queue.max_offset:
            return []
        units = queue.units(first, count)
        return [self.message_at(unit.physical_offset) for unit in units if not unit.is_filler]

    def messages_with_key(
        self, topic: str, key: str, begin: int | None = None, end: int | None = None
    ) -> list[Message]:
        """Messages with this unique key, or with this word among their keys, the newest first.

        Args:
            begin, end: store times in milliseconds, both included.
        """
        self._check_thread()
        found = []
        for place in [] if self.index is None else self.index.lookup(topic, key, begin, end):
            if self.log.min_offset <= place < self.log.max_offset:
                message = self.message_at(place)
                stored = message.store_timestamp
                in_time = (begin is None or stored >= begin) and (end is None or stored <= end)
                if in_time and message.has_key(topic, key):
                    found.append(message)
        return found

    def delete_before(self, physical_offset: int) -> int:
        """Remove commit log files that end at or before this place, with their units in queues and
        index; how many commit log files."""
        self._check_thread()
        # it alone tells where queues without files go on
        if self._mark is None or self._mark.end < physical_offset:
            self._is_mark_due = True
            self.flush()
        self._is_mark_due = True
        count = self.log.files.delete_before(physical_offset)
        begin = self.log.min_offset
        self.queues.delete_before(begin)
        if self.index is not None:
            self.index.delete_before(begin)
        return count

    def flush(self) -> None:
        """Return when everything that was put is on the disk, and mark and checkpoint say so.

        Raises:
            DiskFull, StorageError: it is not, or perhaps not.
        """
        self._check_thread()
        before, indexed = self.checkpoint, 0
        physic = self.log.store_timestamp or before.physic_msg_timestamp
        logics = self.reput.store_timestamp or before.logics_msg_timestamp
        self.log.flush()
        self.queues.flush()
        if self.index is not None:
            self.index.flush()
            indexed = self.index.end_timestamp
        # first: a recovery must not begin behind the place that it speaks of
        if self._needs_mark():
            at, begin = self.reput.offset, self.log.min_offset
            mark = StoreMark.of(at, self.queues, self.index, self._mark, begin)
            mark.save(self.root, self._disk)
            self._mark, self._is_mark_due = mark, False
        checkpoint = StoreCheckpoint(physic, logics, indexed or before.index_msg_timestamp)
        self._checkpoint_file.write(checkpoint)
        self.checkpoint = checkpoint

    def _needs_mark(self) -> bool:
        """Once for each file of the log is enough: a recovery begins with a file, and puts again
        the messages behind."""
        size, mark = self.log.file_size, self._mark
        return self._is_mark_due or mark is None or mark.end // size != self.reput.offset // size

    def close(self) -> None:
        """Flush, and leave the store as a broker leaves it that was stopped; a message of which a
        slave has only the first bytes goes."""
        try:
            if self.dispatch() < self.log.max_offset:
                self.log.files.truncate_dirty(self.reput.offset)
            self._is_mark_due |= self._mark is None or self._mark.end != self.reput.offset
            self.flush()
            self._abort.remove()
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Close the store without a mark: the next start recovers it."""
        if self.index is not None:
            self.index.close()
        self.log.files.close()
        self._handles.close()
        self._lock.release()
