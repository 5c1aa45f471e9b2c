"""A device that fails or is full at every single operation of the scripts: EIO and ENOSPC, at
reads, writes and syncs.

The rules. EIO at a write, a sync or a change of names: the call, or the next one, raises. The store
acknowledges no further entry, and never touches its files again (D2, I21). The next process finds
all acknowledged entries, even when the system drops the pages that it calls clean. EIO at a read:
an error, never other bytes. ENOSPC where a file is made: the append is refused as a whole, and
succeeds once there is room (D12). ENOSPC anywhere else is like EIO.
"""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from dledger.errors import DiskFull, DLedgerError, StorageError
from dledger.node.snapshot.image import Unpacker
from dledger.protocol.messages.entry import Entry, HardState, stamp
from dledger.storage.api import DiskLevel
from dledger.storage.disk.file_names import NEW_SUFFIX
from dledger.storage.file_store import FileStore
from dledger.storage.meta.snapshots import SNAPSHOTS
from dledger.storage.meta.tables import TABLES
from dledger.storage.recovery.snapshot_install import INSTALL_FILE, INSTALL_SUFFIX
from dledger.types import Index, NodeId, Term
from verification.disk.memory_disk import Failure, MemoryDisk
from verification.disk_states.checking import check_start
from verification.disk_states.life import StoreLife
from verification.disk_states.promise import BrokenPromise, require, require_entry
from verification.disk_states.recording import STEP, RecordingDisk
from verification.disk_states.scenarios import Scenario

READS: Final = frozenset({"pread", "open", "statvfs"})
MAKING: Final = frozenset({"create", "fallocate"})
"""Operations that a full disk refuses while files that are allocated can still be written."""
SHORTS: Final = (0, 1, 47, 300, 512, 1000)
"""Bytes of a write that get written before it fails; a write that is not longer gets written
whole."""
MAX_FINDINGS: Final = 20


@dataclass(frozen=True, slots=True)
class Fault:
    """The ``at``-th operation of a script fails."""

    at: int
    operation: str
    path: Path
    code: int
    short: int | None = None
    lasting: bool = False
    """The disk stays full until space is freed."""

    def __str__(self) -> str:
        how = "" if self.short is None else f" behind {self.short} bytes"
        name = errno.errorcode[self.code]
        return f"{name} at operation {self.at}, {self.operation} {self.path.name}{how}"


class FailingDisk(MemoryDisk):
    """Counts all operations, reads too, and fails one of them."""

    def __init__(self) -> None:
        super().__init__(first_step=STEP)
        self.asked: list[tuple[str, Path]] = []
        self.fault: Fault | None = None
        self.bit = False
        self.behind: list[tuple[str, Path]] = []
        """Operations that were tried after the fault."""

    def check(self, operation: str, path: Path) -> Failure | None:
        self.asked.append((operation, path))
        fault = self.fault
        if fault is None:
            return super().check(operation, path)
        if self.bit:
            self.behind.append((operation, path))
        first = len(self.asked) == fault.at
        if first or (self.bit and fault.lasting and operation in MAKING):
            self.bit = True
            if fault.short is not None:
                return Failure(operation, "", fault.code, short=fault.short)
            raise OSError(fault.code, errno.errorcode[fault.code], str(path))
        return super().check(operation, path)

    def heal(self) -> None:
        """The fault is over; its effects stay."""
        self.fault = None

    def copy(self) -> FailingDisk:
        """Another disk that holds the same, on which nothing has been tried yet."""
        other = FailingDisk()
        known = (
            *self.names.values(),
            *self.durable_names.values(),
            *(change[2] for change in self.pending_names),
        )
        inodes = {id(inode): deepcopy(inode) for inode in known if inode is not None}
        other.names = {path: inodes[id(inode)] for path, inode in self.names.items()}
        other.durable_names = {
            path: inodes[id(inode)] for path, inode in self.durable_names.items()
        }
        other.pending_names = [
            (path, target, inodes.get(id(inode))) for path, target, inode in self.pending_names
        ]
        other.directories = set(self.directories)
        other.total, other.free, other.now_ms = self.total, self.free, self.now_ms
        other.boots, other.operations = self.boots, self.operations
        other.locked = set(self.locked)
        return other


class FailingScriptDisk(FailingDisk, RecordingDisk):
    """On which a script can be lived."""


class PatientLife(StoreLife):
    """Waits for room when the disk is full, as a node does."""

    disk: FailingScriptDisk
    refused = 0

    def write(self, entries: Sequence[Entry]) -> None:
        log = self.log
        try:
            super().write(entries)
        except DiskFull:
            self.refused += 1
            self._say(replace(self.promise, logs=(log,)))
            require(
                self.store.end.position.index == len(log) - 1,
                "a refused append left something behind",
            )
            fault = self.disk.fault
            if fault is not None and fault.lasting:
                require(
                    self.store.disk_level() is DiskLevel.FULL,
                    "no room, but the disk is not called full",
                )
            if log:
                require_entry(self.store, log[-1], "the last entry is another")
            self.disk.heal()
            super().write(entries)

    def stage(self, image: bytes, whole: bool) -> Unpacker:
        try:
            return super().stage(image, whole)
        except DiskFull:
            self.refused += 1
            fault = self.disk.fault
            require(
                fault is not None and fault.code == errno.ENOSPC,
                "a disk that failed is called full",
            )
            left = [path for path in self.disk.names if path.name.endswith(INSTALL_SUFFIX)]
            require(not left, f"no room for a state, of which these files stay: {left}")
            self.disk.heal()
            return super().stage(image, whole)

    def repair(self, index: int) -> None:
        try:
            super().repair(index)
        except DiskFull:
            self.refused += 1
            self.disk.heal()
            super().repair(index)


def faults_at(
    asked: Sequence[tuple[str, Path]],
    reads: frozenset[str],
    *,
    torn: Sequence[int],
    full: Sequence[int],
) -> list[Fault]:
    """Each error that each of these operations can give.

    Args:
        reads: operations that need no room.
        torn: bytes of a write that get written before an EIO, besides all or nothing.
        full: the same, before an ENOSPC.
    """
    found: list[Fault] = []
    for at, (operation, path) in enumerate(asked, start=1):
        found.append(Fault(at, operation, path, errno.EIO))
        if operation == "pwritev":
            found += [Fault(at, operation, path, errno.EIO, short) for short in torn]
            found += [Fault(at, operation, path, errno.ENOSPC, short) for short in full]
        elif operation not in reads:
            found.append(Fault(at, operation, path, errno.ENOSPC))
        if operation in MAKING:
            found.append(Fault(at, operation, path, errno.ENOSPC, lasting=True))
    return found


@dataclass(slots=True)
class FailureTally:
    """The faults that were tried, and their outcomes."""

    faults: Counter[str] = field(default_factory=Counter)
    """By error and operation."""
    refused: int = 0
    """Appends, repairs and fetched states that found no room, and succeeded later."""
    stopped: int = 0
    """Faults that ended the store."""
    survived: int = 0
    """Faults that it could go on from: an unreadable old entry, or a file that could not be made
    ahead of use."""
    starts: int = 0
    """Starts afterwards: of the next process, behind a power cut that keeps nothing or all that was
    not synced."""
    broken: int = 0
    findings: list[str] = field(default_factory=list)


class FailureSweep:
    """One script with each of its operations failing."""

    def __init__(
        self, scenario: Scenario, tally: FailureTally, every: int = 1, findings: int = MAX_FINDINGS
    ) -> None:
        """``every``: take each so many-th fault only."""
        self._scenario = scenario
        self._tally = tally
        self._every = every
        self._findings = findings

    def run(self) -> None:
        """All faults."""
        for fault in self.faults()[:: self._every]:
            if len(self._tally.findings) >= self._findings:
                return
            self._tally.faults[f"{errno.errorcode[fault.code]} {fault.operation}"] += 1
            try:
                self._try(fault)
            except Exception as error:
                self._tally.broken += 1
                self._tally.findings.append(
                    f"{self._scenario.name}: {fault}: {type(error).__name__}: {error}"
                )

    def faults(self) -> list[Fault]:
        """Every operation of the script, with each error it can give."""
        disk = FailingScriptDisk()
        self._scenario.run(self._life(disk))
        return faults_at(disk.asked, READS, torn=(1, 600), full=SHORTS)

    def _life(self, disk: FailingScriptDisk) -> PatientLife:
        return PatientLife(self._scenario.settings, disk, self._scenario.keeping)

    def _try(self, fault: Fault) -> None:
        disk = FailingScriptDisk()
        disk.fault = fault
        life = self._life(disk)
        error: Exception | None = None
        try:
            self._scenario.run(life)
        except (DLedgerError, BrokenPromise) as raised:
            error = raised
        require(disk.bit, "the fault never bit")
        self._tally.refused += life.refused
        if error is None:
            self._tally.survived += 1
        else:
            self._check_end(fault, disk, life, error)
            self._tally.stopped += 1
        disk.heal()
        for power, keep in ((False, False), (True, False), (True, True)):
            later = disk.copy()
            later.reboot(power, (lambda count: count - 1) if keep else None)
            self._tally.starts += 1
            check_start(self._scenario.settings, later, life.promise)

    def _check_end(
        self, fault: Fault, disk: FailingDisk, life: PatientLife, error: Exception
    ) -> None:
        """It ended as it has to."""
        if fault.operation in READS:
            unreadable = isinstance(error, BrokenPromise) and "cannot be read" in str(error)
            require(
                unreadable or isinstance(error, DLedgerError), f"a read that fails gives {error!r}"
            )
            return
        require(isinstance(error, DLedgerError), f"{error}")
        if life.opened is None:
            require(not disk.locked, "a start that failed keeps the lock")
        elif _is_of_a_state(fault.path):
            # its owner ends the node
            require(life.others, "a fetched state was written, but nobody fetched one")
        elif life.others or _is_of_catalog(fault.path):
            return  # the catalog's files have an owner of their own, which ends the node
        else:
            _must_be_dead(life.opened)
        touched = [
            (what, path)
            for what, path in disk.behind
            if what not in READS and not _is_cleaning(what, path) and not _is_of_catalog(path)
        ]
        require(not touched, f"the disk was written after it failed: {touched[:3]}")


def _is_of_a_state(path: Path) -> bool:
    """Whether a path is of files that another node's state is written to, or of the record that it
    is taken over by."""
    return path.name.endswith(INSTALL_SUFFIX) or path.name.removesuffix(NEW_SUFFIX) == INSTALL_FILE


def _is_of_catalog(path: Path) -> bool:
    return bool({path.name, path.parent.name} & {SNAPSHOTS, TABLES})


def _is_cleaning(operation: str, path: Path) -> bool:
    """Taking away a file that never got its name."""
    return operation == "unlink" and path.name.endswith((NEW_SUFFIX, INSTALL_SUFFIX))


def _must_be_dead(store: FileStore) -> None:
    """Every call raises what the first one raised."""
    entry = stamp(store.end, Term(max(store.hard_state.term, 0)), 1, b"more", 1024)
    calls = (
        store.sync,
        lambda: store.append([entry]),
        lambda: store.save_hard_state(HardState(Term(99), NodeId("n1"))),
        lambda: store.read(store.begin_index, 10),
        lambda: store.retain(Index(0), 0, 0),
        store.disk_level,
    )
    for call in calls:
        try:
            call()
        except StorageError:
            continue
        raise BrokenPromise("the disk failed, and the store goes on")
    store.keep()
    store.close()
