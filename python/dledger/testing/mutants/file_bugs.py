"""Bugs of files: recovery, truncation, checksums, retention, full and failing disks, snapshots."""

from __future__ import annotations

from typing import Final

from dledger.testing.mutants.plant import CRASH_STATES, Mutant

FILES: Final = (
    Mutant(
        "store-sync-forgets-a-file", "B4 B5", "store.segments", "SegmentFiles.sync",
        "for start in dirty:",
        "for start in dirty[-1:]:",
        "an append that goes over the end of a file is durable by half",
    ),
    Mutant(
        "store-sync-error-swallowed", "D2 B10", "server.disk", "Flusher._turn",
        "self._tell(self._on_failure, error)",
        "self._tell(self._on_durable, self._store.end.position)",
        "after a failed sync the lost pages are called durable",
    ),
    Mutant(
        "store-goes-on-after-error", "D2 B10", "store.file_store", "FileStore._fail",
        "self._failed = self._failed or storage_error(what, place, error)\n        return self._failed",
        "return storage_error(what, place, error)",
        "a store that failed is written and synced again",
        "tests/store/test_store_errors.py",
    ),
    Mutant(
        "store-tail-trusted", "D15 B10", "store.recovery", "_finish",
        "if end.end_pos > known.end_pos:",
        "if end.end_pos > known.end_pos + (1 << 60):",
        "a tail that an earlier sync left unwritten counts as durable after a restart",
        CRASH_STATES,
    ),
    Mutant(
        "store-state-in-one-slot", "D5 B13", "store.slots", "SlotFile.settle",
        "self._next = 1 - self._next",
        "self._next = 0",
        "the only durable copy of term and vote is written over",
    ),
    Mutant(
        "store-torn-slot-believed", "D5 B9", "store.slots", "unpack_slot",
        "if pack_slot(magic, sequence, payload) == slot else None",
        "if length else None",
        "half a record of term and vote is taken for a whole one",
        "tests/store/test_slots.py",
    ),
    Mutant(
        "store-vote-record-not-saved", "D5 B13", "store.file_store", "FileStore.save_hard_state",
        "self._parts.state.write_both(record.pack())",
        "self._parts.state.write(record.pack())",
        "a vote leaves before it is durable",
    ),
    Mutant(
        "store-torn-tail-believed", "D3 B9", "store.scan", "Walker.entry_at",
        "return entry if body_is_sound(entry) else",
        "return entry if entry.size else",
        "an entry of which only a part was written counts as whole after a power cut",
    ),
    Mutant(
        "store-tail-not-cut", "B9", "store.recovery", "_finish",
        "elif reason and data.has(end.end_pos):",
        "elif reason and end.end_pos < 0:",
        "the rest of a torn write stays behind the end of the log",
        "tests/store/test_recovery.py",
    ),
    Mutant(
        "store-cuts-at-damage", "D4 B8", "store.scan", "Walker._damage",
        "if pos < self._known.end_pos and (behind is None or behind.pos >= self._known.end_pos):",
        "if self._known.end_pos < 0:",
        "damage in the middle of the log cuts off what is behind it",
        "tests/store/test_recovery.py",
    ),
    Mutant(
        "store-damage-below-commit-cut", "D4 B7", "store.recovery", "_tail",
        "if event.reason and due <= commit_hint:",
        "if event.reason and due <= -2:",
        "entries that were committed are cut because one of them is damaged",
        "tests/store/test_recovery.py",
    ),
    Mutant(
        "store-mark-not-lowered", "B20", "store.file_store", "FileStore.truncate",
        "self._marks.lower_to(end)",
        "self._marks.lower_to(self._view.end)",
        "after a cut the mark speaks of entries that are gone",
    ),
    Mutant(
        "store-cut-from-the-front", "B20", "store.segments", "SegmentFiles.drop_behind",
        "reversed(self.starts)",
        "self.starts",
        "a crash within a cut leaves a hole in the log",
        CRASH_STATES,
    ),
    Mutant(
        "store-cut-leaves-index", "B21", "store.file_store", "FileStore.truncate",
        "self._index.cut_behind(after)",
        "self._index.get(after)",
        "the index still names entries that were cut",
        "tests/store",
    ),
    Mutant(
        "store-index-believed", "B21", "store.reader", "Reader._fits",
        "return (magic, size, index, term, pos) == (unit.magic, unit.size, unit.index, unit.term, unit.pos)",
        "return (magic, size, index, term, pos) is not None",
        "an index that a crash left wrong is believed",
        "tests/store",
    ),
    Mutant(
        "store-entry-unchecked", "D3 B7", "store.reader", "Reader._check",
        "if not body_is_sound(entry):",
        "if not entry.size:",
        "a rotten entry is sent to followers and applied",
        "tests/store",
    ),
    Mutant(
        "store-read-error-is-empty", "B11", "store.file_store", "FileStore.read",
        "raise self._read_failed(begin, begin, error) from error",
        "return []",
        "an entry that cannot be read is no entry",
        "tests/store/test_store_errors.py",
    ),
    Mutant(
        "store-full-disk-loses", "B12", "server.disk", "Flusher._carry_out",
        "self._waiting.append(job)\n                    continue\n            elif isinstance(job, int):",
        "continue\n            elif isinstance(job, int):",
        "a write that found no room is forgotten, and its entries are missing from the log",
    ),
    Mutant(
        "store-full-disk-deletes", "D12 B12", "store.retention", "expired",
        "if file.next_index - 1 > limit or not (old or large):",
        "if file.next_index - 1 > limit or not (old or large or level is not DiskLevel.OK):",
        "a full disk makes unexpired records go",
        "tests/store/test_retention.py",
    ),
    Mutant(
        "store-deletes-too-much", "B34", "server.house", "House._retain",
        "limit = min(limit, *raft.watermarks.values())",
        "limit = raft.end_index",
        "retention takes entries that a follower or the catalog still needs",
    ),
    Mutant(
        "store-checkpoint-ahead", "B22 B24", "server.checkpoint", "Checkpoints.save",
        "if store.durable.index < index:",
        "if store.durable.index < -1:",
        "a snapshot sums up entries that a crash takes away",
        "tests/server/test_server_checkpoint.py",
    ),
    Mutant(
        "store-rows-not-synced", "B22 B24", "server.checkpoint", "Checkpoints.save",
        "file.fdatasync()",
        "file.size()",
        "a snapshot counts on rows of the topic index that a power cut takes away",
    ),
    Mutant(
        "store-snapshot-not-synced", "B22", "store.snapshot", "SnapshotFiles._save",
        "new.fdatasync()",
        "new.size()",
        "the older snapshot goes while the newer one is not on the disk",
        "tests/store/test_snapshot.py",
    ),
)
