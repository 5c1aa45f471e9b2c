"""The simulator's replaced machines: which disk is where, what each of them owes, and that bugs in
admission show."""

from __future__ import annotations

import pytest

from dledger.raft.state.incarnations import Admission
from tests.verification.watching import breaks, server_of, with_topic
from verification.sim import SeedOutcome, run_seed
from verification.sim.cluster import Node
from verification.sim.damage import Damage
from verification.sim.replaced import FAULT, Replaced
from verification.sim.scene import Scene
from verification.sim.workload import Operator

SEEDS = range(1, 21)


def incarnation(node: Node) -> int:
    return server_of(node).raft.membership.incarnation


def test_a_machine_is_replaced_comes_back_and_goes_for_good():
    with Scene(group={"election_ms": 1000}) as scene:
        scene.leader()
        damage = Damage(scene.world, scene.group)
        damage.start()
        scene.wait(3000)
        replaced = Replaced(scene.world, scene.group, damage)
        (node,) = damage._unlucky
        former = incarnation(node)
        assert replaced.strike().startswith(
            f"replaces the machine of {node.name}; the former one comes back:"
        )
        assert damage.replaced == [node]
        assert replaced.strike() == "", "it has two machines already"
        scene.wait(1000)
        new = incarnation(node)
        assert new != former
        scene.until(lambda: scene.world.counts.bites.get(FAULT) == 1, 12_000)
        scene.wait(500)
        assert incarnation(node) == former
        assert damage.replaced == [], "no operator admits the former one"
        replaced.stop()
        scene.wait(500)
        assert incarnation(node) == new
        assert damage.replaced == [node]
        lives = node.lives
        scene.wait(20_000)
        assert node.lives == lives


def empty(scene: Scene) -> Node:
    """A follower is gone, and its disk replaced."""
    node = scene.group.others(scene.leader())[0]
    node.kill(power=True)
    node.disk.put_back({})
    assert scene.world.watch is not None
    scene.world.watch.lost_disk(node.name)
    return node


def test_admit_counts_a_disk_that_the_leader_has_not_heard_yet() -> None:
    """The one of before counts already: that is no answer about this one."""
    with Scene(group={"election_ms": 4000, "heartbeat_ms": 1000}) as scene:
        client, loop = with_topic(scene)
        node = empty(scene)
        scene.group.restart_soon(node)
        scene.until(lambda: node.server is not None, 1000)
        heard = server_of(scene.leader()).raft.heard[node.name]
        assert heard != incarnation(node), "the leader has not heard this one"
        scene.run(loop, lambda: client.admit(node.name))
        scene.until(lambda: server_of(node).raft.is_admitted, 1000)


def test_operator_admits_again_when_a_node_is_gone_at_the_answer() -> None:
    with Scene(group={"election_ms": 1000}) as scene:
        scene.leader()
        node = scene.node("n2")
        nodes, asked = [node], []

        async def admit(name: str) -> None:
            asked.append(name)
            if len(asked) == 1:
                node.kill(power=True)

        Operator(scene.world, nodes)._client.admit = admit  # type: ignore[method-assign]
        scene.until(lambda: not nodes, 60_000)
        assert asked == [node.name] * 2


def test_i17_answer_that_a_disk_is_admitted_that_no_list_has_is_found() -> None:
    with Scene(group={"election_ms": 1000}) as scene:
        node = empty(scene)
        scene.group.restart_soon(node)
        scene.until(lambda: node.server is not None, 1000)

        async def admit(name: str) -> None:
            """It does nothing."""

        Operator(scene.world, [node])._client.admit = admit  # type: ignore[method-assign]
        assert "no list has it as" in breaks("I17", scene.wait, 10_000)


def red(seed: int) -> SeedOutcome | None:
    outcome = run_seed(seed, also=(FAULT,))
    return outcome if outcome.violation is not None else None


def test_former_machine_counted_until_the_admission_commits_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It counts until the admission is known to be committed."""
    monkeypatch.setattr(Admission, "of", lambda admission, node: admission.membership.of(node))
    assert any(red(seed) for seed in SEEDS), "no seed in which a committed entry is lost"
