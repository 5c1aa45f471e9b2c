"""Consumers in virtual time: sessions over changes of leader, cuts and kills, and a share of seeds
whose clients all have one."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from dledger.client import AsyncClient
from verification.sim import run_seed
from verification.sim.loop import SimLoop
from verification.sim.scene import Scene

SESSION_MS = 4000


class Member:
    """A consumer in a process of its own, that commits what it was handed before."""

    def __init__(self, scene: Scene, name: str, **more: Any) -> None:
        self.name = name
        self.handed: list[tuple[int, int]] = []
        self.lost: list[Any] = []
        self.times: list[int] = []
        self.scene = scene
        self.client, self.loop = scene.client(name, request_timeout_ms=2000)
        self.consumer: Any = None
        self.tasks: list[Any] = []
        self.loop.call_soon(lambda: self.tasks.append(self.loop.create_task(self._main(more))))

    async def _main(self, more: dict[str, Any]) -> None:
        self.consumer = await self.client.consumer(
            "g", ["t"], session_timeout_ms=SESSION_MS, on_lost=self.lost.append, commit=0.05, **more
        )
        while True:
            for record in await self.consumer.poll(0.05, max_records=5):
                self.handed.append((record.partition, record.offset))
                self.times.append(self.scene.now_ms)

    @property
    def share(self) -> int:
        return 0 if self.consumer is None else len(self.consumer.assignment())

    def kill(self) -> None:
        """SIGKILL."""
        self.loop.kill()
        self.scene.network.died(self.name, self.loop, power=False)


class Feed:
    """A topic of four partitions that gets records all the time."""

    def __init__(self, scene: Scene) -> None:
        self.acknowledged: list[tuple[int, int]] = []
        self.client: AsyncClient
        self.loop: SimLoop
        self.client, self.loop = scene.client("feed")
        scene.run(self.loop, lambda: self.client.create_topic("t", 4))
        self.loop.call_soon(lambda: self.loop.create_task(self._main()))

    async def _main(self) -> None:
        while True:
            for partition in range(4):
                done = await self.client.append("t", [b"x"] * 3, partition=partition)
                self.acknowledged += [(partition, at) for at in range(done.start, done.end)]
            with suppress(TimeoutError):
                async with asyncio.timeout(0.2):
                    await asyncio.Event().wait()


def two_members(scene: Scene) -> tuple[Feed, Member, Member]:
    scene.leader()
    feed = Feed(scene)
    a, b = Member(scene, "a"), Member(scene, "b")
    scene.until(lambda: (a.share, b.share) == (2, 2), 20_000, "a share for each")
    return feed, a, b


def nothing_is_left_out(feed: Feed, *members: Member) -> None:
    """Everything that was acknowledged by now is handed out before long."""
    known = set(feed.acknowledged)
    handed = lambda: {place for member in members for place in member.handed}  # noqa: E731
    members[0].scene.until(lambda: known <= handed(), 30_000, "the last record")


def test_killed_members_partitions_move_when_its_session_is_over() -> None:
    with Scene() as scene:
        feed, a, b = two_members(scene)
        killed_ms = scene.now_ms
        a.kill()
        scene.until(lambda: b.share == 4, 3 * SESSION_MS, "the other's share")
        assert scene.now_ms - killed_ms > 0.7 * SESSION_MS
        nothing_is_left_out(feed, a, b)


def test_new_leader_gives_each_member_a_whole_time_out() -> None:
    """It has heard nobody. Were it to count from another time, members that live would end with
    each change of leader, or those that are dead never would."""
    with Scene() as scene:
        feed, a, b = two_members(scene)
        scene.leader().kill(power=False)
        scene.wait(SESSION_MS)
        scene.leader()
        scene.wait(2 * SESSION_MS)
        assert (a.lost, b.lost, a.share, b.share) == ([], [], 2, 2)
        a.kill()
        scene.leader().kill(power=False)
        scene.until(lambda: b.share == 4, 4 * SESSION_MS, "the other's share")
        nothing_is_left_out(feed, a, b)


def test_member_that_is_cut_off_hands_out_nothing_when_another_may_have_it() -> None:
    """It says so by its own clock, before the group gives its partitions away."""
    with Scene() as scene:
        feed, a, b = two_members(scene)
        paths = [path for name in scene.world.plan.names for path in (("a", name), (name, "a"))]
        scene.network.cut_all(paths)
        cut_ms = scene.now_ms
        scene.until(lambda: b.share == 4, 3 * SESSION_MS, "the other's share")
        assert not [at for at in a.times if at > cut_ms + SESSION_MS]
        scene.network.heal_all(paths)
        scene.until(lambda: bool(a.lost) and a.share == 2, 20_000, "a share again")
        nothing_is_left_out(feed, a, b)


def test_leader_that_slept_answers_no_heartbeat_when_it_wakes_up() -> None:
    """It takes itself for the leader still, and its answer would let a member count on a session
    that the next leader has ended."""
    with Scene() as scene:
        _, a, b = two_members(scene)
        old = scene.leader()
        others = [name for name in scene.world.plan.names if name != old.name]
        scene.network.cut_all([path for name in others for path in (("a", name), (name, "a"))])
        assert old.loop is not None
        old.loop.pause()
        slept_ms = scene.now_ms
        scene.until(lambda: b.share == 4, 5 * SESSION_MS, "the other's share")
        old.loop.resume()
        scene.wait(SESSION_MS)
        assert not [at for at in a.times if at > slept_ms + SESSION_MS]


def test_group_goes_on_when_all_nodes_were_down() -> None:
    with Scene() as scene:
        feed, a, b = two_members(scene)
        for node in scene.group.nodes:
            node.kill(power=True)
        scene.wait(2 * SESSION_MS)
        scene.leader()
        scene.until(lambda: (a.share, b.share) == (2, 2), 20_000, "the shares again")
        nothing_is_left_out(feed, a, b)


@pytest.mark.parametrize("seed", range(1, 7))
def test_seeds_with_consumers_are_green(seed: int) -> None:
    outcome = run_seed(seed, consumers=True, safety_ms=10_000)
    assert not outcome.violation, str(outcome.violation)
