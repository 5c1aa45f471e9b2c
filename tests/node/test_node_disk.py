"""What a node does with a disk that is slow, fails, or is full: D1, D2, D12."""

from __future__ import annotations

import asyncio
import contextlib
import errno
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from dledger.environment import Environment
from dledger.errors import CorruptEntry, DiskFull, StorageError
from dledger.node.loop.log_writer import LAZY_SYNC_MS, LogWriter
from dledger.protocol.messages.client import AppendRequest
from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.rocketmq import GetMessageRequest, ViewMessageRequest
from dledger.rocketmq.format.message import Message
from dledger.types import Index, Role
from tests.node.bodies import body
from tests.node.elections import QUICK
from tests.node.holding import HeldSyncs, between, watch
from tests.node.putting import put, split
from verification.disk.memory_disk import MemoryDisk


async def test_d1_nothing_is_acknowledged_before_a_quorum_has_synced(group: Any) -> None:
    """The bytes are in every page cache; one synced disk of three is no quorum, two are."""
    client, topic = await group.topic()
    await group.agree()
    gates = [HeldSyncs(node) for node in group.nodes.values()]
    with contextlib.ExitStack() as stack:
        for gate in gates:
            stack.enter_context(gate)
        waiting = client.start(AppendRequest(timeout_ms=60_000), body(topic))
        await group.until(
            lambda: all(node.store.end.position.index == 2 for node in group.nodes.values())
        )
        leader = await group.leader()
        assert leader.raft.durable_index < 2
        gates[0].open.set()
        first = next(iter(group.nodes.values()))
        await group.until(lambda: first.raft.durable_index >= 2)
        await group.until(lambda: leader.raft.watermarks[first.node.node_id] >= 2)
        assert not waiting.done()
        assert leader.raft.committed_index < 2
        gates[1].open.set()
        assert (await waiting)[0].code is Code.SUCCESS


@pytest.mark.group(1)
async def test_d1_appends_wait_for_a_lone_nodes_disk_and_share_its_next_sync(group: Any) -> None:
    """Group commit: 200 appends while one sync is under way need one more sync, not 200."""
    client, topic = await group.topic()
    node = await group.leader()
    gate = HeldSyncs(node)
    first = client.start(AppendRequest(timeout_ms=60_000), body(topic))
    await group.until(lambda: gate.waiting.is_set())
    syncs: list[int] = []
    watch(gate, "sync", lambda: syncs.append(1))
    rest = [client.start(AppendRequest(timeout_ms=60_000), body(topic)) for _ in range(200)]
    await group.until(lambda: node.raft.end_index >= 202)
    assert not any(future.done() for future in (first, *rest))
    assert node.raft.committed_index < 2
    gate.open.set()
    for future in (first, *rest):
        assert (await future)[0].code is Code.SUCCESS
    assert len(syncs) <= 3


@pytest.mark.group(cache_bytes=400_000)
async def test_follower_with_slow_disk_serves_applied_from_disk_and_memory(
    group: Any,
) -> None:
    """The others have made it durable and committed it; that its own disk has no such file yet is
    no damage."""
    client, topic = await group.topic()
    bodies = await client.write(topic, (bytes([n]) * 100_000 for n in range(10)))
    await group.agree()
    follower = await group.follower()
    with HeldSyncs(follower):
        bodies += await client.write(topic, (bytes([n]) * 100_000 for n in range(10, 16)))
        await group.until(lambda: follower.catalog.end_offset(topic, 0) == 16)
        assert follower.raft.log.cached(Index(3), Index(4)) is None
        assert follower.store.end.position.index < follower.raft.committed_index
        reader = await group.client(follower)
        answer, found = await reader.fetch(topic, 0, max_bytes=10_000_000)
        assert answer.code is Code.SUCCESS
        assert found == bodies


async def test_a_leader_whose_disk_lags_lists_what_the_others_have_committed(group: Any) -> None:
    client = await group.async_client()
    await client.create_topic("t")
    await group.agree()
    leader = await group.leader()
    with HeldSyncs(leader):
        async with await client.transaction("writer", 1) as one:
            for _ in range(4):
                await one.append("t", [b"x" * 100_000], partition=0)
        assert leader.store.end.position.index < leader.raft.committed_index
        (commit,) = await client.commits()
        assert (commit.writer_id, commit.records) == ("writer", 4)
        assert len(await client.entries()) == leader.catalog.applied_index + 1
        assert (await client.entries(commit.index))[0].command == "CommitTransaction"


@pytest.mark.group(commit_log="rocketmq")
async def test_message_not_yet_on_a_lagging_disk_is_not_passed_over(
    group: Any,
) -> None:
    """A consumer that is told to go on behind it would never see it."""
    client = await group.client()
    leader = await group.leader()
    await group.agree()
    with HeldSyncs(leader):
        for n in range(4):
            answer = await put(client, Message("orders", bytes([n]) * 100_000, "", 0))
        (place,) = answer.physical_offsets
        assert leader.store.end.end_pos < place
        questions = [
            GetMessageRequest(topic="orders", queue_id=0, queue_offset=3),
            ViewMessageRequest(physical_offset=place),
        ]
        for question in questions:
            assert (await client.start(question))[0].code is Code.BEHIND
    await group.until(lambda: leader.store.end.end_pos > place)
    for question in questions:
        answer, payload = await client.start(question)
        assert (answer.code, split(payload)[0].body) == (Code.SUCCESS, bytes([3]) * 100_000)


@pytest.mark.group(1, flush="async")
async def test_with_flush_async_the_page_cache_is_enough(group: Any) -> None:
    client, topic = await group.topic()
    node = await group.leader()
    with HeldSyncs(node) as gate:
        assert (await client.append(body(topic))).code is Code.SUCCESS
        await group.until(lambda: gate.waiting.is_set())


@pytest.mark.group(disks=MemoryDisk, **QUICK)
@pytest.mark.parametrize(("operation", "part"), [("fdatasync", "data"), ("pwritev", "data")])
async def test_d2_a_disk_that_fails_ends_the_node_and_never_acknowledges(
    group: Any, operation: str, part: str
) -> None:
    client, topic = await group.topic()
    await group.agree()
    leader = await group.leader()
    disk = group.disks[leader.node.node_id]
    disk.fail(operation, part)
    waiting = client.start(AppendRequest(timeout_ms=60_000), body(topic))
    with pytest.raises(StorageError):
        await leader.wait_failed()
    with pytest.raises(ConnectionError):
        await waiting
    before, said = disk.operations, []
    between(leader, lambda message, send: said.append(message))
    new = await group.leader(but=leader.node.node_id)
    assert disk.operations == before, "a failed disk was used again"
    assert said == [], "a failed node still talks to the others"
    assert (await (await group.client(new)).append(body(topic))).code is Code.SUCCESS


@pytest.mark.group(disks=MemoryDisk)
async def test_d2_a_follower_whose_disk_fails_stops_acknowledging(group: Any) -> None:
    client, topic = await group.topic()
    await group.agree()
    leader, follower = await group.leader(), await group.follower()
    group.disks[follower.node.node_id].fail("fdatasync", "data")
    assert (await client.append(body(topic))).code is Code.SUCCESS
    with pytest.raises(StorageError):
        await follower.wait_failed()
    mark = leader.raft.watermarks[follower.node.node_id]
    await client.write(topic, [b"x"] * 5)
    assert leader.raft.watermarks[follower.node.node_id] == mark < leader.raft.end_index - 4


@pytest.mark.group(1, disks=MemoryDisk)
async def test_d2_a_topic_index_whose_disk_fails_is_not_tried_again(group: Any) -> None:
    """A second fdatasync may succeed although the data is gone."""
    client, topic = await group.topic()
    node = await group.leader()
    disk = group.disks[node.node.node_id]
    syncs: list[str] = []

    def note(operation: str, path: Any) -> None:
        if operation == "fdatasync" and "tables" in str(path):
            syncs.append(path.name)

    watch(disk, "check", note)
    await client.write(topic, [b"x"] * 5)
    disk.fail("fdatasync", "tables")  # of the partition's table, which its first rows make
    node.parts.checkpointer.save()
    node.parts.checkpointer.save()
    with pytest.raises(StorageError):
        await node.wait_failed()
    for _ in range(20):
        await asyncio.sleep(0)
    assert len(syncs) == 1


@pytest.mark.group(1, disks=MemoryDisk)
async def test_d2_nothing_is_applied_once_the_disk_has_failed_elsewhere(group: Any) -> None:
    """It would write into the topic index."""
    client, topic = await group.topic()
    node = await group.leader()
    before, applier = node.catalog.applied_index, node.parts.applier
    applier._busy = True
    client.start(AppendRequest(timeout_ms=60_000), body(topic))
    await group.until(lambda: node.raft.committed_index > before)
    node.parts.ready_loop.fail(StorageError("save the hard state: the disk failed"))
    applier._busy = False
    applier.advance(node.raft.committed_index)
    assert node.catalog.applied_index == before < node.raft.committed_index
    with pytest.raises(StorageError, match="this node stops"):
        node.store.sync()


class ByHand(Environment):
    """A log writer whose thread a test turns itself: its machine, its store and its listener."""

    def __init__(self, *, lazy: bool = False) -> None:
        self.time_ms = 1000
        self.room = True
        self.damaged: int | None = None
        """An entry behind which the log cannot be cut."""
        self.end = SimpleNamespace(position="written")
        self.done: list[str] = []
        """Writes and cuts."""
        self.syncs = 0
        self.durable: list[str] = []
        self.cuts: list[Any] = []
        self.cut_waits: list[int] = []
        self.failures: list[BaseException] = []
        self.jobs: list[Any] = []
        self.on_the_way: list[tuple[Callable[[Any], None], Any]] = []
        """Results that the loop has not heard."""
        self.on_durable, self.on_truncated = self.durable.append, self.cuts.append
        self.fail = self.failures.append
        tell = lambda *told: self.on_the_way.append(told)  # noqa: E731
        loop: Any = SimpleNamespace(call_soon_threadsafe=tell, call_soon=tell)
        self.writer = LogWriter(self, loop, listener=self, lazy=lazy, environment=self)  # type: ignore[arg-type]

    def now_ms(self) -> int:
        return self.time_ms

    def worker(self, name: str, turn: Any, pause_s: float = 0.0) -> Any:
        self._turn = turn
        return SimpleNamespace(put=self.jobs.append, start=lambda: None, join=lambda: None)

    def append(self, entries: Any) -> None:
        if not self.room:
            raise DiskFull("no room")
        self.done.append("append")

    def truncate(self, after: Index) -> None:
        if after == self.damaged:
            raise CorruptEntry(f"entry {after} is damaged", after)
        self.done.append(f"cut behind {after}")

    def sync(self) -> str:
        self.syncs += 1
        return f"sync {self.syncs}"

    def on_cut_waits(self, error: CorruptEntry) -> None:
        self.cut_waits.append(error.index)

    def write(self) -> None:
        """Give the writer a small entry."""
        self.writer.append(SimpleNamespace(span=100))  # type: ignore[arg-type]

    def turn(self, *, last: bool = False, heard: bool = True) -> float | None:
        """The thread carries out what it was given; the loop hears of it, or will later."""
        jobs, self.jobs[:] = self.jobs[:], []
        pause: float | None = self._turn(jobs, last)
        if heard:
            self.hear()
        return pause

    def hear(self) -> None:
        for callback, argument in self.on_the_way:
            callback(argument)
        self.on_the_way.clear()


def test_d2_failed_node_writes_and_syncs_nothing_that_still_waits() -> None:
    """The failure was elsewhere and not in the log writer."""
    hand = ByHand()
    hand.writer.truncate(Index(5))
    hand.write()
    hand.writer.abandon()
    assert hand.turn(last=True) is None
    assert (hand.done, hand.syncs, hand.durable, hand.cuts, hand.failures) == ([], 0, [], [], [])


def test_B20_sync_from_before_cut_says_nothing_of_rewritten_entries() -> None:
    """The thread's word of it may reach the loop after the cut was asked for."""
    hand = ByHand()
    hand.write()
    hand.turn(heard=False)
    hand.writer.truncate(Index(0))
    hand.write()
    hand.hear()
    assert hand.durable == []
    hand.turn()
    assert hand.durable == ["sync 2"]


def test_flush_async_tells_at_once_what_was_written_and_syncs_it_soon() -> None:
    """However much comes meanwhile; when nothing came, nothing is synced; at the end all is."""
    hand = ByHand(lazy=True)
    hand.write()
    hand.hear()
    assert hand.durable == ["written"]
    assert hand.turn() == LAZY_SYNC_MS / 1000
    hand.time_ms += LAZY_SYNC_MS - 50
    hand.write()
    assert not hand.jobs, "the thread will sync it with the one before"
    assert hand.turn() == 0.05
    assert (hand.done, hand.durable) == (["append"] * 2, ["written"] * 2)
    hand.time_ms += 50
    assert hand.turn() is None
    assert hand.durable[2:] == ["sync 1"]
    hand.time_ms += LAZY_SYNC_MS
    assert hand.turn() is None
    assert hand.syncs == 1
    hand.write()
    assert hand.jobs, "no sync is to come that covers it"
    hand.turn(last=True)
    assert (hand.done, hand.durable[3:]) == (["append"] * 3, ["written", "sync 2"])


def test_B20_what_flush_async_told_at_once_says_nothing_after_a_cut() -> None:
    hand = ByHand(lazy=True)
    hand.write()
    hand.writer.truncate(Index(0))
    hand.hear()
    assert hand.durable == []


@pytest.mark.group(start=False, disks=MemoryDisk)
async def test_d5_a_vote_that_cannot_be_saved_is_never_sent(group: Any) -> None:
    for name in group.config.members:
        await group.start(name)
        group.disks[name].fail("pwritev", "state")
    failed = [asyncio.ensure_future(node.wait_failed()) for node in group.nodes.values()]
    done, rest = await asyncio.wait(failed, return_when=asyncio.FIRST_COMPLETED)
    assert all(isinstance(future.exception(), StorageError) for future in done)
    assert not any(node.raft.role is Role.LEADER for node in group.nodes.values())
    for future in rest:
        future.cancel()


@pytest.mark.group(1, disks=MemoryDisk)
async def test_d12_full_disk_refuses_writes_deletes_nothing_and_works_later(
    group: Any,
) -> None:
    client, topic = await group.topic()
    data = body(topic, b"x" * 1000)
    await client.append(data)
    node = await group.leader()
    disk = group.disks[node.node.node_id]
    names = set(disk.names)
    disk.free = node.node.disk_reserve_bytes - 1
    while (answer := await client.append(data)).code is Code.SUCCESS:
        pass
    assert answer.code is Code.DISK_FULL
    assert "disk" in answer.message
    assert set(disk.names) == names
    count = (await client.offsets("t")).offsets["t"][0]
    assert (await client.fetch(topic, 0))[1] == [data] * count
    disk.free = disk.total
    while (answer := await client.append(data)).code is not Code.SUCCESS:
        pass
    assert answer.base_offset == count


@pytest.mark.group(disks=MemoryDisk)
async def test_d12_a_leader_whose_disk_is_full_hands_over(group: Any) -> None:
    _, topic = await group.topic()
    await group.agree()
    old = await group.leader()
    group.disks[old.node.node_id].free = 0
    new = await group.leader(but=old.node.node_id)
    assert (await (await group.client(new)).append(body(topic))).code is Code.SUCCESS


@pytest.mark.group(1, disks=MemoryDisk)
async def test_d12_no_room_for_the_next_file_is_waited_out(group: Any) -> None:
    """A write that finds no room is acknowledged when there is some, and the node lives on."""
    client, topic = await group.topic()
    node = await group.leader()
    disk = group.disks[node.node.node_id]
    disk.fail("fallocate", "", errno.ENOSPC)
    data = body(topic, bytes(900_000))
    futures = [client.start(AppendRequest(timeout_ms=60_000), data) for _ in range(10)]
    await group.until(lambda: node.parts.ready_loop.log_writer.is_full)
    while (await client.append(body(topic), timeout_ms=1)).code is not Code.DISK_FULL:
        pass
    before = sum(future.done() and future.result()[0].code is Code.SUCCESS for future in futures)
    waiting = sum(not future.done() for future in futures)
    assert waiting
    disk.failures.clear()
    codes = [(await future)[0].code for future in futures]
    assert codes.count(Code.SUCCESS) == before + waiting
    while (await client.append(data)).code is not Code.SUCCESS:
        pass


def test_D4_cut_behind_damaged_entry_waits_for_repair_with_what_follows() -> None:
    hand = ByHand()
    hand.damaged = 4
    hand.writer.truncate(Index(4))
    hand.write()
    assert hand.turn() is not None
    assert hand.turn() is not None
    assert hand.cut_waits == [4], "told once"
    assert (hand.done, hand.durable, hand.cuts, hand.failures) == ([], [], [], [])
    assert not hand.writer.is_full
    hand.damaged = None
    assert hand.turn() is None
    assert hand.done == ["cut behind 4", "append"]
    assert (len(hand.cuts), len(hand.durable), hand.failures) == (1, 1, [])


def test_D4_cut_farther_in_front_replaces_one_waiting_for_a_repair() -> None:
    """The group has cut the damaged entry meanwhile: a copy of it will never come."""
    hand = ByHand()
    hand.damaged = 4
    hand.writer.truncate(Index(4))
    hand.write()
    assert hand.turn() is not None
    hand.writer.truncate(Index(2))
    hand.write()
    assert hand.turn() is None
    assert hand.done == ["cut behind 2", "append"], (
        "and what stood behind the first cut is not written"
    )
    assert (len(hand.cuts), len(hand.durable), hand.failures) == (1, 1, []), (
        "the sync covers what the core has now"
    )
    hand.write()
    assert hand.done[2:] == ["append"], (
        "nothing is queued any more, so a small write is done at once"
    )


def test_d12_async_write_that_waited_for_room_is_synced_by_itself() -> None:
    """Else a follower never acknowledges it, and its leader waits for that with whatever comes
    after."""
    hand = ByHand(lazy=True)
    hand.room = False
    hand.write()
    hand.turn()
    hand.time_ms += 2 * LAZY_SYNC_MS
    hand.turn()
    assert hand.writer.is_full
    hand.durable.clear()
    hand.syncs, hand.room = 0, True
    hand.turn()
    assert hand.durable == ["written"]
    hand.time_ms += LAZY_SYNC_MS
    hand.turn()
    assert hand.durable == ["written", "sync 1"]


def test_d12_what_makes_room_is_done_while_a_write_waits_for_room() -> None:
    """Retention runs on the same thread: it must not stand behind the very write that needs its
    space."""
    hand = ByHand()
    hand.room = False
    hand.write()

    def free() -> None:
        hand.room = True
        hand.done.append("free")

    assert hand.turn() is not None
    assert hand.writer.is_full
    hand.writer.run(free)
    hand.turn()
    hand.turn()
    assert hand.done == ["free", "append"]
    assert not hand.writer.is_full
    assert not hand.failures
