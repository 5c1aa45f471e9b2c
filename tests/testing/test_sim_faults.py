"""The nemesis: when its faults end, and what a node may end of."""

from __future__ import annotations

import pytest

from dledger.errors import CorruptStore, StorageError
from dledger.testing.invariants.broken import Broken
from dledger.testing.sim.cluster import Group, World
from dledger.testing.sim.faults import Nemesis
from dledger.testing.sim.scene import Scene
from dledger.testing.sim.settings import Plan
from dledger.testing.sim.workload import Workload


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
