"""Consume queues and index of a group's nodes: made of what is committed, whole after any end of a
node."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from dledger.errors import CorruptEntry, StorageError
from dledger.node.rocketmq.dispatch_mark import MARK_FILE, DispatchMark
from dledger.node.rocketmq.dispatched import ROOT
from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.entry import HEADER_SIZE, MAGIC_NORMAL
from dledger.protocol.messages.rocketmq import (
    GetMessageRequest,
    GetMessageStatus,
    PutMessageRequest,
)
from dledger.rocketmq.format.message import Message, TransactionType, decode_message, encode_message
from dledger.rocketmq.format.properties import keys_of, tags_code
from dledger.types import Index
from tests.node.bodies import entries_of
from tests.node.holding import watch
from tests.node.putting import dispatched, get, message, put, query, reput_of, rows_of, split, view
from tests.node.spoiling import SPOILS
from tests.node.test_node_gets import held
from tests.node.trimming import SMALL, equal, trimmed

pytestmark = pytest.mark.group(commit_log="rocketmq")


async def offsets(client: Any, key: str, topic: str = "orders", **fields: Any) -> list[int]:
    """Queue offsets of the messages with a key."""
    return [found.queue_offset for found in await query(client, key, topic, **fields)]


def check(node: Any) -> int:
    """Queues and index of a node have what its log has, and nothing else; how many messages that
    is."""
    files = reput_of(node).files
    expected: dict[tuple[str, int], list[tuple[int, int, int]]] = {}
    keys = 0
    for entry in entries_of(node.store):
        if entry.magic != MAGIC_NORMAL:
            continue
        found = decode_message(entry.body)
        if found.transaction in (TransactionType.NONE, TransactionType.COMMIT):
            units = expected.setdefault((found.topic, found.queue_id), [])
            assert found.queue_offset == len(units)
            units.append(
                (entry.pos + 48, len(entry.body), tags_code(found.property_map().get("TAGS")))
            )
        if found.transaction is not TransactionType.ROLLBACK:
            for key in keys_of(found.property_map()):
                keys += 1
                assert files.index.lookup(found.topic, key).count(entry.pos + 48) == 1
    real = {}
    for key, queue in files.queues.items():
        if not queue.is_empty:
            assert queue.min_offset == 0
            units = queue.units(0, queue.max_offset)
            real[key] = [(unit.physical_offset, unit.size, unit.tags_code) for unit in units]
    assert real == expected
    assert sum(
        len(files.index.lookup(topic, "all")) for topic in {topic for topic, _ in expected}
    ) == sum(map(len, expected.values()))
    return sum(map(len, expected.values()))


async def filled(group: Any, numbers: Iterable[int], queues: int = 1) -> Any:
    """Put these messages, over so many queues, and wait until every node has dispatched them; the
    client that did."""
    client = await group.client()
    await put(client, *[message(n, queue_id=n % queues) for n in numbers])
    await dispatched(group)
    return client


async def test_a_get_sees_every_message_that_was_acknowledged_before(group: Any) -> None:
    client = await group.client()
    for number in range(40):
        await put(client, message(number))
        answer, found = await get(client, number)
        assert (answer.status, answer.max_offset) == (GetMessageStatus.FOUND, number + 1)
        assert [m.body for m in found] == [b"body %d" % number]
        assert await offsets(client, f"u{number}") == [number]


@pytest.mark.group(1, commit_log="rocketmq")
async def test_a_get_says_where_to_go_on(group: Any) -> None:
    client = await group.client()
    assert (await get(client, 5))[0].status is GetMessageStatus.NO_MATCHED_LOGIC_QUEUE
    await put(client, *[message(n) for n in range(10)])
    cases = [
        (0, GetMessageStatus.FOUND, 4, 4),
        (8, GetMessageStatus.FOUND, 2, 10),
        (10, GetMessageStatus.OFFSET_OVERFLOW_ONE, 0, 10),
        (11, GetMessageStatus.OFFSET_OVERFLOW_BADLY, 0, 10),
        (-1, GetMessageStatus.OFFSET_TOO_SMALL, 0, 0),
    ]
    for at, status, count, following in cases:
        answer, found = await get(client, at, max_messages=4)
        assert (answer.status, len(found), answer.next_begin_offset) == (
            status,
            count,
            following,
        ), at
        assert (answer.min_offset, answer.max_offset) == (0, 10)
    assert len((await get(client, 0, max_bytes=1))[1]) == 1
    assert (await get(client, 0, queue_id=9))[0].status is GetMessageStatus.NO_MATCHED_LOGIC_QUEUE


@pytest.mark.group(1, commit_log="rocketmq")
async def test_a_key_is_looked_up_in_the_messages_themselves(group: Any) -> None:
    """The index knows hashes: "Aa" and "BB" have the same one."""
    client = await group.client()
    await put(
        client,
        *[message(n, properties=f"KEYS\x01{key}") for n, key in enumerate(("Aa", "BB", "Aa x"))],
    )
    assert await offsets(client, "Aa") == [2, 0]
    assert await offsets(client, "BB") == [1]
    assert await offsets(client, "Aa", max_messages=1) == [2]
    assert await offsets(client, "Aa", topic="other") == []
    assert await offsets(client, "Aa", end_ms=1000) == []


@pytest.mark.group(1, commit_log="rocketmq")
async def test_transactions_messages_are_where_the_original_has_them(group: Any) -> None:
    client = await group.client()
    kinds = [
        TransactionType.NONE,
        TransactionType.PREPARED,
        TransactionType.COMMIT,
        TransactionType.ROLLBACK,
    ]
    await put(client, *[message(n, sys_flag=int(kind)) for n, kind in enumerate(kinds)])
    _, found = await get(client, 0)
    assert [m.body for m in found] == [b"body 0", b"body 2"]
    counts = [len(await offsets(client, f"u{n}")) for n in range(4)]
    assert counts == [1, 1, 1, 0]


async def test_a_follower_answers_what_may_be_stale(group: Any) -> None:
    await filled(group, range(5))
    other = await group.client(await group.follower())
    assert len((await get(other, 0, stale=True))[1]) == 5
    assert await offsets(other, "k3", stale=True) == [3]
    refused, _ = await get(other, 0, code=Code.NOT_LEADER)
    assert refused.leader_id == (await group.leader()).node.node_id


async def test_what_is_not_committed_is_not_shown_and_in_no_queue(group: Any) -> None:
    client = await group.client()
    (known,) = (await put(client, message(0))).physical_offsets
    await dispatched(group)
    leader = await group.kill_followers()
    end = leader.raft.end_index
    alone = encode_message(message(1))
    waiting = client.start(PutMessageRequest(timeout_ms=300), alone)
    await group.until(lambda: leader.raft.end_index > end)
    place = leader.raft.end.end_pos - len(alone)
    assert leader.store.index_at(place - HEADER_SIZE) == leader.raft.end_index
    assert (await view(client, known, stale=True)).body == b"body 0"
    assert await view(client, place, stale=True) is Code.OFFSET_OUT_OF_RANGE
    assert not (await waiting)[0].physical_offsets
    answer, found = await get(client, 0, stale=True)
    assert (answer.max_offset, len(found)) == (1, 1)
    assert await offsets(client, "u1", stale=True) == []
    assert reput_of(leader).dispatched_index == end


async def test_a_node_that_is_killed_makes_its_queues_whole_again(group: Any) -> None:
    async def more(first: int) -> int:
        some = [message(first + n, f"t{n % 2}", n % 3) for n in range(10)]
        await put(await group.client(), *some)
        return first + 10

    number = 0
    for name in ("n0", "n1", "n2", "n0"):
        number = await more(number)
        await dispatched(group)
        assert [check(node) for node in group.nodes.values()] == [number] * 3
        await group.kill(name)
        await group.leader(but=name)
        number = await more(number)
        await group.start(name)
        await dispatched(group)
        assert [check(node) for node in group.nodes.values()] == [number] * 3


@pytest.mark.group(1, commit_log="rocketmq")
async def test_a_node_that_was_stopped_well_puts_nothing_again(group: Any) -> None:
    await filled(group, range(20))
    (node,) = group.nodes.values()
    end = reput_of(node).dispatched_index
    await group.stop()
    root = group.folder / "n0" / ROOT
    assert not (root / "abort").exists()
    mark = DispatchMark.unpack((root / MARK_FILE).read_bytes())
    assert mark is not None
    assert (mark.index, mark.queues, mark.units) == (end, 1, 20)
    put_again: list[int] = []
    server = await group.start()
    files = reput_of(server).files
    watch(files, "put", lambda entries: put_again.extend(entry.index for entry in entries))
    await dispatched(group)
    assert all(index > end for index in put_again)
    assert check(server) == 20


@pytest.mark.group(1, commit_log="rocketmq")
@pytest.mark.parametrize("spoil", SPOILS, ids=lambda spoil: spoil.__name__)
@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
async def test_queues_that_are_not_what_they_should_be_are_made_again(
    group: Any, spoil: Callable[[Path], None], clean: bool
) -> None:
    await filled(group, range(50), queues=2)
    await group.restart()
    await filled(group, range(50, 70), queues=2)
    await (group.stop() if clean else group.kill())
    spoil(group.folder / "n0" / ROOT)
    node = await group.start()
    client = await filled(group, [70])
    assert check(node) == 71
    for number in range(71):
        assert len(await offsets(client, f"u{number}")) == 1
    assert await offsets(client, "ghost") == []


async def test_queues_that_are_ahead_of_the_log_are_cut_to_it(group: Any) -> None:
    """A power cut may leave more of them than of the log; the same entries come again from the
    leader."""
    await filled(group, range(10))
    await group.stop("n2")
    kept = group.folder / "kept"
    shutil.copytree(group.folder / "n2", kept, ignore=shutil.ignore_patterns(ROOT))
    await group.start("n2")
    await filled(group, range(10, 30))
    await group.stop("n2")
    shutil.move(group.folder / "n2" / ROOT, kept / ROOT)
    shutil.rmtree(group.folder / "n2")
    shutil.move(kept, group.folder / "n2")
    await group.stop()
    # alone: what its own log does not have yet is not in its queues
    reput = reput_of(await group.start("n2"))
    await group.until(lambda: reput.dispatched_index >= 0)
    assert [queue.max_offset for _, queue in reput.files.queues.items()] == [10]
    assert reput.files.index.lookup("orders", "k20") == []
    await group.start("n0", "n1")
    await dispatched(group)
    assert [check(node) for node in group.nodes.values()] == [30, 30, 30]


@pytest.mark.group(1, commit_log="rocketmq")
async def test_only_what_is_behind_the_mark_is_put_again_after_a_kill(
    group: Any, caplog: pytest.LogCaptureFixture
) -> None:
    await filled(group, range(20))
    await group.restart()
    await filled(group, range(20, 30))
    await group.kill("n0")
    caplog.clear()
    node = await group.start()
    await dispatched(group)
    assert check(node) == 30
    assert "are made from entry" not in caplog.text


def test_a_mark_with_any_byte_changed_is_none() -> None:
    mark = DispatchMark(Index(7), 1000, 2, 30)
    data = mark.pack()
    assert DispatchMark.unpack(data) == mark
    assert DispatchMark.unpack(data[:-1]) is DispatchMark.unpack(b"") is None
    for at in range(len(data)):
        assert DispatchMark.unpack(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]) is None


@pytest.mark.group(1, commit_log="rocketmq")
async def test_an_entry_that_cannot_be_read_is_dispatched_when_it_is_repaired(group: Any) -> None:
    client = await group.client()
    leader = await group.leader()
    reput, store = reput_of(leader), leader.store
    real, failures = store.read, [CorruptEntry("damaged", 0)] * 2
    leader.parts.ready_loop.raft.log.cached = lambda begin, end: None

    def read(begin: Index, max_bytes: int, end: Index | None = None) -> Any:
        if failures and begin == reput.dispatched_index + 1:
            raise failures.pop()
        return real(begin, max_bytes, end)

    store.read = read
    await put(client, message(0))
    await dispatched(group)
    assert not failures
    assert check(leader) == 1


async def test_what_waits_for_the_thread_when_the_node_fails_is_not_dispatched(group: Any) -> None:
    client = await filled(group, [0])
    node = await group.leader()
    files = reput_of(node).files
    before = files.next_index
    with held(node):
        await put(client, message(1))
        await group.until(lambda: reput_of(node)._busy)
        node.parts.ready_loop.fail(StorageError("the disk failed"))
    # the thread has come to its end
    await asyncio.wrap_future(reput_of(node)._thread.submit(lambda: None))
    assert files.next_index == before


@pytest.mark.group(1, commit_log="rocketmq")
async def test_a_question_waits_for_the_queues_but_not_for_ever(group: Any) -> None:
    client = await group.client()
    leader = await group.leader()
    await dispatched(group)
    reput_of(leader)._busy = True
    await put(client, message(0))
    await get(client, 0, code=Code.BEHIND)
    waiting = client.start(GetMessageRequest(topic="orders", queue_id=0, queue_offset=0))
    await group.until(lambda: reput_of(leader)._waiters)
    reput_of(leader)._busy = False
    reput_of(leader).committed(leader.raft.committed_index)
    answer, payload = await waiting
    assert (answer.code, len(split(payload))) == (Code.SUCCESS, 1)


async def kept(client: Any) -> int:
    """The first offset of a queue that has lost some of its 60 messages, which has all from there
    on."""
    answer, found = await get(client, 0)
    while answer.status is GetMessageStatus.OFFSET_TOO_SMALL:  # and may lose more meanwhile
        assert answer.next_begin_offset == answer.min_offset > 0
        answer, found = await get(client, answer.min_offset, max_messages=100)
    assert answer.max_offset == 60
    assert [m.queue_offset for m in found] == list(range(answer.min_offset, 60))
    return int(answer.min_offset)


@pytest.mark.group(
    1,
    commit_log="rocketmq",
    segment_bytes=65_536,
    max_body_bytes=32_768,
    retention_bytes=131_072,
    checkpoint_entries=30,
)
async def test_retention_takes_queues_and_index_along(group: Any) -> None:
    client = await group.client()
    for number in range(60):
        await put(
            client,
            Message("orders", bytes(5000), f"UNIQ_KEY\x01u{number}"),
            message(number, topic="small"),
        )
    (node,) = group.nodes.values()
    await dispatched(group)
    number = 60
    # two snapshots are kept, and what is behind the older one
    while not node.store.begin_index:
        answer = await put(client, message(number, topic="small"))
        end = node.store.index_at(answer.physical_offsets[0] - 48)
        await group.until(
            lambda end=end: (
                node.parts.checkpointer.save() is not None or node.checkpoints.index >= end
            )
        )
        await group.until(lambda end=end: node.checkpoints.index >= end)
        # now, and not after so many more messages that those of orders are gone too
        await node.parts.retention.retain()
        number += 1
    await put(client, message(number, topic="small"))
    await group.until(lambda: reput_of(node)._begin_index == node.store.begin_index)
    begin = await kept(client)
    assert 0 < begin < 60
    await group.stop()
    shutil.rmtree(group.folder / "n0" / ROOT)
    await group.start()
    client = await group.client()
    assert await kept(client) >= begin
    answer = await put(client, Message("orders", b"on"))
    assert answer.queue_offsets == (60,)


async def test_the_client_gets_and_queries(group: Any) -> None:
    client = await group.async_client()
    for number in range(5):
        await client.put_message("orders", b"%d" % number, queue_id=1, keys=f"k{number}")
    found = await client.get_message("orders", 1, 2)
    assert [m.body for m in found.messages] == [b"2", b"3", b"4"]
    assert found.status is GetMessageStatus.FOUND
    assert found.next_begin_offset == found.max_offset == 5
    assert [m.body for m in await client.query_message("orders", "k3")] == [b"3"]
    now = found.messages[-1].store_timestamp
    assert await client.query_message("orders", "k3", begin=now + 60_000) == []


@pytest.mark.group(commit_log="rocketmq", segment_bytes=65_536, max_body_bytes=32_768)
async def test_the_directory_of_a_node_is_a_rocketmq_store_to_read(group: Any) -> None:
    for name in ("n0", "n1"):
        client = await group.client()
        await put(client, *[message(n) for n in range(20)])
        await group.kill(name)
        await group.leader(but=name)
        await group.start(name)
    await dispatched(group)
    await group.stop()
    for name in ("n0", "n1", "n2"):
        bodies = [row["body"] for row in rows_of(group.folder / name)]
        assert bodies == 2 * [b"body %d" % n for n in range(20)]


@pytest.mark.group(commit_log="rocketmq", **SMALL)
async def test_member_taking_over_state_has_queues_from_start_of_its_log(
    group: Any,
) -> None:
    """Its disk is new and the oldest messages are gone everywhere: the queue offsets come with the
    catalog."""
    client = await group.client()
    await put(client, message(0, topic="once"))
    for number in range(60):
        await put(client, Message("orders", bytes(6000), f"UNIQ_KEY\x01u{number}"))
    await trimmed(group)
    await group.agree()
    name = str((await group.follower()).node.node_id)
    node = await group.replace_disk(name)
    await equal(group)
    await dispatched(group)
    assert node.store.begin_index > 0
    other = await group.client(node)
    answer, found = await get(other, 0, stale=True)
    assert answer.status is GetMessageStatus.OFFSET_TOO_SMALL
    answer, found = await get(other, answer.min_offset, stale=True, max_messages=100)
    assert [m.queue_offset for m in found] == list(range(answer.min_offset, 60))
    answer, _ = await get(other, 0, topic="once", stale=True)
    assert answer.status is GetMessageStatus.OFFSET_TOO_SMALL
    assert answer.min_offset == answer.max_offset == 1

    assert (await group.admit(name)).code is Code.SUCCESS
    await group.until(lambda: node.raft.is_admitted)
    client = await group.client(await group.hand_over(name))
    answer = await put(client, message(1, topic="once"), Message("orders", b"on"))
    assert answer.queue_offsets == (1, 60)
    await dispatched(group)
    assert len({len(reput_of(n).files.queues.next_offsets()) for n in group.nodes.values()}) == 1
