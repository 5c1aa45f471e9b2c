"""Bugs of a RocketMQ store's files that crashes bring to light."""

from __future__ import annotations

from typing import Final

from dledger.testing.mutants.plant import Mutant

DAMAGE: Final = "tests/testing/test_store_damage.py"
CRASHES: Final = "tests/testing/test_store_crashes.py"
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
        "sync_directory(self.directory, self._handles.disk)",
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
        "store-config-name-not-settled",
        "B5",
        "rocketmq.store.topic_configs",
        "TopicConfigs.settle",
        "sync_directory(",
        "self._disk.exists(self._path) or print(",
        "a power cut takes a topic that a restarted store has shown",
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
    Mutant(
        "store-file-without-its-length",
        "B5",
        "rocketmq.store.mapped_file_queue",
        "MappedFileQueue._make",
        "file.fdatasync()",
        "file.size()",
        "a power cut leaves a file that has its name and not its length, and no start accepts it",
        CRASHES,
    ),
    Mutant(
        "store-folder-names-of-a-killed-process",
        "B5",
        "storage.disk.small_files",
        "sync_names_above",
        "for directory in path.parents:",
        "for directory in ():",
        "the folders that a killed process has made are never synced, and go with all that is in "
        "them",
        CRASHES,
    ),
    Mutant(
        "store-first-checkpoint-in-place",
        "B5",
        "rocketmq.store.store_lock",
        "CheckpointFile.write",
        "write_whole(path, data, disk=disk)",
        "disk.open(path, create=True).pwritev([data], 0)",
        "the half of a first checkpoint keeps a store from starting",
        DAMAGE,
    ),
    Mutant(
        "store-index-sync-tried-again",
        "D2",
        "rocketmq.store.index_file",
        "OpenIndex.flush",
        "self._failed = error",
        "self._failed = None",
        "a sync of the index that failed is tried again, writes nothing, and is believed",
        DAMAGE,
    ),
    Mutant(
        "store-tail-not-written-again",
        "D2 B5",
        "rocketmq.store.commit_log",
        "CommitLog._recovered",
        "self.files.write_again(unsure)",
        "self.files.path(0)",
        "what a failed sync of the process before left out is called durable by the next one",
        DAMAGE,
    ),
    Mutant(
        "store-older-config-unsaid",
        "B7",
        "rocketmq.store.topic_configs",
        "load_config",
        "            if wrong:\n                logger.warning",
        "            if wrong:\n                logger.debug",
        "topics are missing because their file is damaged, and nobody says so",
        DAMAGE,
    ),
)
