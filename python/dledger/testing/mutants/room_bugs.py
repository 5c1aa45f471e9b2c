"""Bugs of disk space that is taken in steps, of locks without effect, and of what users and callers name wrongly."""

from __future__ import annotations

from typing import Final

from dledger.testing.mutants.plant import Mutant

STEPS: Final = "tests/storage/test_steps.py"
LOCKS: Final = "tests/environment/test_locks_without_effect.py"
ARGUMENTS: Final = "tests/client/test_arguments.py"

ROOM: Final = (
    Mutant(
        "step-never-grown", "D12 B12", "storage.log.segments", "SegmentFiles.reserve",
        "                self._grow(start, low - start, stop - start)\n",
        "",
        "entries are written where the file has no blocks, and a full disk ends the node in the middle of a write",
        STEPS,
    ),
    Mutant(
        "step-ends-one-byte-early", "D12 B12", "storage.disk.allocation_steps", "step_of",
        "while end <= inside:",
        "while end < inside:",
        "an entry that ends right behind a step is written without room for its last byte",
        STEPS,
    ),
    Mutant(
        "step-taken-after-the-write", "D12 B12", "storage.file_store", "FileStore.append",
        "            self._room.make(self._view.end.end_pos, entries)\n",
        "            if self._data.has(entries[-1].end_pos):\n"
        "                write_entries(self._data, self._index, self._view.end.end_pos, entries)\n"
        "            self._room.make(self._view.end.end_pos, entries)\n",
        "an append that is refused for want of room has written a part of its entries",
        STEPS,
    ),
    Mutant(
        "step-full-disk-ignored", "D12 B12", "storage.log.preallocation", "Room.make",
        "if not self._take(files, partial(files.reserve, low, high)):",
        "if not self._take(files, partial(files.reserve, low, high)) and not files.starts:",
        "a step for which there is no room does not refuse the append",
        STEPS,
    ),
    Mutant(
        "step-without-its-padding", "D12 B12", "storage.file_store", "FileStore.append",
        "self._room.make(self._view.end.end_pos, entries)",
        "self._room.make(entries[0].pos, entries)",
        "the padding at the end of a file is written without room for it",
        STEPS,
    ),
    Mutant(
        "step-outlives-a-cut", "D12 B12 B20", "storage.log.segments", "SegmentFiles.refill",
        "            self.steps.pop(start, None)\n",
        "",
        "blocks that a cut gave back are counted on by the next append",
        STEPS,
    ),
    Mutant(
        "step-counted-beside-a-cut", "D12 B12 B20", "storage.log.segments", "SegmentFiles._grow",
        "if self.exchanged == exchanged:",
        "if self.exchanged >= exchanged:",
        "a step that the keeper takes while the file is cut counts, and its blocks are gone",
        STEPS,
    ),
    Mutant(
        "step-of-a-former-file", "D12 B12", "storage.log.segments", "SegmentFiles._forget",
        "            self.steps.pop(start, None)\n",
        "",
        "a new file is taken to have the blocks of the one that had its name before",
        STEPS,
    ),
    Mutant(
        "step-over-what-is-written", "B10", "storage.log.segments", "SegmentFiles._grow",
        "fallocate(step.end, begin)",
        "fallocate(step.end)",
        "where a system writes zeros to get blocks, it writes beside the writer of the log",
        STEPS,
    ),
    Mutant(
        "step-only-when-needed", "D12", "storage.log.preallocation", "_is_short",
        "inside <= step.middle",
        "inside <= step.end",
        "no step is taken ahead: each append at the end of one waits for the disk, and the disk is full without a word",
        STEPS,
    ),
    Mutant(
        "step-file-without-its-length", "B9", "storage.disk.allocated_blocks", "make_room",
        "    file.truncate(size)\n",
        "",
        "a file is shorter than DLedger's are, and the next start takes that for an interrupted cut",
        STEPS,
    ),
    Mutant(
        "step-of-a-repair-forgotten", "D12 B12", "storage.log.repairs", "FileCopy.finish",
        "if stop > self._reserved:",
        "if stop < 0:",
        "a full disk ends the node in a repair that was given more to copy meanwhile",
        STEPS,
    ),
    Mutant(
        "lock-of-a-store-unchecked", "B35", "storage.disk.disk", "RealLock.__init__",
        "            check_lock(path)\n",
        "",
        "two nodes write to one store where the file system's locks say yes to everybody",
        LOCKS,
    ),
    Mutant(
        "lock-of-a-group-unchecked", "B35", "embedded.home", "Home.lock",
        "check_lock(self.path / LOCK_FILE)",
        "self.path.exists()",
        "two programs start the nodes of one group where locks say yes to everybody",
        LOCKS,
    ),
    Mutant(
        "lock-of-a-node-unchecked", "B35", "embedded.home", "PidFile.acquire",
        "check_lock(self._path)",
        "self._path.exists()",
        "a node starts twice where locks say yes to everybody",
        LOCKS,
    ),
    Mutant(
        "lock-check-keeps-its-file", "B35", "forks", "check_lock",
        "        let_go(second)",
        "        os.fstat(second)",
        "each lock that is taken leaves a file open",
        LOCKS,
    ),
    Mutant(
        "argument-of-any-type", "P6", "client.protocol.arguments", "_checked",
        "if not takes:",
        "if takes:",
        "a wrong argument comes back as a fault of the protocol, without its name",
        ARGUMENTS,
    ),
    Mutant(
        "argument-letters-for-names", "P6", "client.protocol.arguments", "_each",
        "isinstance(value, (str, bytes)) or ",
        "",
        "the letters of one topic's name are taken for a list of topics",
        ARGUMENTS,
    ),
    Mutant(
        "argument-zone-ignored", "P6", "client.protocol.arguments", "_time",
        "value if value.tzinfo else value.replace(tzinfo=UTC)",
        "value.replace(tzinfo=UTC)",
        "a time in another zone finds records of another hour",
        ARGUMENTS,
    ),
    Mutant(
        "command-of-an-unknown-group", "P6", "cli.group", "groups",
        "if name is not None and name not in (known := client.groups()):",
        "if name is not None and delete and name not in (known := client.groups()):",
        "a group's name with a slip in it looks like a group that is behind by nothing",
        "tests/cli/test_cli_group.py",
    ),
)
