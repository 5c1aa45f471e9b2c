"""Whether consume queues and index have what the commit log has: for a store of which nobody can tell."""

from __future__ import annotations

from collections.abc import Iterable

from dledger.broker.consume_queues import ConsumeQueues
from dledger.broker.index_service import IndexService
from dledger.broker.mapped_files import MappedFileQueue
from dledger.broker.reput import IN_QUEUE, ROLLBACK, DispatchRequest, Reput
from dledger.errors import FormatError

__all__ = ["Survey"]


class Survey(Reput):
    """A walk over a commit log that puts nothing: it looks for what a loss of files leaves out."""

    def __init__(self, files: MappedFileQueue, queues: ConsumeQueues, index: IndexService | None) -> None:
        """Walk over the log, from its begin to its end. Bodies are not compared with their CRC.

        Raises:
            CorruptStore, StorageError: the files cannot be read.
        """
        super().__init__(queues, index, files.min_offset)
        self.damage = ""
        """What is wrong with the log: its messages from there on, up to the end of that file, were left out."""
        self.lacks_keys = False
        """Whether a message is not in the index."""
        self._found: dict[tuple[str, int], tuple[int, int]] = {}
        """By topic and queue id: the first queue offset, and the one behind the last."""
        self._spans = [] if index is None else index.spans()
        self._span = 0
        while self.offset < files.max_offset:
            reason = "a message without its end"
            try:
                self.catch_up(files)
            except FormatError as error:
                reason = str(error)
            if self.offset < files.max_offset:
                self.damage = self.damage or f"byte {self.offset:,}: {reason}"
                self.offset += files.file_size - self.offset % files.file_size

    def put(self, requests: Iterable[DispatchRequest]) -> None:
        """Remember what queues and index must have."""
        found = self._found
        for topic, queue_id, physical, _, _, _, queue_offset, words, sys_flag in requests:
            state = sys_flag & ROLLBACK
            if state in IN_QUEUE:
                first, end = found.get((topic, queue_id), (queue_offset, queue_offset))
                if queue_offset >= end:  # otherwise it stands where another one does, and is in no queue
                    found[topic, queue_id] = (first, queue_offset + 1)
            if words and state != ROLLBACK and self._index is not None and not self.lacks_keys:
                self.lacks_keys = not self._is_indexed(self._index, physical, len(words))

    def _is_indexed(self, index: IndexService, physical: int, keys: int) -> bool:
        spans = self._spans
        while self._span < len(spans) and spans[self._span][1] < physical:
            self._span += 1
        if self._span == len(spans) or physical < spans[self._span][0]:
            return False
        return physical != index.end_offset or keys <= index.end_keys

    def lacking(self) -> list[tuple[str, int]]:
        """Topic and queue id of the queues without their first or their last message."""
        return [key for key, (first, end) in self._found.items() if not self._has(key, first, end)]

    def _has(self, key: tuple[str, int], first: int, end: int) -> bool:
        queue = self._queues.get(*key)
        if queue is None or queue.is_empty or not queue.begin <= first < end <= queue.max_offset:
            return False
        return not queue.get(first).is_filler
