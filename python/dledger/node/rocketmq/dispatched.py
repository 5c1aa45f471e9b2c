"""Consume queues and index of one node, made of the committed entries of its log, and made good
again at a start.

They hold nothing that the log does not, so an acknowledgement waits for none of them. Now and then
they are synced, and only then a mark is written that says up to which entry they are whole. At a
start everything behind the mark is cut off, with the remains of a crash, and made again from the
log: a node that was stopped well has nothing behind it. Where the mark is missing or damaged, the
log begins behind it, or queues and index differ from it, all is made anew.

A log that goes on behind an old plain commit log (`dledger.rocketmq.upgrade.old_commit_log`) has
that one's messages in the same queues and the same index: they are put first, then the entries.

Everything here blocks, and belongs to the thread that has opened it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from dledger.errors import CorruptStore, FormatError
from dledger.node.rocketmq.dispatch_mark import MARK_FILE, UNTOLD, DispatchMark
from dledger.protocol.messages.entry import HEADER_SIZE, MAGIC_NORMAL, Entry
from dledger.rocketmq.dispatch.build_consume_queue import Dispatcher, DispatchRequest, Reput
from dledger.rocketmq.format.message import MAX_TOPIC, MIN_MESSAGE
from dledger.rocketmq.store.consume_queues import ConsumeQueues
from dledger.rocketmq.store.files import (
    HOST,
    FileHandles,
    file_paths,
    make_directory,
    read_whole,
    remove,
    storing,
    write_whole,
)
from dledger.rocketmq.store.index_service import IndexService
from dledger.rocketmq.store.store_lock import AbortFile
from dledger.rocketmq.upgrade.old_commit_log import OldCommitLog
from dledger.storage.api import LogStore
from dledger.storage.disk.disk import Disk
from dledger.storage.recovery.open_files import StoreSettings
from dledger.storage.retention import FileAge, expired
from dledger.types import NO_INDEX, Index

logger = logging.getLogger(__name__)

NO_MORE: Final = (
    "%s: the log begins at %d now, and no more where the old commit log ends, at %d: the old "
    "messages are not shown any more, and their files can be removed"
)
ROOT: Final = "rocketmq"
"""In the node's directory, because ``index`` is the name of DLedger's own index there."""


class Dispatched:
    """The files below ``directory`` / `ROOT`."""

    def __init__(
        self,
        directory: Path,
        wall_ms: Callable[[], int],
        *,
        reput: type[Reput] = Reput,
        lock: bool = True,
        disk: Disk = HOST,
    ) -> None:
        """Args:
        wall_ms: milliseconds since 1970, for the names of index files.
        reput: puts the messages of an old commit log.
        lock: keep others off the store that the old commit log is part of.
        """
        self._directory = directory
        self._root = directory / ROOT
        self._reput_type = reput
        self._with_lock = lock
        self._clock = wall_ms
        self._disk = disk
        self._handles = FileHandles(disk=disk)
        self._dispatcher = Dispatcher()
        self._abort = AbortFile(self._root, disk)
        self.queues: ConsumeQueues
        self.index: IndexService
        self._reput: Reput
        self.next_index = Index(0)
        """The entry that is to be put next, when nothing `is_behind` in the old commit log."""
        self.old: OldCommitLog | None = None
        """The old commit log before the group's log."""
        self._old_at = 0
        """Everything before this place of it is put."""
        self._end_pos = 0
        self._marked = NO_INDEX
        self._marked_pos = 0
        """Up to here all was put once, even if some has to be put again before that."""
        self._has_mark = False
        self._is_open = False
        self._thread = threading.get_ident()

    def _check_thread(self) -> None:
        assert threading.get_ident() == self._thread, (
            f"{self._root}: another thread has opened these files"
        )

    def open(self, store: LogStore) -> None:
        """Bring the files to a state that is whole up to `next_index`.

        Raises:
            PathError: the folder cannot be used, or the old commit log is not as it was adopted.
            DiskFull, StorageError: the disk failed.
        """
        self._thread = threading.get_ident()
        make_directory(self._root, self._disk)
        old = OldCommitLog.find(self._directory, lock=self._with_lock, disk=self._disk)
        if old is not None and store.begin.end_pos != old.divided_offset and not old.is_gone:
            logger.warning(NO_MORE, self._directory, store.begin.end_pos, old.divided_offset)
            old.close()
            old = None
        self.old = old
        was_clean = not self._abort.exists
        self._abort.make()
        try:
            self._open_files()
            reason = self._recover(store, was_clean)
        except (CorruptStore, FormatError) as error:
            reason = str(error)
        if reason:
            self._start_anew(store, reason)
        self.queues.correct_min_offset(self._begin_pos(store))
        self._is_open = True

    def _begin_pos(self, store: LogStore) -> int:
        """The first place of which there can be a message."""
        return store.begin.end_pos if self.old is None or self.old.is_gone else self.old.min_offset

    def _open_files(self) -> None:
        self.queues = ConsumeQueues(self._root / "consumequeue", handles=self._handles)
        self.index = IndexService(self._root / "index", clock=self._clock, disk=self._disk)
        self._reput = self._reput_type(self.queues, self.index, offset=0)

    def _recover(self, store: LogStore, was_clean: bool) -> str:
        """Cut behind the mark; the reason why that is not enough."""
        mark, end = self._read_mark(), store.end
        if mark is None:
            is_new = not self.queues.max_physical and self.index.end_offset < 0
            return "new" if is_new else "there is no mark"
        if mark.index + 1 < store.begin_index:
            return f"the log begins at entry {store.begin_index}, they end at {mark.index}"
        # Until all is put again no other record tells what was cut off, so the mark goes first.
        if not was_clean or mark.index > end.position.index:
            self._remove_mark()
        self.queues.recover()
        again = self._cut(mark.end_pos, doubted=not was_clean)
        # A crash may tear the index before the mark too: from ``again`` on its keys are put again.
        missing = self._missing(mark, is_torn=again < mark.end_pos)
        if missing:
            return f"{missing} missing, or not whole up to entry {mark.index}"
        at, end_pos = mark.index, mark.end_pos
        # the disk has kept more of them than of the log; the same entries come again
        if at > end.position.index:
            at, end_pos = end.position.index, end.end_pos
            again = min(again, self._cut(end_pos))
        self.next_index, self._end_pos = Index(at + 1), end_pos
        self._marked, self._marked_pos, self._old_at = at, end_pos, end_pos
        if again == end_pos and not self._has_mark:
            self._write_mark()
        if again < end_pos:  # of the queues nothing is put twice
            first = store.index_at(again - HEADER_SIZE)
            self.next_index = store.begin_index if first is None else first
            if first is None:
                self._old_at = self._end_pos = again
        return ""

    def _cut(self, end_pos: int, *, doubted: bool = False) -> int:
        """Forget the units behind this position; returns from where on all must be put again: see
        `IndexService`."""
        self.queues.truncate_dirty(end_pos)
        return self.index.truncate_dirty(end_pos, doubted=doubted)

    def _missing(self, mark: DispatchMark, *, is_torn: bool) -> str:
        """The lack of queues and index against the mark, when everything behind it is cut off.

        Args:
            is_torn: the index ends sooner, and its rest is going to be put again.
        """
        found = self._found(mark.index, mark.end_pos)
        if (found.queues, found.units) != (mark.queues, mark.units):
            return "queues are"
        if mark.last_key == UNTOLD:
            lacks_keys = found.last_key < 0 < mark.units
        else:
            lacks_keys = (found.last_key, found.last_keys) != (mark.last_key, mark.last_keys)
        return "keys of the index are" if lacks_keys and not is_torn else ""

    def _start_anew(self, store: LogStore, reason: str) -> None:
        text = "%s: consume queues and index are made from entry %d on: %s"
        level = logging.INFO if reason == "new" else logging.WARNING
        logger.log(level, text, self._root, store.begin_index, reason)
        self._remove_mark()
        with storing("remove", self._root):
            for path in list(file_paths(self._root, self._disk)):
                if path.parent != self._root:
                    self._handles.forget(path)
                    self._disk.unlink(path)
        self._open_files()
        self.next_index, self._end_pos = store.begin_index, self._begin_pos(store)
        self._marked, self._marked_pos, self._old_at = NO_INDEX, self._end_pos, self._end_pos

    def _read_mark(self) -> DispatchMark | None:
        data = read_whole(self._root / MARK_FILE, self._disk)
        mark = None if data is None else DispatchMark.unpack(data)
        self._has_mark = mark is not None and mark.last_key != UNTOLD
        return mark

    def _remove_mark(self) -> None:
        remove(self._root / MARK_FILE, self._disk)
        self._has_mark = False

    def _found(self, index: Index, end_pos: int) -> DispatchMark:
        """The mark of queues and index as they are."""
        ends = [end for end in self.queues.next_offsets().values() if end]
        keys = self.index.end_offset, self.index.end_keys
        return DispatchMark(index, end_pos, len(ends), sum(ends), *keys)

    @property
    def is_behind(self) -> bool:
        """Whether messages of the old commit log are still to be put, before any entry."""
        old = self.old
        return old is not None and not old.is_gone and self._old_at < old.divided_offset

    def put_old(self, most: int) -> None:
        """Put messages of the old commit log, about ``most`` bytes of it. After a damaged message
        the rest of its file is left out.

        Raises:
            DiskFull, StorageError: as for `put`.
        """
        old, reput = self.old, self._reput
        assert old is not None
        self._check_thread()
        reput.offset, reason = max(self._old_at, old.min_offset), "a message without its end"
        before = reput.offset
        try:
            reput.catch_up(old.files, before + most)
        except FormatError as error:
            reason = str(error)
        if reput.offset == before:
            following = before - before % old.files.file_size + old.files.file_size
            text = "%s: messages of the old commit log from %d on, up to %d, go into no queue: %s"
            logger.error(text, self._root, before, following, reason)
            reput.offset = following
        self._old_at = reput.offset
        if self.next_index == 0:
            self._end_pos = self._old_at

    def retain_old(self, store: LogStore, settings: StoreSettings, now_ms: int) -> bool:
        """Remove expired files of the old commit log. Whether some are left: then the group's log
        stays whole.

        Raises:
            DiskFull, StorageError: the disk failed.
        """
        self._check_thread()
        old = self.old
        if old is None or old.is_gone:
            return False
        ages = [FileAge(start, NO_INDEX, written) for start, written in old.written_ms().items()]
        size, end = settings.segment_bytes, store.end.end_pos
        ages += [
            FileAge(start, store.begin_index, now_ms)
            for start in range(old.divided_offset + size, end, size)
        ]
        hour = time.localtime(now_ms / 1000).tm_hour
        victims = expired(ages, settings, Index(NO_INDEX - 1), now_ms, hour, store.disk_level())
        if victims:
            begin = victims[-1].start + size
            logger.info("retention: the old commit log up to %d is gone", begin)
            old.delete_before(begin)
            self._old_at = max(self._old_at, begin)
            self.delete_before(self._begin_pos(store))
        return not old.is_gone

    def put(self, entries: Sequence[Entry]) -> None:
        """Put the messages of these entries, of which the first one is `next_index`, into queues
        and index.

        Raises:
            CorruptStore: the queues contradict the entries; `start_anew`.
            DiskFull: nothing of it counts; calling again puts it all.
            StorageError: the disk failed.
        """
        self._check_thread()
        requests = [one for entry in entries for one in self._requests(entry)]
        try:
            self._reput.put(requests)
        except FormatError as error:
            raise CorruptStore(str(error)) from error
        self.next_index, self._end_pos = Index(entries[-1].index + 1), entries[-1].end_pos

    def _requests(self, entry: Entry) -> Sequence[DispatchRequest]:
        place, body = entry.pos + HEADER_SIZE, entry.body
        if entry.magic != MAGIC_NORMAL:
            return ()
        request = self._dispatcher.message(body, place)
        if request is not None:
            return (request,)
        if len(body) < MIN_MESSAGE or int.from_bytes(body[4:8], "big") not in MAX_TOPIC:
            return []  # a command of the group
        try:
            return self._dispatcher.requests(body, place, place + len(body))[0]
        except FormatError as error:  # puts are checked for what this needs: it was not put here
            logger.error("entry %d goes into no queue: %s", entry.index, error)
            return []

    def start_anew(self, store: LogStore, reason: str) -> None:
        """Make everything again, from the first kept entry on."""
        self._check_thread()
        self.index.close()
        self._start_anew(store, reason)

    def save(self, durable: Index) -> None:
        """Make the put messages durable, and say so, if the log itself is: up to entry ``durable``.

        Raises:
            DiskFull, StorageError: it is not, or perhaps not.
        """
        self._check_thread()
        at = Index(self.next_index - 1)
        here, known = (at, self._end_pos), (self._marked, self._marked_pos)
        # The mark names no entry that the log may still lose, and does not go back while messages
        # are put again.
        if at > durable or here < known or (here == known and self._has_mark):
            return
        self._write_mark()
        self._marked, self._marked_pos = at, self._end_pos

    def _write_mark(self) -> None:
        self.queues.flush()
        self.index.flush()
        mark = self._found(Index(self.next_index - 1), self._end_pos)
        write_whole(self._root / MARK_FILE, mark.pack(), disk=self._disk)
        self._has_mark = True

    @property
    def unsaved(self) -> int:
        """Entries that a start after a crash would put again."""
        return self.next_index - 1 - self._marked

    @property
    def unsaved_bytes(self) -> int:
        """The same in bytes of the log."""
        return self._end_pos - self._marked_pos

    def delete_before(self, pos: int) -> None:
        """The log begins at this position now."""
        self._check_thread()
        self.queues.delete_before(pos)
        self.index.delete_before(pos)

    def close(self, durable: Index, *, clean: bool) -> None:
        """Save everything, or, where that is no use any more, let go of it."""
        try:
            if clean and self._is_open:
                self.save(durable)
                here = (self.next_index - 1, self._end_pos)
                # nothing behind the mark
                if self._has_mark and (self._marked, self._marked_pos) == here:
                    self._abort.remove()
        finally:
            if self._is_open:
                self.index.close()
                self._handles.close()
            if self.old is not None:
                self.old.close()
