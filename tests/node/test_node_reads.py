"""Reads: committed and applied, from any replica, never other bytes than those that were
written."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from dledger.catalog.topics.partition import MIN_RUN
from dledger.checksum import crc32
from dledger.client.protocol.reading.fetched import FetchedBodies
from dledger.net.limits.outflow import Outflow
from dledger.protocol.messages.catalog_commands import CommitOffsets, CreateTopic, DeleteTopic
from dledger.protocol.messages.client import (
    AppendRequest,
    FetchRequest,
    GroupRequest,
    MetadataRequest,
    OffsetKind,
    OffsetsRequest,
)
from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.fetched import (
    NO_RUN,
)
from dledger.protocol.messages.peer import PushEntryResponse
from dledger.protocol.messages.splits import SplitRequest, SplitSpan
from tests.node.bodies import body
from tests.node.damaging import damage
from tests.node.elections import QUICK, cut_off
from tests.node.holding import between, watch


async def test_a_fetch_brings_the_bodies_byte_for_byte_from_any_replica(group: Any) -> None:
    client, topic = await group.topic()
    bodies = await client.write(topic, (b"%d" % n * 1000 for n in range(10)), count=2)
    await group.agree()
    for node in list(group.nodes.values()):
        reader = await group.client(node)
        answer, found = await reader.fetch(topic, 0, end_offset=20)
        assert answer.code is Code.SUCCESS
        assert found == bodies
        assert [batch.base_offset for batch in answer.batches] == list(range(0, 20, 2))
        assert [batch.crc for batch in answer.batches] == [crc32(data) for data in bodies]


async def test_neighbouring_entries_are_sent_whole_to_an_asker_that_takes_them(group: Any) -> None:
    client, topic = await group.topic()
    other = await client.create("other")
    sent = await client.write(topic, (b"%d" % n * 50 for n in range(MIN_RUN)))
    await client.write(other)
    await client.write(topic)
    await group.agree()
    for node in list(group.nodes.values()):
        reader = await group.client(node)
        request = FetchRequest(topic_id=topic, partition=0, start_offset=0, takes_run=True)
        answer, payload = await reader.start(request)
        found = FetchedBodies.of_run(answer.run, memoryview(payload))
        assert [bytes(body) for _, body in found] == sent
        terms = [(batch.index, batch.term) for batch, _ in found]
        assert terms == [(at, node.raft.term_at(at)) for at, _ in terms]
        few, _ = await reader.start(replace(request, start_offset=1))
        assert (few.run, len(few.batches)) == (NO_RUN, MIN_RUN)


async def test_each_fetched_batch_says_the_term_of_its_entry(group: Any) -> None:
    client, topic = await group.topic()
    await client.write(topic, [b"old"] * 2)
    old = await group.leader()
    new = await group.hand_over(next(name for name in group.nodes if name != old.node.node_id))
    client = await group.client(new)
    await client.write(topic, [b"new"] * 2)
    answer, _ = await client.fetch(topic, 0)
    terms = [batch.term for batch in answer.batches]
    assert terms == [new.raft.term_at(batch.index) for batch in answer.batches]
    assert len(set(terms)) == 2


@pytest.mark.group(cache_bytes=200_000)
async def test_a_fetch_of_entries_that_left_the_cache_reads_them_from_the_disk(group: Any) -> None:
    client, topic = await group.topic()
    bodies = await client.write(topic, (bytes([n]) * 50_000 for n in range(20)))
    leader = await group.leader()
    assert leader.raft.log.cached(3, 4) is None
    assert (await client.fetch(topic, 0, max_bytes=10_000_000))[1] == bodies
    assert (await client.fetch(topic, 4, max_bytes=1))[1] == [bodies[4]]


@pytest.mark.group(1)
async def test_a_fetch_stops_at_the_asked_bytes_but_brings_at_least_one_batch(group: Any) -> None:
    client, topic = await group.topic()
    await client.write(topic, (b"%d" % n * 1000 for n in range(10)))
    assert len((await client.fetch(topic, 0, max_bytes=3500))[1]) == 3
    assert len((await client.fetch(topic, 0, max_bytes=1))[1]) == 1
    assert len((await client.fetch(topic, 2, end_offset=4))[1]) == 2


@pytest.mark.group(1)
async def test_a_fetch_at_the_end_answers_at_once_without_records(group: Any) -> None:
    client, topic = await group.topic()
    await client.append(body(topic))
    answer, bodies = await client.fetch(topic, 1)
    assert (answer.code, answer.end_offset, bodies) == (Code.SUCCESS, 1, [])


async def test_a_long_poll_is_answered_when_a_record_comes(group: Any) -> None:
    client, topic = await group.topic()
    for node in list(group.nodes.values()):
        reader = await group.client(node)
        start = (await client.offsets("t")).offsets["t"][0]
        waiting = asyncio.ensure_future(reader.fetch(topic, start, wait_ms=20_000))
        await group.until(lambda node=node: len(node.parts.polls))
        await client.append(body(topic, b"new"))
        answer, bodies = await waiting
        assert answer.code is Code.SUCCESS
        assert bodies == [body(topic, b"new")]


async def test_leader_knows_the_follower_where_a_long_poll_waits(group: Any) -> None:
    client, topic = await group.topic()
    node, leader = await group.follower(), (await group.leader()).raft.leader
    dispatcher = leader.dispatchers[node.node.node_id]
    reader = await group.client(node)
    for at in range(3):
        waiting = asyncio.ensure_future(reader.fetch(topic, at, wait_ms=20_000))
        await group.until(lambda: len(node.parts.polls))
        await client.append(body(topic))
        await waiting
        assert dispatcher.is_watched
    await client.append(body(topic))
    await group.until(lambda: not dispatcher.is_watched)


@pytest.mark.group(1)
@pytest.mark.parametrize("what", ["fetch", "offsets"])
async def test_long_poll_is_answered_when_transaction_commits_or_topic_goes(
    group: Any, what: str
) -> None:
    client, reader, node = await group.client(), await group.client(), await group.leader()
    topic = await client.create("t")
    wanted: Any = FetchRequest(topic_id=topic, partition=0, start_offset=0, wait_ms=60_000)
    if what == "offsets":
        wanted = OffsetsRequest(topics=("t",), newer_than={"t": {0: 0}}, wait_ms=60_000)
    waiting = reader.start(wanted)
    await group.until(lambda: len(node.parts.polls))
    stage = await client.stage()
    await client.write(topic, **stage)
    assert len(node.parts.polls) == 1
    await client.commit(stage, 1)
    await group.until(waiting.done)
    assert (await waiting)[0].code is Code.SUCCESS
    again = {"start_offset": 1} if what == "fetch" else {"newer_than": {"t": {0: 1}}}
    waiting = reader.start(replace(wanted, **again))
    await group.until(lambda: len(node.parts.polls))
    await client.execute(DeleteTopic(name="t"))
    await group.until(waiting.done)
    assert (await waiting)[0].code is Code.UNKNOWN_TOPIC


@pytest.mark.group(1)
async def test_a_long_poll_ends_empty_when_nothing_comes(group: Any) -> None:
    client, topic = await group.topic()
    answer, bodies = await client.fetch(topic, 0, wait_ms=30)
    assert (answer.code, bodies) == (Code.SUCCESS, [])
    assert len((await group.leader()).parts.polls) == 0


@pytest.mark.group(1)
async def test_a_long_poll_of_a_closed_connection_is_forgotten(group: Any) -> None:
    client, reader = await group.client(), await group.client()
    topic = await client.create("t")
    node = await group.leader()
    reader.start(FetchRequest(topic_id=topic, partition=0, start_offset=0, wait_ms=60_000))
    reader.start(OffsetsRequest(topics=("t",), newer_than={"t": {0: 0}}, wait_ms=60_000))
    await group.until(lambda: len(node.parts.polls) >= 2)
    reader.close()
    await group.until(lambda: not len(node.parts.polls))


@pytest.mark.group(1)
async def test_an_offset_that_is_not_there_yet_is_behind(group: Any) -> None:
    client, topic = await group.topic()
    answer, _ = await client.fetch(topic, 5)
    assert answer.code is Code.BEHIND
    assert "5" in answer.message


async def test_a_replica_that_is_behind_waits_for_what_the_asker_knows_of(group: Any) -> None:
    """The topic and its record reach this replica only after it was asked for them."""
    client = await group.client()
    follower = await group.follower()
    reader = await group.client(follower)
    step, held = follower.parts.ready_loop.step, []
    follower.parts.ready_loop.step = held.append
    topic = await client.create("t")
    await client.append(body(topic))
    waiting = asyncio.ensure_future(reader.fetch(topic, 0, end_offset=1))
    await group.until(lambda: len(follower.parts.polls))
    follower.parts.ready_loop.step = step
    for message in held:
        step(message)
    answer, bodies = await waiting
    assert (answer.code, bodies) == (Code.SUCCESS, [body(topic)])


@pytest.mark.group(1)
async def test_a_long_poll_of_a_topic_not_yet_applied_keeps_its_wait(
    group: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A follower may hear of a topic after a client does."""
    monkeypatch.setattr("dledger.node.handlers.fetches.BEHIND_WAIT_MS", 1)
    client = await group.client()
    later = await client.create("t") + 1
    waiting = client.start(
        FetchRequest(topic_id=later, partition=0, start_offset=0, wait_ms=20_000)
    )
    await group.until(lambda: all(len(node.parts.polls) for node in group.nodes.values()))
    assert await client.create("later") == later
    await client.append(body(later, b"new"))
    answer, payload = await waiting
    assert (answer.code, payload) == (Code.SUCCESS, body(later, b"new"))


@pytest.mark.group(1)
async def test_a_deleted_topic_is_unknown(group: Any) -> None:
    client, topic = await group.topic()
    await client.append(body(topic))
    await client.execute(DeleteTopic(name="t"))
    assert (await client.fetch(topic, 0))[0].code is Code.UNKNOWN_TOPIC
    assert (await client.append(body(topic))).code is Code.UNKNOWN_TOPIC
    assert (await client.offsets("t")).code is Code.UNKNOWN_TOPIC
    again = await client.execute(CreateTopic(name="t", log_id="another"))
    assert again.result["topic_id"] != topic


async def test_offsets_have_begin_end_and_time(group: Any) -> None:
    client, topic = await group.topic(partitions=2)
    await client.append(body(topic, count=3, first_time_us=1000, last_time_us=1000))
    await client.append(body(topic, count=3, first_time_us=2000, last_time_us=2000))
    await client.append(body(topic, count=1, partition=1, first_time_us=1500, last_time_us=1500))
    assert (await client.offsets("t", OffsetKind.BEGIN)).offsets == {"t": {0: 0, 1: 0}}
    assert (await client.offsets("t", OffsetKind.END)).offsets == {"t": {0: 6, 1: 1}}
    edges = await client.offsets("t", OffsetKind.EDGES)
    assert (edges.offsets, edges.begins) == ({"t": {0: 6, 1: 1}}, {"t": {0: 0, 1: 0}})
    found = await client.offsets("t", OffsetKind.TIME, timestamp_us=1600)
    assert found.offsets == {"t": {0: 3, 1: -1}}
    assert found.log_ids == {"t": "log-of-t"}


async def test_d8_a_follower_tells_only_stale_offsets(group: Any) -> None:
    client = await group.client()
    await client.create("t")
    await group.agree()
    follower = await group.client(await group.follower())
    refused = await follower.offsets("t")
    assert refused.code is Code.NOT_LEADER
    assert refused.leader_id == (await group.leader()).node.node_id
    assert (await follower.offsets("t", stale=True)).offsets == {"t": {0: 0}}


@pytest.mark.group(**QUICK)
async def test_d8_a_deposed_leader_serves_no_linearizable_read(group: Any) -> None:
    """It is cut off, does not know that another one was elected, and must not answer from its old
    state."""
    _, topic = await group.topic()
    old = await group.leader()
    old_client = await group.client(old)
    cut_off(old, group)
    waiting = old_client.start(OffsetsRequest(topics=("t",)))
    new = await group.leader(but=old.node.node_id)
    fresh = await group.client(new)
    assert (await fresh.append(body(topic))).code is Code.SUCCESS
    assert (await waiting)[0].code is Code.NOT_LEADER
    assert (await old_client.offsets("t")).code is Code.NOT_LEADER
    assert (await old_client.ask(GroupRequest(consumer_group="g"))).code is Code.NOT_LEADER


async def test_d8_what_is_not_committed_is_never_served(group: Any) -> None:
    client, topic = await group.topic()
    await client.append(body(topic, b"committed"))
    leader = await group.kill_followers()
    await client.append(body(topic, b"not committed"), timeout_ms=100)
    assert leader.raft.end_index > leader.raft.committed_index
    assert (await client.fetch(topic, 0))[1] == [body(topic, b"committed")]
    assert (await client.offsets("t", stale=True)).offsets == {"t": {0: 1}}


async def test_d8_a_commit_applies_nothing_behind_it(group: Any) -> None:
    """The acknowledgements of the first append arrive when the second is in the leader's log
    already."""
    client, reader = await group.client(), await group.client()
    topic = await client.create("t")
    await group.agree()
    leader = await group.leader()
    step, held = leader.parts.ready_loop.step, []
    leader.parts.ready_loop.step = held.append
    first = client.start(AppendRequest(timeout_ms=60_000), body(topic, b"first"))
    await group.until(lambda: all(node.raft.durable_index == 2 for node in group.nodes.values()))
    heal = between(leader, lambda message, send: None)
    second = client.start(AppendRequest(timeout_ms=60_000), body(topic, b"second"))
    await group.until(lambda: leader.raft.durable_index == 3)
    await group.until(
        lambda: len([m for m in held if isinstance(m, PushEntryResponse) and m.index == 2]) == 2
    )
    for message in held:
        step(message)
    assert (await first)[0].code is Code.SUCCESS
    assert (await reader.fetch(topic, 0))[1] == [body(topic, b"first")]
    assert leader.catalog.applied_index == 2
    assert not second.done()
    leader.parts.ready_loop.step = step
    heal()
    assert (await second)[0].code in {Code.SUCCESS, Code.TERM_CHANGED}


async def test_d13_a_new_leader_reads_only_after_the_noop_of_its_term(group: Any) -> None:
    """Everything acknowledged by the leader before is seen by the first linearizable read of the
    next one."""
    client, topic = await group.topic()
    await client.write(topic, [b"x"] * 20)
    old = await group.leader()
    await group.kill(old.node.node_id)
    new = await group.leader()
    assert new.raft.term > old.raft.term
    assert (await (await group.client(new)).offsets("t")).offsets == {"t": {0: 20}}
    assert new.catalog.applied_index >= new.raft.noop_index


async def test_reads_that_wait_together_share_a_heartbeat_round(group: Any) -> None:
    client = await group.client()
    await client.create("t")
    leader = await group.leader()
    tokens: list[int] = []
    watch(leader.parts.ready_loop, "read_index", tokens.append)
    futures = [client.start(OffsetsRequest(topics=("t",))) for _ in range(200)]
    for future in futures:
        assert (await future)[0].code is Code.SUCCESS
    assert len(tokens) < 20


async def test_a_watch_for_newer_offsets_is_answered_by_an_append(group: Any) -> None:
    client, watcher = await group.client(), await group.client()
    topic = await client.create("t", partitions=2)
    leader = await group.leader()
    request = OffsetsRequest(topics=("t",), newer_than={"t": {0: 0, 1: 0}}, wait_ms=20_000)
    waiting = watcher.start(request)
    await group.until(lambda: len(leader.parts.polls))
    await client.append(body(topic, partition=1, count=4))
    assert (await waiting)[0].offsets == {"t": {0: 0, 1: 4}}
    assert (await watcher.ask(request)).offsets == {"t": {0: 0, 1: 4}}
    quick = OffsetsRequest(topics=("t",), newer_than={"t": {1: 4}}, wait_ms=30)
    assert (await watcher.ask(quick)).offsets == {"t": {0: 0, 1: 4}}


@pytest.mark.group(1)
async def test_a_split_cuts_ranges_at_batches(group: Any) -> None:
    client = await group.client()
    topics = [await client.create("t"), await client.create("u")]
    for topic in topics:
        await client.write(topic, [bytes(1000)] * 10, count=5)
    spans = [span(topics[0], 0, 50), span(topics[1], 20, 30), span(topics[1], 0, 50, max_pieces=1)]
    answer = await client.ask(SplitRequest.of(spans))
    assert answer.code is Code.SUCCESS
    first, second, third = answer.cuts()
    assert first[-1][0] == 50
    assert sum(size for _, size in first) == 10 * 1064
    assert 3 <= len(first) <= 5
    assert second == [(30, 2 * 1064)]
    assert len(third) == 1
    for refused, code in (
        (span(topics[0], 0, 51), Code.BEHIND),
        (span(9, 0, 1), Code.UNKNOWN_TOPIC),
    ):
        assert (await client.ask(SplitRequest.of((spans[0], refused)))).code is code


def span(topic_id: int, start: int, end: int, **more: int) -> SplitSpan:
    return SplitSpan(
        topic_id=topic_id,
        partition=0,
        start_offset=start,
        end_offset=end,
        target_bytes=3000,
        **more,
    )


@pytest.mark.group(1)
async def test_a_full_answer_to_a_split_still_has_a_piece_of_every_span(
    group: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that whoever asks for the rest comes to an end."""
    monkeypatch.setattr("dledger.node.handlers.fetches.MAX_CUTS", 3)
    client, topic = await group.topic()
    await client.write(topic, [bytes(4000)] * 10, count=5)
    answer = await client.ask(SplitRequest.of((span(topic, 0, 50),) * 3))
    assert [len(cuts) for cuts in answer.cuts()] == [3, 1, 1]


@pytest.mark.group(1)
@pytest.mark.parametrize("takes_run", [False, True])
async def test_fetch_that_waited_while_its_topic_was_deleted_is_answered(
    group: Any, monkeypatch: pytest.MonkeyPatch, takes_run: bool
) -> None:
    client, topic = await group.topic()
    await client.write(topic)
    waiting: list[Any] = []
    monkeypatch.setattr(Outflow, "ask", lambda self, taker, work: waiting.append(work))
    request = FetchRequest(topic_id=topic, partition=0, start_offset=0, takes_run=takes_run)
    answer = client.start(request)
    await group.until(lambda: waiting)
    assert (await client.execute(DeleteTopic(name="t"))).code is Code.SUCCESS
    waiting.pop()()
    assert (await answer)[0].code is Code.UNKNOWN_TOPIC


@pytest.mark.group(cache_bytes=200_000)
async def test_a_damaged_entry_is_never_served(group: Any) -> None:
    """One flipped byte on disk: CORRUPT_ENTRY, the rest is served, and the node lives on."""
    client, topic = await group.topic()
    bodies = await client.write(topic, (bytes([65 + n]) * 50_000 for n in range(20)))
    leader = await group.leader()
    damage(leader.node.directory, b"C" * 100)
    answer, found = await client.fetch(topic, 2, max_bytes=1)
    assert (answer.code, found) == (Code.CORRUPT_ENTRY, [])
    assert (await client.fetch(topic, 3, max_bytes=1))[1] == [bodies[3]]
    # which may lead by now
    sound = next(node for node in group.nodes.values() if node is not leader)
    reader = await group.client(sound)
    assert (await reader.fetch(topic, 2, max_bytes=1))[1] == [bodies[2]]


@pytest.mark.group(cache_bytes=200_000)
async def test_damaged_entry_among_neighbours_is_read_elsewhere_and_repaired(group: Any) -> None:
    await group.topic()
    client = await group.async_client()
    values = [bytes([65 + n]) * 8000 for n in range(MIN_RUN + 8)]
    for value in values:
        await client.append("t", value)
    await group.agree()
    leader = await group.leader()
    damage(leader.node.directory, values[2])
    batches = client.read("t", 0, 0, replica=leader.node.node_id)
    assert [one async for batch in batches for one in batch["value"].to_pylist()] == values
    await group.until(lambda: leader.parts.repairs.repaired == 1)


async def test_metadata_names_leader_members_topics_and_limits(group: Any) -> None:
    _, topic = await group.topic(partitions=2)
    leader = await group.leader()
    await group.agree()
    for node in group.nodes.values():
        asker = await group.client(node)
        answer = await asker.ask(MetadataRequest(topics=("t", "nothing")))
        assert answer.code is Code.SUCCESS
        assert (answer.leader_id, answer.node_id) == (leader.node.node_id, node.node.node_id)
        assert answer.peers == {str(name): address for name, address in group.addresses.items()}
        assert [(info.name, info.topic_id, info.partitions) for info in answer.topics] == [
            ("t", topic, 2)
        ]
        assert answer.max_body_bytes == group.config.max_body_bytes
        assert [
            info.name for info in (await asker.ask(MetadataRequest(all_topics=True))).topics
        ] == ["t"]
        assert (await asker.ask(MetadataRequest())).topics == ()


async def test_consumer_groups_remember_their_offsets(group: Any) -> None:
    client, topic = await group.topic()
    await client.append(body(topic, count=10))
    done = await client.execute(CommitOffsets(consumer_group="g", offsets={"t": {0: 7}}))
    assert done.code is Code.SUCCESS
    assert (await client.ask(GroupRequest(consumer_group="g"))).offsets == {"t": {0: 7}}
    assert (await client.ask(GroupRequest())).groups == ("g",)
    refused = await (await group.client(await group.follower())).ask(GroupRequest())
    assert refused.code is Code.NOT_LEADER


async def test_the_status_tells_how_a_node_is_doing(group: Any) -> None:
    client, topic = await group.topic()
    await client.append(body(topic))
    await group.agree()
    leader = await group.leader()
    status = await client.status()
    assert status["role"] == "LEADER"
    assert status["committed_index"] == status["applied_index"] == leader.raft.end_index
    assert set(status["watermarks"]) == {"n0", "n1", "n2"}
    assert status["disk_level"] == "OK"
    assert status["topics"] == 1
    assert status["port"] == leader.port
    assert status["recovery"]["faulty"] == 0
