"""Bugs of threads that share a store, for the schedules of `dledger.testing.interleave`."""

from __future__ import annotations

from typing import Final

from dledger.testing.mutants.plant import SCHEDULES, Mutant

THREADS: Final = (
    Mutant(
        "threads-dirty-set-cleared-late",
        "D1 B10",
        "storage.log.segments",
        "SegmentFiles.sync",
        "            self._dirty.clear()\n        for start in dirty:\n            "
        "self._sync_file(start)",
        "        for start in dirty:\n            self._sync_file(start)\n        "
        "self._dirty.clear()",
        "a write that comes while a sync is under way is never synced, and called durable by the "
        "next sync",
        SCHEDULES,
    ),
    Mutant(
        "threads-end-read-after-sync",
        "D1 B10",
        "storage.file_store",
        "FileStore.sync",
        "                self._data.sync()\n",
        "                self._data.sync()\n                end = self._view.end\n",
        "a sync calls durable what was written while it was under way",
        SCHEDULES,
    ),
    Mutant(
        "threads-mark-settled-over-a-cut",
        "D15 B20",
        "storage.recovery.recovery_point",
        "RecoveryPoints.settle",
        " and cuts == self.cuts",
        "",
        "the mark says of entries that are written after a cut that their index is synced, and a "
        "start begins there",
        SCHEDULES,
    ),
    Mutant(
        "threads-repair-over-new-entries",
        "B8 B20",
        "storage.log.repairs",
        "_put_in_place",
        "now.cuts != seen.cuts or ",
        "",
        "a repair that began before a cut brings entries back that were cut, over those that were "
        "acknowledged since",
        SCHEDULES,
    ),
    Mutant(
        "threads-retention-taken-for-damage",
        "B8",
        "storage.log.reader",
        "Reader.unchanged",
        "return (now.cuts, now.begin_index) == (view.cuts, view.begin_index)",
        "return now.cuts == view.cuts",
        "a sound entry is called damaged, or the node ends, because retention takes the file in "
        "front of it",
        SCHEDULES,
    ),
    Mutant(
        "threads-repair-taken-for-damage",
        "B8",
        "storage.log.reader",
        "Reader._look",
        " or self._data.exchanged != exchanged",
        "",
        "an entry is called damaged whose sound copy took its place while it was read",
        SCHEDULES,
    ),
    Mutant(
        "threads-repair-under-way-taken-for-damage",
        "B8",
        "storage.log.reader",
        "Reader._look",
        "                with self._writing:\n",
        "                if True:\n",
        "an entry is called damaged whose sound copy is in its place while nobody has heard of "
        "that",
        "tests/storage/test_store_threads.py",
    ),
    Mutant(
        "threads-cut-beside-a-sync",
        "D1 B20",
        "storage.file_store",
        "FileStore.truncate",
        "with self._sync_lock, self._lock:",
        "with self._lock:",
        "a sync that is under way raises the mark above the end that the log is cut to",
        SCHEDULES,
    ),
    Mutant(
        "threads-view-changed-after-cut",
        "B20",
        "storage.file_store",
        "FileStore.truncate",
        "                self._show(replace(self._view, end=end, cuts=self._view.cuts + 1))\n"
        "                self._data.drop_behind(end.end_pos)\n                "
        "self._data.cut(end.end_pos)",
        "                self._data.drop_behind(end.end_pos)\n                "
        "self._data.cut(end.end_pos)\n"
        "                self._show(replace(self._view, end=end, cuts=self._view.cuts + 1))",
        "a look for damage meets what is being cut, sees no change, and calls it damaged",
        "tests/storage/test_store_threads.py",
    ),
    Mutant(
        "threads-durable-in-spite-of-a-cut",
        "D1 B20",
        "node.loop.log_writer",
        "LogWriter._durable",
        "if cuts == self._cuts:",
        "if cuts <= self._cuts:",
        "a sync from before a cut speaks for the entries that are written in the same place",
        SCHEDULES,
    ),
    Mutant(
        "threads-append-overtakes",
        "D1 B20",
        "node.loop.log_writer",
        "LogWriter.append",
        "if small and self._queued == self._done and",
        "if small and",
        "an append is written before the cut, or the larger append, that was asked for before it",
        SCHEDULES,
    ),
    Mutant(
        "threads-rows-clean-after-sync",
        "D1 B10",
        "storage.meta.tables",
        "FileTable.sync",
        'self._rows, self._dirty, False\n        if dirty:\n            with fatal("sync", '
        "file.path):\n"
        "                file.fdatasync()",
        'self._rows, self._dirty, self._dirty\n        if dirty:\n            with fatal("sync", '
        "file.path):\n"
        "                file.fdatasync()\n            self._dirty = False",
        "rows written while a checkpoint syncs their table are never synced, and the next "
        "snapshot counts on them",
        SCHEDULES,
    ),
    Mutant(
        "threads-broker-file-marked-early",
        "D1 B10",
        "rocketmq.store.mapped_file_queue",
        "MappedFileQueue.append",
        "try:\n"
        '                with storing("write", path):\n'
        "                    self._handles.get(path).pwritev([part], at - start)\n"
        "            # before it counts as written: a flush that takes the marks now must not be "
        "the last one\n"
        "            # for it\n"
        "            finally:\n"
        "                self._mark(start)",
        "self._mark(start)\n"
        '            with storing("write", path):\n'
        "                self._handles.get(path).pwritev([part], at - start)",
        "bytes that are written while a flush is under way are never synced, and the slave "
        "reports them",
        SCHEDULES,
    ),
    Mutant(
        "threads-report-of-the-end-behind-a-flush",
        "D1 B10",
        "rocketmq.ha.follower",
        "BrokerFollower._flush",
        "_flush_log)\n        return end",
        "_flush_log)\n        return self._log.max_offset",
        "a slave reports bytes that came while its flush was under way",
        SCHEDULES,
    ),
)
