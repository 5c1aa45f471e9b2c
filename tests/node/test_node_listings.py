"""What a group tells of itself, and groups that hold retention back."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from dledger.client import AsyncClient, CommitState, EntryState
from dledger.errors import OffsetOutOfRange, TopicNotFound
from dledger.protocol.messages.client import OffsetKind
from tests.node.trimming import KIB, LARGER, checkpointed, trimmed


async def transaction(client: AsyncClient, writer: str, sequence: int, **records: int) -> None:
    async with await client.transaction(writer, sequence) as one:
        for topic, count in records.items():
            await one.append(topic, [b"x"] * count, partition=0)


async def test_lag_is_told_in_rows_bytes_and_seconds(group: Any) -> None:
    client = await group.async_client()
    await client.create_topic("t", 2)
    now = client.core.environment.wall_us()
    for age in (50, 40):
        await client.append("t", [b"x"] * 10, partition=0, timestamps=now - age * 1_000_000)
    await client.commit_offsets("g", {"t": {0: 10, 1: 0}})
    behind, idle = await client.lag("g")
    sizes = {p.partition: p.bytes for p in await client.partitions()}
    assert (behind.rows, behind.bytes) == (10, sizes[0] // 2)
    assert (behind.offset, behind.end_offset) == (10, 20)
    assert 40 <= behind.seconds < 50
    assert behind.committed_ms > 0
    assert (idle.rows, idle.bytes, idle.seconds) == (0, 0, 0.0)
    assert await client.lag("nobody") == []
    with pytest.raises(TopicNotFound, match="created again"):
        await client.commit_offsets("g", {"t": {0: 1}}, log_ids={"t": "another"})
    with pytest.raises(OffsetOutOfRange, match="ends at offset 20"):
        await client.commit_offsets("g", {"t": {0: 21}})


async def test_commits_tell_who_wrote_what_where_and_entries_what_the_log_holds(group: Any) -> None:
    client = await group.async_client()
    for topic in ("a", "b"):
        await client.create_topic(topic)
    await client.append("a", [b"plain"])
    await transaction(client, "spark/q", 0, a=3, b=2)
    await transaction(client, "spark/q", 1, a=4)
    first, second = await client.commits()
    assert (first.writer_id, first.sequence, first.records) == ("spark/q", 0, 5)
    assert first.offsets == {"a": {0: (1, 4)}, "b": {0: (0, 2)}}
    assert (second.sequence, second.offsets) == (1, {"a": {0: (4, 8)}})
    assert second.time_ms >= first.time_ms > 0
    assert await client.commits(first.index + 1) == [second]
    entries = await client.entries()
    assert [e.index for e in entries] == list(range(len(entries)))
    at = {e.index: e for e in entries}
    assert at[first.index].command == "CommitTransaction"
    assert "spark/q" in at[first.index].fields
    data = [(e.kind, e.topic, e.offset, e.records) for e in entries if e.records]
    assert data == [
        ("data", "a", 0, 1),
        ("staged", "a", 1, 3),
        ("staged", "b", 0, 2),
        ("staged", "a", 4, 4),
    ]
    assert await client.entries(2, 4) == entries[2:4]
    assert await client.entries(len(entries)) == []
    assert isinstance(entries[0], EntryState)
    assert isinstance(first, CommitState)


@pytest.mark.group(1)
async def test_a_long_log_is_listed_page_by_page(group: Any) -> None:
    client = await group.async_client()
    await client.create_topic("t", 3000)
    assert [p.partition for p in await client.partitions()] == list(range(3000))
    await client.commit_offsets("g", {"t": dict.fromkeys(range(3000), 0)})
    assert [one.partition for one in await client.lag("g")] == list(range(3000))
    for sequence in range(250):
        await transaction(client, "w", sequence, t=1)
    assert [one.sequence for one in await client.commits()] == list(range(250))
    assert [one.index for one in await client.entries()] == list(
        range(group.nodes["n0"].raft.end_index + 1)
    )


async def held_back(group: Any) -> AsyncClient:
    """A client of a group of nodes whose consumer group ``slow`` holds much of the log back."""
    client: AsyncClient = await group.async_client()
    topic = (await client.create_topic("t")).topic_id
    await client.commit_offsets("slow", {"t": {0: 0}})
    await client.hold_retention("slow")
    await (await group.client()).write(topic, [bytes(20_000)] * 120)
    return client


@pytest.mark.group(retention_bytes=512 * KIB, **LARGER)
async def test_a_group_holds_retention_back_with_a_warning_until_it_lets_go(
    group: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    leader, client = await group.leader(), await held_back(group)
    await checkpointed(group)
    await group.until(lambda: leader.parts.retention.holds.status()["held_bytes"] > 0)
    assert all(node.store.begin_index == 0 for node in group.nodes.values())
    status = (await client.status())[leader.node.node_id]["retention"]
    assert status["holds"][0]["group"] == "slow"
    assert "dledger groups slow --release" in caplog.text
    await client.hold_retention("slow", False)
    await group.until(lambda: all(node.store.begin_index > 0 for node in group.nodes.values()))
    (one,) = await client.lag("slow")
    assert one.begin_offset > one.offset == 0
    bare = await group.client()
    assert (await bare.offsets("t", OffsetKind.BEGIN)).offsets["t"][0] > 0


@pytest.mark.group(retention_bytes=512 * KIB, hold_retention_bytes=512 * KIB, **LARGER)
async def test_a_hold_ends_at_the_operators_limit_with_an_error_in_the_log(
    group: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    leader = await group.leader()
    await held_back(group)
    await trimmed(group, leader.node.node_id)
    await group.until(lambda: "allows no more" in caplog.text)
    assert leader.store.bytes_used > 1000 * KIB
