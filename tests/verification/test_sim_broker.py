"""Simulated groups that keep a RocketMQ commit log: their seeds hold, and what judges them sees
what does not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dledger.errors import DLedgerError
from dledger.protocol.messages.entry import (
    HEADER_SIZE,
    MAGIC_NORMAL,
    Entry,
    HardState,
    LogEnd,
    place,
    stamp,
)
from dledger.rocketmq.format.message import (
    Message,
    TransactionType,
    decode_message,
    encode_message,
    message_size,
)
from dledger.rocketmq.store.consume_queues import ConsumeQueues
from dledger.rocketmq.store.index_service import IndexService
from dledger.types import Index, Term
from tests.verification.watching import breaks
from verification.disk.memory_disk import MemoryDisk
from verification.disk.memory_store import MemoryStore
from verification.disk_states.failures import FailingDisk
from verification.disk_states.store_failures import POWER, faults_of
from verification.invariants.queued import Queued
from verification.sim.broker_files import BrokerFiles, HostDisk, HostFiles, SmallDispatched
from verification.sim.disk import SimDisk
from verification.sim.outcome import SeedCounts
from verification.sim.rng import Rng
from verification.sim.run import run_seed
from verification.sim.scene import Scene

SEGMENT = 1 << 16
QUEUE = ("orders", 0)


class Log:
    """A committed log, message by message."""

    def __init__(self) -> None:
        self.queued = Queued()
        self.entries: list[Entry] = []
        self.end = LogEnd()

    def put(self, text: str, queue_offset: int, **fields: Any) -> Message:
        """One that says where it lies."""
        message = Message(
            "orders", text.encode(), f"UNIQ_KEY\x01{text}", queue_offset=queue_offset, **fields
        )
        at = place(self.end.end_pos, HEADER_SIZE + message_size(message), SEGMENT) + HEADER_SIZE
        body = encode_message(replace(message, physical_offset=at))
        self.entries.append(stamp(self.end, Term(1), MAGIC_NORMAL, body, SEGMENT))
        self.end = LogEnd.after(self.entries[-1])
        self.queued.committed(self.entries[-1])
        return decode_message(body)


@pytest.fixture
def log() -> Log:
    return Log()


def filled(log: Log) -> Any:
    """A store with thirty messages."""
    for number in range(30):
        log.put(str(number), number)
    store = MemoryStore(segment_bytes=SEGMENT)
    store.save_hard_state(HardState(Term(1)))
    store.append(log.entries)
    return store


def opened(folder: Path, disk: Any, store: Any) -> SmallDispatched:
    files = SmallDispatched(folder, lambda: 1000, lambda opened: None, disk)
    files.open(store)
    return files


def lookups(files: SmallDispatched) -> list[int]:
    """How often each of the thirty messages is found by its key."""
    return [len(files.index.lookup("orders", str(number))) for number in range(30)]


@pytest.fixture
def hosts(tmp_path: Path) -> Callable[[int], HostFiles]:
    """``hosts(seed)``: the files of a host, whose power can be cut."""

    def make(seed: int) -> HostFiles:
        quiet: Any = SimpleNamespace(tear=64, bite=lambda what: None, check=lambda what, path: None)
        return HostFiles(tmp_path / str(seed), quiet, Rng(seed), quiet)

    return make


def test_queues_and_index_that_a_mark_speaks_of_outlive_a_power_cut(
    log: Log, hosts: Callable[[int], HostFiles]
) -> None:
    """Else all is made again, or, where an earlier page of the index than the last is gone, keys
    are missing."""
    store = filled(log)
    for seed in range(10):
        host = hosts(seed)
        files = opened(host.root, HostDisk(host), store)
        files.put(log.entries)
        files.save(Index(29))
        files.let_go()
        host.cut_power()
        files = opened(host.root, HostDisk(host), store)
        assert files.next_index == 30, seed
        assert lookups(files) == [1] * 30
        files.let_go()


def dispatch(log: Log, store: Any, disk: MemoryDisk) -> None:
    """A node's life with its queues and index: it puts messages, saves, drops old ones, stops."""
    files = opened(Path("/n0"), disk, store)
    files.put(log.entries[:12])
    files.save(Index(11))
    files.put(log.entries[12:24])
    files.delete_before(log.entries[3].pos)
    files.put(log.entries[24:])
    files.close(Index(29), clean=True)


def look(log: Log, store: Any, disk: MemoryDisk) -> None:
    """The next process brings its queues and index to what the log has, durably."""
    files = opened(Path("/n0"), disk, store)
    if files.next_index < 30:
        files.put(log.entries[files.next_index :])
    files.save(Index(29))
    assert lookups(files) == [1] * 30
    queue = files.queues.get("orders", 0)
    assert queue is not None
    places = [entry.pos + HEADER_SIZE for entry in log.entries]
    assert [unit.physical_offset for unit in queue.units(0, 99)] == places


def test_failing_operation_never_leaves_queues_or_index_unlike_the_log(log: Log) -> None:
    """These are the queues and the index of a node."""
    store = filled(log)
    faults = faults_of(lambda disk: dispatch(log, store, disk))
    assert len(faults) > 150
    for number, fault in enumerate(faults):
        disk = FailingDisk()
        disk.fault, disk.loses_directories = fault, True
        with pytest.raises(DLedgerError):
            dispatch(log, store, disk)
        disk.heal()
        power, keep = POWER[number % len(POWER)]
        disk.reboot(power, (lambda count: count - 1) if keep else None)
        look(log, store, disk)
        disk.reboot(power=True)
        look(log, store, disk)


def test_a_message_that_is_committed_twice_or_was_refused_is_seen(log: Log) -> None:
    log.queued.refused([b"refused"], "no leader")
    log.put("once", 0)
    log.queued.committed(log.entries[0])  # by another node
    assert "it was put once" in breaks("Q1", log.put, "once", 1)
    assert "no leader" in breaks("Q1", log.put, "refused", 1)
    assert "late" in breaks("Q1", log.queued.refused, [b"once"], "late")


def test_a_queue_with_a_gap_or_a_number_given_twice_is_seen(log: Log) -> None:
    log.put("0", 0)
    log.put("prepared", 0, sys_flag=int(TransactionType.PREPARED))
    log.put("1", 1)
    breaks("Q2", log.put, "again", 1)
    breaks("Q2", log.put, "gap", 3)


def test_an_acknowledgement_of_what_lies_elsewhere_is_seen(log: Log) -> None:
    first, second = log.put("0", 0), log.put("1", 1)
    log.queued.acknowledged(b"1", second.physical_offset, 1)
    for told in (
        (b"1", first.physical_offset, 1),
        (b"1", second.physical_offset, 0),
        (b"2", 1 << 20, 2),
    ):
        breaks("Q1", log.queued.acknowledged, *told)


def test_uncommitted_or_different_message_is_not_to_be_shown(log: Log) -> None:
    first = log.put("0", 0)
    log.queued.shown([first])
    for wrong in (
        replace(first, body=b"x"),
        replace(first, queue_offset=1),
        replace(first, physical_offset=1 << 20),
    ):
        breaks("Q3", log.queued.shown, [wrong])


def test_a_consumer_that_is_led_past_a_message_that_is_kept_is_seen(log: Log) -> None:
    messages = [log.put(str(n), n) for n in range(6)]
    queued = log.queued
    queued.led(QUEUE, 0, 6, messages)
    queued.led(QUEUE, 9, 6, [])
    queued.led(QUEUE, 6, 6, [])
    for at, following, found in (
        (0, 6, messages[1:]),
        (0, 6, messages[:5]),
        (2, 4, []),
        (0, 1, []),
        (-1, 3, []),
    ):
        assert "past" in breaks("Q3", queued.led, QUEUE, at, following, found)
    for found in ([messages[1], messages[0]], [messages[0], messages[0]], [messages[5]]):
        assert "has the messages" in breaks("Q3", queued.led, QUEUE, 0, 2, found)
    queued.watch_begin("n0", lambda: 3)  # retention has taken the entries before
    queued.led(QUEUE, 0, 3, [])
    assert "past" in breaks("Q3", queued.led, QUEUE, 0, 4, [])


def test_a_linearizable_answer_that_lacks_what_was_there_is_seen(log: Log) -> None:
    first = log.put("0", 0)
    log.queued.reaches(QUEUE, 1, 1)
    breaks("Q3", log.queued.reaches, QUEUE, 0, 1)
    log.queued.missing(first.physical_offset + 1)
    breaks("Q3", log.queued.missing, first.physical_offset)
    log.queued.watch_begin("n0", lambda: 1)
    log.queued.missing(first.physical_offset)


def dispatched(folder: Path, messages: list[Message]) -> Any:
    """Queues and index of these messages."""
    queues = ConsumeQueues(folder / "consumequeue", 10)
    index = IndexService(folder / "index", 8, units=50)
    for message in messages:
        size, place = message_size(message), message.physical_offset
        queues.put(message.topic, message.queue_id, message.queue_offset, place, size, 0)
        index.put(message.topic, [message.body.decode()], place, message.store_timestamp)
    queues.write()
    index.write()
    return SimpleNamespace(queues=queues, index=index)


def test_queues_and_an_index_that_are_not_what_the_log_says_are_seen(
    log: Log, tmp_path: Path
) -> None:
    messages = [log.put(str(n), n) for n in range(4)]
    queued = log.queued
    queued.whole("n0", dispatched(tmp_path / "whole", messages), 0)
    queued.whole("n0", dispatched(tmp_path / "of kept", messages[2:]), 2)
    queued.opened("n0", dispatched(tmp_path / "short", messages[:2]))
    wrong = [
        messages[:3],
        messages[1:],
        [*messages[:3], replace(messages[3], physical_offset=1 << 20)],
        [*messages[:3], replace(messages[3], body=b"other")],
    ]
    for number, some in enumerate(wrong):
        breaks("Q4", queued.whole, "n0", dispatched(tmp_path / str(number), some), 0)
    ghost = replace(messages[3], queue_offset=4, physical_offset=1 << 20)
    breaks("Q4", queued.opened, "n0", dispatched(tmp_path / "ghost", [*messages, ghost]))


@pytest.fixture
def host(tmp_path: Path) -> HostFiles:
    counts = SeedCounts()
    return HostFiles(tmp_path / "n0", SimDisk("n0", Rng(1), counts, 1 << 20, 512), Rng(2), counts)


def written(path: Path, data: bytes, host: HostFiles, *, sync: bool) -> None:
    path.write_bytes(data)
    if sync:
        host.synced(path)


def test_a_power_cut_leaves_what_was_synced_and_of_the_rest_anything(host: HostFiles) -> None:
    outcomes = set()
    for _ in range(60):
        host.replace({host.root / "old": b"old"})
        folder = host.root / "sub"
        folder.mkdir()
        host.synced(host.root)
        written(folder / "safe", b"safe", host, sync=True)
        written(folder / "grown", b"a" * 8192, host, sync=True)
        host.synced(folder)
        (folder / "grown").write_bytes(b"b" * 8192)
        written(folder / "unnamed", b"named by nobody", host, sync=True)
        (host.root / "old").unlink()
        host.cut_power()
        left = {
            path.name: path.read_bytes() for path in sorted(host.root.rglob("*")) if path.is_file()
        }
        assert left["safe"] == b"safe"
        assert set(left["grown"]) <= set(b"ab")
        assert left.get("old", b"old") == b"old"
        assert left.get("unnamed", b"named by nobody") == b"named by nobody"
        outcomes.add((left["grown"][:1] + left["grown"][-1:], "old" in left, "unnamed" in left))
    assert {grown for grown, _, _ in outcomes} >= {b"aa", b"bb"}
    assert {(old, unnamed) for _, old, unnamed in outcomes} >= {(True, False), (False, True)}


def test_writes_and_syncs_of_queues_and_index_ask_the_simulated_disk(host: HostFiles) -> None:
    asked: list[str] = []
    host.disk.check = lambda operation, path: asked.append(f"{operation} {path.name}")  # type: ignore[method-assign]
    disk, path = HostDisk(host), host.root / "file"
    file = disk.open(path, create=True)
    file.pwritev([b"da", b"ta"], 2)
    file.truncate(5)
    file.fdatasync()
    disk.fsync_dir(host.root)
    disk.fsync_dir(host.root.parent)
    assert asked == ["pwritev file", "truncate file", "fdatasync file", "fsync_dir n0"]
    host.cut_power()
    assert path.read_bytes() == b"\0\0dat"


def test_files_of_a_run_are_gone_when_it_is_over() -> None:
    scene = Scene(1, group={"commit_log": "rocketmq"})
    folder = scene.world.broker.folder if scene.world.broker is not None else Path()
    with scene:
        scene.leader()
        client, loop = scene.client()
        scene.run(loop, lambda: client.put_message("orders", b"body"))
        assert folder.is_dir()
    assert not folder.exists()
    assert isinstance(scene.world.broker, BrokerFiles)


def test_node_after_repeated_power_losses_has_its_queues_from_the_log() -> None:
    with Scene(1, group={"commit_log": "rocketmq"}) as scene:
        for number in range(12):
            client, loop = scene.client(f"c{number}")
            scene.leader()
            for one in range(5):
                body = b"%d" % (5 * number + one)
                put = partial(client.put_message, "orders", body, keys="all")
                scene.run(loop, put)
            if number % 3 == 0:
                scene.wait(700)
            scene.node("n0").kill(power=True)
            scene.until(lambda: scene.node("n0").server is not None, 20_000)
        client, loop = scene.client("reader")
        scene.leader()
        found = scene.run(loop, lambda: client.get_message("orders", 0, 0, max_messages=100))
        assert [message.queue_offset for message in found.messages] == list(range(60))
        by_key = scene.run(loop, lambda: client.query_message("orders", "all", max_messages=100))
        assert len(by_key) == 60


@pytest.mark.parametrize("seed", [2, 5, 18, 44, 47, 50, 53])
def test_seeds_with_a_commit_log_hold(seed: int) -> None:
    outcome = run_seed(seed, commit_log="rocketmq", safety_ms=8_000)
    assert outcome.violation is None, outcome.violation
    assert outcome.records > 0


def test_a_seed_with_a_commit_log_goes_the_same_way_every_time() -> None:
    one, other = (run_seed(3, commit_log="rocketmq", safety_ms=5_000) for _ in range(2))
    assert one == other
    assert "records" not in one.bites
