"""Bugs that show only when one thread is inside a store while another one is inside its disk."""

from __future__ import annotations

from typing import Final

from verification.mutants.plant import SCHEDULES, Mutant

RACES: Final = (
    Mutant(
        "race-marked-only-before-write",
        "D1 B10",
        "storage.log.segments",
        "SegmentFiles.pwritev",
        "            with self._lock:\n                self._dirty.add(offset - inside)",
        "            self.has(offset)",
        "a write that is under way when a sync begins is called durable by the next sync, which "
        "syncs nothing",
        SCHEDULES,
    ),
    Mutant(
        "race-seen-by-counting-disks",
        "D1 B10",
        "storage.log.segments",
        "SegmentFiles.pwritev",
        "            with self._lock:\n                self._dirty.add(offset - inside)",
        "            self.has(offset)",
        "the same, on real files: `make counted-bench` finds it by the syncs that it counts",
        "tests/verification/test_counted.py",
    ),
    Mutant(
        "race-file-behind-a-cut",
        "B20",
        "storage.log.segments",
        "SegmentFiles.allocate",
        "if ahead and start != self.end:",
        "if ahead and start < 0:",
        "the file that the keeper makes during a cut leaves a hole, and the node does not start "
        "again",
        SCHEDULES,
    ),
    Mutant(
        "race-marks-cleared-late",
        "D1 B10",
        "storage.log.segments",
        "SegmentFiles.sync",
        "            self._dirty.clear()\n        for start in dirty:\n",
        "        for start in [*dirty, None]:\n            if start is None:\n"
        "                self._dirty.clear()\n                return\n",
        "what is written while a sync is under way is called durable by the next one, which syncs "
        "nothing",
        "tests/storage/test_store_threads.py",
    ),
    Mutant(
        "race-end-read-late",
        "D1 B10",
        "storage.file_store",
        "FileStore.sync",
        "                self._data.sync()\n",
        "                self._data.sync()\n                end = self._view.end\n",
        "a sync calls durable what was written while it was under way",
        "tests/storage/test_store_threads.py",
    ),
    Mutant(
        "race-mark-outlives-a-cut",
        "B20 B21",
        "storage.recovery.recovery_point",
        "RecoveryPoints.settle",
        " and cuts == self.cuts",
        "",
        "the index is called synced up to an entry that a cut has taken meanwhile, and another "
        "one has its place",
        "tests/storage/test_store_threads.py",
    ),
    Mutant(
        "race-repair-undoes-a-cut",
        "B8 B20",
        "storage.log.repairs",
        "_put_in_place",
        "now.cuts != seen.cuts or ",
        "",
        "a repair writes old entries over acknowledged ones that have taken their place meanwhile",
        "tests/storage/test_store_threads.py",
    ),
    Mutant(
        "race-checkpoint-before-its-log",
        "B22 B24",
        "node.checkpoints",
        "Checkpoints.save",
        "if durable.index < index:",
        "if durable.index < -1:",
        "a snapshot sums up entries that a follower has applied from memory and its slow disk has "
        "not got",
        "tests/node/test_node_checkpoint.py",
    ),
)
