"""Topics, groups and stages as they are followed: right for nodes that do nothing wrong, broken by
one that does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from dledger.raft.state.ready import Fact
from dledger.types import Index
from tests.verification.watching import breaks
from verification.invariants.retention import Retention
from verification.invariants.view import Memory, WatchedNode
from verification.sim.scene import Scene


class Told:
    """A node that leads itself, with two topics, a group that holds retention back, and an open
    stage."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.node = scene.leader()
        assert scene.world.watch is not None
        self.watch = scene.world.watch
        self.client, self.loop = scene.client()
        scene.run(self.loop, self._fill)
        self.view: WatchedNode = self.watch.views[str(self.node.name)]
        self.catalog = self.view.catalog

    async def _fill(self) -> None:
        for name in ("gone", "t"):
            await self.client.create_topic(name)
        for value in (b"a", b"b", b"c"):
            await self.client.append("t", value)
        await self.client.commit_offsets("g", {"t": {0: 1}, "gone": {0: 0}})
        await self.client.hold_retention("g")
        await self.client.delete_topic("gone")
        self.transaction = await self.client.transaction("w", 0, timeout_ms=5000)


@pytest.fixture
def told() -> Iterator[Told]:
    with Scene(1) as scene:
        yield Told(scene)


def test_i27_topics_and_groups_are_what_the_commands_make(told: Told) -> None:
    commands = told.watch.commands
    commands.check(told.view)
    state = commands.as_of(told.catalog.applied_index)
    assert set(state.topics) == {"t"}
    assert (state.groups["g"].holds, list(state.groups["g"].offsets.values())) == (True, [1])
    assert set(commands.as_of(1).topics) == {"gone"}


@pytest.mark.parametrize(
    "harm", ["offset back", "hold lost", "group lost", "topic lost", "topic back"]
)
def test_i27_another_catalog_is_found(told: Told, harm: str) -> None:
    groups, topics = told.catalog.consumer_groups.by_name, told.catalog.topics_state.by_name
    (offsets,) = groups["g"].offsets.values()
    if harm == "offset back":
        offsets[0] = 0
    elif harm == "hold lost":
        groups["g"].holds = False
    elif harm == "group lost":
        del groups["g"]
    elif harm == "topic lost":
        del topics["t"]
    else:
        topics["gone"] = topics["t"]
    breaks("I27", told.watch.commands.check, told.view)


def test_i27_a_node_that_restores_another_catalog_is_found(told: Told) -> None:
    told.catalog.consumer_groups.by_name["g"].holds = False
    breaks("I27", told.watch.started, told.node.name, told.view.server)


def test_i27_what_a_client_was_told_is_there(told: Told) -> None:
    commands = told.watch.commands
    commands.progress_acknowledged("g", "t", 0, 1)
    commands.deletion_acknowledged("gone")
    for processed in (("g", "t", 0, 2), ("g", "gone", 0, 0), ("h", "t", 0, 1)):
        breaks("I27", commands.progress_acknowledged, *processed)
    breaks("I27", commands.deletion_acknowledged, "t")


def test_i28_stage_ended_in_time_or_by_its_writer_is_forgotten(told: Told) -> None:
    assert len(told.watch.commands.stages) == 1
    told.scene.wait(7000)
    assert not told.watch.commands.stages
    told.scene.run(told.loop, lambda: told.client.transaction("x", 0, timeout_ms=5000))
    assert len(told.watch.commands.stages) == 1
    told.scene.run(told.loop, lambda: told.client.abort_transaction("x", 0))
    assert not told.watch.commands.stages


def test_i28_a_stage_that_ends_too_early_is_found(told: Told) -> None:
    (stage,) = told.catalog.transactions.stages.values()
    stage.deadline_ms -= 3000
    breaks("I28", told.scene.wait, 4000)


def test_i15_retention_over_what_a_group_holds_back_is_found(told: Told) -> None:
    watch, view = told.watch, told.view
    view.held_from = watch.commands.held_from(view)
    first = watch.truth.committed_index
    rows = list(view.catalog.partitions[2 << 32].placed(0, 1 << 62))
    assert view.held_from == rows[1][2] < first
    settings = {"retention_ms": 1000, "hold_retention_ms": 5000}
    view.server.node = replace(view.server.node, **settings)
    view.server.checkpoints.oldest_index = Index(first)
    view.catalog.retention_floor = lambda: Index(first)  # type: ignore[method-assign]
    watch.retention = Retention()
    watch.retention.written(first, 0)
    now_ms = 1000
    watch._now_ms = lambda: now_ms
    watch.retained(view, view.held_from)
    breaks("I15", watch.retained, view, view.held_from + 1)
    now_ms = 6000
    watch.retained(view, view.held_from + 1)


def test_i17_a_member_that_is_expelled_with_its_disk_untouched_is_found(told: Told) -> None:
    fact = Fact("follower_lost_data", (("node", "n0"), ("has", 1), ("had", 2)))
    breaks("I17", told.watch.members.fact, told.view, fact, told.watch.memories)
    told.watch.exchanged("n0", Memory())
    told.watch.members.fact(told.view, fact, told.watch.memories)
