"""Everything that was acknowledged is there after a restart, graceful or not."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dledger.errors import CorruptStore, PathError, PortInUse, WrongGroup
from dledger.protocol.messages.catalog_commands import CommitOffsets
from dledger.protocol.messages.client import AppendRequest, GroupRequest
from tests.node.bodies import body
from tests.node.damaging import damage

KIB = 1 << 10


@pytest.mark.parametrize("graceful", [True, False])
async def test_a_restarted_group_has_its_offsets_producers_and_groups(
    group: Any, graceful: bool
) -> None:
    client, topic = await group.topic()
    session = await client.producer()
    bodies = [body(topic, b"%d" % n, 2, sequence=n, **session) for n in range(10)]
    for data in bodies:
        await client.append(data)
    await client.execute(CommitOffsets(consumer_group="g", offsets={"t": {0: 12}}))
    await (group.stop() if graceful else group.kill())
    await group.start()
    client = await group.client()
    assert (await client.offsets("t")).offsets == {"t": {0: 20}}
    assert (await client.fetch(topic, 0))[1] == bodies
    assert (await client.ask(GroupRequest(consumer_group="g"))).offsets == {"t": {0: 12}}
    assert (await client.append(bodies[9])).base_offset == 18
    assert (await client.append(body(topic))).base_offset == 20


async def test_kill_of_all_nodes_in_mid_write_loses_nothing_acknowledged(
    group: Any,
) -> None:
    client, topic = await group.topic()
    bodies = [body(topic, b"%d" % n * 500) for n in range(400)]
    futures = [client.start(AppendRequest(timeout_ms=60_000), data) for data in bodies]
    await group.until(lambda: sum(future.done() for future in futures) >= 50)
    await group.kill()
    acknowledged = [
        n for n, future in enumerate(futures) if future.done() and not future.exception()
    ]
    await group.start()
    client = await group.client()
    end = (await client.offsets("t")).offsets["t"][0]
    assert end >= len(acknowledged) >= 50
    found = []
    while len(found) < end:
        found += (await client.fetch(topic, len(found)))[1]
    assert found == bodies[:end]


@pytest.mark.group(1)
async def test_a_graceful_stop_saves_the_catalog_so_that_nothing_is_replayed(group: Any) -> None:
    client, topic = await group.topic()
    await client.write(topic, [b"x"] * 50)
    node = await group.leader()
    applied = node.catalog.applied_index
    await group.restart("n0")
    assert group.nodes["n0"].checkpoints.index == applied
    client = await group.client()
    assert (await client.offsets("t")).offsets == {"t": {0: 50}}
    assert (await client.append(body(topic))).base_offset == 50


@pytest.mark.group(1, checkpoint_bytes=300 * KIB)
async def test_a_snapshot_and_the_entries_behind_it_give_the_same_catalog(group: Any) -> None:
    client, topic = await group.topic()
    await client.write(topic, [bytes(10_000)] * 100)
    node = await group.leader()
    await group.until(lambda: node.checkpoints.index >= 50)
    before = node.checkpoints.index
    await client.append(body(topic))
    digest, applied = node.catalog.digest(), node.catalog.applied_index
    await group.kill("n0")
    await group.start()
    again = await group.leader()
    assert before <= again.checkpoints.index < applied
    assert (await (await group.client()).offsets("t")).offsets == {"t": {0: 101}}
    assert again.catalog.applied_index > applied
    assert digest == digest_at(again, applied)


def digest_at(node: Any, index: int) -> int:
    """The digest of a catalog with a NOOP more or less is that of its other state."""
    now = node.catalog.applied_index
    node.catalog.applied_index = index
    digest: int = node.catalog.digest()
    node.catalog.applied_index = now
    return digest


@pytest.mark.group(1)
async def test_a_lost_snapshot_is_rebuilt_from_the_log(group: Any) -> None:
    client, topic = await group.topic()
    await client.write(topic, [b"x"] * 20)
    await group.stop("n0")
    for path in (group.folder / "n0" / "snapshot").iterdir():
        path.write_bytes(b"garbage")
    await group.start("n0")
    client = await group.client()
    assert (await client.offsets("t")).offsets == {"t": {0: 20}}
    assert (await client.append(body(topic))).base_offset == 20


@pytest.mark.group(cache_bytes=100_000)
async def test_a_node_that_was_away_catches_up(group: Any) -> None:
    """What it needs has left its leader's cache and is read from the disk."""
    client, topic = await group.topic()
    follower = await group.follower()
    away = follower.node.node_id
    await group.kill(away)
    await client.write(topic, [bytes(20_000)] * 60)
    await group.start(away)
    await group.agree()
    reader = await group.client(group.nodes[away])
    assert (await reader.fetch(topic, 59))[1] == [body(topic, bytes(20_000))]


@pytest.mark.group(2)
async def test_a_directory_of_another_group_or_node_is_refused(group: Any) -> None:
    await group.leader()
    await group.stop("n0")
    stranger = group.make("n0", directory=group.folder / "n1")
    await group.stop("n1")
    with pytest.raises(WrongGroup, match="n1"):
        await stranger.start()


@pytest.mark.group(1)
async def test_a_directory_in_use_is_refused(group: Any) -> None:
    second = group.make("n0", port=0)
    with pytest.raises(PathError, match="use"):
        await second.start()


async def test_a_port_in_use_is_refused_and_the_directory_is_let_go(group: Any) -> None:
    taken = group.nodes["n1"].port
    await group.stop("n0")
    unlucky = group.make("n0", port=taken)
    with pytest.raises(PortInUse, match=str(taken)):
        await unlucky.start()
    await group.start("n0")
    await group.agree()


@pytest.mark.group(1)
async def test_a_node_that_cannot_read_a_committed_entry_stops_and_says_which(group: Any) -> None:
    client, topic = await group.topic()
    await client.write(topic, (bytes([65 + n]) * 1000 for n in range(20)))
    await group.kill("n0")
    damage(group.folder / "n0", b"C" * 1000)
    await group.start("n0")
    with pytest.raises(CorruptStore, match=r"entry 4.*backup"):
        await group.nodes["n0"].wait_failed()


async def test_a_graceful_stop_hands_leadership_over_without_an_election_timeout(
    group: Any,
) -> None:
    client = await group.client()
    await client.create("t")
    await group.agree()
    old = await group.leader()
    term = old.raft.term
    await group.stop(old.node.node_id)
    new = await group.leader()
    assert old.raft.leader_id is None or old.raft.leader_id != old.node.node_id
    assert new.raft.term == term + 1


@pytest.mark.group(1)
async def test_stop_twice_is_harmless(group: Any) -> None:
    node = await group.leader()
    await node.stop()
    await node.stop()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", node.port)
