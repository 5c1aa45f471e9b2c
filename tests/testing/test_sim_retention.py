"""What retention takes and leaves in a whole group, in virtual time."""

from __future__ import annotations

from typing import Any

from dledger.client import AsyncClient
from dledger.messages.entry import MIN_BLANK_SIZE
from dledger.server.node import NodeServer
from dledger.testing.sim.cluster import Node
from dledger.testing.sim.loop import SimLoop
from dledger.testing.sim.scene import KIB, LIMITS, Scene

SEGMENT = LIMITS["segment_bytes"]
SMALL = {"retention_bytes": 2 * SEGMENT, "checkpoint_bytes": 4 * KIB}
LARGE = 12 * KIB


def server_of(node: Node) -> NodeServer:
    assert node.server is not None
    return node.server


def append(scene: Scene, client: AsyncClient, loop: SimLoop, size: int = LARGE, count: int = 1) -> None:
    async def appending() -> None:
        for _ in range(count):
            await client.append("t", bytes(size))

    scene.run(loop, appending)


def room(server: NodeServer) -> int:
    """Bytes that the file at the end of the log has left for entries."""
    return SEGMENT - server.raft.end.end_pos % SEGMENT - MIN_BLANK_SIZE


def test_retention_keeps_the_file_that_ends_with_the_first_batch_of_an_open_stage() -> None:
    """That batch is the last entry of the file: one entry more, and the file would go before the commit."""
    with Scene(1, node=SMALL) as scene:
        server = server_of(scene.leader())
        client, loop = scene.client()
        scene.run(loop, lambda: client.create_topic("t"))
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
        scene.until(lambda: bool(server.catalog.transactions.first_index()), 1000, "the staged batch")
        staged = server.catalog.transactions.first_index()
        append(scene, client, loop, count=40)
        scene.wait(10_000)
        assert 0 < server.store.begin_index <= staged
        start, end = scene.run(loop, transaction.commit).offsets["t"][0]

        async def read() -> list[bytes]:
            found = client.read("t", 0, start, end)
            return [value async for batch in found for value in batch.column("value").to_pylist()]

        assert scene.run(loop, read) == [b"s" * LARGE]
