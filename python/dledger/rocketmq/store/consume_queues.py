"""The consume queues of a store: for each topic and queue, where its messages lie in the commit
log."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from dledger.errors import FormatError
from dledger.rocketmq.store.consume_queue import UNITS_IN_FILE, ConsumeQueue
from dledger.rocketmq.store.files import FileHandles, folders

MAX_QUEUE_ID: Final = (1 << 31) - 1


def checked_topic(topic: str) -> str:
    """The same topic, which can be the name of a folder.

    Raises:
        FormatError: it leads elsewhere, is too long, or cannot be a name.
    """
    size = len(topic.encode("utf-8", "surrogatepass"))
    leads_elsewhere = topic in (".", "..") or any(c in "/\\" or c < " " for c in topic)
    if leads_elsewhere or not 0 < size <= 255:
        raise FormatError(f"topic {topic[:100]!r} cannot be the name of a folder in consumequeue")
    return topic


class ConsumeQueues:
    """All queues below a store's ``consumequeue``."""

    def __init__(
        self, root: Path, units_in_file: int = UNITS_IN_FILE, *, handles: FileHandles | None = None
    ) -> None:
        """Open the queues that there are.

        Args:
            root: the folder ``consumequeue`` itself.

        Raises:
            CorruptStore, PathError: see `MappedFileQueue`.
        """
        self.root = root
        self.units_in_file = units_in_file
        self._handles = FileHandles() if handles is None else handles
        self._queues: dict[tuple[str, int], ConsumeQueue] = {}
        self._written: dict[tuple[str, int], None] = {}
        """Queues with something that has not been handed to the file system."""
        self._unsynced: dict[tuple[str, int], None] = {}
        disk = self._handles.disk
        for topic in folders(root, disk):
            for name in folders(root / topic, disk):
                is_number = name.isascii() and name.isdigit() and str(int(name)) == name
                if is_number and int(name) <= MAX_QUEUE_ID:
                    self._open(topic, int(name))

    def _open(self, topic: str, queue_id: int) -> ConsumeQueue:
        directory = self.root / topic / str(queue_id)
        queue = ConsumeQueue(directory, self.units_in_file, handles=self._handles)
        self._queues[topic, queue_id] = queue
        return queue

    def get(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """A queue, None where no message has been put into it."""
        return self._queues.get((topic, queue_id))

    def items(self) -> Iterator[tuple[tuple[str, int], ConsumeQueue]]:
        """((topic, queue id), queue) of all."""
        return iter(list(self._queues.items()))

    @property
    def max_physical(self) -> int:
        """Behind the last message that any queue has; 0 without one."""
        return max((queue.max_physical for queue in self._queues.values()), default=0)

    def put(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        physical_offset: int,
        size: int,
        tags_code: int,
    ) -> bool:
        """Add a message to its queue; as for `ConsumeQueue.put`.

        Raises:
            FormatError: topic, queue or offset cannot be.
        """
        key = (topic, queue_id)
        queue = self._queues.get(key)
        if queue is None:
            if not 0 <= queue_id <= MAX_QUEUE_ID:
                raise FormatError(
                    f"queue {queue_id} of topic {topic!r}, of the message at {physical_offset:,}"
                )
            checked_topic(topic)
            queue = self._open(topic, queue_id)
        if queue.put(queue_offset, physical_offset, size, tags_code):
            self._written[key] = None
            return True
        return False

    def put_units(
        self, key: tuple[str, int], queue_offset: int, begin: int, end: int, units: bytes
    ) -> bool:
        """As `ConsumeQueue.put_units`, for the queue with this topic and number."""
        queue = self._queues.get(key)
        if queue is None or not queue.put_units(queue_offset, begin, end, units):
            return False
        self._written[key] = None
        return True

    def write(self) -> None:
        """Hand the put units to the file system, one write for each queue."""
        while self._written:
            key = next(iter(self._written))
            self._queues[key].write()
            self._unsynced[key] = self._written.pop(key)

    def flush(self) -> None:
        """Return when everything that was put is on the disk."""
        self.write()
        while self._unsynced:
            key = next(iter(self._unsynced))
            self._queues[key].flush()
            del self._unsynced[key]

    def recover(self) -> None:
        """Find the end of every queue."""
        for queue in self._queues.values():
            queue.recover()

    def truncate_dirty(self, physical_offset: int) -> None:
        """Forget messages at or behind this place in the commit log, in all queues."""
        for key in self._queues:
            self.forget(key, physical_offset)

    def forget(self, key: tuple[str, int], physical_offset: int) -> None:
        """As `truncate_dirty`, in the queue with this topic and number, if there is one."""
        queue = self._queues.get(key)
        if queue is not None:
            queue.truncate_dirty(physical_offset)
            self._unsynced[key] = None

    def correct_min_offset(self, physical_offset: int) -> None:
        """Let every queue begin where the commit log does."""
        for queue in self._queues.values():
            queue.correct_min_offset(physical_offset)

    def delete_before(self, physical_offset: int) -> int:
        """Remove files of messages that the commit log has no more; how many."""
        return sum(queue.delete_before(physical_offset) for queue in self._queues.values())

    def next_offsets(self) -> dict[tuple[str, int], int]:
        """The queue offset that the next message of each topic and queue gets (the original's
        topicQueueTable)."""
        return {key: queue.max_offset for key, queue in self._queues.items()}

    def destroy(self) -> None:
        """Remove all files."""
        for queue in self._queues.values():
            queue.destroy()
        self._written.clear()
        self._unsynced.clear()
