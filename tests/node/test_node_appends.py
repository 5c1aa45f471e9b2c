"""Writes: acknowledged when a quorum has them on disk, answered truthfully when not."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

from dledger.catalog.results import DataResult
from dledger.protocol.messages.catalog_commands import (
    CreateTopic,
    DeleteTopic,
    InitProducer,
)
from dledger.protocol.messages.client import AppendRequest, TransferRequest
from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.entry import MAGIC_NORMAL, Entry, LogEnd
from dledger.protocol.messages.entry_runs import EntryRun, stamp_all
from dledger.raft.state.ready import Finished
from dledger.records.body.header import (
    BODY_HEADER_SIZE,
    BodyHeader,
    BodyKind,
    Codec,
    encode_header,
)
from dledger.records.body.payload import compress
from dledger.types import Index, Position, Role, Term
from tests.node.bodies import body
from tests.node.elections import SLOW_VOTES
from tests.node.holding import HeldSyncs, between, watch

MIB = 1 << 20


async def test_an_append_is_answered_with_its_offset(group: Any) -> None:
    client, topic = await group.topic()
    first = await client.append(body(topic, count=3))
    second = await client.append(body(topic, count=2))
    assert (first.code, first.base_offset) == (Code.SUCCESS, 0)
    assert (second.code, second.base_offset) == (Code.SUCCESS, 3)
    assert second.index == first.index + 1


async def test_many_appends_at_once_get_their_offsets_in_the_order_they_came(group: Any) -> None:
    """And go to the followers together: one proposal for what came in one read, not one each."""
    client, topic = await group.topic()
    leader = await group.leader()
    sizes: list[int] = []
    watch(leader.raft, "propose", lambda bodies, _: sizes.append(len(bodies)))
    futures = [client.start(AppendRequest(timeout_ms=10_000), body(topic)) for _ in range(500)]
    assert [(await future)[0].base_offset for future in futures] == list(range(500))
    assert sum(sizes) == 500
    assert len(sizes) < 50


def mixed_bodies(topic: int) -> tuple[list[bytes], list[int]]:
    """Bodies of two partitions in short runs, some of them refused, and the offset of each; -1 of
    one that is refused."""
    bodies, offsets, ends = [], [], [0, 0]
    for number in range(300):
        partition, count = number // 7 % 2, number % 3
        data = body(topic, bytes(number), partition=partition, count=count)
        if number % 11 == 5:
            data, count = b"no batch at all, which does not matter to the others" * 2, 0
        bodies.append(data)
        offsets.append(ends[partition] if count else -1)
        ends[partition] += count
    return bodies, offsets


async def test_a_refused_append_does_not_touch_those_that_came_with_it(group: Any) -> None:
    client, topic = await group.topic(partitions=2)
    bodies, offsets = mixed_bodies(topic)
    futures = [client.start(AppendRequest(timeout_ms=10_000), data) for data in bodies]
    answers = [(await future)[0] for future in futures]
    assert [answer.base_offset for answer in answers] == offsets
    codes = {answer.code for answer, offset in zip(answers, offsets, strict=True) if offset < 0}
    assert codes == {Code.MALFORMED}
    indexes = [answer.index for answer in answers if answer.base_offset >= 0]
    assert indexes == list(range(indexes[0], indexes[0] + len(indexes)))
    for partition in range(2):
        kept = [
            data
            for data, offset in zip(bodies, offsets, strict=True)
            if offset >= 0 and data[12:16] == partition.to_bytes(4, "big")
        ]
        assert (await client.fetch(topic, 0, partition=partition, max_bytes=MIB))[1] == kept


@pytest.mark.group(1, ack_timeout_ms=600_000, max_body_bytes=1000)
async def test_of_appends_that_came_together_the_large_one_alone_is_refused(group: Any) -> None:
    client, topic = await group.topic()
    sizes = [10, 2000, 30, 937, 936]
    futures = [
        client.start(AppendRequest(timeout_ms=10_000), body(topic, bytes(size))) for size in sizes
    ]
    codes = [(await future)[0].code for future in futures]
    assert codes == [
        Code.SUCCESS if size + BODY_HEADER_SIZE <= 1000 else Code.RECORD_TOO_LARGE for size in sizes
    ]


@pytest.mark.group(1)
@pytest.mark.parametrize(("topic", "partition"), [(77, 0), (1, 2)], ids=["topic", "partition"])
async def test_append_to_unknown_topic_or_partition_is_refused_and_not_written(
    group: Any, topic: int, partition: int
) -> None:
    client, _ = await group.topic(partitions=2)
    leader = await group.leader()
    end = leader.raft.end_index
    answer = await client.append(body(topic, partition=partition))
    assert answer.code is Code.UNKNOWN_TOPIC
    assert str(topic) in answer.message
    assert leader.raft.end_index == end
    assert (await client.append(body(1, partition=1))).code is Code.SUCCESS


async def test_an_append_to_a_follower_names_the_leader(group: Any) -> None:
    client = await group.client(await group.follower())
    answer = await client.append(body(1))
    assert answer.code is Code.NOT_LEADER
    assert answer.leader_id == (await group.leader()).node.node_id
    assert answer.leader_id in answer.message


@pytest.mark.group(**SLOW_VOTES)
async def test_a_leader_that_has_not_applied_everything_refuses_no_topic(group: Any) -> None:
    """ "No such topic" is definite, so a new leader only says it when it knows all that was
    acknowledged."""
    client = await group.client()
    await group.agree()
    heir = await group.follower()
    heir.parts.applier._busy = True
    topic = await client.create("t")
    assert (await client.ask(TransferRequest(to=heir.node.node_id))).code is Code.SUCCESS
    await group.until(lambda: heir.raft.role is Role.LEADER)
    client = await group.client(heir)
    waiting = client.start(AppendRequest(timeout_ms=60_000), body(topic))
    await group.until(lambda: waiting.done() or heir.raft.end_index > heir.raft.noop_index)
    heir.parts.applier._busy = False
    heir.parts.applier.advance(heir.raft.committed_index)
    assert (await waiting)[0].code is Code.SUCCESS


@pytest.mark.group(1)
async def test_a_body_over_the_limit_is_refused_and_the_connection_goes_on(group: Any) -> None:
    client, topic = await group.topic()
    answer = await client.append(body(topic, bytes(MIB)))
    assert answer.code is Code.RECORD_TOO_LARGE
    assert str(MIB) in answer.message
    assert (await client.append(body(topic))).code is Code.SUCCESS


async def test_a_body_of_the_largest_size_is_taken(group: Any) -> None:
    client, topic = await group.topic()
    data = body(topic, bytes(MIB - 64))
    assert (await client.append(data)).code is Code.SUCCESS
    assert (await client.fetch(topic, 0))[1] == [data]


@pytest.mark.group(1)
@pytest.mark.parametrize(
    "data", [b"", b"short", b"x" * 100, encode_header(BodyHeader(BodyKind.COMMAND)) + b"\x90"]
)
async def test_an_append_that_is_no_batch_is_malformed(group: Any, data: bytes) -> None:
    client = await group.client()
    assert (await client.append(data)).code is Code.MALFORMED


@pytest.mark.group(pending_bytes=100_000)
async def test_more_than_the_leader_may_hold_is_refused_and_retriable(group: Any) -> None:
    """LEADER_PENDING_FULL is definite: what was refused is not in the log."""
    client, topic = await group.topic()
    data = body(topic, bytes(30_000))
    clients = [await group.client() for _ in range(10)]
    leader = await group.leader()
    held: list[Callable[[], None]] = []
    heal = between(leader, lambda message, send: held.append(partial(send, message)))
    futures = [each.start(AppendRequest(timeout_ms=10_000), data) for each in clients]
    await group.until(lambda: sum(future.done() for future in futures) >= 7)
    heal()
    for send in held:
        send()
    codes = [(await future)[0].code for future in futures]
    assert sorted(codes) == 3 * [Code.SUCCESS] + 7 * [Code.LEADER_PENDING_FULL]
    assert (await client.append(data)).base_offset == 3


@pytest.mark.group(max_client_bytes=2 * MIB)
async def test_a_client_that_sends_too_much_is_not_read_until_it_was_answered(group: Any) -> None:
    """All of it gets in, although it is far more than the node may hold at once."""
    client, topic = await group.topic()
    leader = await group.leader()
    data, held = body(topic, bytes(500_000)), 0
    futures = [client.start(AppendRequest(timeout_ms=10_000), data) for _ in range(60)]
    while not all(future.done() for future in futures):
        held = max(held, leader.parts.proposals.unanswered.held_bytes)
        await asyncio.sleep(0)
    assert {future.result()[0].code for future in futures} == {Code.SUCCESS}
    assert 0 < held <= 3 * MIB


async def test_a_command_is_answered_with_what_the_catalog_made_of_it(group: Any) -> None:
    client = await group.client()
    assert await client.create("t", partitions=3) == 1
    again = await client.execute(CreateTopic(name="t", log_id="other"))
    assert again.code is Code.TOPIC_EXISTS
    assert "'t'" in again.message
    assert (await client.execute(DeleteTopic(name="t"))).code is Code.SUCCESS
    assert (await client.execute(DeleteTopic(name="t"))).code is Code.UNKNOWN_TOPIC


@pytest.mark.group(1)
async def test_a_command_is_stamped_with_the_leaders_clock(group: Any) -> None:
    client = await group.client()
    await client.execute(InitProducer(producer_name="p", time_ms=5))
    assert (await group.leader()).catalog.clock_ms > 1_600_000_000_000


async def test_d9_a_retried_append_gets_its_first_answer(group: Any) -> None:
    client, topic = await group.topic()
    data = body(topic, sequence=0, count=5, **await client.producer())
    first, again = await client.append(data), await client.append(data)
    assert (first.code, first.base_offset) == (again.code, again.base_offset) == (Code.SUCCESS, 0)
    assert (await client.offsets("t")).offsets == {"t": {0: 5}}


async def test_d9_a_retry_after_a_change_of_leader_is_not_taken_twice(group: Any) -> None:
    client, topic = await group.topic()
    session = await client.producer()
    batches = [body(topic, sequence=n, count=2, **session) for n in range(10)]
    first = [(await client.append(data)).base_offset for data in batches]
    await group.kill((await group.leader()).node.node_id)
    client = await group.client()
    assert [(await client.append(data)).base_offset for data in batches] == first
    assert (await client.offsets("t")).offsets == {"t": {0: 20}}


@pytest.mark.group(1)
async def test_a_fenced_producer_is_refused(group: Any) -> None:
    client, topic = await group.topic()
    old, _ = await client.producer(), await client.producer()
    assert (await client.append(body(topic, **old))).code is Code.PRODUCER_FENCED


async def test_staged_batches_get_their_offsets_with_the_commit(group: Any) -> None:
    client, topic = await group.topic()
    stage = await client.stage()
    staged = [body(topic, b"%d" % n, sequence=n, **stage) for n in range(3)]
    assert {(await client.append(data)).base_offset for data in staged} == {-1}
    assert (await client.append(body(topic))).base_offset == 0
    assert (await client.offsets("t")).offsets == {"t": {0: 1}}
    assert (await client.commit(stage, 3)).result["offsets"] == {"t": {0: (1, 4)}}
    assert (await client.commit(stage, 3)).result["repeated"] is True
    assert (await client.fetch(topic, 1))[1] == staged


async def test_append_without_quorum_is_never_acknowledged_but_may_be_kept(
    group: Any,
) -> None:
    """Two nodes are dead: WAIT_QUORUM_ACK_TIMEOUT or TERM_CHANGED, both indefinite."""
    client, topic = await group.topic()
    await group.kill_followers()
    answer = await client.append(body(topic, count=7), timeout_ms=300)
    assert answer.code in {Code.WAIT_QUORUM_ACK_TIMEOUT, Code.TERM_CHANGED}
    assert "may" in answer.message


@pytest.mark.group(1, ack_timeout_ms=600_000)
async def test_append_expires_at_its_own_time_behind_one_that_waits_longer(
    group: Any,
) -> None:
    client, topic = await group.topic()
    node = await group.leader()
    writes = node.parts.proposals
    with HeldSyncs(node):
        patient = client.start(AppendRequest(timeout_ms=600_000), body(topic))
        await group.until(lambda: len(writes._waiting) == 1)
        now = writes._now_ms()
        writes._now_ms = lambda: now + 100_000
        writes.tick(writes._now_ms())  # now it knows when the first one has to be answered
        hasty = client.start(AppendRequest(timeout_ms=300_000), body(topic))
        await group.until(lambda: len(writes._waiting) == 2)
        writes._now_ms = lambda: now + 400_000
        writes.tick(writes._now_ms())
        assert len(writes._waiting) == 1
        assert (await hasty)[0].code is Code.WAIT_QUORUM_ACK_TIMEOUT
        assert not patient.done()
    assert (await patient)[0].code is Code.SUCCESS


@pytest.mark.group(1, ack_timeout_ms=600_000)
async def test_d9_append_is_not_answered_with_entry_of_another_leader(
    group: Any,
) -> None:
    """Raft gives the cut range up before that: here it did not."""
    client, topic = await group.topic()
    node = await group.leader()
    with HeldSyncs(node):
        waiting = client.start(AppendRequest(timeout_ms=600_000), body(topic))
        await group.until(lambda: node.parts.proposals._waiting)
        [proposal] = node.parts.proposals._waiting
        other = Entry(proposal.first, Term(proposal.term + 1), 0, 0, 0, 0, b"", body(topic))
        node.parts.proposals.applied(other, DataResult(Code.SUCCESS, 7))
        assert (await waiting)[0].code is Code.TERM_CHANGED


@pytest.mark.group(1, ack_timeout_ms=600_000)
async def test_d9_of_appends_that_came_together_each_waits_for_its_own_entry(group: Any) -> None:
    """Some are applied; then another leader's entries come in the places of the others."""
    client, topic = await group.topic()
    node = await group.leader()
    proposals = node.parts.proposals
    with HeldSyncs(node):
        request = AppendRequest(timeout_ms=600_000)
        futures = [client.start(request, body(topic)) for _ in range(6)]
        await group.until(lambda: len(proposals._waiting) == 6)
        first, term = proposals._waiting.first.first, proposals._waiting.first.term
        held = proposals.unanswered.held_bytes

        def run(begin: int, count: int, later: int = 0) -> EntryRun:
            end = LogEnd(Position(term, Index(first + begin - 1)), 0)
            bodies = [body(topic)] * count
            return stamp_all(end, Term(term + later), MAGIC_NORMAL, bodies, MIB).runs[0]

        proposals.applied_batches(run(-3, 5), [4, 5, 6, 7, 8])
        assert [(await future)[0].base_offset for future in futures[:2]] == [7, 8]
        assert len(proposals._waiting) == 4
        assert proposals.unanswered.held_bytes == held * 4 // 6
        proposals.applied(run(2, 1).entry(0), DataResult(Code.PRODUCER_FENCED))
        assert (await futures[2])[0].code is Code.PRODUCER_FENCED
        proposals.applied_batches(run(3, 2, 1), [9, 10])
        assert [(await one)[0].code for one in futures[3:5]] == [Code.TERM_CHANGED] * 2
        proposals.applied(run(7, 1, 1).entry(0), None)
        assert (await futures[5])[0].code is Code.TERM_CHANGED
        assert not proposals.unanswered.held_bytes
        assert not proposals._waiting


@pytest.mark.group(1, ack_timeout_ms=600_000)
async def test_d9_appends_that_are_given_up_are_those_of_the_range_alone(group: Any) -> None:
    client, topic = await group.topic()
    node = await group.leader()
    proposals = node.parts.proposals
    request = AppendRequest(timeout_ms=600_000)
    with HeldSyncs(node):
        early = [client.start(request, body(topic)) for _ in range(3)]
        await group.until(lambda: len(proposals._waiting) == 3)
        late = [client.start(request, body(topic)) for _ in range(2)]
        await group.until(lambda: len(proposals._waiting) == 5)
        first = proposals._waiting.first.first
        proposals.given_up(Finished(first, Index(first + 2), Code.WAIT_QUORUM_ACK_TIMEOUT))
        codes = [(await future)[0].code for future in early]
        assert codes == [Code.WAIT_QUORUM_ACK_TIMEOUT] * 3
        assert len(proposals._waiting) == 2
    assert [(await future)[0].base_offset for future in late] == [3, 4]


async def test_two_dead_nodes_come_back_and_writes_go_on(group: Any) -> None:
    client, topic = await group.topic()
    await client.append(body(topic))
    leader = await group.leader()
    dead = [node for node in group.nodes if node != leader.node.node_id]
    await group.kill(*dead)
    await client.append(body(topic), timeout_ms=200)
    await group.start(*dead)
    while (await (await group.client()).append(body(topic))).code is not Code.SUCCESS:
        pass  # the old leader may just be giving up
    await group.agree()


async def test_writes_that_wait_when_the_node_stops_get_an_indefinite_answer(group: Any) -> None:
    client, topic = await group.topic()
    leader = await group.kill_followers()
    waiting = client.start(AppendRequest(timeout_ms=60_000), body(topic))
    await group.until(lambda: leader.parts.proposals.waiting)
    await group.stop(leader.node.node_id)
    assert (await waiting)[0].code in {Code.TERM_CHANGED, Code.WAIT_QUORUM_ACK_TIMEOUT}


@pytest.mark.group(1, max_body_bytes=16 << 20, segment_bytes=64 << 20)
@pytest.mark.parametrize("codec", [Codec.LZ4, Codec.ZSTD])
async def test_a_compressed_batch_that_no_reader_could_decompress_is_not_taken(
    group: Any, codec: Codec
) -> None:
    """Else every reader of the topic would stop there for ever."""
    client, topic = await group.topic()
    zeros = pa.record_batch([pa.array([bytes(64 << 20)] * 5, pa.large_binary())], names=["x"])
    payload, used = compress(zeros, codec)
    assert (used, payload.size < 8 << 20) == (codec, True)
    head = encode_header(BodyHeader(BodyKind.DATA, topic, 0, 5, codec=codec))
    answer = await client.append(head + payload.to_pybytes())
    assert answer.code is Code.MALFORMED
    assert "decompressed it has over 268435456 bytes" in answer.message
    outside = struct.pack("<IiIHHHHHHi", 0xFFFFFFFF, 20, 16, 10, 8, 4, 60000, 60000, 0, 12)
    assert (await client.append(head + outside)).code is Code.MALFORMED
    sound, _ = compress(pa.record_batch([pa.array([bytes(1 << 20)])], names=["x"]), codec)
    head = encode_header(BodyHeader(BodyKind.DATA, topic, 0, 1, codec=codec))
    assert (await client.append(head + sound.to_pybytes())).code is Code.SUCCESS
