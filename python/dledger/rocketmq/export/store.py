"""Writes messages as a new store: with a plain commit log, or as a broker in DLedger mode has
it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from dledger.rocketmq.dispatch.reput_columns import ColumnReput
from dledger.rocketmq.export.ledger_store import LedgerStore
from dledger.rocketmq.export.moved_messages import place_message
from dledger.rocketmq.format.message import Message, encode_message
from dledger.rocketmq.store.commit_log import COMMIT_LOG_FILE, CommitLog
from dledger.rocketmq.store.files import HOST
from dledger.rocketmq.store.message_store import MessageStore
from dledger.rocketmq.store.topic_configs import TopicConfig, TopicConfigs
from dledger.storage.disk.disk import Disk

Begins = Mapping[int, int]


class PlainExport:
    """A store that any RocketMQ 4 broker opens.

    Args:
        root: the store's folder (storePathRootDir).
        topic: the topic of all messages.
        begins: queue -> offset of its first message. Where one is above 0, the commit log begins
            with its second file: a broker tells the fillers before that message by their place, 0,
            which then lies before the log.
        file_size: mappedFileSizeCommitLog.
        index: make the index by key.
    """

    def __init__(
        self,
        root: Path,
        topic: str,
        *,
        begins: Begins,
        file_size: int = COMMIT_LOG_FILE,
        index: bool = True,
        disk: Disk = HOST,
    ) -> None:
        self._store = MessageStore(
            root, file_size=file_size, index=index, reput=ColumnReput, disk=disk
        )
        log: CommitLog = self._store.log
        log.files.start_at(file_size if any(begins.values()) else 0)
        self._store.reput.offset = log.min_offset
        log.next_offsets = {(topic, queue): begin for queue, begin in begins.items()}
        self._store.topics.put(TopicConfig(topic, len(begins)))

    def put(self, messages: Sequence[Message]) -> None:
        """Add messages, which have their queue offsets, without gaps in each queue, and store
        times.

        Raises:
            ValueError: a message's queue offset is not the next one.
        """
        expected = [message.queue_offset for message in messages]
        placed = self._store.put_messages(messages, stamped=True)
        if [one.queue_offset for one in placed] != expected:
            raise ValueError("messages of a queue were left out, or come twice")

    def close(self) -> None:
        """Everything to the disk, as a broker leaves it that was stopped."""
        self._store.close()

    def abandon(self) -> None:
        """Let go of it."""
        self._store.abandon()


class LedgerExport(LedgerStore):
    """A store for a broker in DLedger mode, and for DLedger itself: each message is an entry of
    term 0.

    The members of a group start from copies of it; the folder ``dledger-<id>`` must be named after
    each.

    Args:
        root: the store's folder (storePathRootDir, and storeBaseDir of DLedger).
        self_id: dLegerSelfId.
        Others: as for `PlainExport`.
    """

    def __init__(
        self,
        root: Path,
        self_id: str,
        *,
        topic: str,
        begins: Begins,
        file_size: int = COMMIT_LOG_FILE,
        index: bool = True,
    ) -> None:
        begin = file_size if any(begins.values()) else 0
        super().__init__(root, self_id, file_size=file_size, begin=begin, index=index)
        TopicConfigs(root / "config").put(TopicConfig(topic, len(begins)))

    def put(self, messages: Sequence[Message]) -> None:
        """As `PlainExport.put`."""
        for message in messages:
            self._ledger.append(0, encode_message(message), place_message)
        self._dispatch()

    def close(self) -> None:
        """As `PlainExport.close`."""
        self._finish(0)
        self.abandon()


StoreExport = PlainExport | LedgerExport
