"""Whether consume queues and index have all messages of the commit log, for a store whose mark does
not say so."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from dledger.errors import FormatError, OffsetOutOfRange
from dledger.rocketmq.dispatch.build_consume_queue import IN_QUEUE, ROLLBACK, DispatchRequest, Reput
from dledger.rocketmq.format.consume_queue_unit import ConsumeQueueUnit
from dledger.rocketmq.format.message import message_size
from dledger.rocketmq.store.commit_log import CommitLog
from dledger.rocketmq.store.consume_queues import ConsumeQueues
from dledger.rocketmq.store.index_service import IndexService
from dledger.rocketmq.store.mapped_file_queue import MappedFileQueue

CHUNK: Final = 1 << 12
"""Units that are looked at together."""
WITHOUT_ITS_END: Final = (
    "{path}: {lost}. Put the whole file back, or those that are missing. Who can do without what "
    "is lost opens the store with cut_damage, or removes checkpoint, dispatched, consumequeue and "
    "index in {root}, which are made again of what is left"
)
"""Why a store is not opened, of `lost_end`."""


def lost_end(
    end: int,
    latest: int,
    known: int,
    queues: ConsumeQueues | None,
    index: IndexService | None,
) -> str:
    """The evidence that a log has lost its end; empty where there is none.

    Args:
        end: behind the log's last message.
        latest: the latest store time at the log's end, in milliseconds.
        known: messages stored up to this time were on the disk, as the checkpoint says.
        queues: of a store that was stopped well; None where queues may be ahead of the log.
    """
    lost = []
    if known > latest:
        lost.append(f"the checkpoint knows of one stored at {known} ms")
    count = 0 if queues is None else sum(queue.count_from(end) for _, queue in queues.items())
    if count:
        lost.append(f"queues name {count:,} behind")
    if queues is not None and index is not None and index.end_offset >= end:
        lost.append(f"the index names one at {index.end_offset:,}")
    if not lost:
        return ""
    said = ", ".join(lost)
    return f"the last message of the log ends at {end:,}, and {said}: the log has lost its end"


def is_in(
    log: CommitLog, topic: str, queue_id: int, queue_offset: int, unit: ConsumeQueueUnit
) -> bool:
    """Whether the message that a unit tells of lies where it says."""
    try:
        found = log.message_at(unit.physical_offset)
    except (FormatError, OffsetOutOfRange):
        return unit.physical_offset < log.min_offset
    says = (found.topic, found.queue_id, found.queue_offset, message_size(found))
    return says == (topic, queue_id, queue_offset, unit.size)


class Survey(Reput):
    """A walk over a commit log that puts no message: it looks for those that a loss of files leaves
    out."""

    def __init__(
        self, files: MappedFileQueue, queues: ConsumeQueues, *, index: IndexService | None
    ) -> None:
        """Walk over the log, from its begin to its end. Bodies are not compared with their CRC.

        Raises:
            CorruptStore, StorageError: the files cannot be read.
        """
        super().__init__(queues, index, offset=files.min_offset)
        self.damage = ""
        """The fault of the log: its messages from there on, up to the end of that file, were left
        out."""
        self.lacks_keys = False
        """Whether a message is not in the index."""
        self._found: dict[tuple[str, int], tuple[int, int, int]] = {}
        """By topic and queue id: the first queue offset, the one behind the last, and how many
        messages there are."""
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
        """Remember the units and keys that queues and index must have."""
        found = self._found
        for topic, queue_id, physical, _, _, _, queue_offset, words, sys_flag in requests:
            state = sys_flag & ROLLBACK
            if state in IN_QUEUE:
                first, end, count = found.get((topic, queue_id), (queue_offset, queue_offset, 0))
                # otherwise it stands where another one does, and is in no queue
                if queue_offset >= end:
                    found[topic, queue_id] = (first, queue_offset + 1, count + 1)
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
        """Topic and queue id of the queues without all of their messages."""
        return [key for key, found in self._found.items() if not self._has(key, *found)]

    def parts_lacking(self) -> list[str]:
        """The same in words, and the index where that lacks something."""
        names = [f"queue {queue_id} of {topic}" for topic, queue_id in self.lacking()]
        return names + ["index"] * self.lacks_keys

    def _has(self, key: tuple[str, int], first: int, end: int, count: int) -> bool:
        """A recovery that began behind a lost message has put a filler in its place."""
        queue = self._queues.get(*key)
        if queue is None or queue.is_empty or not queue.begin <= first < end <= queue.max_offset:
            return False
        parts = (queue.units(at, min(CHUNK, end - at)) for at in range(first, end, CHUNK))
        return sum(not unit.is_filler for units in parts for unit in units) >= count
