"""Writes a group's commit log as a store that a broker in DLedger mode opens, with the old commit
log in front of it.

A group has entries of its own in its log, which a broker takes for damage: each leader's first one,
and commands. So only messages are written, each in an entry with a new index, and closer to one
another than they were.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from dledger.protocol.messages.entry import HEADER_SIZE, MAGIC_NORMAL, Entry
from dledger.rocketmq.export.ledger_store import LedgerStore
from dledger.rocketmq.export.moved_messages import place_message
from dledger.rocketmq.format.append_hook import read_stored
from dledger.rocketmq.store.files import HOST
from dledger.rocketmq.store.mapped_file_queue import MappedFileQueue
from dledger.rocketmq.store.topic_configs import TopicConfig, TopicConfigs
from dledger.rocketmq.upgrade.adoption import copy_store
from dledger.rocketmq.upgrade.old_commit_log import OldCommitLog

DISPATCHED: Final = 8 << 20
"""Bytes of messages that go into the queues at once."""


class CommitLogExport(LedgerStore):
    """A store that is being written."""

    def __init__(
        self,
        root: Path,
        self_id: str,
        *,
        file_size: int,
        begin: int,
        old: OldCommitLog | None,
        index: bool = True,
    ) -> None:
        """Copy the old commit log, and its broker's files in ``config``, and put its messages into
        the queues.

        Args:
            root: the store's folder (storePathRootDir).
            self_id: dLegerSelfId.
            file_size: bytes of each file of the log, those of the old one too.
            begin: where the first file of the group's log begins.
            old: the old log before it.
            index: make the index by key.

        Raises:
            PathError: ``root`` has a log already, or cannot be made.
            FormatError: the old commit log is damaged.
            DiskFull, StorageError: the disk failed.
        """
        super().__init__(root, self_id, file_size=file_size, begin=begin, index=index)
        self._messages = 0
        self._waiting = 0
        if old is not None:
            if HOST.is_dir(old.root / "config"):
                copy_store(old.root / "config", root / "config")
            if not old.is_gone and begin == old.divided_offset:
                copy_store(old.files.directory, root / "commitlog")
                files = MappedFileQueue(root / "commitlog", file_size)
                self._reput.offset = files.min_offset
                self._reput.catch_up(files)
                files.close()

    def put(self, entry: Entry) -> None:
        """Add an entry's body, if that is a message.

        Raises:
            DiskFull, StorageError: the disk failed.
        """
        if entry.magic != MAGIC_NORMAL or read_stored(entry.body, entry.pos + HEADER_SIZE) is None:
            return
        self._ledger.append(entry.term, entry.body, place_message)
        self._messages += 1
        self._waiting += len(entry.body)
        if self._waiting >= DISPATCHED:
            self._dispatch()
            self._waiting = 0

    def close(self) -> dict[str, Any]:
        """Everything to the disk, as a broker leaves it that was stopped; how many messages each
        queue has."""
        self._dispatch()
        topics, ends = TopicConfigs(self._root / "config"), self._queues.next_offsets()
        for topic in sorted({topic for topic, _ in ends}):
            count = max(queue_id for name, queue_id in ends if name == topic) + 1
            if topics.queues(topic) < count:
                topics.put(TopicConfig(topic, count))
        self._finish(self._index.end_timestamp if self._index is not None else 0)
        queues = [
            {
                "topic": topic,
                "queue": queue_id,
                "begin_offset": queue.min_offset,
                "end_offset": queue.max_offset,
            }
            for (topic, queue_id), queue in sorted(self._queues.items())
        ]
        count = sum(queue.max_offset - queue.min_offset for _, queue in self._queues.items())
        return {"messages": count, "moved": self._messages, "queues": queues}
