"""Crashes of a RocketMQ store: its process is killed at each operation that changes the disk, and
the power fails there."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Final, Self

from dledger.rocketmq.format.message import BLANK_SIZE, Message, encode_blank, message_size
from dledger.rocketmq.format.properties import KEYS, format_properties, parse_properties
from dledger.rocketmq.store.message_store import MessageStore
from dledger.rocketmq.store.placed import Placed
from dledger.rocketmq.store.settings import MessageStoreSettings
from dledger.rocketmq.store.topic_configs import TopicConfig
from verification.disk.memory_disk import MemoryDisk, ProcessKilled
from verification.disk_states.promise import BrokenPromise, NotStarted, require
from verification.disk_states.recording import STEP
from verification.sim.rng import Rng

ROOT: Final = Path("/srv/rocketmq/store")
SHORTS: Final = (0, 1, 20, 100, 1 << 30)
"""As many bytes of its last write a killed process has written."""
STEPS: Final = 14
QUEUES: Final = (("orders", 0), ("orders", 1), ("paid", 0))
SIZES: Final = {"file_size": 3072, "units_in_file": 5, "index_slots": 8, "index_units": 6}
"""So small that a dozen messages need several files of each kind."""


@dataclass(slots=True)
class Promised:
    """The promises that a store has made."""

    messages: dict[int, Message] = field(default_factory=dict)
    """By physical offset, as they were put."""
    tried: dict[int, list[Message]] = field(default_factory=dict)
    """All that ever were, or were about to be, put at each physical offset."""
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

    def __init__(self, disk: MemoryDisk, seed: int) -> None:
        self.disk = disk
        disk.loses_directories = True
        self.promised = Promised()
        self._rng = Rng(seed)
        self._now_ms = 1_700_000_000_000
        self._number = 0
        self.store: MessageStore | None = None

    def open(self) -> MessageStore:
        """Start the store, in whichever state its files are."""
        settings: MessageStoreSettings = {**SIZES, "clock": self._clock, "disk": self.disk}  # type: ignore[typeddict-item]
        self.store = MessageStore(ROOT, **settings)
        return self.store

    def _clock(self) -> int:
        self._now_ms += 1
        return self._now_ms

    def run(self) -> None:
        """The script."""
        rng = self._rng
        self.carry_out(self.open)
        for _ in range(STEPS):
            step = rng.below(11)
            if step < 5:
                self.carry_out(partial(self.put, rng.between(1, 3)))
            elif step < 7:
                self.carry_out(self.flush)
            elif step == 7:
                self.carry_out(self.delete)
            elif step == 8:
                self.carry_out(partial(self.configure, f"topic{rng.below(3)}", 1 + rng.below(8)))
            elif step == 9:
                self.carry_out(self.look)
            else:
                self.carry_out(self.close)
                self.carry_out(self.open)
        self.carry_out(self.close)

    def carry_out(self, call: Callable[[], object]) -> None:
        """One call of the script."""
        call()

    def flush(self) -> None:
        """Flush the store: all messages that were put are on the disk."""
        assert self.store is not None
        self.store.flush()
        self.promised.synced_end = self.promised.put_end

    def close(self) -> None:
        """Stop it well."""
        store, self.store = self.store, None
        assert store is not None
        store.close()
        self.promised.synced_end = self.promised.put_end

    def put(self, count: int) -> list[Placed]:
        """Put some messages at once."""
        assert self.store is not None
        log, promised = self.store.log, self.promised
        messages = [self._message() for _ in range(count)]
        placed = self._places(log.max_offset, messages)
        for at, message in placed.items():  # any of them may be there from now on
            promised.tried.setdefault(at, []).append(message)
        try:
            found = self.store.put_messages(messages)
        finally:
            there = {at: one for at, one in placed.items() if at < log.max_offset}
            promised.messages |= there
        places = [one.physical_offset for one in found]
        require(places == list(placed), f"put at {places}, not at {list(placed)}")
        promised.put_end = log.max_offset
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

    def check(self, *, power: bool) -> None:
        """Start the store again, and check that it has all promised messages, and no others.

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
        kept = [at for at in promised.messages if promised.begin <= at < sure]
        require(
            log.min_offset <= min([*kept, log.max_offset]),
            f"the log begins at {log.min_offset}: messages from {promised.begin} on were to stay",
        )
        promised.messages = self.look(sure)
        promised.put_end = promised.synced_end = log.max_offset
        for topic, allowed in promised.topics.items():
            found = store.topics.queues(topic)
            require(found in allowed, f"{topic} has {found} queues, not {allowed}")
            promised.topics[topic] = {found}

    def look(self, sure: int | None = None) -> dict[int, Message]:
        """See that log, queues and index have the messages that were put, in order, and no others;
        those that there are.

        Args:
            sure: from here on there may be others that were tried to put.

        Raises:
            BrokenPromise: they have not.
        """
        store, promised = self.store, self.promised
        assert store is not None
        log, there = store.log, dict[int, Message]()
        if sure is None:
            store.dispatch()  # it may have failed before
            sure = log.max_offset
        at = log.min_offset
        while at < log.max_offset:
            rest = log.file_size - at % log.file_size
            if rest < BLANK_SIZE or log.read(at, BLANK_SIZE) == encode_blank(rest):
                at += rest
                continue
            found = store.message_at(at)
            known = [promised.messages.get(at)] if at < sure else promised.tried.get(at, [])
            message = next((one for one in known if one and one.body == found.body), None)
            require(message is not None, f"another message is at {at}")
            assert message is not None
            there[at] = message
            at += message_size(message)
        self._look_for(store, there)
        return there

    def _look_for(self, store: MessageStore, there: dict[int, Message]) -> None:
        """Queues and index have these messages, and no others."""
        by_queue, by_key = places_of(there)
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


def places_of(
    messages: Mapping[int, Message],
) -> tuple[dict[tuple[str, int], list[int]], dict[tuple[str, str], list[int]]]:
    """The places of the messages of each queue, and of those with each key of a topic."""
    by_queue: dict[tuple[str, int], list[int]] = {queue: [] for queue in QUEUES}
    by_key = defaultdict[tuple[str, str], list[int]](list)
    for at, message in messages.items():
        by_queue[message.topic, message.queue_id].append(at)
        by_key[message.topic, parse_properties(message.properties)[KEYS]].append(at)
    return by_queue, by_key


@dataclass(slots=True)
class Sums:
    """Counts and findings that are added up, field by field."""

    def add(self, other: Self) -> None:
        """Add those of another one."""
        for one in fields(self):
            setattr(self, one.name, getattr(self, one.name) + getattr(other, one.name))


@dataclass(slots=True)
class StoreTally(Sums):
    """The crashes that were looked at, and the findings."""

    points: int = 0
    killed: int = 0
    cut: int = 0
    """Power cuts."""
    lost: int = 0
    not_started: int = 0
    findings: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"{self.killed} kills and {self.cut} power cuts at {self.points} points, {self.lost} "
            f"lost something, {self.not_started} did not start"
        )


def crash(seed: int, kill_at: int | None, *, power: bool) -> int:
    """Carry the script of a seed out, crash it at that operation, and go on behind it; how many
    operations it had.

    Raises:
        BrokenPromise: a message is lost, or the store does not start.
    """
    disk = MemoryDisk(first_step=STEP)
    rng = Rng(seed if kill_at is None else seed * 100_003 + kill_at)
    disk.kill_at, disk.kill_short = kill_at, rng.pick(SHORTS)
    life = StoreLife(disk, seed)
    with suppress(ProcessKilled):
        life.run()
    operations = disk.operations
    disk.reboot(power, rng.pick((None, rng.below, lambda count: count - 1)))
    life.check(power=power)
    go_on(life)
    return operations


def go_on(life: StoreLife) -> None:
    """The work of a store that was started again: it takes messages, is closed, and starts behind a
    power cut that takes all unsynced bytes."""
    life.put(3)
    life.close()
    life.disk.reboot(power=True)
    life.check(power=True)


def sweep(seeds: range, every: int = 1) -> StoreTally:
    """Crash the scripts of these seeds at each so many-th call, in both ways."""
    tally = StoreTally()
    for seed in seeds:
        operations = crash(seed, None, power=False)
        for kill_at in range(seed % every, operations, every):
            tally.points += 1
            for power in (False, True):
                tally.killed += not power
                tally.cut += power
                try:
                    crash(seed, kill_at, power=power)
                except BrokenPromise as error:
                    tally.not_started += isinstance(error, NotStarted)
                    tally.lost += not isinstance(error, NotStarted)
                    where = f"seed {seed}, operation {kill_at}, power {power}"
                    tally.findings.append(f"{where}: {error}")
    return tally
