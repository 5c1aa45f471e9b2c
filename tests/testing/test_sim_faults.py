"""The nemesis: when its faults end, and what a node may end of."""

from __future__ import annotations

import pytest

from dledger.errors import ConfigError, CorruptStore, StorageError
from dledger.raft import core
from dledger.testing.invariants.broken import Broken
from dledger.testing.sim.cluster import Group, World
from dledger.testing.sim.faults import Nemesis
from dledger.testing.sim.scene import Scene
from dledger.testing.sim.settings import Plan
from dledger.testing.sim.workload import Workload
from dledger.types import NodeId


def test_frames_are_still_lost_when_everything_else_is_healed() -> None:
    """Else a leader that sends nothing again is always replaced, or connected anew, before anybody looks."""
    world = World(1, Plan(nodes=3, clients=0, topics=0, faults=("loss", "duplication"), safety_ms=0), 10)
    nemesis, weather = Nemesis(world, Group(world), Workload(world)), world.network.weather
    nemesis.start()
    assert weather.frame_loss > 0
    assert weather.frame_twice > 0
    nemesis.stop()
    assert weather.frame_loss > 0
    assert weather.frame_twice == 0
    nemesis.still()
    assert weather.frame_loss == 0


def test_a_full_disk_explains_that_a_node_ends() -> None:
    with Scene(1) as scene:
        leader = scene.leader()
        assert leader.server is not None
        leader.disk.hog = 1
        leader.server.driver.fail(StorageError("no room"))
        scene.until(lambda: leader.lives == 2, 5000)


def test_a_full_disk_does_not_explain_that_files_are_wrong() -> None:
    with Scene(1) as scene:
        leader = scene.leader()
        assert leader.server is not None
        leader.disk.hog = 1
        leader.server.driver.fail(CorruptStore("entry 9 does not continue the log"))
        with pytest.raises(Broken, match="does not continue the log"):
            scene.wait(5000)


@pytest.mark.parametrize("told", [("n0", "n1"), ("n0", "n1", "other"), ("n0", "n1", "n2", "former")])
def test_a_node_that_is_told_a_wrong_list_of_members_does_not_start_and_then_does_with_the_right_one(told) -> None:
    with Scene() as scene:
        scene.leader()
        node = scene.node("n0")
        scene.until(lambda: node.server is not None and bool(node.server.store.membership.members), 5000)
        node.told = told
        node.kill(power=False)
        scene.until(lambda: scene.world.counts.bites.get("wrong list of members") == 1, 5000)
        assert not node.is_up
        assert node.told == ()
        scene.until(lambda: node.server is not None and node.server.raft.leader_id is not None, 10_000)


def test_a_node_that_starts_with_a_wrong_list_of_members_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core, "check_members", lambda membership, members: None)
    with Scene() as scene:
        scene.leader()
        node = scene.node("n0")
        node.told = (NodeId("n0"), NodeId("n1"))
        node.kill(power=False)
        with pytest.raises(Broken, match=r"I17: n0 takes part with \('n0', 'n1'\)"):
            scene.wait(5000)


def test_a_node_that_does_not_start_for_another_reason_than_a_wrong_list_is_found() -> None:
    with Scene() as scene:
        scene.leader()
        node = scene.node("n0")
        node._refused(ConfigError("no such option"), ())
        with pytest.raises(Broken, match="does not start: no such option"):
            scene.wait(100)
