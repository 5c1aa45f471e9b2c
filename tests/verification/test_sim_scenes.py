"""Stories in virtual time that once ended badly, each with the seed's faults told by hand."""

from __future__ import annotations

import errno
import os
from contextlib import suppress

import pytest

from dledger.client import AsyncClient
from dledger.errors import Behind, DLedgerError, Unavailable
from tests.verification.watching import read, server_of, with_topic
from verification.sim.cluster import Node
from verification.sim.scene import Scene


def test_a_producer_whose_leader_falls_silent_asks_the_next_one() -> None:
    """The leader stops without closing a connection, while the producer has nothing under way: what
    is pushed then is under way for ever unless somebody looks for it."""
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
    """Its status travels, so a number that changes from run to run would change the trace, and
    lengths with it."""
    with Scene() as scene:
        scene.leader()
        client, loop = scene.client()
        statuses = scene.run(loop, client.status)
        assert [status["pid"] for status in statuses.values()] == [1, 1, 1] != [os.getpid()] * 3


def test_node_with_an_unreadable_topic_index_restarts_and_answers() -> None:
    """The question came from a client: its connection alone must not be what the error ends."""
    with Scene(1, node={"checkpoint_bytes": 1}) as scene:
        node = scene.leader()
        client, loop = scene.client()

        async def write() -> None:
            await client.create_topic("t")
            for number in range(20):
                await client.append("t", str(number).encode())

        scene.run(loop, write)
        server = server_of(node)
        scene.until(lambda: server.checkpoints.index == server.raft.committed_index, 5000)
        node.disk.fail("pread", "tables", errno.EIO, times=1)
        assert read(scene, client, loop) == [str(number).encode() for number in range(20)]
        assert node.lives == 2


def shut_out(scene: Scene, old: Node) -> None:
    """The leader's connections with its peers break: they elect another one at once, while it
    believes for an election time-out that it leads."""
    for stream in scene.network.streams_of(old.name):
        if stream.other in scene.network.nodes:
            scene.network.reset(stream)
    for node in scene.group.others(old):
        apart(scene, old.name, node.name)
    scene.until(lambda: scene.group.leader not in {None, old}, 1500, "another leader")


def apart(scene: Scene, one: str, other: str) -> None:
    scene.network.cut_all([(one, other), (other, one)])


async def append(client: AsyncClient) -> None:
    """As often as it takes."""
    while True:
        with suppress(DLedgerError):
            await client.append("t", b"x")
            return


SLOW = {"election_ms": 3000, "heartbeat_ms": 300}
HASTY = {"request_timeout_ms": 250, "connect_timeout_ms": 100}


def test_replaced_leader_gives_no_answer_to_a_client_isolated_with_it() -> None:
    """Without the quorum round of a read the old end would be told."""
    with Scene(group=SLOW) as scene:
        old = scene.leader()
        lonely, lonely_loop = scene.client("c0", request_timeout_ms=1000)
        free, free_loop = with_topic(scene, "c1", **HASTY)
        assert scene.run(lonely_loop, lambda: lonely.end_offsets("t")) == {0: 0}
        shut_out(scene, old)
        apart(scene, "c1", old.name)
        scene.run(free_loop, lambda: append(free), within_ms=2000)
        assert old.is_leader
        with pytest.raises(DLedgerError):
            scene.run(lonely_loop, lambda: lonely.end_offsets("t"))


def test_client_returning_to_a_replaced_leader_sees_no_smaller_end() -> None:
    with Scene(group=SLOW) as scene:
        old = scene.leader()
        client, loop = with_topic(scene, "c0", **HASTY)
        shut_out(scene, old)
        apart(scene, "c0", old.name)
        scene.run(loop, lambda: append(client), within_ms=2000)
        assert scene.run(loop, lambda: client.end_offsets("t")) == {0: 1}
        for node in scene.group.others(old):
            apart(scene, "c0", node.name)
        scene.network.heal_all([(old.name, "c0"), ("c0", old.name)])
        said = scene.run(loop, lambda: said_of_the_end(client, 8))
        assert Behind in said
        assert all(one in (Behind, Unavailable) for one in said), said
        scene.network.heal_all()
        assert {0: 1} in scene.run(loop, lambda: said_of_the_end(client, 8))


async def said_of_the_end(client: AsyncClient, times: int) -> list[object]:
    """Answers, or kinds of errors."""
    said: list[object] = []
    for _ in range(times):
        try:
            said.append(await client.end_offsets("t", stale=True))
        except DLedgerError as error:
            said.append(type(error))
    return said
