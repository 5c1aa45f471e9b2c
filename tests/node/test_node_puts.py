"""DLedgerCommitLog's puts: each message an entry that knows its own place, acknowledged when a
quorum has it."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from dledger.node.rocketmq.puts import store_host
from dledger.protocol.messages.catalog_commands import CreateTopic
from dledger.protocol.messages.client import ExecuteRequest, TransferRequest
from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.entry import HEADER, HEADER_SIZE, MAGIC_NORMAL, body_is_sound
from dledger.protocol.messages.rocketmq import (
    MAX_PUT_MESSAGES,
    PutMessageRequest,
    PutMessageResponse,
    PutMessageStatus,
)
from dledger.rocketmq.format.hosts import Host
from dledger.rocketmq.format.message import Message, TransactionType, decode_message, encode_message
from dledger.types import Role
from tests.node.bodies import entries_of
from tests.node.elections import SLOW_VOTES
from tests.node.putting import ask_to_put, put, view

pytestmark = pytest.mark.group(1, commit_log="rocketmq")

QUEUE_OFFSET_AT, PHYSICAL_OFFSET_AT = 20, 28


def message(
    text: str = "hello", topic: str = "orders", queue_id: int = 0, **fields: Any
) -> Message:
    """One as a client sends it: its places are guesses."""
    guesses = {
        "queue_offset": 77,
        "physical_offset": 99,
        "store_timestamp": 1,
        "store_host": Host.of("9.9.9.9", 9),
    }
    return Message(topic, text.encode(), queue_id=queue_id, **{**guesses, **fields})


def stored(node: Any) -> list[Message]:
    """The messages of a node's log, in order, each checked against its entry."""
    found = []
    for entry in entries_of(node.store):
        assert body_is_sound(entry)
        if entry.magic == MAGIC_NORMAL:
            found.append(decode_message(entry.body))
            assert found[-1].physical_offset == entry.pos + HEADER_SIZE
    return found


@pytest.mark.group(commit_log="rocketmq")
async def test_a_message_is_stored_as_it_came_but_for_its_places(group: Any) -> None:
    client = await group.client()
    leader = await group.leader()
    sent = message(properties="KEYS\x01k1\x02TAGS\x01red", born_timestamp=123, flag=7)
    answer = await put(client, sent)
    assert answer.status is PutMessageStatus.PUT_OK
    (offset,) = answer.physical_offsets
    own = Host.of("127.0.0.1", leader.port)
    expected = replace(
        sent,
        queue_offset=0,
        physical_offset=offset,
        store_timestamp=answer.store_timestamp,
        store_host=own,
        body_crc=decode_message(encode_message(sent)).body_crc,
    )
    await group.agree()
    for node in group.nodes.values():
        assert stored(node) == [expected]
    assert await view(client, offset) == expected


async def test_queue_offsets_count_each_topic_and_queue_on_its_own(group: Any) -> None:
    client = await group.client()
    places = [("a", 0), ("a", 1), ("a", 0), ("b", 0), ("a", 1), ("a", 0)]
    answer = await put(client, *[message(topic=topic, queue_id=queue) for topic, queue in places])
    assert answer.queue_offsets == (0, 0, 1, 0, 1, 2)
    assert (await put(client, message(topic="b"))).queue_offsets == (1,)


async def test_prepared_and_rolled_back_messages_take_no_queue_offset(group: Any) -> None:
    client = await group.client()
    kinds = [
        TransactionType.NONE,
        TransactionType.PREPARED,
        TransactionType.ROLLBACK,
        TransactionType.COMMIT,
        TransactionType.NONE,
    ]
    answer = await put(client, *[message(sys_flag=int(kind)) for kind in kinds])
    assert answer.queue_offsets == (0, 0, 0, 1, 2)
    await group.agree()
    assert (await group.leader()).catalog.queues.next == {("orders", 0): 3}


async def test_messages_of_one_request_lie_side_by_side_and_in_order(group: Any) -> None:
    client = await group.client()
    one, other = ([message(f"{name} {n}") for n in range(50)] for name in ("one", "other"))
    answers = await asyncio.gather(put(client, *one), put(client, *other))
    found = [m.body for m in stored(await group.leader())]
    assert found == [m.body for m in one + other]
    for answer in answers:
        sizes = {b - a for a, b in pairwise(answer.physical_offsets)}
        assert len(sizes) <= 2
    assert sum((answer.queue_offsets for answer in answers), ()) == tuple(range(100))


@pytest.mark.group(commit_log="rocketmq", segment_bytes=65_536, max_body_bytes=32_768)
async def test_a_message_that_does_not_fit_a_file_lies_in_the_next_one(group: Any) -> None:
    """DLedger's padding, magic -1 and size, fills the file; the position in the message is that
    behind the border."""
    client = await group.client()
    answer = await put(client, *[message("x" * 20_000) for _ in range(8)])
    await group.agree()
    offsets = answer.physical_offsets
    crossing = [b for a, b in pairwise(offsets) if a // 65_536 != b // 65_536]
    assert crossing
    assert all(offset % 65_536 == HEADER_SIZE for offset in crossing)
    for node in group.nodes.values():
        assert [m.physical_offset for m in stored(node)] == list(offsets)
        before = max(offset for offset in offsets if offset < crossing[0])
        end = before + len(encode_message(message("x" * 20_000)))
        data = (group.folder / str(node.node.node_id) / "data" / f"{0:020d}").read_bytes()
        assert struct.unpack_from(">ii", data, end) == (-1, 65_536 - end)


async def test_hosts_of_either_kind_keep_their_room(group: Any) -> None:
    client = await group.client()
    six = Host.of("fd00::1", 5)
    hosts = [{"born_host": six}, {"store_host": six}, {"born_host": six, "store_host": six}]
    answer = await put(client, *[message(**one) for one in hosts])
    leader = await group.leader()
    mapped = Host.of("::ffff:127.0.0.1", leader.port)
    own = Host.of("127.0.0.1", leader.port)
    await group.agree()
    found = stored(leader)
    assert [m.store_host for m in found] == [own, mapped, mapped]
    assert [m.born_host for m in found] == [six, message().born_host, six]
    assert {m.store_timestamp for m in found} == {answer.store_timestamp}


@pytest.mark.group(commit_log="rocketmq")
async def test_the_next_leader_goes_on_with_the_queue_offsets(group: Any) -> None:
    expected = 0
    for _ in range(3):
        leader = await group.leader()
        client = await group.client(leader)
        for _ in range(3):
            answer = await put(client, message(), message())
            assert answer.queue_offsets == (expected, expected + 1)
            expected += 2
        name = str(leader.node.node_id)
        await group.kill(name)
        await group.leader(but=name)
        await group.start(name)
    await group.agree()
    for node in group.nodes.values():
        assert [m.queue_offset for m in stored(node)] == list(range(expected))


@pytest.mark.group(commit_log="rocketmq")
async def test_a_leader_that_led_before_goes_on_behind_the_one_between(group: Any) -> None:
    for expected, name in enumerate(("n0", "n1", "n0", "n2", "n1")):
        client = await group.client(await group.hand_over(name))
        assert (await put(client, message())).queue_offsets == (expected,)


@pytest.mark.group(commit_log="rocketmq", **SLOW_VOTES)
async def test_a_leader_that_has_not_applied_everything_takes_no_message(group: Any) -> None:
    """Else it would give out queue offsets again that earlier leaders have given."""
    client = await group.client()
    await group.agree()
    heir = await group.follower()
    heir.parts.applier._busy = True
    assert (await put(client, message("of the first leader"))).queue_offsets == (0,)
    assert (await client.ask(TransferRequest(to=heir.node.node_id))).code is Code.SUCCESS
    await group.until(lambda: heir.raft.role is Role.LEADER)
    client = await group.client(heir)
    refused = await ask_to_put(client, message("too early"))
    assert refused.code is Code.LEADER_NOT_READY
    assert refused.status is PutMessageStatus.SERVICE_NOT_AVAILABLE
    assert refused.message.startswith("SERVICE_NOT_AVAILABLE: ")
    heir.parts.applier._busy = False
    heir.parts.applier.advance(heir.raft.committed_index)
    await group.leader()
    assert (await put(client, message("in time"))).queue_offsets == (1,)


async def test_a_restart_from_a_checkpoint_goes_on_with_the_queue_offsets(group: Any) -> None:
    client = await group.client()
    await put(client, *[message() for _ in range(5)], message(topic="other", queue_id=3))
    before = (await group.leader()).catalog.queues
    await group.restart()
    leader = await group.leader()
    assert leader.checkpoints.index >= 5
    assert leader.catalog.queues.next == before.next == {("orders", 0): 5, ("other", 3): 1}
    assert leader.catalog.queues.store_ms == before.store_ms > 0
    client = await group.client()
    assert (await put(client, message())).queue_offsets == (5,)


async def test_store_times_never_go_back(group: Any) -> None:
    client = await group.client()
    leader = await group.leader()
    # a leader before had a clock that is ahead
    leader.catalog.queues.store_ms = 4_000_000_000_000
    answer = await put(client, message())
    assert answer.store_timestamp == 4_000_000_000_000


async def test_only_a_place_where_a_message_begins_is_one(group: Any) -> None:
    """A body may look like an entry that lies where it says; it is none all the same."""
    client = await group.client()
    (first,) = (await put(client, message("first"))).physical_offsets
    size = len(encode_message(message("first")))
    inner = encode_message(message("inner"))
    body_at = first + size + HEADER_SIZE + 88
    place = body_at + HEADER_SIZE
    inner = inner[:PHYSICAL_OFFSET_AT] + struct.pack(">q", place) + inner[PHYSICAL_OFFSET_AT + 8 :]
    header = HEADER.pack(1, HEADER_SIZE + len(inner), 1, 1, body_at, 0, 0, 0, len(inner))
    outer = replace(message(), body=header + inner)
    (offset,) = (await put(client, outer)).physical_offsets
    assert (await view(client, offset)).body == outer.body
    for wrong in (place, offset + 1, offset - HEADER_SIZE, 0, -5, 1 << 62, first - 1):
        assert await view(client, wrong) is Code.OFFSET_OUT_OF_RANGE, wrong


DAMAGED = encode_message(message())[:-1]
FLIPPED = bytearray(encode_message(message("hello")))
FLIPPED[90] ^= 1


@pytest.mark.parametrize(
    ("code", "payload", "words"),
    [
        (Code.MALFORMED, b"", "no message in the request"),
        (Code.MALFORMED, b"no message at all", "message 0"),
        (Code.MALFORMED, encode_message(message()) + DAMAGED, "message 1"),
        (Code.MALFORMED, bytes(FLIPPED), "CRC"),
        (Code.MALFORMED, encode_message(message(topic="")), "topic ''"),
        (Code.MALFORMED, encode_message(message(queue_id=-1)), "queue id -1"),
        (Code.MALFORMED, encode_message(message(topic="../../etc")), "characters"),
        (Code.MALFORMED, encode_message(message()) * (MAX_PUT_MESSAGES + 1), "4,096 at most"),
        (Code.RECORD_TOO_LARGE, encode_message(message("x" * (1 << 20))), ""),
    ],
    ids=lambda value: f"{len(value)} bytes" if isinstance(value, bytes) else str(value),
)
async def test_what_is_no_message_is_refused_and_writes_nothing(
    group: Any, code: Code, payload: bytes, words: str
) -> None:
    client = await group.client()
    leader = await group.leader()
    end = leader.raft.end_index
    answer = await client.ask(PutMessageRequest(), payload)
    assert (answer.code, answer.status) == (code, PutMessageStatus.MESSAGE_ILLEGAL)
    assert words in answer.message
    assert leader.raft.end_index == end
    await put(client, message())
    assert leader.parts.proposals.unanswered.held_bytes == 0


@pytest.mark.group(commit_log="rocketmq")
async def test_a_follower_names_the_leader(group: Any) -> None:
    leader = await group.leader()
    client = await group.client(await group.follower())
    answer = await ask_to_put(client, message())
    assert (answer.code, answer.leader_id) == (Code.NOT_LEADER, leader.node.node_id)
    assert answer.status is PutMessageStatus.SERVICE_NOT_AVAILABLE


async def test_messages_and_topics_do_not_share_a_log(play: Callable[..., Any]) -> None:
    async with play(1) as group:
        client = await group.client()
        answer = await ask_to_put(client, message())
        assert answer.code is Code.UNSUPPORTED
        assert "commit_log='rocketmq'" in answer.message
        assert await view(client, 48) is Code.UNSUPPORTED
        await client.create("t")

    async with play(1, commit_log="rocketmq") as group:
        client = await group.client()
        leader = await group.leader()
        end = leader.raft.end_index
        answer = await client.ask(ExecuteRequest(command=CreateTopic(name="t", log_id="x")))
        assert answer.code is Code.UNSUPPORTED
        assert (await client.append(b"DB" + bytes(100))).code is Code.UNSUPPORTED
        assert leader.raft.end_index == end


@pytest.mark.group(commit_log="rocketmq")
async def test_a_put_that_no_quorum_has_says_so(group: Any) -> None:
    client = await group.client()
    leader = await group.kill_followers()
    answer = await client.ask(PutMessageRequest(timeout_ms=100), encode_message(message()))
    assert answer.code in (Code.WAIT_QUORUM_ACK_TIMEOUT, Code.TERM_CHANGED)
    assert answer.status in (PutMessageStatus.OS_PAGECACHE_BUSY, PutMessageStatus.UNKNOWN_ERROR)
    assert leader.parts.application.waiting == leader.parts.proposals.unanswered.held_bytes == 0


@pytest.mark.group(commit_log="rocketmq", election_ms=10_000)
async def test_the_client_puts_and_views(group: Any) -> None:
    # a starved loop takes long for so many messages
    client = await group.async_client()
    result = await client.put_message("orders", b"hello", queue_id=2, tags="red", keys=["k1", "k2"])
    assert result.status is PutMessageStatus.PUT_OK
    assert (result.queue_id, result.queue_offset) == (2, 0)
    found = await client.view_message(result.message_id)
    assert (found.topic, found.body, found.queue_id) == ("orders", b"hello", 2)
    properties = found.property_map()
    assert (properties["KEYS"], properties["TAGS"]) == ("k1 k2", "red")
    assert properties["UNIQ_KEY"]
    many = await client.put_messages([message(f"{n}" * 1000) for n in range(50)])
    assert [one.queue_offset for one in many] == list(range(50))
    assert (await client.view_message(many[7].physical_offset)).body == b"7" * 1000
    more = await client.put_messages([message(topic="more")] * (MAX_PUT_MESSAGES + 5))
    assert [one.queue_offset for one in more] == list(range(MAX_PUT_MESSAGES + 5))


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (Code.SUCCESS, PutMessageStatus.PUT_OK),
        (Code.INCONSISTENT_LEADER, PutMessageStatus.SERVICE_NOT_AVAILABLE),
        (Code.NOT_LEADER, PutMessageStatus.SERVICE_NOT_AVAILABLE),
        (Code.LEADER_NOT_READY, PutMessageStatus.SERVICE_NOT_AVAILABLE),
        (Code.DISK_FULL, PutMessageStatus.SERVICE_NOT_AVAILABLE),
        (Code.WAIT_QUORUM_ACK_TIMEOUT, PutMessageStatus.OS_PAGECACHE_BUSY),
        (Code.LEADER_PENDING_FULL, PutMessageStatus.OS_PAGECACHE_BUSY),
        (Code.TERM_CHANGED, PutMessageStatus.UNKNOWN_ERROR),
        (Code.DISK_ERROR, PutMessageStatus.UNKNOWN_ERROR),
    ],
)
def test_the_status_of_a_put_is_that_of_the_original(code: Code, status: PutMessageStatus) -> None:
    assert PutMessageResponse(code=code).status is status


@pytest.mark.parametrize(
    ("address", "host"),
    [
        ("10.1.2.3:99", "10.1.2.3:99"),
        ("broker.example:99", "0.0.0.0:99"),
        ("[fd00::1]:99", "0.0.0.0:99"),
    ],
)
def test_store_host_is_node_address_where_a_message_has_room_for_it(
    address: str, host: str
) -> None:
    assert str(store_host(address)) == host
