"""Index files beside the keys that a commit log's messages have: looked at, and not changed."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dledger.errors import FormatError
from dledger.rocketmq.dispatch.reput_columns import INDEX_UNIT
from dledger.rocketmq.format.index_file import HEADER, SLOT, UNIT, IndexReader, is_index_name
from dledger.rocketmq.store.files import mapped
from dledger.rocketmq.verify.queues import PUT_BACK, Problem
from dledger.rocketmq.with_numpy import np

NO_UNITS: Final = np.zeros(0, INDEX_UNIT)
Keys = list[tuple[int, int]]


@dataclass(slots=True)
class _File:
    """An index file that can be read."""

    path: Path
    units: np.ndarray
    """From number 1 on."""


class IndexAudit:
    """The index files of a store."""

    def __init__(self, root: Path, slots: int) -> None:
        """Read them, and see that each agrees with itself.

        Args:
            root: the folder ``index`` itself.
            slots: of each file (maxHashSlotNum).

        Raises:
            StorageError: a file cannot be read.
        """
        self.problems: list[Problem] = []
        self._files: list[_File] = []
        self._slots = slots
        names = sorted(path for path in root.glob("*") if is_index_name(path.name))
        self.is_there = bool(names)
        sizes = [path.stat().st_size for path in names]
        for path, size in zip(names, sizes, strict=True):
            if size != max(sizes):
                reason = f"the file has {size:,} bytes, and other index files {max(sizes):,}"
                self.problems.append(Problem(path, reason))
            else:
                self._open(path, size)
        self.end = max(
            (int(file.units["place"].max()) for file in self._files if len(file.units)), default=-1
        )
        """Place of the last message with a key here; -1 without one."""
        self.lag: list[int] = []
        """Places of messages with keys behind that."""
        self._missing: list[int] = []
        self._matched = 0

    def _open(self, path: Path, size: int) -> None:
        view = mapped(path)
        try:
            reader = IndexReader(
                lambda place, length: view[place : place + length], size, slots=self._slots
            )
            reader.check_ends()
        except FormatError as error:
            slots_are = "The slots are the broker's maxHashSlotNum: give them with --index-slots"
            self.problems.append(Problem(path, f"{error}. {slots_are}"))
            return
        slots = np.frombuffer(view, ">i4", self._slots, HEADER.size)
        first = HEADER.size + self._slots * SLOT.size + UNIT.size
        count = reader.count - 1
        units = np.frombuffer(view, INDEX_UNIT, count, first) if count > 0 else NO_UNITS
        opened = _File(path, units)
        self._files.append(opened)
        self._check_chains(opened, slots, reader.used_slots)

    def _check_chains(self, file: _File, slots: np.ndarray, used: int) -> None:
        """Each unit must lead to the one before it of the same slot, and each slot to its newest
        unit."""
        units = file.units
        place = units["hash"].astype(np.int64) % self._slots
        order = np.argsort(place, kind="stable")
        ordered = place[order]
        follows = np.zeros(len(units), bool)
        follows[1:] = ordered[1:] == ordered[:-1]
        previous = np.zeros(len(units), np.int64)
        previous[order[1:]] = np.where(follows[1:], order[:-1] + 1, 0)
        wrong = units["previous"] != previous
        if wrong.any():
            reason = "units do not lead to the one before them in their chain"
            first = int(units["place"][np.argmax(wrong)])
            self.problems.append(Problem(file.path, reason, first, int(wrong.sum())))
        newest = np.zeros(self._slots, np.int64)
        newest[place] = np.arange(1, len(units) + 1)
        strange = int((slots != newest).sum())
        if strange:
            reason = f"{strange:,} slots do not lead to their newest unit"
            self.problems.append(Problem(file.path, reason))
        in_use = int((newest != 0).sum())
        if in_use != used:
            reason = f"{in_use:,} slots are in use, and the header says {used:,}"
            self.problems.append(Problem(file.path, reason))

    def compare(self, keys: Keys, begin: int, stop: int) -> None:
        """Look for the keys of the messages in a part of the log.

        Args:
            keys: place of the message and hash of the key, for each key.
            begin, stop: the part's offsets.
        """
        found = [NO_UNITS]
        for file in self._files:
            places = file.units["place"]
            found.append(file.units[(places >= begin) & (places < stop)])
        units = np.concatenate(found)
        have = Counter(zip(units["place"].tolist(), units["hash"].tolist(), strict=True))
        for pair in keys:
            if have[pair] > 0:
                have[pair] -= 1
                self._matched += 1
            elif pair[0] > self.end:
                self.lag.append(pair[0])
            else:
                self._missing.append(pair[0])

    def finish(self, root: Path, log_begin: int, log_end: int, log: Path) -> list[Problem]:
        """The problems of the index, and of the log's end by the index; arguments as for
        `QueueAudit.finish`."""
        problems = list(self.problems)
        if self._missing:
            reason = "keys of messages of the log are in no sound index file"
            problems.append(Problem(root, reason, min(self._missing), len(self._missing)))
        total, behind = 0, list[int]()
        for file in self._files:
            places = file.units["place"]
            total += int(((places >= log_begin) & (places < log_end)).sum())
            behind += places[places >= log_end].tolist()
        if total > self._matched:
            reason = "units of the index name no key of a sound message of the log"
            problems.append(Problem(root, reason, count=total - self._matched))
        if behind:
            reason = f"the log ends at {log_end:,}, and the index names messages behind: {PUT_BACK}"
            problems.append(Problem(log, reason, min(behind), len(set(behind))))
        return problems
