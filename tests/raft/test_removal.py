"""A node ends when a list in force has it not, and never by an old list that it replays or is told
(B26)."""

from __future__ import annotations

from dledger.protocol.messages.membership import Membership
from dledger.protocol.messages.peer import group_tag
from dledger.raft import RaftNode, Ready
from dledger.raft.state.ready import Fact
from dledger.types import Index, NodeId, Role, Term
from tests.raft.members_world import (
    LEARNER,
    VOTER,
    ChangingWorld,
    List,
    member,
    with_role,
    without,
)
from tests.raft.raft_bench import (
    APPEND,
    COMMIT,
    N0,
    N1,
    N2,
    N3,
    N4,
    config,
    log_of,
    node_with,
    push,
)
from tests.raft.raft_harness import SimDisk

FOUNDERS = (N0, N1, N2, N3)
OTHERS = tuple(member(node, VOTER, 100 + number) for number, node in enumerate((N1, N2, N3)))
AGAIN = (*OTHERS, member(N0, LEARNER))
TAG = group_tag("default", FOUNDERS, "g")
REMOVED = Membership(100, group_id="g", members=FOUNDERS)
BY_ENTRY = 2


def unlisted(*terms: int, term: int = 5) -> RaftNode:
    """n0, whose newest list is that of entry 2, which it has committed, and which has it not."""
    known = Membership(100, Index(BY_ENTRY), group_id="g", members=FOUNDERS, term=Term(1))
    known = known.with_list(OTHERS)
    return node_with(*terms, term=term, committed=2, membership=known, group=config(4))


def told(node: RaftNode, ready: Ready) -> bool:
    """Whether it says, with this and in its record, that it was removed."""
    facts = [fact for fact in ready.facts if fact.event == "removed"]
    assert facts in ([], [Fact("removed", (("node", N0), ("index", BY_ENTRY)))])
    assert node.is_removed is bool(facts)
    if facts:
        assert ready.membership is not None
        assert ready.membership.removed
    return bool(facts)


def test_list_without_it_ends_no_node_at_its_start():
    node = unlisted(1, 1, 1)
    assert not told(node, node.tick(0))
    assert not told(node, node.tick(100_000))
    assert node.role is Role.CANDIDATE
    assert not node.is_admitted


def test_replayed_removal_ends_no_node_before_it_has_all_commits():
    node, log = unlisted(1, 1, 1), log_of(1, 1, 1, 1, 5, 5)
    first = push(APPEND, 5, (1, 2), log[3:4], commit=5, group=TAG)
    assert not told(node, node.step(first, 0)), "entries 4 and 5 may have added it again"
    rest = push(APPEND, 5, (1, 3), log[4:], commit=5, group=TAG)
    assert told(node, node.step(rest, 0)), "they have not"


def test_commit_index_of_earlier_terms_ends_no_node():
    """A new leader may not know yet what is committed."""
    node, log = unlisted(1, 1, 1), log_of(1, 1, 1, 5)
    assert not told(node, node.step(push(COMMIT, 5, (1, 2), commit=2, group=TAG), 0))
    noop = push(APPEND, 5, (1, 2), log[3:], commit=2, group=TAG)
    assert not told(node, node.step(noop, 0))
    assert told(node, node.step(push(COMMIT, 5, (5, 3), commit=3, group=TAG), 0))


def test_push_from_before_the_removal_ends_no_node():
    """It says only that the removal was not committed when it was sent."""
    node = unlisted(5, 5, 5)
    assert not told(node, node.step(push(COMMIT, 5, (5, 2), commit=1, group=TAG), 0))
    assert told(node, node.step(push(COMMIT, 5, (5, 2), commit=2, group=TAG), 0))


def refused(node: RaftNode, by: NodeId, index: int = BY_ENTRY, listed: List = OTHERS) -> bool:
    return told(node, node.refused(by, Index(index), listed))


def test_node_without_a_leader_ends_when_a_majority_has_it_in_no_list():
    node = unlisted(1, 1, 1)
    assert not refused(node, N1)
    assert not refused(node, N1), "it says the same again"
    assert not refused(node, N4), "no voter of that list"
    assert not refused(node, N2, index=1), "a list of before"
    assert refused(node, N2)
    assert node.role is Role.CANDIDATE


def test_what_members_said_is_forgotten_when_one_leads():
    node = unlisted(1, 1, 1)
    assert not refused(node, N1)
    node.step(push(COMMIT, 5, (1, 2), commit=2, group=TAG), 0)
    assert node.role is Role.FOLLOWER
    assert not refused(node, N2)
    node.tick(100_000)
    assert node.role is Role.CANDIDATE
    assert not refused(node, N2)
    assert refused(node, N1)


def test_list_that_adds_it_again_makes_what_was_said_void():
    node = unlisted(1, 1, 1)
    assert not refused(node, N1)
    node.set_members(Index(7), {}, 0, AGAIN)
    assert not refused(node, N2), "an older one"
    assert not node.is_removed
    ready = node.refused(N2, Index(9), OTHERS)
    assert not ready.facts
    assert node.refused(N3, Index(9), OTHERS).facts


def replaced(world: ChangingWorld, gone: NodeId, stale: NodeId) -> None:
    """``gone`` was added, removed, and is added again; ``stale`` has the log up to where it was
    added first, which is what a new machine, started as a founder, is told at first."""
    leader = world.elect()
    world.remove(gone)
    world.add(gone, 900)
    first = world.node(stale).membership.index
    world.isolate(stale)
    world.remove(gone)
    for _ in range(5):
        assert world.propose(world.elect(), b"x" * 500)
        world.run(200)
    world.crash(gone)
    world.changed((*world.list_at(leader), member(gone, LEARNER)))
    world.run(500)
    world.joined.discard(gone)
    world.cuts -= {(stale, gone), (gone, stale)}
    for other in world.others(gone):
        if other != stale:
            world.cut(gone, other)
    world.members[gone].disk = SimDisk(membership=Membership(901))
    world._disks.append((gone, world.members[gone].disk))
    world.start(gone)
    world.run_until(lambda: world.node(gone).membership.index == first)


def heard_of_removal(world: ChangingWorld, node: NodeId, since: int) -> bool:
    return any(who == node and "removed" in fact for who, fact in world.facts[since:])


def test_new_machine_of_an_id_added_again_replays_its_removal():
    world = ChangingWorld(5)
    leader = world.elect()
    gone, stale, *_ = world.others(leader)
    replaced(world, gone, stale)
    since, lists = len(world.facts), set()
    world.heal()

    def has_all() -> bool:
        lists.add(world.node(gone).members)
        return world.has_caught_up(gone)

    world.run_until(has_all)
    newest = world.list_at(world.elect())
    assert without(newest, gone) in lists, "the list that removed it was in force there"
    assert not world.node(gone).is_removed
    assert not heard_of_removal(world, gone, since)
    world.promote(gone)
    assert with_role(newest, gone, VOTER, incarnation=901) == world.node(gone).members


def test_such_a_machine_ends_when_it_is_removed_then():
    world = ChangingWorld(5)
    leader = world.elect()
    gone, stale, *_ = world.others(leader)
    replaced(world, gone, stale)
    world.heal()
    world.run_until(lambda: world.has_caught_up(gone))
    since = len(world.facts)
    world.remove(gone)
    world.run_until(lambda: heard_of_removal(world, gone, since))
    world.restart(gone)
    assert world.node(gone).is_removed, "durably"


def test_machine_that_is_removed_while_it_replays_hears_of_it():
    """Whether the leader still tells it, or nobody but those that it asks."""
    world = ChangingWorld(5)
    leader = world.elect()
    gone, stale, *_ = world.others(leader)
    replaced(world, gone, stale)
    world.remove(gone)
    term = world.node(world.elect()).term
    world.run(10_000)
    world.heal()
    world.run_until(lambda: world.node(gone).is_removed)
    world.run(5000)
    assert world.node(world.elect()).term <= term + 1, "it disturbs nobody"
