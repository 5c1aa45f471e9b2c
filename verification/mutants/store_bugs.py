"""Bugs of a RocketMQ store's files that crashes bring to light."""

from __future__ import annotations

from typing import Final

from verification.mutants.plant import Mutant

CRASHES: Final = "tests/verification/test_store_crashes.py"
MESSAGE_STORE: Final = (
    Mutant(
        "store-flush-forgets-the-log",
        "D2 B4 B5",
        "rocketmq.store.message_store",
        "MessageStore.flush",
        "self.log.flush()",
        "self.log.store_timestamp",
        "a flush says that messages are on the disk of which nothing was synced",
        CRASHES,
    ),
    Mutant(
        "store-file-name-not-synced",
        "B5 B20",
        "rocketmq.store.mapped_file_queue",
        "MappedFileQueue._sync_names",
        "sync_directory(self.directory)",
        "self.directory.exists()",
        "a power cut takes the name of a file whose bytes were synced",
        CRASHES,
    ),
    Mutant(
        "store-log-not-cut-behind-its-end",
        "B9 B21",
        "rocketmq.store.message_store",
        "MessageStore._forget",
        "self.queues.truncate_dirty(end)",
        "self.queues.max_physical",
        "queues keep messages that the log has lost",
        CRASHES,
    ),
    Mutant(
        "store-config-without-a-sync",
        "B5",
        "rocketmq.store.files",
        "write_whole",
        "os.fsync(file.fileno())",
        "file.fileno()",
        "topics that were written whole are empty after a power cut",
        CRASHES,
    ),
    Mutant(
        "store-abort-file-late",
        "B9",
        "rocketmq.store.message_store",
        "MessageStore.__init__",
        "            self._abort.make()\n",
        "",
        "a crash is taken for a clean stop, and nothing is recovered",
        CRASHES,
    ),
)
