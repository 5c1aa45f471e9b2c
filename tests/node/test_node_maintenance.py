"""Housekeeping: time-outs of stages, retention, checkpoints, the end of an unused node."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from dledger.node.maintenance import retention as retention_module
from dledger.node.maintenance.idle_timeout import process_lives
from dledger.node.maintenance.retention import KeptFiles
from dledger.protocol.messages.client import OffsetKind
from dledger.protocol.messages.codes import Code
from dledger.types import Index
from tests.node.bodies import body
from tests.node.trimming import KIB, LARGER, checkpointed, trimmed
from verification.disk.memory_disk import MemoryDisk


async def test_a_stage_that_timed_out_is_dropped(group: Any) -> None:
    client, topic = await group.topic()
    stage = await client.stage(timeout_ms=1)
    assert (await client.append(body(topic, **stage))).code in {
        Code.SUCCESS,
        Code.UNKNOWN_STAGE,
    }
    leader = await group.leader()
    await group.until(lambda: leader.catalog.next_expiry_ms() is None)
    assert (await client.commit(stage, 1)).code is not Code.SUCCESS
    await group.agree()


@pytest.mark.group(retention_bytes=512 * KIB, **LARGER)
async def test_retention_moves_begin_offsets_on_all_nodes_and_survives_a_restart(
    group: Any,
) -> None:
    client, topic = await group.topic()
    data = (await client.write(topic, [bytes(20_000)] * 120))[0]
    await trimmed(group)
    begin = (await client.offsets("t", OffsetKind.BEGIN)).offsets["t"][0]
    assert 0 < begin < 120
    answer, _ = await client.fetch(topic, 0)
    assert answer.code is Code.OFFSET_OUT_OF_RANGE
    assert (answer.begin_offset, answer.end_offset) == (begin, 120)
    assert str(begin) in answer.message
    assert (await client.fetch(topic, begin, max_bytes=1))[1] == [data]
    leader = await group.leader()
    for node in group.nodes.values():
        assert node.store.begin_index <= leader.store.begin_index
    await group.restart(kill=True)
    client = await group.client()
    while (await client.offsets("t", OffsetKind.BEGIN)).offsets["t"][0] < begin:
        pass
    assert (await client.offsets("t")).offsets == {"t": {0: 120}}
    assert (await client.append(data)).base_offset == 120


@pytest.mark.group(1, retention_bytes=512 * KIB, cache_bytes=16 * KIB, **LARGER)
async def test_begin_offsets_move_a_few_in_each_turn_or_where_asked_for(
    group: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A read of what is gone is told the new begin, although its partition has had no turn."""
    client, topic = await group.topic(partitions=4)
    node = await group.leader()
    retention, later = node.parts.retention, list[Any]()
    retention.due_ms = 1 << 60  # this test says when
    for partition in range(4):
        await client.write(topic, [bytes(20_000)] * 30, partition=partition)
    loop = SimpleNamespace(call_soon=lambda *call: later.append(call))
    monkeypatch.setattr(retention, "_loop", loop)
    monkeypatch.setattr(retention_module, "EACH_TURN", 1)

    def begin_offsets() -> list[int]:
        return [node.catalog.begin_offset(topic, partition) for partition in range(4)]

    await checkpointed(group)
    begin = node.store.retain(Index(node.raft.committed_index - 1), 0)
    retention._deleted(Index(0), begin, KeptFiles(None, None))
    first, *others = begin_offsets()
    assert first > 0
    assert others == [0, 0, 0]
    answer, _ = await client.fetch(topic, 0, partition=2)
    assert answer.code is Code.OFFSET_OUT_OF_RANGE
    assert answer.begin_offset == begin_offsets()[2] > 0
    while later:
        function, *arguments = later.pop()
        function(*arguments)
    assert all(begin_offsets())


@pytest.mark.group(retention_bytes=512 * KIB, member_retention_bytes=64 << 20, **LARGER)
async def test_retention_keeps_what_a_dead_member_still_needs(group: Any) -> None:
    client, topic = await group.topic()
    await group.agree()
    dead = (await group.follower()).node.node_id
    await group.kill(dead)
    await client.write(topic, [bytes(20_000)] * 120)
    await checkpointed(group)
    leader = await group.leader()
    leader.parts.retention.due_ms = 0
    await leader.parts.retention.retain()
    await leader.parts.ready_loop.log_writer._loop.run_in_executor(None, lambda: None)
    assert all(node.store.begin_index == 0 for node in group.nodes.values())
    await group.start(dead)
    await trimmed(group)


@pytest.mark.group(1, retention_bytes=0)
async def test_retention_ends_before_the_last_committed_entry(
    group: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where a checkpoint at the commit index would let all of it go."""
    client, topic = await group.topic()
    await client.write(topic)
    node = await group.leader()
    await group.agree()
    committed = node.raft.committed_index
    limits: list[int] = []
    monkeypatch.setattr(node.parts.context.checkpoints, "oldest_index", committed)
    monkeypatch.setattr(
        type(node.store), "retain", lambda store, limit, *_, **__: limits.append(limit) or 0
    )
    await node.parts.retention.retain()
    await group.until(lambda: limits)
    assert limits == [committed - 1]


@pytest.mark.group(1, disks=MemoryDisk, retention_ms=10**12, **LARGER)
async def test_a_full_disk_deletes_nothing_that_is_not_expired(group: Any) -> None:
    client, topic = await group.topic()
    await client.write(topic, [bytes(20_000)] * 60)
    node = await group.leader()
    group.disks["n0"].free = 0
    await group.until(lambda: node.parts.disk_watch.level.name == "FULL")
    await node.parts.retention.retain()
    await asyncio.sleep(0)
    assert node.store.begin_index == 0
    assert (await client.fetch(topic, 0, max_bytes=1))[0].code is Code.SUCCESS


@pytest.mark.parametrize("due", [{"checkpoint_entries": 20}, {"checkpoint_bytes": 1000}], ids=str)
@pytest.mark.parametrize("part", ["tables", "snapshot"])
async def test_d12_checkpoint_without_room_is_made_later_and_node_goes_on(
    play: Callable[..., Any], part: str, due: dict[str, int]
) -> None:
    """The log's files are allocated ahead, so there may be room for entries, and none for what is
    made of them."""
    async with play(1, disks=MemoryDisk, **due) as group:
        client, topic = await group.topic()
        node = await group.leader()
        failures = group.disks["n0"].failures
        group.disks["n0"].fail("pwritev", part, code=errno.ENOSPC)
        bodies = await client.write(topic, (b"%d" % number for number in range(30)))
        await group.until(lambda: node.parts.checkpointer.due_ms)
        assert node.checkpoints.index == -1
        assert len((await client.fetch(topic, 0, max_bytes=100_000))[1]) == 30
        failures.clear()
        await group.until(lambda: node.checkpoints.index >= 30)
        await group.restart("n0", kill=True)
        client = await group.client()
        assert group.nodes["n0"].checkpoints.index >= 30
        assert (await client.fetch(topic, 0, max_bytes=100_000))[1] == bodies


@pytest.mark.parametrize(
    ("due", "payload"),
    [({"checkpoint_entries": 20}, b"x"), ({"checkpoint_bytes": 200 * KIB}, bytes(10_000))],
    ids=["entries", "bytes"],
)
async def test_checkpoints_follow_the_log_by_its_entries_and_its_bytes(
    play: Callable[..., Any], due: dict[str, int], payload: bytes
) -> None:
    """Small entries are many before they are much, and a restart takes its time for each."""
    async with play(1, **due) as group:
        client, topic = await group.topic()
        node = await group.leader()
        for _ in range(3):
            before = node.checkpoints.index
            await client.write(topic, [payload] * 21)
            await group.until(lambda before=before: node.checkpoints.index > before)
        # one may be on its way
        await group.until(lambda: len(list((group.folder / "n0" / "snapshot").iterdir())) == 2)


@pytest.mark.group(1, idle_timeout_ms=100)
async def test_an_unused_node_ends_when_its_parent_is_gone(group: Any) -> None:
    await asyncio.wait_for(group.nodes["n0"].wait_idle(), 20)


@pytest.mark.group(2, idle_timeout_ms=10**6, start=False)
async def test_a_used_node_or_one_with_a_parent_goes_on(group: Any) -> None:
    await group.start("n0", parent_pid=os.getpid())
    await group.start("n1")
    in_a_year = 10**15
    parent, unused = (group.nodes[name].parts.idle_timeout.is_over for name in ("n0", "n1"))
    assert not parent(in_a_year)
    assert unused(in_a_year)
    client = await group.client(group.nodes["n1"])
    assert not unused(in_a_year)
    client.close()
    await group.until(lambda: unused(in_a_year))


def test_a_process_lives_or_not() -> None:
    assert process_lives(os.getpid())
    assert not process_lives(0)
    assert not process_lives(2**22 + 12345)
