"""Sentences and figures of the Raft paper, played in a small group."""

from __future__ import annotations

from itertools import product

import pytest

from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.entry import HardState
from dledger.types import Index, Role, Term
from tests.raft.raft_bench import N0, N1, N2, N3, N4, log_of
from tests.raft.raft_harness import Chaos, SimDisk, World, led


def disk(*terms: int, term: int | None = None, committed: int = -1) -> SimDisk:
    entries = log_of(*terms)
    now = Term(terms[-1] if term is None else term)
    return SimDisk(entries, len(entries), HardState(now, None, Index(committed)))


LEADER_OF_FIGURE_7 = (1, 1, 1, 4, 4, 5, 5, 6, 6, 6)


@pytest.mark.parametrize(
    "terms",
    [
        (1, 1, 1, 4, 4, 5, 5, 6, 6),
        (1, 1, 1, 4),
        (1, 1, 1, 4, 4, 5, 5, 6, 6, 6, 6),
        (1, 1, 1, 4, 4, 5, 5, 6, 6, 6, 7, 7),
        (1, 1, 1, 4, 4, 4, 4),
        (1, 1, 1, 2, 2, 2, 3, 3, 3, 3, 3),
    ],
    ids="abcdef",
)
@pytest.mark.parametrize("cache_bytes", [100, 1 << 20])
def test_figure_7_every_followers_log_becomes_the_leaders(terms, cache_bytes):
    logs = (LEADER_OF_FIGURE_7, LEADER_OF_FIGURE_7, terms)
    disks = [disk(*log, term=7) for log in logs]
    world = World(3, seed=1, cache_bytes=cache_bytes, disks=disks)
    world.isolate(N2)
    leader = world.elect()
    world.heal()
    world.propose(leader, b"new")
    world.run_until(world.settled)
    logs = [
        [(e.term, e.chain_crc) for e in member.disk.entries] for member in world.members.values()
    ]
    assert logs[0] == logs[1] == logs[2]
    assert [term for term, _ in logs[0][:10]] == list(LEADER_OF_FIGURE_7)


def test_election_restriction_bars_node_without_committed_entries():
    """5.4.1: the voter denies its vote if its own log is more up to date."""
    world = World(3, seed=2, disks=[disk(1, 1, 1), disk(1, 1, 1), disk(1)])
    world.isolate(N0)
    world.run_until(lambda: world.leader is not None)
    assert world.leader == "n1"
    world.run(10_000)
    assert set(world.leaders.values()) == {"n1"}


def test_figure_8_old_entry_on_majority_is_overwritten_and_uncommitted():
    """S1 of term 2 left an entry on three of five; S5 of term 3 has another in its place, and may
    still win."""
    disks = [disk(*terms, term=4) for terms in ((1, 2), (1, 2), (1, 2), (1,), (1, 3))]
    world = World(5, seed=4, disks=disks)
    for dead in (N0, N1):
        world.crash(dead)
    leader = world.elect()
    assert leader == N4, "3 is later than 2"
    for name in (N0, N1):
        world.start(name)
    world.run_until(world.settled)
    assert [term for term, _ in world.committed[:2]] == [1, 3]
    assert {m.disk.entries[1].term for m in world.members.values()} == {3}
    assert world.node(N2).role is world.node(N3).role is Role.FOLLOWER


def test_a_minority_commits_nothing():
    world, leader, friend, *others = led(World(5, seed=5))
    world.run_until(world.settled)
    for one, other in product((leader, friend), others):
        world.cut(one, other)
    before = len(world.committed)
    assert world.propose(leader, b"lost")
    world.run(500)
    assert len(world.committed) == before
    world.run_until(lambda: world.leader in others)
    world.propose(world.elect(), b"kept")
    world.run(3000)
    world.heal()
    world.run_until(world.settled)
    bodies = [bytes(e.body) for e in world.members[leader].disk.entries]
    assert b"kept" in bodies
    assert b"lost" not in bodies, "overwritten, and never served"
    assert [f.code for m, f in world.finished if m == leader] == [Code.EXPIRED_TERM]


def test_an_acknowledged_entry_survives_every_minority_of_crashes():
    """5.4.3, with disks that lose all that was not synced."""
    for seed in range(30):
        world, leader, *_ = led(World(3, seed, chaos=Chaos(sync_ms=20)))
        world.propose(leader, b"precious")
        world.run_until(lambda world=world: any(f.code is Code.SUCCESS for _, f in world.finished))
        world.crash(leader)
        world.elect()
        world.start(leader)
        world.run_until(world.settled)
        for member in world.members.values():
            assert b"precious" in [bytes(e.body) for e in member.disk.entries], f"seed {seed}"


def test_acknowledged_entries_survive_a_power_loss_of_all_nodes():
    for seed in range(30):
        world, leader, *_ = led(World(3, seed, chaos=Chaos(sync_ms=20)))
        for number in range(20):
            world.propose(leader, b"%d" % number)
            world.run(3)
        acknowledged = max(
            (f.last for _, f in world.finished if f.code is Code.SUCCESS), default=-1
        )
        world.restart(*world.config.members)
        world.elect()
        world.run_until(world.settled)
        assert len(world.committed) > acknowledged


def test_a_group_of_two_needs_both():
    world = World(2, seed=6)
    world.elect()
    world.crash(N1)
    world.run(10_000)
    assert world.leader is None
    world.start(N1)
    world.elect()


def test_a_transfer_moves_leadership_without_losing_an_acknowledged_append():
    world, leader, other, _ = led(World(3, seed=8))
    for _ in range(20):
        world.propose(leader, b"x")
        world.run(1)
    asked_ms = world.now_ms
    world.call(leader, lambda node: node.transfer(other, world.now_ms))
    world.run_until(lambda: world.leader == other and world.is_open(other))
    assert world.now_ms - asked_ms < 200
    world.run_until(lambda: bool(world.transfers))
    [(at, done)] = world.transfers
    assert (at, done.to, done.code) == (leader, other, Code.SUCCESS)
    world.run_until(world.settled)
    assert all(f.code is Code.SUCCESS for _, f in world.finished)


def test_a_full_window_whose_answers_were_all_lost_moves_on_after_healing():
    world, leader, *others = led(World(3, seed=10))
    world.run_until(world.settled)
    world.cuts |= {(other, leader) for other in others}
    for _ in range(50):
        world.propose(leader, b"x" * 100)
    world.run(300)
    world.heal()
    world.run_until(world.settled, 5000)
    assert world.leader == leader


@pytest.mark.parametrize("seed", range(5))
def test_a_chain_of_links_still_has_one_leader(seed):
    """n0 - n1 - n2, with n0 and n2 cut from one another: whoever leads, there is one, and terms do
    not run away."""
    world = World(3, seed)
    world.cut(N0, N2)
    world.run(60_000)
    assert world.leader is not None
    assert len(world.leaders) <= 4
