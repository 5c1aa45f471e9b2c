"""The nemesis: when its faults end, and what a node may end of."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dledger.errors import ConfigError, CorruptStore, StorageError
from dledger.net.connections import handshake
from dledger.node.peers import handshake as gate
from dledger.protocol.messages.hello import HelloRequest
from dledger.protocol.messages.peer import group_tag
from dledger.raft.state import group
from dledger.raft.state import raft_state as core
from dledger.types import NodeId
from tests.verification.watching import server_of
from verification.greenlets import other_threading
from verification.invariants.broken import Broken
from verification.sim.cluster import Group, Node, World
from verification.sim.damage import Damage
from verification.sim.faults import Nemesis
from verification.sim.locks import SimThreading
from verification.sim.namesake import Namesakes, Stay, other_disk
from verification.sim.scene import LIMITS, Scene
from verification.sim.scheduler import MS, SECOND
from verification.sim.settings import SeedPlan
from verification.sim.workload import Workload


def test_frames_are_still_lost_when_everything_else_is_healed() -> None:
    """Else a leader that sends nothing again is always replaced, or connected anew, before anybody
    looks."""
    world = World(
        1, SeedPlan(nodes=3, clients=0, topics=0, faults=("loss", "duplication"), safety_ms=0), 10
    )
    nemesis, weather = Nemesis(world, Group(world), Workload(world)), world.network.weather
    nemesis.start()
    assert weather.frame_loss > 0
    assert weather.frame_twice > 0
    nemesis.stop()
    assert weather.frame_loss > 0
    assert weather.frame_twice == 0
    nemesis.still()
    assert weather.frame_loss == 0


def turn_ns(world: World, node: Node, points: int = 200) -> int:
    """How long a thread of that node takes for so many operations of its disk."""
    begun_ns, ended_ns, loop = world.scheduler.now_ns, [], node.loop
    assert loop is not None

    def work() -> None:
        for _ in range(points):
            loop.turns.point()

    loop.turns.begin(work, 0, lambda _: ended_ns.append(world.scheduler.now_ns))
    world.scheduler.run(begun_ns + 10 * SECOND)
    return int(ended_ns[0] - begun_ns)


def test_threads_of_nodes_are_quick_when_everything_is_healed() -> None:
    """Seed 675: a follower that was 2,500 entries behind, read one by one in 10 ms each, held up
    all commits."""
    with other_threading(SimThreading()):
        plan = SeedPlan(
            nodes=1, clients=0, topics=0, faults=(), safety_ms=0, group=LIMITS, turns_left=400_000
        )
        world = World(1, plan, 10)
        group = Group(world)
        node, nemesis = group.nodes[0], Nemesis(world, group, Workload(world))
        try:
            node.boot()
            assert turn_ns(world, node) > 100 * MS
            nemesis.stop()
            assert turn_ns(world, node) < 100 * MS
            node.kill(power=False)
            node.boot()
            assert turn_ns(world, node) < 100 * MS
        finally:
            world.dispose()


def is_founded(scene: Scene) -> bool:
    """Whether all nodes know their group's id."""
    return all(node.server and node.server.store.membership.group_id for node in scene.group.nodes)


def follows(node: Node) -> bool:
    return node.server is not None and node.server.raft.leader_id is not None


def test_a_full_disk_explains_that_a_node_ends() -> None:
    with Scene(1) as scene:
        leader = scene.leader()
        leader.disk.hog = 1
        server_of(leader).parts.ready_loop.fail(StorageError("no room"))
        scene.until(lambda: leader.lives == 2, 5000)


def test_a_full_disk_does_not_explain_that_files_are_wrong() -> None:
    with Scene(1) as scene:
        leader = scene.leader()
        leader.disk.hog = 1
        server_of(leader).parts.ready_loop.fail(CorruptStore("entry 9 does not continue the log"))
        with pytest.raises(Broken, match="does not continue the log"):
            scene.wait(5000)


@pytest.mark.parametrize(
    "told", [("n0", "n1"), ("n0", "n1", "other"), ("n0", "n1", "n2", "former")]
)
def test_a_node_with_a_wrong_list_of_members_starts_only_with_the_right(
    told,
) -> None:
    with Scene() as scene:
        scene.leader()
        node = scene.node("n0")
        scene.until(lambda: is_founded(scene), 5000)
        node.told = told
        node.kill(power=False)
        scene.until(lambda: scene.world.counts.bites.get("wrong list of members") == 1, 5000)
        assert not node.is_up
        assert node.told == ()
        scene.until(lambda: follows(node), 10_000)


def test_a_node_that_starts_with_a_wrong_list_of_members_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(core, "check_members", lambda membership, members: None)
    with Scene() as scene:
        scene.leader()
        node = scene.node("n0")
        node.told = (NodeId("n0"), NodeId("n1"))
        node.kill(power=False)
        with pytest.raises(Broken, match=r"I17: n0 takes part with \('n0', 'n1'\)"):
            scene.wait(5000)


def test_failed_start_for_a_reason_other_than_a_wrong_list_is_found() -> None:
    """The list is that of the members."""
    with Scene() as scene:
        scene.leader()
        node = scene.node("n0")
        node._refused(ConfigError("no such option"), ())
        with pytest.raises(Broken, match="does not start: no such option"):
            scene.wait(100)


def no_id_in_hellos(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (handshake, gate):
        monkeypatch.setattr(module, "other_group", lambda own, theirs: "")


def no_id_in_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    tag = group_tag
    monkeypatch.setattr(
        group, "group_tag", lambda name, members, group_id: tag(name, members, group_id and "any")
    )


@pytest.fixture
def invaded() -> Iterator[tuple[Scene, Stay]]:
    """A group that knows its id, and a machine of another group of its name in the place of n1."""
    with Scene() as scene:
        scene.leader()
        scene.until(lambda: is_founded(scene), 5000)
        node, plan = scene.node("n1"), scene.world.plan
        away = {node.name: other_disk(plan, node.name, 5)}
        yield scene, Stay(scene.world, scene.group, Damage(scene.world, scene.group), node, away)


def test_machine_of_a_namesake_group_is_isolated_and_not_counted(
    invaded,
) -> None:
    """The other group has the same name; its machine is not taken for one of this group."""
    scene, stay = invaded
    node = scene.node("n1")
    scene.until(lambda: node.is_up, 1000)
    scene.wait(10_000)
    assert node.server is None
    assert node not in scene.group.up()
    stay.end()
    scene.until(lambda: follows(node), 10_000)


def test_whoever_knows_no_group_is_refused_by_the_machine_of_another_one(invaded) -> None:
    scene, _ = invaded
    servers: list[gate.Gate] = []
    node = scene.node("n1")
    built = node._built
    node._built = lambda server, loop: (built(server, loop), servers.append(server.parts.gate))
    scene.until(lambda: bool(servers), 5000)
    refused = servers[0].answer(HelloRequest(group="sim"))
    assert refused.message == "this is another group's machine"


def test_a_hello_that_is_taken_from_another_group_is_found(
    invaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene, _ = invaded
    no_id_in_hellos(monkeypatch)
    with pytest.raises(Broken, match=r"I17: n. of group .* takes the hello of n. of group"):
        scene.wait(10_000)


def test_a_node_that_hears_another_group_of_its_name_is_found(
    invaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene, _ = invaded
    no_id_in_hellos(monkeypatch)
    no_id_in_messages(monkeypatch)
    for server in scene.group.servers():  # what each sends was said before
        server.raft._machine.watch.look()
    # the hello is found at once, and is not what is looked for here
    scene.world.breaks = lambda *_: None
    with pytest.raises(Broken, match=r"I17: .* which is another group's"):
        scene.wait(20_000)


def test_namesake_group_comes_only_after_founding_and_goes_with_faults() -> None:
    """The namesake is another group of the same name."""
    with Scene() as scene:
        group = scene.group
        others = Namesakes(scene.world, group, Damage(scene.world, group))
        assert others.strike() == ""
        scene.leader()
        scene.until(lambda: is_founded(scene), 5000)
        assert "another group" in others.strike()
        assert any(node.namesake for node in group.nodes)
        others.stop()
        assert not any(node.namesake for node in group.nodes)
        scene.leader()
