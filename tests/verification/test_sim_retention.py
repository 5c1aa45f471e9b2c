"""What retention takes and leaves in a whole group, in virtual time."""

from __future__ import annotations

from typing import Any

import pytest

from dledger.client import AsyncClient
from dledger.node.node import NodeServer
from dledger.protocol.messages.entry import MIN_BLANK_SIZE
from tests.verification.watching import read, server_of, with_topic
from verification.sim.cluster import Node
from verification.sim.loop import SimLoop
from verification.sim.scene import KIB, LIMITS, Scene

SEGMENT = LIMITS["segment_bytes"]
SMALL = {"retention_bytes": 2 * SEGMENT, "checkpoint_bytes": 4 * KIB}
LARGE = 12 * KIB


def append(
    scene: Scene, client: AsyncClient, loop: SimLoop, size: int = LARGE, count: int = 1
) -> None:
    async def appending() -> None:
        for _ in range(count):
            await client.append("t", bytes(size))

    scene.run(loop, appending)


def room(server: NodeServer) -> int:
    """Bytes that the file at the end of the log has left for entries."""
    return SEGMENT - server.raft.end.end_pos % SEGMENT - MIN_BLANK_SIZE


def test_retention_keeps_the_file_ending_with_an_open_stages_first_batch() -> None:
    """That batch is the last entry of the file: one entry more, and the file would go before the
    commit."""
    with Scene(1, node=SMALL) as scene:
        server = server_of(scene.leader())
        client, loop = with_topic(scene)
        append(scene, client, loop, count=12)
        before = server.raft.end.end_pos
        append(scene, client, loop)
        size = server.raft.end.end_pos - before
        while not size <= room(server) < 2 * size:
            append(scene, client, loop, size=KIB)

        async def stage() -> Any:
            transaction = await client.transaction("w", 0, timeout_ms=600_000)
            await transaction.append("t", b"s" * LARGE)
            return transaction

        transaction = scene.run(loop, stage)
        scene.until(
            lambda: bool(server.catalog.transactions.first_index()), 1000, "the staged batch"
        )
        staged = server.catalog.transactions.first_index()
        append(scene, client, loop, count=40)
        scene.wait(10_000)
        assert 0 < server.store.begin_index <= staged
        start, end = scene.run(loop, transaction.commit).offsets["t"][0]
        assert read(scene, client, loop, start, end) == [b"s" * LARGE]


def values(scene: Scene, client: AsyncClient, loop: SimLoop) -> list[int]:
    """The sizes of all values that are kept."""

    begin = scene.run(loop, lambda: client.begin_offsets("t"))[0]
    return [len(value) for value in read(scene, client, loop, begin)]


def lame(scene: Scene) -> Node:
    """A follower that is down and stays so for now."""
    leader = scene.leader()
    node = scene.group.others(leader)[0]
    scene.group.restart_ms = (HOUR_MS * 1000, HOUR_MS * 1000)
    node.kill(power=False)
    return node


HOUR_MS = 3_600_000
FOR_MEMBERS = SMALL | {"scrub_bytes_per_s": 0}


def test_a_member_that_is_down_holds_files_back_then_takes_a_snapshot() -> None:
    """As many bytes as retention_bytes, where nothing else is said."""
    with Scene(node=FOR_MEMBERS) as scene:
        client, loop = with_topic(scene)
        append(scene, client, loop, count=10)
        scene.wait(2000)
        down = lame(scene)
        leader = server_of(scene.leader())
        mark = leader.raft.watermarks[down.name]
        append(scene, client, loop, count=12)  # together less than may stay
        scene.wait(15_000)
        assert leader.store.begin_index <= mark + 1
        status = scene.run(loop, client.status)[leader.node.node_id]["retention"]
        assert status["member_bytes"] > 0
        (held,) = status["members"]
        assert (held["node"], held["entry"]) == (down.name, mark + 1)
        assert held["for_ms"] >= 5_000
        append(scene, client, loop, count=180)
        scene.until(lambda: leader.store.begin_index > mark + 1, 20_000, "the end of patience")
        scene.wait(10_000)
        assert leader.store.bytes_used <= 12 * SEGMENT < 180 * LARGE
        scene.group.restart_soon(down)
        end = leader.raft.end_index
        scene.until(
            lambda: down.server is not None and down.server.catalog.applied_index >= end,
            30_000,
            "the state",
        )
        scene.until(lambda: leader.raft.watermarks[down.name] >= end, 5_000, "the rest")
        assert scene.world.counts.bites["state or catalog replaced"] == 1
        assert server_of(down).catalog.digest() == leader.catalog.digest()
        assert leader.raft.watermarks == dict.fromkeys(leader.raft.watermarks, end)
        assert set(values(scene, client, loop)) == {LARGE}


def test_a_member_that_was_away_for_a_while_gets_the_rest_of_the_log() -> None:
    with Scene(node=FOR_MEMBERS | {"member_retention_bytes": 64 * SEGMENT}) as scene:
        client, loop = with_topic(scene)
        append(scene, client, loop, count=10)
        down = lame(scene)
        leader = server_of(scene.leader())
        mark = leader.raft.watermarks[down.name]
        append(scene, client, loop, count=60)
        scene.wait(10_000)
        assert leader.store.begin_index <= mark + 1
        scene.group.restart_soon(down)
        scene.until(lambda: leader.store.begin_index > mark + 1, 30_000, "retention")
        assert "state or catalog replaced" not in scene.world.counts.bites


def test_files_go_without_a_member_after_a_time_or_on_a_full_disk() -> None:
    """Files are held for the member until its time ends, or until the disk gets full."""
    settings = FOR_MEMBERS | {"member_retention_ms": 60_000, "member_retention_bytes": 64 * SEGMENT}
    with Scene(node=settings) as scene:
        client, loop = with_topic(scene)
        lame(scene)
        node = scene.leader()
        leader = server_of(node)
        append(scene, client, loop, count=40)
        scene.wait(50_000)
        assert leader.store.begin_index == 0
        scene.until(lambda: leader.store.begin_index > 0, 20_000, "the end of its time")
        append(scene, client, loop, count=40)
        scene.wait(5_000)
        before = leader.store.begin_index
        disk = node.disk
        disk.hog = disk.total * 94 // 100 - disk.used
        scene.until(lambda: leader.store.begin_index > before, 10_000, "room")


@pytest.mark.parametrize("returns", ["leader", "member"])
def test_a_bare_quorum_that_let_files_go_has_a_state_for_whoever_returns(returns: str) -> None:
    """The leader that deleted them is killed, too, and the one that is left with the returning
    member leads."""
    with Scene(node=FOR_MEMBERS | {"member_retention_ms": 0}) as scene:
        client, loop = with_topic(scene)
        append(scene, client, loop, count=10)
        down = lame(scene)
        old = scene.leader()
        append(scene, client, loop, count=60)
        scene.until(
            lambda: all(server_of(node).store.begin_index > 20 for node in scene.group.up()),
            30_000,
            "room",
        )
        end = server_of(old).raft.committed_index
        old.kill(power=False)
        scene.group.restart_soon(old if returns == "leader" else down)
        leader = scene.leader()
        assert server_of(leader).raft.committed_index > end
        append(scene, client, loop, count=5)
        assert set(values(scene, client, loop)) == {LARGE}
        scene.group.restart_ms = (100, 200)
        for node in scene.group.nodes:
            if not node.is_up:
                scene.group.restart_soon(node)

        def equal() -> bool:
            ends = {node.server and node.server.catalog.applied_index for node in scene.group.nodes}
            return len(ends) == 1 and None not in ends

        scene.until(equal, 60_000, "three equal nodes")
        assert len({server_of(node).catalog.digest() for node in scene.group.nodes}) == 1
