"""Stories in virtual time that once ended badly, each with the seed's faults told by hand."""

from __future__ import annotations

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
