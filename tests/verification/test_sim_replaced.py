"""The simulator's replaced machines: which disk is where, what each of them owes, and that bugs in
admission show."""

from __future__ import annotations

import pytest

from dledger.raft.state.incarnations import Admission
from tests.verification.watching import server_of
from verification.sim import SeedOutcome, run_seed
from verification.sim.cluster import Node
from verification.sim.damage import Damage
from verification.sim.replaced import FAULT, Replaced
from verification.sim.scene import Scene

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


def red(seed: int) -> SeedOutcome | None:
    outcome = run_seed(seed, also=(FAULT,))
    return outcome if outcome.violation is not None else None


def test_former_machine_counted_until_the_admission_commits_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It counts until the admission is known to be committed."""
    monkeypatch.setattr(Admission, "of", lambda admission, node: admission.membership.of(node))
    assert any(red(seed) for seed in SEEDS), "no seed in which a committed entry is lost"
