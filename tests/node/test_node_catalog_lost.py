"""A node whose catalog is damaged: it makes it again from its log, or takes over the leader's
before it takes part."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dledger.errors import CatalogLost, CorruptStore
from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.peer import PeerMessage, VoteRequest
from dledger.storage.meta.tables import HEADER_BYTES
from dledger.types import Role
from tests.node.bodies import body
from tests.node.damaging import flip
from tests.node.elections import QUICK
from tests.node.holding import watch
from tests.node.trimming import (
    SMALL,
    awake,
    equal,
    expected,
    read_all,
    stop_sound,
    trimmed,
    write,
    write_trimmed,
)

ENDLESS = {"retention_bytes": 0, "checkpoint_bytes": SMALL["checkpoint_bytes"]}


def damage_snapshots(directory: Path) -> None:
    """All of a stopped node's."""
    paths = list((directory / "snapshot").iterdir())
    assert paths
    for path in paths:
        flip(path, path.stat().st_size // 2)


async def damage_row(node: Any, topic: int) -> None:
    """The row of the last batch that a running node has of partition 0, once it is in its file."""
    while node.checkpoints.index < node.catalog.applied_index:
        node.parts.checkpointer.save()
        await asyncio.wait([node.parts.checkpointer.saving])
    partition = node.catalog.partitions[topic << 32]
    table = partition.table
    path = next(node.node.directory.glob(f"tables/{partition.name}.*"))
    flip(path, HEADER_BYTES + (partition.rows - 1 - table._first) * table._step + 3)


@pytest.mark.group(**SMALL, **QUICK)
async def test_member_with_damaged_snapshots_takes_catalog_and_keeps_its_log(
    group: Any,
) -> None:
    topic = await write_trimmed(group)
    name = (await group.follower()).node.node_id
    await group.stop(name)
    damage_snapshots(group.folder / name)
    await write(group, 60, 70)
    node = await group.start(name)
    begin, end = node.store.begin_index, node.store.end
    incarnation = node.store.membership.incarnation
    assert node.parts.context.catalog_lost
    assert begin > 0
    await group.until(lambda: not node.parts.context.catalog_lost)
    assert node.store.membership.incarnation == incarnation
    assert node.store.begin_index >= begin
    assert node.store.end.position >= end.position, "what it has acknowledged stays"
    await equal(group)
    assert node.raft.is_admitted
    assert await read_all(group, node, topic) == expected(node, topic, 70)
    await stop_sound(group, name)


@pytest.mark.group(start=False, **SMALL)
async def test_catalog_of_leader_with_longer_log_leaves_members_log_unchanged(
    group: Any,
) -> None:
    for name in group.config.members:
        await group.start(name, **({"retention_bytes": 0} if name == "n2" else {}))
    await group.hand_over("n0")
    topic = await write(group, 0, 60)
    await trimmed(group, "n0", "n1")
    await group.agree()
    await group.stop("n1")
    damage_snapshots(group.folder / "n1")
    await group.hand_over("n2")
    node = await group.start("n1", retention_bytes=0)
    begin = node.store.begin
    assert node.parts.context.catalog_lost
    await group.until(lambda: not node.parts.context.catalog_lost)
    await write(group, 60, 65)
    await equal(group)
    assert node.store.begin == begin
    assert group.nodes["n2"].store.begin_index == 0 < node.store.begin_index
    kept = await read_all(group, node, topic)
    assert kept == expected(node, topic, 65)
    assert len(kept) < 65 == len(await read_all(group, group.nodes["n2"], topic))
    await stop_sound(group, "n1")


@pytest.mark.group(**SMALL, **QUICK)
async def test_member_without_catalog_votes_but_neither_leads_nor_serves(
    group: Any,
) -> None:
    """One that would lead could give nobody what it does not know; one that would not vote would
    take a majority away that has every record."""
    topic = await write_trimmed(group)
    lost, first, second = group.nodes
    await group.stop()
    damage_snapshots(group.folder / lost)
    node = await group.start(lost)
    node.parts.snapshots.receiver.wanted = lambda leader: None
    await group.start(first)
    await group.leader(but=lost)
    await write(group, 60, 70)
    assert node.raft.durable_index > 60
    client = await group.client(node)
    assert (await client.status())["catalog_lost"]
    with pytest.raises(ConnectionError):
        await client.fetch(topic, 0)
    await group.stop(first)
    asked: list[PeerMessage] = []
    watch(node.parts.ready_loop, "step", asked.append)
    await group.start(second)  # whose log is the shorter one
    await group.until(lambda: sum(isinstance(message, VoteRequest) for message in asked) > 5)
    assert {group.nodes[name].raft.role for name in (lost, second)} <= {
        Role.CANDIDATE,
        Role.FOLLOWER,
    }
    await group.start(first)
    await group.leader(but=lost)
    del node.parts.snapshots.receiver.wanted
    await equal(group)
    assert await read_all(group, node, topic) == expected(node, topic, 70)


@pytest.mark.group(1, **SMALL)
async def test_group_of_one_without_catalog_does_not_start_and_asks_for_backup(
    group: Any,
) -> None:
    await write(group, 0, 60)
    await trimmed(group)
    await group.stop()
    damage_snapshots(group.folder / "n0")
    with pytest.raises(CorruptStore, match=r"begins at entry .* backup"):
        await group.start()


@pytest.mark.parametrize("takes_run", [False, True])
@pytest.mark.parametrize("settings", [SMALL, ENDLESS], ids=["from the leader", "from its own log"])
async def test_damaged_topic_index_row_is_never_followed_and_index_is_rebuilt(
    play: Callable[..., Any], settings: dict[str, Any], takes_run: bool
) -> None:
    async with play(**settings) as group:
        topic = await write(group, 0, 60)
        if settings is SMALL:
            await trimmed(group)
        await group.agree()
        node = await group.follower()
        await damage_row(node, topic)
        client = await group.client(node)
        last = node.catalog.end_offset(topic, 0) - 1
        answer, bodies = await client.fetch(topic, last, takes_run=takes_run)
        assert (answer.code, bodies) == (Code.DISK_ERROR, [])
        await group.until(lambda: node._restarting is not None)
        await awake(node)
        await equal(group)
        assert await read_all(group, node, topic) == expected(node, topic, 60)
        await write(group, 60, 65)
        await equal(group)


@pytest.mark.group(**SMALL)
async def test_leader_rebuilds_state_if_it_meets_damaged_row_while_giving_it(
    group: Any,
) -> None:
    """Else the member that asks would begin anew for ever. The leader's vote and log are still
    needed: the third member leads with them, and gives its state to both."""
    topic = await write_trimmed(group)
    leader, name = await group.leader(), (await group.follower()).node.node_id
    await damage_row(leader, topic)
    await group.replace_disk(name)
    await group.until(lambda: leader._restarting is not None)
    await awake(leader)
    await equal(group)
    for node in group.nodes.values():
        assert await read_all(group, node, topic) == expected(node, topic, 60)


@pytest.mark.group(**SMALL)
async def test_damaged_row_found_while_node_stops_does_not_restart_it(
    group: Any,
) -> None:
    node = await group.follower()
    stopping = asyncio.create_task(node.stop())
    await group.until(lambda: node._closed)
    node.parts.ready_loop.fail(CatalogLost("row 0 is damaged"))
    await stopping
    assert node._restarting is None


@pytest.mark.group(1, **ENDLESS)
async def test_damaged_row_of_single_node_group_with_whole_log_is_rebuilt(
    group: Any,
) -> None:
    topic = await write(group, 0, 60)
    node = group.nodes["n0"]
    await damage_row(node, topic)
    client = await group.client()
    assert (await client.fetch(topic, 59))[0].code is Code.DISK_ERROR
    await awake(node)
    assert await read_all(group, await group.leader(), topic) == expected(node, topic, 60)
    assert (await (await group.client()).append(body(topic))).code is Code.SUCCESS
