"""A disk that fails or is full at every single operation of a RocketMQ store: while it is opened
and recovered, takes messages and dispatches them, is flushed, read, cut by retention, configured
and closed, and while a store is copied and adopted.

The rules. The call raises a DLedgerError, or the store goes on as if there had been no fault. A
process that ends then, and one that goes on with the same store, both find all acknowledged
messages at the next start, behind a power cut too. A flush that returns has everything on the disk,
even after a failure before it.
"""

from __future__ import annotations

import errno
import json
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from dledger.errors import DLedgerError
from dledger.rocketmq.format.message import Message
from dledger.rocketmq.store.files import make_directory
from dledger.rocketmq.store.message_store import MessageStore
from dledger.rocketmq.upgrade.adoption import close_last_file, copy_store
from dledger.rocketmq.upgrade.examine import examine
from dledger.rocketmq.upgrade.old_commit_log import Adopted, OldCommitLog
from verification.disk.memory_disk import MemoryDisk
from verification.disk_states.failures import MAX_FINDINGS, READS, FailingDisk, Fault, faults_at
from verification.disk_states.message_stores import ROOT, SIZES, StoreLife, Sums
from verification.disk_states.promise import require

NOT_CHANGING: Final = READS | {"map"}
SHORTS: Final = (0, 1, 30)
"""Bytes of a write in front of the want of room."""
POWER: Final = ((False, False), (True, False), (True, True))
"""The next process; the next system, with nothing and with all of what was not synced."""


@dataclass(slots=True)
class StoreFailureTally(Sums):
    """The faults that were tried, and their outcomes."""

    faults: Counter[str] = field(default_factory=Counter)
    """By error and operation."""
    raised: int = 0
    """Runs in which a call raised."""
    starts: int = 0
    findings: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"{sum(self.faults.values())} operations failed, {self.raised} ended a call, "
            f"{self.starts} starts afterwards; {len(self.findings)} broke a rule"
        )


class Ended(Exception):
    """The script ends with the first error."""


class TriedLife(StoreLife):
    """One on a disk that fails."""

    def __init__(self, disk: MemoryDisk, seed: int, *, goes_on: bool) -> None:
        super().__init__(disk, seed)
        self._goes_on = goes_on
        self.raised = 0

    def carry_out(self, call: Callable[[], object]) -> None:
        """A call may fail: then the script ends, or goes on with the same store. A call without an
        open store opens one first."""
        try:
            if self.store is None and call != self.open:
                super().carry_out(self.open)
            super().carry_out(call)
        except DLedgerError as error:
            self.raised += 1
            if not self._goes_on:
                raise Ended from error


def faults_of(run: Callable[[FailingDisk], object]) -> list[Fault]:
    """Every operation of a run, with each error that it can give."""
    disk = FailingDisk()
    run(disk)
    return faults_at(disk.asked, NOT_CHANGING, torn=(20,), full=SHORTS)


def _tally(tally: StoreFailureTally, name: str, fault: Fault, run: Callable[[], None]) -> None:
    tally.faults[f"{errno.errorcode[fault.code]} {fault.operation}"] += 1
    try:
        run()
    except Exception as error:
        tally.findings.append(f"{name}: {fault}: {type(error).__name__}: {error}")


def sweep_store(seed: int, every: int = 1, findings: int = MAX_FINDINGS) -> StoreFailureTally:
    """Fail each so many-th operation of a store's script, with every error; the script ends then,
    or goes on."""
    tally = StoreFailureTally()
    faults = faults_of(lambda disk: StoreLife(disk, seed).run())
    for number, fault in enumerate(faults[seed % every :: every]):
        if len(tally.findings) >= findings:
            break
        for goes_on in (False, True):
            name = f"seed {seed}, {'goes on' if goes_on else 'ends'}"
            _tally(tally, name, fault, lambda: _fail_store(seed, fault, goes_on, number, tally))  # noqa: B023
    return tally


def _fail_store(
    seed: int, fault: Fault, goes_on: bool, number: int, tally: StoreFailureTally
) -> None:
    disk = FailingDisk()
    disk.fault = fault
    life = TriedLife(disk, seed, goes_on=goes_on)
    with suppress(Ended):
        life.run()
    tally.raised += bool(life.raised)
    power = _restart(disk, number, tally)
    life.check(power=power)
    life.put(2)
    life.flush()
    disk.reboot(power=True)
    life.check(power=True)


def _restart(disk: FailingDisk, number: int, tally: StoreFailureTally) -> bool:
    """The disk works again, and the process or the system is another one; whether power failed."""
    require(disk.bit, "the fault never bit")
    disk.heal()
    power, keep = POWER[number % len(POWER)]
    tally.starts += 1
    disk.reboot(power, (lambda count: count - 1) if keep else None)
    return power


OLD: Final = ROOT.parent / "old"
NODE: Final = ROOT / "dledger-n0"
BODIES: Final = [b"%d:" % number + bytes(100 + 61 * number) for number in range(18)]


def old_store(disk: MemoryDisk) -> None:
    """A store that was stopped, of which a group is to have a copy."""
    times = iter(range(1_700_000_000_000, 1_800_000_000_000))
    sizes = {**SIZES, "units_in_file": 30, "index_units": 40}
    store = MessageStore(OLD, **sizes, clock=lambda: next(times), disk=disk)  # type: ignore[arg-type]
    for number, body in enumerate(BODIES):
        store.put_message(Message("orders", body, f"KEYS\x01k{number}", number % 2))
    store.close()
    disk.fsync_dir(OLD)


def upgrade(disk: MemoryDisk) -> None:
    """Copy a store, close its log, adopt it, read all of it, and let retention take it file by
    file. It may be interrupted, and done again."""
    if Adopted.load(NODE, disk) is None:
        copy_store(OLD, ROOT, disk)
        found = examine(ROOT, disk)
        require(found.messages == len(BODIES), f"the copy has {found.messages} messages")
        close_last_file(found)
        make_directory(NODE, disk)
        adopted = Adopted(found.divided_offset, found.file_size, found.fingerprint)
        adopted.save(NODE, disk)
    old = OldCommitLog.find(NODE, disk=disk)
    assert old is not None
    try:
        for start in [*old.files.starts, old.divided_offset]:
            check_old(old)
            old.delete_before(start)
    finally:
        old.close()
    require(old.is_gone, "retention leaves files")


def check_old(old: OldCommitLog) -> None:
    """All messages that the old log still has are as they were put.

    Raises:
        BrokenPromise: a message is missing or is another one.
    """
    at, found = old.min_offset, list[bytes]()
    while at < old.divided_offset:
        data = old.message(at)
        if data is None:
            at += old.files.file_size - at % old.files.file_size
        else:
            found.append(data)
            at += len(data)
    wanted = BODIES[len(BODIES) - len(found) :]
    whole = all(body in data for body, data in zip(wanted, found, strict=True))
    require(whole, "another message is served")


def sweep_upgrade(every: int = 1) -> StoreFailureTally:
    """Fail each so many-th operation of an upgrade, and do it again."""
    tally = StoreFailureTally()
    begin = FailingDisk()
    old_store(begin)
    before = len(begin.asked)

    def run(disk: FailingDisk) -> None:
        old_store(disk)
        upgrade(disk)

    faults = [fault for fault in faults_of(run) if fault.at > before]
    for number, fault in enumerate(faults[::every]):
        _tally(tally, "upgrade", fault, lambda: _fail_upgrade(fault, number, tally))  # noqa: B023
    return tally


def _fail_upgrade(fault: Fault, number: int, tally: StoreFailureTally) -> None:
    disk = FailingDisk()
    disk.fault, disk.loses_directories = fault, True
    old_store(disk)
    before = _files(disk, OLD)
    try:
        upgrade(disk)
    except DLedgerError:
        tally.raised += 1
    _restart(disk, number, tally)
    adopted = disk.exists(NODE / "adopted") and disk.content(NODE / "adopted")
    require(not adopted or "gone" in json.loads(adopted), "adopted is torn")
    upgrade(disk)
    require(_files(disk, OLD) == before, "the store that was copied is another now")


def _files(disk: MemoryDisk, root: Path) -> dict[Path, bytes]:
    return {
        path: bytes(inode.written)
        for path, inode in disk.names.items()
        if path.is_relative_to(root) and path.name != "lock"
    }
