"""Stories in virtual time that once ended badly, each with the seed's faults told by hand."""

from __future__ import annotations

import errno
import os

from dledger.testing.sim.scene import Scene


def test_a_producer_whose_leader_falls_silent_asks_the_next_one() -> None:
    """The leader stops without closing a connection, while the producer has nothing under way: what is pushed then is
    under way for ever unless somebody looks for it."""
    with Scene() as scene:
        leader = scene.leader()
        client, loop = scene.client()

        async def begin() -> object:
            await client.create_topic("t")
            producer = await client.producer("t")
            await (await producer.append(b"a"))
            return producer

        producer = scene.run(loop, begin)
        scene.wait(5000)
        assert leader.loop is not None
        leader.loop.pause()

        async def go_on() -> int:
            return (await (await producer.append(b"b"))).start  # type: ignore[attr-defined]

        assert scene.run(loop, go_on, within_ms=15_000) == 1


def test_a_group_elects_a_leader_in_half_a_second() -> None:
    with Scene() as scene:
        scene.leader(within_ms=1000)


def test_a_simulated_node_says_nothing_of_the_real_process() -> None:
    """Its status travels, so a number that changes from run to run would change the trace, and lengths with it."""
    with Scene() as scene:
        scene.leader()
        client, loop = scene.client()
        statuses = scene.run(loop, client.status)
        assert [status["pid"] for status in statuses.values()] == [1, 1, 1] != [os.getpid()] * 3


def test_a_node_that_cannot_read_its_topic_index_stops_and_another_life_answers() -> None:
    """The question came from a client: its connection alone must not be what the error ends."""
    with Scene(1, node={"checkpoint_bytes": 1}) as scene:
        node = scene.leader()
        client, loop = scene.client()

        async def write() -> None:
            await client.create_topic("t")
            for number in range(20):
                await client.append("t", str(number).encode())

        async def read() -> list[bytes]:
            return [value async for batch in client.read("t", 0, 0) for value in batch.column("value").to_pylist()]

        scene.run(loop, write)
        server = node.server
        assert server is not None
        scene.until(lambda: server.checkpoints.index == server.raft.committed_index, 5000)
        node.disk.fail("pread", "tables", errno.EIO, times=1)
        assert scene.run(loop, read) == [str(number).encode() for number in range(20)]
        assert node.lives == 2
