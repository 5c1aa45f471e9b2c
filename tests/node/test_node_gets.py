"""Gets beside everything else that a node does: what they show is committed, and what they say of a
queue is so."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.entry import HEADER_SIZE
from dledger.protocol.messages.peer import PushEntryRequest
from dledger.protocol.messages.rocketmq import (
    GetMessageRequest,
    GetMessageStatus,
    PutMessageRequest,
    QueryMessageRequest,
    ViewMessageRequest,
)
from dledger.raft.raft_node import RaftNode
from dledger.raft.state.ready import IDLE
from dledger.rocketmq.format.message import Message, encode_message
from tests.node.bodies import entries_of
from tests.node.elections import QUICK, SLOW_VOTES, cut_off
from tests.node.putting import dispatched, get, put, reput_of, split, view
from tests.node.trimming import SMALL, awake, trimmed


def message(text: str, queue_id: int = 0) -> Message:
    return Message("orders", text.encode(), "KEYS\x01key", queue_id)


@contextmanager
def held(node: Any) -> Iterator[None]:
    """The thread of queues and index is busy with something that takes long."""
    begun, ended = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        ended.wait(60)

    reput_of(node).run(work)
    assert begun.wait(60)
    try:
        yield
    finally:
        ended.set()


def places(node: Any, first: int) -> list[int]:
    """Where the messages of a node's log begin, from an entry on."""
    return [entry.pos + HEADER_SIZE for entry in entries_of(node.store, first)]


@pytest.mark.group(commit_log="rocketmq", **SLOW_VOTES, **QUICK)
async def test_replaced_message_is_not_shown_while_its_cut_waits_for_disk(
    group: Any,
) -> None:
    """The deposed leader follows again and knows what is committed now; a sync that takes long is
    under way, so its files still hold what it wrote alone, at the very place of a message that is
    acknowledged."""
    client = await group.client()
    await put(client, message("base"))
    await group.agree()
    old = await group.leader()
    asker = await group.client(old)
    heal = cut_off(old, group)
    end = old.raft.end_index
    for text in ("a" * 4000, "never acknowledged"):
        asker.start(PutMessageRequest(timeout_ms=100), encode_message(message(text)))
    await group.until(lambda: old.store.end.position.index == end + 2)
    replaced = places(old, end + 1)[1]
    new = await group.leader(but=str(old.node.node_id))
    client = await group.client(new)
    # behind the first entries of all who have led meanwhile
    room = replaced - HEADER_SIZE - new.raft.end.end_pos
    await put(client, message("a" * (room - HEADER_SIZE - len(encode_message(message(""))))))
    (place,) = (await put(client, message("acknowledged now!!"))).physical_offsets
    assert place == replaced
    acknowledged = new.raft.committed_index

    with old.store._sync_lock:
        heal()
        await group.until(lambda: old.raft.committed_index >= acknowledged)
        assert old.store.end.position.index == end + 2  # the cut waits
        questions = [
            ViewMessageRequest(physical_offset=place, stale=True),
            GetMessageRequest(topic="orders", queue_id=0, queue_offset=0, stale=True),
            QueryMessageRequest(topic="orders", key="key", stale=True),
        ]
        answers = [await asker.start(question) for question in questions]
    shown = [
        one.body
        for answer, payload in answers
        if answer.code is Code.SUCCESS
        for one in split(payload)
    ]
    assert set(shown) <= {b"base"}
    # it may be applied before
    await group.until(lambda: old.store.end.position.index >= acknowledged)
    await group.agree()
    assert (await view(asker, place, stale=True)).body == b"acknowledged now!!"


@pytest.mark.group(1, commit_log="rocketmq")
async def test_a_consumer_of_an_empty_queue_is_not_led_past_its_first_message(group: Any) -> None:
    """The question waits for the thread of the files, and the queue's first message is acknowledged
    meanwhile."""
    client = await group.client()
    (node,) = group.nodes.values()
    await put(client, message("of another queue"))
    await dispatched(group)
    with held(node):
        asked = client.start(GetMessageRequest(topic="orders", queue_id=1, queue_offset=0))
        assert (await put(client, message("the first", 1))).queue_offsets == (0,)
    answer, payload = await asked
    assert answer.next_begin_offset == len(split(payload)), answer
    assert [one.body for one in (await get(client, 0, queue_id=1))[1]] == [b"the first"]


@pytest.mark.group(commit_log="rocketmq", **SLOW_VOTES)
async def test_node_with_lagging_queues_says_so_and_skips_no_kept_messages(
    group: Any,
) -> None:
    client = await group.client()
    node = await group.follower()
    asker, reput = await group.client(node), reput_of(node)
    await dispatched(group)
    reput._busy = True  # nothing more is dispatched
    await put(client, *[message(str(n)) for n in range(5)])
    await group.agree()
    await get(asker, 0, stale=True, code=Code.BEHIND)
    answer, _ = await get(asker, 0, queue_id=9, stale=True)
    assert answer.status is GetMessageStatus.NO_MATCHED_LOGIC_QUEUE
    reput._busy = False
    reput.committed(node.raft.committed_index)
    await group.until(lambda: reput.dispatched_index == node.raft.end_index)
    answer, found = await get(asker, 0, stale=True)
    assert (answer.status, len(found)) == (GetMessageStatus.FOUND, 5)
    reput._busy = True
    await put(client, message("5"), message("6"))
    await group.agree()
    for at in (6, 7):  # the leader has told of these
        await get(asker, at, stale=True, code=Code.BEHIND)
    assert (await get(asker, 8, stale=True))[0].status is GetMessageStatus.OFFSET_OVERFLOW_BADLY
    reput._busy = False


@pytest.mark.group(commit_log="rocketmq", **SLOW_VOTES)
async def test_unapplied_queue_message_is_not_taken_for_one_that_is_gone(
    group: Any,
) -> None:
    """After a restart queues and index may be ahead of what the node knows to be committed."""
    client = await group.client()
    node = await group.follower()
    asker = await group.client(node)
    await put(client, message("0"))
    await group.agree()
    node.parts.applier._busy = True
    await put(client, message("1"), message("2"))
    end = (await group.leader()).raft.end_index
    await group.until(lambda: reput_of(node).dispatched_index == end)
    assert node.catalog.applied_index == end - 2
    answer, found = await get(asker, 0, stale=True)
    assert (answer.status, answer.next_begin_offset) == (GetMessageStatus.FOUND, 1)
    assert [one.body for one in found] == [b"0"]
    for question in (
        GetMessageRequest(topic="orders", queue_id=0, queue_offset=1, stale=True),
        QueryMessageRequest(topic="orders", key="key", stale=True),
    ):
        assert (await asker.start(question))[0].code is Code.BEHIND
    node.parts.applier._busy = False
    node.parts.applier.advance(node.raft.committed_index)
    assert len((await get(asker, 1, stale=True))[1]) == 2


@pytest.mark.group(commit_log="rocketmq", **SMALL, **QUICK)
async def test_node_with_catalog_ahead_of_log_shows_none_of_its_old_entries(
    group: Any,
) -> None:
    """It lost its catalog and has the leader's, whose entries are not here yet; in their places are
    its own ones."""
    client = await group.client()
    for _ in range(60):
        await put(client, message("x" * 6000))
    await trimmed(group)
    await group.agree()
    old = await group.leader()
    asker = await group.client(old)
    heal = cut_off(old, group)
    end = old.raft.end_index
    asker.start(PutMessageRequest(timeout_ms=100), encode_message(message("never acknowledged")))
    await group.until(lambda: old.store.end.position.index == end + 1)
    (place,) = places(old, end + 1)
    name = str(old.node.node_id)
    client = await group.client(await group.leader(but=name))
    await put(client, *[message(str(n)) for n in range(5)])
    await group.kill(name)
    shutil.rmtree(group.folder / name / "snapshot")
    heal()
    step = RaftNode.step
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(  # its log does not come
            RaftNode,
            "step",
            lambda raft, message, now_ms: (
                IDLE
                if isinstance(message, PushEntryRequest) and raft.node_id == name
                else step(raft, message, now_ms)
            ),
        )
        node = await group.start(name)
        await group.until(lambda: node._restarting is not None)
        await awake(node)
        assert node.catalog.applied_index > node.store.end.position.index == end + 1
        asker = await group.client(node)
        for question in (
            ViewMessageRequest(physical_offset=place, stale=True),
            GetMessageRequest(topic="orders", queue_id=0, queue_offset=59, stale=True),
        ):
            assert (await asker.start(question))[0].code is Code.BEHIND
    await dispatched(group)
    await group.until(lambda: node.raft.durable_index == node.catalog.applied_index)
    _, found = await get(asker, 59, stale=True)
    assert [len(one.body) for one in found] == [6000, 1, 1, 1, 1, 1]
