"""The partitions of all topics, by key (topic id << 32 | number). One has an object from its first
use on.

A topic of 10,000 partitions is one small command, which every node carries out in one turn of its
loop; so that takes no work for each of them. One without an object is as `Partition` begins: no
rows, no table, offsets from 0 on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from dledger.catalog.topics.partition import Partition
from dledger.catalog.topics.table import TableFactory
from dledger.catalog.topics.topics import Topics
from dledger.protocol.messages.client import TopicInfo


class Partitions(Mapping[int, Partition]):
    """The partitions of `topics`, in the order of keys. ``newest_schema(topic_id)``: see
    `Schemas.newest`."""

    def __init__(
        self, tables: TableFactory, topics: Topics, *, newest_schema: Callable[[int], int]
    ) -> None:
        self._tables = tables
        self._topics = topics
        self._newest_schema = newest_schema
        self.used: dict[int, Partition] = {}
        """Those with an object: all that have rows, and maybe more. Change it here only."""
        self.grown: set[int] = set()
        """Those that have got rows since the reader that waits for some has cleared it."""
        self.gone: set[int] = set()
        """The same of topics that were deleted."""
        self.is_watched = False
        """A reader waits, and clears both."""

    def __getitem__(self, key: int) -> Partition:
        found = self.used.get(key)
        if found is None:
            found = self.used[key] = self.look(key)
        return found

    def look(self, key: int) -> Partition:
        """The same for a caller that only reads: an object that is made for this is not kept.

        Raises:
            KeyError: there is no such partition.
        """
        found = self.used.get(key)
        if found is not None:
            return found
        if key not in self:
            raise KeyError(key)
        info = self._topics.by_id[key >> 32]
        newest = self._newest_schema(info.topic_id)
        return Partition(self._tables, info.name, info.topic_id, key & 0xFFFFFFFF, newest)

    def __contains__(self, key: object) -> bool:
        info = self._topics.by_id.get(key >> 32) if isinstance(key, int) else None
        return info is not None and key & 0xFFFFFFFF < info.partitions  # type: ignore[operator]

    def __iter__(self) -> Iterator[int]:
        return self.keys_from(0)

    def keys_from(self, start: int) -> Iterator[int]:
        """Those from ``start`` on."""
        for topic_id, info in sorted(self._topics.by_id.items()):
            first = topic_id << 32
            yield from range(max(first, start), first + info.partitions)

    def __len__(self) -> int:
        return self._topics.partitions

    def end_of(self, key: int) -> int:
        """The offset that the next record gets; 0 where there is no such partition (any more)."""
        found = self.used.get(key)
        return 0 if found is None else found.next_offset

    def drop(self, info: TopicInfo) -> dict[int, Partition]:
        """Those of a deleted topic that had an object."""
        keys = range(info.topic_id << 32, (info.topic_id << 32) + info.partitions)
        if self.is_watched:
            self.gone.add(info.topic_id)
        else:  # else keys of deleted partitions would gather for as long as no reader waits
            self.grown.clear()
        few, many = (self.used, keys) if len(self.used) < len(keys) else (keys, self.used)
        return {key: self.used.pop(key) for key in sorted(key for key in few if key in many)}
