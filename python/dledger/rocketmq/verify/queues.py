"""Consume queues beside the messages that a commit log has: looked at, and not changed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from dledger.rocketmq.dispatch.build_consume_queue import SCHEDULE_TOPIC
from dledger.rocketmq.dispatch.reput_columns import CQ_UNIT
from dledger.rocketmq.format.consume_queue_unit import FILLER, UNIT_SIZE
from dledger.rocketmq.store.files import folders, log_names, mapped
from dledger.rocketmq.with_numpy import np
from dledger.storage.disk.file_names import file_name

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
        told = {"file": str(self.file), "offset": self.offset, "count": self.count}
        told["reason"] = self.reason
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
            found[np.flatnonzero(mine)[inside]] = units[places[inside]]
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
        sizes = {
            root / topic / name: log_names(root / topic / name)
            for topic in folders(root)
            for name in folders(root / topic)
            if name.isascii() and name.isdigit()
        }
        self._file_size = max((size for one in sizes.values() for size in one.values()), default=0)
        self.queues: dict[Key, Queue] = {
            (path.parent.name, int(path.name)): self._open(path, one) for path, one in sizes.items()
        }
        parts = [units["place"] for queue in self.queues.values() for units in queue.sound()]
        self.end = int(max((places.max() for places in parts if len(places)), default=-1))
        """Of the last message that a queue has; -1 without one."""

    def _open(self, directory: Path, sizes: dict[int, int]) -> Queue:
        parts: list[np.ndarray] = []
        expected: int | None = None
        for start, size in sizes.items():
            path = directory / file_name(start)
            if size != self._file_size:
                other = f"other files of queues {self._file_size:,}"
                self.problems.append(Problem(path, f"the file has {size:,} bytes, and {other}"))
            if expected is not None and start != expected:
                first, end = expected // UNIT_SIZE, start // UNIT_SIZE
                reason = f"no file has the units from queue offset {first:,} to {end:,}"
                self.problems.append(Problem(directory, reason, count=end - first))
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
        problems, behind = list(self.problems), list[int]()
        for queue in self.queues.values():
            extra = -queue.matched
            for units in queue.sound():
                kept = units["place"][units["place"] >= log_begin]
                behind += kept[kept >= log_end].tolist()
                extra += int((kept < log_end).sum())
            if queue.missing:
                reason = "messages of the log are not in this queue where they should be"
                first, count = min(queue.missing), len(queue.missing)
                problems.append(Problem(queue.directory, reason, first, count))
            if extra > 0:
                reason = "units of this queue name no sound message of the log"
                problems.append(Problem(queue.directory, reason, count=extra))
        lost = []
        if behind:
            reason = f"the log ends at {log_end:,}, and queues name messages behind: {PUT_BACK}"
            lost.append(Problem(log, reason, min(behind), len(behind)))
        return problems, lost
