"""Every way in which links can be cut: all 64 directed graphs on three nodes, all 1,024 undirected
ones on five.

What is promised: if some node has two-way links with a majority (itself counted), then within ten
election times there is a leader that commits, and it stays; a leader that has such links when
others are cut is not disturbed at all; and whatever the graph, terms hardly grow. Plain Raft
promises no more: where the logs differ before the cut, a node in the middle whose own log is too
short cannot be elected, and those with longer logs reach too few.

The suite takes all graphs on three nodes and every eleventh on five, and looks on for ten seconds;
``DLEDGER_MATRIX=all`` takes all of both and looks on for a minute each (it needs some minutes
itself).
"""

from __future__ import annotations

import os
from itertools import combinations, permutations

import pytest

from dledger.types import NodeId
from tests.raft.raft_harness import World, members

ELECTION_MS = 1000
SETTLE_MS = 10 * ELECTION_MS
EVERYTHING = os.environ.get("DLEDGER_MATRIX") == "all"
STAY_MS = 60_000 if EVERYTHING else 10_000
MOST_TERMS = 3
"""That a minute may see; here it is the bound for the whole run."""
SHARE = 1 if EVERYTHING else 11
"""An odd step, so that every link is there in half of the graphs."""
Link = tuple[NodeId, NodeId]


def has_majority(links: set[Link], node: NodeId, count: int) -> bool:
    """Whether ``node`` can talk both ways with a majority."""
    return 1 + sum((node, m) in links and (m, node) in links for m in members(count)) > count // 2


def keep_appending(world: World) -> None:
    """One entry now and then, at whoever leads."""
    if world.leader is not None:
        world.propose(world.leader, b"x")
    world.after(400, lambda: keep_appending(world))


def cut_world(count: int, links: set[Link], seed: int, *, noticed: bool) -> World:
    """A group in good order, whose links are then reduced to these; ``noticed``: as connections
    that end."""
    world = World(count, seed, heartbeat_ms=200, election_ms=ELECTION_MS)
    world.propose(world.elect(), b"before")
    world.run(1000)
    world.cuts = set(permutations(members(count), 2)) - links
    for sender, receiver in sorted(world.cuts) if noticed else ():
        world.call(receiver, lambda node, sender=sender: node.peer_lost(sender, world.now_ms))
    return world


def check_graph(count: int, links: set[Link], seed: int, *, noticed: bool, busy: bool) -> None:
    """Run one graph. In a busy group whoever is cut off soon has a log that is too short to be
    elected; in an idle one only the voters' loyalty to a living leader keeps it from that."""
    world = cut_world(count, links, seed, noticed=noticed)
    before = max(world.leaders)
    if busy:
        keep_appending(world)
    world.run(SETTLE_MS)
    leaders = dict(world.leaders)
    world.run(STAY_MS)
    committed = len(world.committed)
    if world.leader is not None:
        world.propose(world.leader, b"after")
    world.run(1000)
    highest = max(member.node.term for member in world.members.values() if member.node)
    assert highest - before <= MOST_TERMS, f"terms grow: {world}"
    if has_majority(links, world.leaders[before], count):
        assert highest == before, f"a leader with a majority was disturbed: {world}"
    if any(has_majority(links, node, count) for node in members(count)):
        assert world.leader is not None, f"no leader: {world}"
        assert world.leaders == leaders, f"the leader changed after {SETTLE_MS} ms: {world}"
        assert len(world.committed) > committed, f"nothing commits: {world}"


@pytest.mark.parametrize("busy", [False, True], ids=["idle", "busy"])
@pytest.mark.parametrize("noticed", [False, True], ids=["silent", "connections end"])
def test_three_nodes_go_on_wherever_a_majority_can_talk(noticed, busy):
    every = list(permutations(members(3), 2))
    for number in range(64):
        links = {link for bit, link in enumerate(every) if number >> bit & 1}
        for seed in range(3 if EVERYTHING else 1):
            try:
                check_graph(3, links, 100 * seed + number, noticed=noticed, busy=busy)
            except BaseException as error:
                error.add_note(f"graph {number}, seed {seed}: {sorted(links)}")
                raise


@pytest.mark.parametrize(
    ("noticed", "busy"), [(False, False), (True, True)], ids=["silent, idle", "noticed, busy"]
)
def test_five_nodes_go_on_wherever_a_majority_can_talk(noticed, busy):
    every = list(combinations(members(5), 2))
    for number in range(5 * noticed % SHARE, 1024, SHARE):
        links = {
            link
            for bit, pair in enumerate(every)
            if number >> bit & 1
            for link in (pair, pair[::-1])
        }
        try:
            check_graph(5, links, number, noticed=noticed, busy=busy)
        except BaseException as error:
            error.add_note(f"graph {number}: {sorted(links)}")
            raise
