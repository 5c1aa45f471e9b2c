"""The mark of a store about its own queues and index, in the file ``dispatched`` in its root, which
a broker passes over.

It says where each queue ended and which index files there were when everything up to a place of the
commit log had been dispatched. Files say nothing of others that are gone: a broker that has lost a
queue numbers its messages from 0 again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from dledger.checksum import crc32
from dledger.rocketmq.store.consume_queues import ConsumeQueues
from dledger.rocketmq.store.files import HOST, read_whole, write_whole
from dledger.rocketmq.store.index_service import IndexService
from dledger.storage.disk.disk import Disk

FILE: Final = "dispatched"


class QueueEnd(NamedTuple):
    """One queue."""

    begin: int
    """Queue offset of the first unit in its files."""
    next_offset: int
    """Queue offset that its next message gets."""
    end: int
    """Place in the commit log behind its last message."""


@dataclass(frozen=True, slots=True)
class StoreMark:
    """Queues and index with everything before ``end`` in the commit log."""

    end: int
    queues: Mapping[tuple[str, int], QueueEnd] = field(default_factory=dict)
    """By topic and queue id: all that there ever was a message in, also those whose files are gone
    with the log's."""
    index: tuple[str, ...] | None = None
    """Names of the index files; None without an index."""
    last_key: int = -1
    """Place of the last message with a key in the index; -1 for none."""
    last_keys: int = 0
    """How many keys of that message the index has."""
    begin: int = -1
    """Where the commit log began; -1 where that is not known."""

    @staticmethod
    def of(
        end: int,
        queues: ConsumeQueues,
        index: IndexService | None,
        former: StoreMark | None,
        begin: int = -1,
    ) -> StoreMark:
        """The mark of queues and index as they are.

        Args:
            former: has the ends of queues without files.
        """
        ends = {} if former is None else dict(former.queues)
        for key, queue in queues.items():
            if not queue.is_empty:
                ends[key] = QueueEnd(queue.begin, queue.max_offset, queue.max_physical)
        if index is None:
            return StoreMark(end, ends, begin=begin)
        names = tuple(path.name for path in index.files)
        return StoreMark(end, ends, names, index.end_offset, index.end_keys, begin)

    def is_met(self, queues: ConsumeQueues, index: IndexService | None, log_begin: int) -> bool:
        """Whether queues and index, as they were found, have all that this says: there may be more,
        put since.

        Args:
            log_begin: the first place of the commit log. A queue that ended before it may do
                without files.
        """
        for key, told in self.queues.items():
            queue = queues.get(*key)
            if queue is None or queue.is_empty:
                if told.end > log_begin:
                    return False
            elif queue.begin != told.begin or queue.max_offset < told.next_offset:
                return False
        if index is None:
            return True
        if self.index is None or not {path.name for path in index.files}.issuperset(self.index):
            return False
        return (index.end_offset, index.end_keys) >= (self.last_key, self.last_keys)

    def next_offsets(self, queues: ConsumeQueues, log_end: int) -> dict[tuple[str, int], int]:
        """The queue offsets that the next messages get: a queue that has lost its files goes on,
        unless its last message lies behind the end of the commit log, and is lost too."""
        found = {key: told.next_offset for key, told in self.queues.items() if told.end <= log_end}
        found.update({key: queue.max_offset for key, queue in queues.items() if not queue.is_empty})
        return found

    @staticmethod
    def load(root: Path, disk: Disk = HOST) -> StoreMark | None:
        """The mark of the store with this root; None where there is none, or it is damaged.

        Raises:
            StorageError: it cannot be read.
        """
        return StoreMark.unpack(read_whole(root / FILE, disk) or b"")

    def save(self, root: Path, disk: Disk = HOST) -> None:
        """Durably. Call it when the state that it describes is on the disk.

        Raises:
            DiskFull, StorageError: it is not, or perhaps not.
        """
        write_whole(root / FILE, self.pack(), disk=disk)

    def pack(self) -> bytes:
        """JSON, behind a line with its checksum."""
        queues = [[*key, *told] for key, told in sorted(self.queues.items())]
        value = {
            "end": self.end,
            "queues": queues,
            "index": self.index,
            "last": [self.last_key, self.last_keys],
            "begin": self.begin,
        }
        text = json.dumps(value).encode()
        return b"%08x\n" % crc32(text) + text

    @staticmethod
    def unpack(data: bytes) -> StoreMark | None:
        """None for anything that `pack` has not made."""
        if data[:9] != b"%08x\n" % crc32(data[9:]):
            return None
        value = json.loads(data[9:])
        queues = {(topic, queue_id): QueueEnd(*told) for topic, queue_id, *told in value["queues"]}
        names = value["index"]
        index = None if names is None else tuple(names)
        last_key, last_keys = value["last"]
        return StoreMark(value["end"], queues, index, last_key, last_keys, value.get("begin", -1))
