"""Consume queues beside the messages that a commit log has: looked at, and not changed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from dledger.rocketmq.dispatch.build_consume_queue import SCHEDULE_TOPIC
from dledger.rocketmq.format.consume_queue_unit import FILLER, UNIT_SIZE
from dledger.rocketmq.store.files import folders, log_names, mapped
from dledger.storage.disk.file_names import file_name

CQ_UNIT: Final = np.dtype([("place", ">i8"), ("size", ">i4"), ("tags", ">i8")])
PUT_BACK: Final = "put back the whole file, or those that are missing"
Key = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Problem:
    """The fault of a file, or of files of a folder."""

    file: Path
    reason: str
    offset: int | None = None
    """In the log: of the first message that it is about."""
    count: int | None = None
    """Messages that it is about."""

    def as_json(self) -> dict[str, Any]:
        """Plain values, without those that are not known."""
        told = {
            "file": str(self.file),
            "offset": self.offset,
            "count": self.count,
            "reason": self.reason,
        }
        return {name: value for name, value in told.items() if value is not None}


@dataclass(slots=True)
class Queue:
    """The units of one queue, over its files."""

    directory: Path
    starts: np.ndarray
    """Queue offset of the first unit of each part."""
    parts: list[np.ndarray]
    matched: int = 0
    missing: list[int] = field(default_factory=list)
    """Places of messages that have no unit."""
    reborn: int = 0
    """Messages of a topic of this name that was deleted."""

    def at(self, offsets: np.ndarray) -> np.ndarray:
        """The units with these queue offsets; zeros where there is none."""
        found = np.zeros(len(offsets), CQ_UNIT)
        numbers = np.searchsorted(self.starts, offsets, side="right") - 1
        for number in np.unique(numbers[numbers >= 0]):
            units, mine = self.parts[number], numbers == number
            places = offsets[mine] - self.starts[number]
            inside = places < len(units)
            values = np.zeros(len(places), CQ_UNIT)
            values[inside] = units[places[inside]]
            found[mine] = values
        return found

    def sound(self) -> Iterator[np.ndarray]:
        """The units of messages in each part."""
        for units in self.parts:
            yield units[
                (units["size"] > 0) & ((units["size"] != FILLER.size) | (units["place"] != 0))
            ]


class QueueAudit:
    """All queues below a store's ``consumequeue``."""

    def __init__(self, root: Path) -> None:
        """Args:
        root: the folder ``consumequeue`` itself.

        Raises:
            PathError, StorageError: it cannot be read.
        """
        self.root = root
        self.problems: list[Problem] = []
        self.lag: list[int] = []
        """Places of messages behind everything that any queue has."""
        self.unknown: dict[str, list[int]] = {}
        """Topic without any queue -> places of its messages."""
        sizes = {path: log_names(path) for path in self._folders()}
        self._file_size = max((size for one in sizes.values() for size in one.values()), default=0)
        self.queues = {self._key(path): self._open(path, one) for path, one in sizes.items()}
        self.end = max(
            (int(units["place"].max()) for units in self._all() if len(units)), default=-1
        )
        """Of the last message that a queue has; -1 without one."""

    def _folders(self) -> list[Path]:
        return [
            self.root / topic / name
            for topic in folders(self.root)
            for name in folders(self.root / topic)
            if name.isascii() and name.isdigit()
        ]

    @staticmethod
    def _key(path: Path) -> Key:
        return path.parent.name, int(path.name)

    def _all(self) -> Iterator[np.ndarray]:
        for queue in self.queues.values():
            yield from queue.sound()

    def _open(self, directory: Path, sizes: dict[int, int]) -> Queue:
        parts: list[np.ndarray] = []
        expected: int | None = None
        for start, size in sizes.items():
            path = directory / file_name(start)
            if size != self._file_size:
                reason = (
                    f"the file has {size:,} bytes, and other files of queues {self._file_size:,}"
                )
                self.problems.append(Problem(path, reason))
            if expected is not None and start != expected:
                reason = (
                    f"no file has the units from queue offset {expected // UNIT_SIZE:,} to "
                    f"{start // UNIT_SIZE:,}"
                )
                self.problems.append(
                    Problem(directory, reason, count=(start - expected) // UNIT_SIZE)
                )
            expected = start + self._file_size
            parts.append(np.frombuffer(mapped(path), CQ_UNIT, size // UNIT_SIZE))
        return Queue(directory, np.array(list(sizes), np.int64) // UNIT_SIZE, parts)

    def compare(self, key: Key, messages: list[tuple[int, int, int, int]]) -> None:
        """Look for messages of one queue.

        Args:
            messages: queue offset, place, size and tags code of each, in the order of the log.
        """
        rows = np.array(messages, np.int64).reshape(-1, 4)
        queue = self.queues.get(key)
        places = rows[:, 1]
        if queue is None:
            known = any(topic == key[0] for topic, _ in self.queues)
            late = places > self.end if known else np.zeros(len(places), bool)
            self.lag += places[late].tolist()
            if len(places[~late]):
                self.unknown.setdefault(key[0], []).extend(places[~late].tolist())
            return
        units = queue.at(rows[:, 0])
        good = (units["place"] == places) & (units["size"] == rows[:, 2])
        if key[0] != SCHEDULE_TOPIC:  # its code depends on a setting of the broker
            good &= units["tags"] == rows[:, 3]
        queue.matched += int(good.sum())
        if good.all():
            return
        first = next((int(one["place"][0]) for one in queue.sound() if len(one)), -1)
        begins = len(queue.starts) > 0 and int(queue.starts[0]) == 0
        for place in places[~good].tolist():
            if place > self.end:
                self.lag.append(place)
            elif begins and place < first:
                queue.reborn += 1
            else:
                queue.missing.append(place)

    def finish(
        self, log_begin: int, log_end: int, log: Path
    ) -> tuple[list[Problem], list[Problem]]:
        """The problems of queues, and of the log's end by the queues.

        Args:
            log_begin, log_end: where the log's first message begins and its last one ends.
            log: its last file.
        """
        queues, behind = list(self.problems), 0
        first_behind = 0
        for queue in self.queues.values():
            total = extra = 0
            for units in queue.sound():
                kept = units["place"][units["place"] >= log_begin]
                late = kept[kept >= log_end]
                total += len(kept) - len(late)
                behind += len(late)
                if len(late):
                    first_behind = min(first_behind or int(late.min()), int(late.min()))
            if queue.missing:
                reason = "messages of the log are not in this queue where they should be"
                queues.append(
                    Problem(queue.directory, reason, min(queue.missing), len(queue.missing))
                )
            extra = total - queue.matched
            if extra > 0:
                reason = "units of this queue name no sound message of the log"
                queues.append(Problem(queue.directory, reason, count=extra))
        lost = []
        if behind:
            reason = f"the log ends at {log_end:,}, and queues name messages behind: {PUT_BACK}"
            lost.append(Problem(log, reason, first_behind, behind))
        return queues, lost
