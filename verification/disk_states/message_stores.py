"""Crashes of a RocketMQ store: its process is killed at each call that changes a file, and the
power fails there.

The store's files are real ones. Of what was not synced a power cut leaves any mix of pages and
names (`verification.sim.broker_files`).
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

from dledger.rocketmq.format.message import BLANK_SIZE, Message, message_size
from dledger.rocketmq.format.properties import KEYS, format_properties, parse_properties
from dledger.rocketmq.store.message_store import MessageStore
from dledger.rocketmq.store.placed import Placed
from dledger.rocketmq.store.settings import MessageStoreSettings
from dledger.rocketmq.store.store_lock import StoreLock
from dledger.rocketmq.store.topic_configs import TopicConfig
from verification.disk.memory_disk import ProcessKilled
from verification.disk_states.promise import BrokenPromise, NotStarted, require
from verification.sim.broker_files import HostFiles, SimOs, see_os
from verification.sim.rng import Rng

SECTOR: Final = 512
"""Bytes that a device writes whole; power cuts tear files at it."""
STEPS: Final = 14
QUEUES: Final = (("orders", 0), ("orders", 1), ("paid", 0))
SIZES: Final = {"file_size": 3072, "units_in_file": 5, "index_slots": 8, "index_units": 6}
"""So small that a dozen messages need several files of each kind."""


class KillingOs(SimOs):
    """``os`` for the modules that write a store's files. The process dies in front of one call, or
    in the middle of a write."""

    def __init__(self, host: HostFiles, kill_at: int | None) -> None:
        super().__init__([host])
        self._host = host
        self._kill_at = kill_at
        self.calls = 0
        """That change something, so far."""
        self.dead = False

    def _point(self) -> None:
        """Raises `ProcessKilled` at the call that is chosen, and at all behind it."""
        if self.calls == self._kill_at:
            self.dead = True
        if self.dead:
            raise ProcessKilled(f"call {self.calls}")
        self.calls += 1

    def pwrite(self, handle: int, data: Any, place: int) -> int:
        try:
            self._point()
        except ProcessKilled:
            if self.calls == self._kill_at:
                os.pwrite(handle, memoryview(data)[: len(data) // 2], place)
            raise
        return os.pwrite(handle, data, place)

    def fdatasync(self, handle: int) -> None:
        self.fsync(handle)

    def fsync(self, handle: int) -> None:
        self._point()
        self._host.synced(self._of(handle)[1])

    def ftruncate(self, handle: int, size: int) -> None:
        self._point()
        os.ftruncate(handle, size)


@dataclass(slots=True)
class Promised:
    """What a store has said."""

    messages: dict[int, Message] = field(default_factory=dict)
    """By physical offset, as they were put; those of a call that was under way too."""
    put_end: int = 0
    """Up to here calls have returned: a process that dies loses nothing of it."""
    synced_end: int = 0
    """Up to here it is on the disk: a power cut takes nothing of it."""
    begin: int = 0
    """In front of it messages may be deleted."""
    topics: dict[str, set[int]] = field(default_factory=dict)
    """How many queues each topic may have: as the last call says, and one that is under way."""


class StoreLife:
    """A store, and a random script of what is done with it."""

    def __init__(self, root: Path, seed: int) -> None:
        self.root = root
        self.promised = Promised()
        self._rng = Rng(seed)
        self._now_ms = 1_700_000_000_000
        self._number = 0
        self.store: MessageStore | None = None

    def open(self) -> MessageStore:
        """Start it, as after whatever happened."""
        settings: MessageStoreSettings = {**SIZES, "clock": self._clock}  # type: ignore[typeddict-item]
        self.store = MessageStore(self.root, **settings)
        return self.store

    def _clock(self) -> int:
        self._now_ms += 1
        return self._now_ms

    def run(self) -> None:
        """The script."""
        store, rng = self.open(), self._rng
        for _ in range(STEPS):
            step = rng.below(10)
            if step < 5:
                self.put(rng.between(1, 3))
            elif step < 7:
                store.flush()
                self.promised.synced_end = self.promised.put_end
            elif step == 7:
                self.delete()
            elif step == 8:
                self.configure(f"topic{rng.below(3)}", 1 + rng.below(8))
            else:
                self._close()
                store = self.open()
        self._close()

    def _close(self) -> None:
        store, self.store = self.store, None
        assert store is not None
        store.close()
        self.promised.synced_end = self.promised.put_end

    def put(self, count: int) -> list[Placed]:
        """Put some messages at once."""
        assert self.store is not None
        messages = [self._message() for _ in range(count)]
        begin = self.store.log.max_offset
        placed = self._places(begin, messages)
        self.promised.messages |= placed  # any of them may be there from now on
        found = self.store.put_messages(messages)
        places = [one.physical_offset for one in found]
        require(places == list(placed), f"put at {places}, not at {list(placed)}")
        self.promised.put_end = self.store.log.max_offset
        return found

    def _message(self) -> Message:
        rng, number = self._rng, self._number
        self._number += 1
        topic, queue_id = rng.pick(QUEUES)
        body = b"%d:" % number + bytes(rng.spread(1, 900))
        return Message(topic, body, format_properties({KEYS: f"k{number % 4}"}), queue_id)

    def _places(self, at: int, messages: list[Message]) -> dict[int, Message]:
        """Where messages come to lie behind ``at``: none over the border of a file."""
        found, size = {}, SIZES["file_size"]
        for message in messages:
            length = message_size(message)
            if at % size + length + BLANK_SIZE > size:
                at += size - at % size
            found[at] = message
            at += length
        return found

    def configure(self, topic: str, queues: int) -> None:
        """Let a topic have so many queues."""
        assert self.store is not None
        self.promised.topics.setdefault(topic, {0}).add(queues)
        self.store.topics.put(TopicConfig(topic, queues))
        self.promised.topics[topic] = {queues}

    def delete(self) -> None:
        """Delete the front of the log, up to a place in the middle of what is there."""
        assert self.store is not None
        log = self.store.log
        place = log.min_offset + (log.max_offset - log.min_offset) // 2
        self.promised.begin = max(self.promised.begin, place)
        self.store.delete_before(place)

    def let_go(self) -> None:
        """Its process is gone: descriptors and locks are free."""
        store, self.store = self.store, None
        if store is not None:
            store.abandon()
        StoreLock.held.clear()  # that of a process that died while it started

    def check(self, *, power: bool) -> None:
        """Start it again, and look whether it has what it must have, and nothing else.

        Raises:
            BrokenPromise: it has not.
            NotStarted: it does not start by itself.
        """
        try:
            store = self.open()
        except Exception as error:
            raise NotStarted(f"it does not start: {type(error).__name__}: {error}") from error
        promised, log = self.promised, store.log
        sure = promised.synced_end if power else promised.put_end
        require(log.max_offset >= sure, f"the log ends at {log.max_offset}, not at {sure}")
        kept = [at for at in promised.messages if at >= promised.begin]
        require(
            log.min_offset <= min([*kept, log.max_offset]),
            f"the log begins at {log.min_offset}: messages from {promised.begin} on were to stay",
        )
        there = {
            at: message
            for at, message in promised.messages.items()
            if log.min_offset <= at < log.max_offset
        }
        self._check_messages(store, there)
        for topic, allowed in promised.topics.items():
            found = store.topics.queues(topic)
            require(found in allowed, f"{topic} has {found} queues, not {allowed}")
            promised.topics[topic] = {found}

    def _check_messages(self, store: MessageStore, there: dict[int, Message]) -> None:
        """Log, queues and index have these messages, in order, and no others."""
        by_queue: dict[tuple[str, int], list[int]] = {queue: [] for queue in QUEUES}
        by_key: dict[tuple[str, str], list[int]] = {}
        for at, message in sorted(there.items()):
            found = store.message_at(at)
            require(found.body == message.body, f"another message is at {at}")
            by_queue[message.topic, message.queue_id].append(at)
            key = parse_properties(message.properties)[KEYS]
            by_key.setdefault((message.topic, key), []).append(at)
        for (topic, queue_id), places in by_queue.items():
            rows = store.messages(topic, queue_id, 0, 1000)
            got = [one.physical_offset for one in rows]
            require(got == places, f"queue {queue_id} of {topic} has {got}, not {places}")
            numbers = [one.queue_offset for one in rows]
            first = numbers[0] if numbers else 0
            require(numbers == list(range(first, first + len(numbers))), f"{topic}: {numbers}")
        for (topic, key), places in by_key.items():
            got = [one.physical_offset for one in store.messages_with_key(topic, key)]
            require(got == places[::-1], f"key {key} of {topic} has {got}, not {places[::-1]}")


@dataclass(slots=True)
class StoreTally:
    """What was looked at, and what came of it."""

    points: int = 0
    killed: int = 0
    cut: int = 0
    """Power cuts."""
    lost: int = 0
    not_started: int = 0
    findings: list[str] = field(default_factory=list)

    def add(self, other: StoreTally) -> None:
        """And what another one has."""
        for name in ("points", "killed", "cut", "lost", "not_started"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.findings += other.findings


@contextmanager
def host_files(seed: int) -> Iterator[HostFiles]:
    """A host of its own, in memory where the system has such a place."""
    shm = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(prefix="dledger-store-", dir=shm if shm.is_dir() else None))
    quiet: Any = SimpleNamespace(tear=SECTOR, bite=lambda what: None)
    try:
        yield HostFiles(folder / "host", quiet, Rng(seed), quiet)
    finally:
        see_os(os)
        shutil.rmtree(folder)


def crash(seed: int, kill_at: int | None, *, power: bool) -> int:
    """Carry the script of a seed out, crash it at that call, and go on behind it; how many calls it
    had.

    Raises:
        BrokenPromise: something is lost, or the store does not start.
    """
    with host_files(seed if kill_at is None else seed * 100_003 + kill_at) as host:
        system = KillingOs(host, kill_at)
        see_os(system)
        life = StoreLife(host.root, seed)
        try:
            life.run()
        except ProcessKilled:
            see_os(os)
            life.let_go()
            if power:
                host.cut_power()
        calls = system.calls
        see_os(KillingOs(host, None))
        life.check(power=power)
        go_on(life)
        return calls


def go_on(life: StoreLife) -> None:
    """What a store does that was started again: it takes messages, is closed, and starts."""
    assert life.store is not None
    end = life.store.log.max_offset
    promised = life.promised
    promised.messages = {at: one for at, one in promised.messages.items() if at < end}
    promised.put_end = end
    life.put(3)
    life.store.close()
    promised.synced_end = promised.put_end
    life.check(power=True)
    life.let_go()


def sweep(seeds: range, every: int = 1) -> StoreTally:
    """Crash the scripts of these seeds at each so many-th call, in both ways."""
    tally = StoreTally()
    for seed in seeds:
        calls = crash(seed, None, power=False)
        for kill_at in range(seed % every, calls, every):
            tally.points += 1
            for power in (False, True):
                tally.killed += not power
                tally.cut += power
                try:
                    crash(seed, kill_at, power=power)
                except NotStarted as error:
                    tally.not_started += 1
                    tally.findings.append(f"seed {seed}, call {kill_at}, power {power}: {error}")
                except BrokenPromise as error:
                    tally.lost += 1
                    tally.findings.append(f"seed {seed}, call {kill_at}, power {power}: {error}")
    return tally
