"""The simulator's new kinds: members that move, replacements, and groups made from one disk."""

from __future__ import annotations

import pytest

from dledger.net.connections import handshake
from dledger.node.peers.members import GroupMembers
from tests.verification.watching import breaks, server_of
from verification.sim import SeedOutcome, run_seed
from verification.sim.disaster import AHEAD, BACK, BEHIND
from verification.sim.moving import check_places
from verification.sim.scene import Scene
from verification.sim.settings import CHANGES, DISASTER, MOVES


def run(seed: int, *also: str) -> SeedOutcome:
    return run_seed(seed, safety_ms=5000, also=also, commit_log="topics", consumers=False)


def test_a_group_is_made_from_one_disk_and_old_members_stay_outside() -> None:
    bites = set()
    for seed in range(1, 9):
        outcome = run(seed, DISASTER)
        assert outcome.violation is None, outcome.violation
        bites |= outcome.bites.keys()
    assert {DISASTER, AHEAD, BACK, BEHIND} <= bites


def test_a_seed_with_a_group_made_from_one_disk_leaves_the_same_trace() -> None:
    first = run(1, DISASTER)
    assert first.bites[DISASTER]
    assert run(1, DISASTER) == first


def test_nodes_of_either_group_that_take_one_another_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known = handshake.other_group

    def kin(own: object, theirs: object) -> str:
        text: str = known(own, theirs)  # type: ignore[arg-type]
        return "" if "no node is of both" in text else text

    for module in ("dledger.net.connections.handshake", "dledger.node.peers.handshake"):
        monkeypatch.setattr(f"{module}.other_group", kin)
    found = [run(seed, DISASTER).violation for seed in range(1, 9)]
    assert any(one is not None and one.invariant == "I17" for one in found)


def test_members_that_move_are_found_by_all() -> None:
    outcomes = [run(seed, MOVES, CHANGES) for seed in range(1, 7)]
    assert [one.violation for one in outcomes if one.violation] == []
    assert sum(one.bites.get(MOVES, 0) for one in outcomes) > 0


def test_i17_node_that_looks_for_a_member_elsewhere_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with Scene() as scene:
        leader = scene.leader()
        servers = scene.group.servers()
        check_places(servers, scene.world.places)
        monkeypatch.setattr(GroupMembers, "addresses", lambda members: {leader.name: "elsewhere:1"})
        text = breaks("I17", check_places, [server_of(leader)], scene.world.places)
        assert "has members at {'n" in text
