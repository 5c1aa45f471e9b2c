"""Wall clocks that jump, of a whole group in virtual time: what ends by them, and what does not."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from dledger.client import AsyncClient
from dledger.node.node import NodeServer
from dledger.node.proposals.clocks import DOUBT_MS, SESSION_SPARE_MS, Clocks
from dledger.node.proposals.proposal import COMMAND_HEADER
from dledger.protocol.messages.catalog_commands import OpenStage
from dledger.protocol.messages.client import ExecuteRequest
from dledger.protocol.messages.codes import Code
from dledger.protocol.wire import encode_command
from dledger.types import ANONYMOUS, Role
from tests.verification.watching import server_of, with_topic
from verification.sim.cluster import Node
from verification.sim.loop import SimLoop
from verification.sim.scene import KIB, LIMITS, Scene
from verification.sim.scheduler import MS

HOUR_MS = 3_600_000
YEAR_MS = 365 * 24 * HOUR_MS
SEGMENT = LIMITS["segment_bytes"]
TIMEOUT_MS = 60_000
SLACK_MS = 2_000
"""An Expire command is written every now and then, and has to be committed."""


def set_wall(node: Node, off_ms: int) -> None:
    node.wall_offset_us = off_ms * 1000
    assert node.loop is not None
    node.loop.clock.wall_offset_us = node.wall_offset_us


def abandon(
    scene: Scene, client: AsyncClient, loop: SimLoop, writer: str, timeout_ms: int = TIMEOUT_MS
) -> int:
    """A stage with a batch, of a writer that is never heard of again; its number."""

    async def stage() -> None:
        transaction = await client.transaction(writer, 0, timeout_ms=timeout_ms)
        await transaction.append("t", b"staged")

    before = set(stages(scene))
    scene.run(loop, stage)
    scene.until(lambda: set(stages(scene)) != before, 1000, "the stage")
    (stage_id,) = set(stages(scene)) - before
    return stage_id


def stages(scene: Scene) -> dict[int, object]:
    return dict(server_of(scene.leader()).catalog.transactions.stages)


@pytest.mark.parametrize("off_ms", [YEAR_MS, -YEAR_MS])
def test_d10_wall_clock_jump_of_the_leader_leaves_timeouts_unchanged(
    off_ms: int,
) -> None:
    with Scene() as scene:
        leader = scene.leader()
        client, loop = with_topic(scene)
        before = abandon(scene, client, loop, "before")
        set_wall(leader, off_ms)
        during = abandon(scene, client, loop, "during")
        set_wall(leader, 0)
        after = abandon(scene, client, loop, "after")
        scene.wait(TIMEOUT_MS - SLACK_MS)
        assert set(stages(scene)) == {before, during, after}
        scene.wait(2 * SLACK_MS)
        assert not stages(scene)


def test_leader_with_another_wall_clock_ends_inherited_stages_in_time() -> None:
    with Scene() as scene:
        old = scene.leader()
        for number, node in enumerate(scene.group.nodes):
            set_wall(node, number * YEAR_MS)
        client, loop = with_topic(scene)
        stage = abandon(scene, client, loop, "w")
        other = scene.group.others(old)[0]
        scene.run(loop, lambda: client.transfer(other.name))
        scene.until(lambda: scene.leader() is other, 5000, "the other leader")
        scene.wait(TIMEOUT_MS // 2)
        assert set(stages(scene)) == {stage}
        scene.until(lambda: not stages(scene), TIMEOUT_MS // 2 + SLACK_MS, "the end of the stage")


class Fake:
    """A node's clocks, and what its catalog has heard."""

    def __init__(self) -> None:
        self.now, self.term = 0, None
        self.catalog = SimpleNamespace(
            clock_ms=90_000, transactions=SimpleNamespace(stages={1: "open"})
        )
        environment = SimpleNamespace(now_ms=lambda: self.now, wall_ms=lambda: 90_000 + self.now)
        self.clocks = Clocks(
            environment, self.catalog, leads_in=lambda: self.term, is_settled=lambda: False
        )


@pytest.mark.parametrize("led_before", [None, 3])
def test_lagging_leaders_stamp_counts_from_its_arrival_at_the_next_one(
    led_before: int | None,
) -> None:
    """Its stage would end too soon by the clock of the next leader, which hears of it together with
    its own NOOP."""
    node = Fake()
    node.term = led_before
    node.clocks.now_ms()
    node.now = 10_000
    node.catalog.clock_ms, node.term = 92_000, 5
    assert node.clocks.now_ms() == 92_001
    node.now += 1000
    assert node.clocks.now_ms() == 93_001
    node.now += 200
    node.catalog.clock_ms = 93_001  # its own command, which it stamped before
    assert node.clocks.now_ms() == 93_201


def test_first_stamp_of_a_leader_moves_catalog_time_for_its_successor() -> None:
    """It hears of all that was stamped only with its own NOOP; the next leader had heard of it 10 s
    before."""
    late, early = Fake(), Fake()
    early.catalog.clock_ms = 91_000
    early.clocks.now_ms()
    early.now = 10_000
    late.clocks.now_ms()
    late.catalog.clock_ms, late.term = 91_000, 4
    stamp = late.clocks.now_ms()
    early.catalog.clock_ms = max(early.catalog.clock_ms, stamp)
    early.term = 5
    assert early.clocks.now_ms() <= stamp + 1


def open_stage(server: NodeServer, writer: str) -> list[Any]:
    """Ask that node for a stage, now; what it answers."""
    answers: list[Any] = []
    client: Any = SimpleNamespace(
        account="",
        context=SimpleNamespace(principal=ANONYMOUS),
        send=lambda message, request_id: answers.append(message),
    )
    command = OpenStage(writer_id=writer, sequence=0, label="", timeout_ms=TIMEOUT_MS)
    server.parts.proposals.execute(client, 1, ExecuteRequest(command=command))
    return answers


def writers(server: NodeServer) -> set[str]:
    """Those with an open stage."""
    return {stage.writer_id for stage in server.catalog.transactions.stages.values()}


def test_leader_stamps_nothing_before_it_knows_earlier_leaders_stamps() -> None:
    """Else what a leader with a lagging clock has opened just before is over as soon as it is
    applied."""
    with Scene() as scene:
        first = scene.leader()
        client, loop = with_topic(scene)
        # else catalog time steps to the wall clock
        abandon(scene, client, loop, "before", timeout_ms=HOUR_MS)
        scene.wait(TIMEOUT_MS + SLACK_MS)
        lagging, third = scene.group.others(first)
        lagging.kill(power=False)
        is_up = lambda: lagging.server is not None and lagging.server.catalog.applied_index > 0  # noqa: E731
        scene.until(is_up, 5000, "its restart")
        scene.wait(1000)
        scene.run(loop, lambda: client.transfer(lagging.name))
        scene.until(lambda: scene.leader() is lagging, 5000, "the one whose clock is behind")
        for one, other in ((first, lagging), (lagging, third), (third, lagging)):
            scene.network.cut(one.name, other.name)
        behind = server_of(first).raft.end_index
        open_stage(server_of(lagging), "lagging")
        scene.until(
            lambda: server_of(first).raft.end_index > behind, 100, "the stage at the first leader"
        )
        lagging.kill(power=False)
        for node in (first, third):
            node.disk.sync_ns = 50 * MS
        scene.until(
            lambda: server_of(first).raft.role is Role.LEADER, 20_000, "the first leader again"
        )
        assert not server_of(first).parts.proposals.caught_up
        answers = open_stage(server_of(first), "first")
        scene.until(lambda: bool(answers), 1000, "an answer")
        scene.leader()
        assert "lagging" in writers(server_of(first))
        scene.wait(TIMEOUT_MS - SLACK_MS)
        assert "lagging" in writers(server_of(first))
        (answer,) = answers
        assert answer.code is Code.LEADER_NOT_READY


def test_a_catalog_that_a_jump_has_carried_away_ends_stages_in_their_time() -> None:
    """As a leader of an earlier release wrote it: the wall clock went into the log as it was."""
    with Scene(1) as scene:
        server = server_of(scene.leader())
        client, loop = with_topic(scene)
        ahead = wall(server) + YEAR_MS
        command = OpenStage(
            writer_id="old", sequence=0, label="", timeout_ms=TIMEOUT_MS, time_ms=ahead
        )
        ready_loop = server.parts.ready_loop
        now_ms = ready_loop.environment.now_ms()
        ready_loop.carry_out(
            server.raft.propose([COMMAND_HEADER + encode_command(command)], now_ms)
        )
        scene.until(lambda: server.catalog.clock_ms >= ahead, 1000, "the stamp")
        abandon(scene, client, loop, "new")
        assert len(stages(scene)) == 2
        scene.wait(TIMEOUT_MS - SLACK_MS)
        assert len(stages(scene)) == 2
        scene.wait(2 * SLACK_MS)
        assert not stages(scene)


def wall(server: NodeServer) -> int:
    return server.parts.ready_loop.environment.wall_ms()


def test_time_a_group_slept_is_made_up_and_ends_no_stage_too_early() -> None:
    """Its monotonic clocks do not count it."""
    with Scene(1) as scene:
        node = scene.leader()
        client, loop = with_topic(scene)
        abandon(scene, client, loop, "w")
        scene.wait(1000)
        node.kill(power=False)
        node.wall_offset_us = 10 * HOUR_MS * 1000
        again = server_of(scene.leader())
        scene.wait(TIMEOUT_MS - 10_000)
        assert len(stages(scene)) == 1
        scene.until(lambda: not stages(scene), 10_000 + SLACK_MS, "the end of the stage")
        abandon(scene, client, loop, "x")
        assert abs(again.catalog.clock_ms - wall(again)) < SLACK_MS


def test_a_producers_session_outlives_a_wall_clock_that_is_years_ahead() -> None:
    with Scene(1, node={"scrub_bytes_per_s": 0}) as scene:
        node = scene.leader()
        server = server_of(node)
        client, loop = with_topic(scene)
        producers = server.catalog.producers
        scene.run(loop, lambda: client.producer("t", name="p"))
        ends = producers.next_expiry_ms
        set_wall(node, YEAR_MS)
        scene.wait(DOUBT_MS + SLACK_MS)
        for writer in ("v", "w"):
            # it stamps the time of the leader
            abandon(scene, client, loop, writer, timeout_ms=1000)
            scene.wait(SLACK_MS)
            assert server.catalog.clock_ms <= ends - SESSION_SPARE_MS + HOUR_MS
        assert "p" in producers.by_name


def test_a_jump_of_the_wall_clock_deletes_nothing_within_an_hour() -> None:
    settings = {"retention_ms": 24 * HOUR_MS, "checkpoint_bytes": 4 * KIB, "scrub_bytes_per_s": 0}
    with Scene(1, node=settings) as scene:
        node = scene.leader()
        server = server_of(node)
        client, loop = scene.client()

        async def write() -> None:
            await client.create_topic("t")
            for _ in range(24):
                await client.append("t", bytes(12 * KIB))

        scene.run(loop, write)
        set_wall(node, YEAR_MS)
        scene.wait(DOUBT_MS - SLACK_MS)
        assert server.store.begin_index == 0
        set_wall(node, 0)
        scene.wait(60_000)
        set_wall(node, YEAR_MS)
        scene.wait(DOUBT_MS - SLACK_MS)
        assert server.store.begin_index == 0
        assert scene.world.watch is not None
        scene.world.watch.retention.clocks_are_right = False
        scene.until(
            lambda: server.store.begin_index > 0, 10_000, "retention by a clock that stays as it is"
        )


def test_a_wall_clock_that_is_far_off_is_in_status_and_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "dledger.node.proposals.clocks")
    with Scene() as scene:
        leader = scene.leader()
        follower = scene.group.others(leader)[0]
        client, loop = scene.client()
        follower.kill(power=False)
        follower.wall_offset_us = 600_000_000
        scene.until(
            lambda: follower.server is not None and follower.server.raft.role is Role.FOLLOWER,
            10_000,
        )
        scene.wait(10_000)
        clocks = {name: state["clock"] for name, state in scene.run(loop, client.status).items()}
        assert clocks[follower.name]["off"] == "600 s ahead of the leader's"
        assert abs(clocks[follower.name]["ahead_of_leader_ms"] - 600_000) < 1000
        assert all(not clock["off"] for name, clock in clocks.items() if name != follower.name)
        assert "600 s ahead of the leader's" in caplog.text
        set_wall(follower, 0)
        scene.wait(70_000)
        clock = scene.run(loop, client.status)[follower.name]["clock"]
        assert (clock["off"], clock["jumps"]) == ("", 1)
        assert "jumped by -600 s" in caplog.text
        assert "right again" in caplog.text
