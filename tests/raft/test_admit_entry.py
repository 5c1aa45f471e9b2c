"""An `Admit` takes effect in two steps: in the log the former incarnation ends, by the commit the
new one begins."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace

import pytest

from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.entry import MAGIC_NORMAL, Entry, LogEnd
from dledger.protocol.messages.entry_runs import stamp_all
from dledger.protocol.messages.membership import Change, Membership
from dledger.protocol.messages.peer import (
    HeartBeatRequest,
    MemberRequest,
    MemberResponse,
    VoteRequest,
    VoteResult,
)
from dledger.raft import RaftNode
from dledger.raft.state.ready import ReadDone
from dledger.types import NO_INDEX, Index, NodeId, Position, Role, Term
from tests.raft.raft_bench import (
    APPEND,
    COMPARE,
    FOUNDED,
    N0,
    N1,
    N2,
    N4,
    TRUNCATE,
    answer,
    asking,
    beat_answer,
    catches_up,
    config,
    follow,
    heard,
    message,
    node_with,
    only,
    push,
    sent,
    started,
    summary_of,
    told,
    vote,
)
from tests.raft.raft_harness import SimDisk, World, admit_body, change_of, led, new_group

GROUP = {"group_id": "A", "members": (N0, N1, N2)}
NEW = 900


def replaced() -> tuple[World, NodeId, NodeId, NodeId, SimDisk]:
    """A group, its leader, another follower, and a member whose machine was replaced and has caught
    up; with its former disk."""
    world, leader, late, other = led(new_group())
    assert world.propose(leader, b"a")
    world.run_until(world.settled)
    world.run(300)
    before = world.replace(other, NEW)
    world.run_until(lambda: other in world.node(leader).heard and world.settled())
    return world, leader, late, other, before


def admit(world: World, leader: NodeId, member: NodeId) -> Index:
    index = world.admit(leader, member)
    assert index is not None
    return index


def admitted_where_late_does_not_know() -> tuple[World, NodeId, NodeId, NodeId, SimDisk, Index]:
    """Leader and ``late`` commit the entry; ``late`` is cut off before it hears so; the new one
    applies it."""
    world, leader, late, other, before = replaced()
    index = admit(world, leader, other)
    world.run_until(lambda: world.node(leader).committed_index >= index)
    world.isolate(late)
    assert world.node(late).end_index >= index > world.node(late).committed_index
    world.run_until(lambda: world.node(other).committed_index >= index)
    bound = dict(world.node(leader).membership.bound)
    world.call(other, lambda node: node.set_members(index, bound, world.now_ms))
    return world, leader, late, other, before, index


def test_replaced_machine_that_returns_elects_no_node_with_admission():
    """Such a node has the admission in its log."""
    world, leader, late, other, before, index = admitted_where_late_does_not_know()
    assert world.propose(leader, b"acknowledged")
    world.run_until(lambda: world.node(leader).committed_index > index)
    world.crash(leader)
    world.heal()
    world.put(other, before)
    world.run(30_000)
    assert world.leader is None, "neither of them has what was acknowledged"
    world.start(leader)
    world.run_until(lambda: world.node(late).committed_index > index)
    assert not world.node(other).is_admitted


def test_node_learns_from_admitted_member_that_admission_is_committed():
    """The node has the admission in its log."""
    world, leader, late, other, _, index = admitted_where_late_does_not_know()
    world.crash(leader)
    world.heal()
    assert world.elect() in {late, other}, "the two that are left are a majority"
    assert world.node(late).change is None
    assert world.node(late).membership.of(other) == NEW
    assert world.propose(world.elect(), b"on")
    world.run_until(world.settled)
    assert world.node(late).committed_index > index


def test_it_is_learned_after_a_restart_too():
    world, leader, late, other, _, _ = admitted_where_late_does_not_know()
    world.crash(leader)
    world.heal()
    world.restart(late, other)
    assert world.elect() in {late, other}


def test_an_admission_that_was_cut_ends_nobody():
    world, leader, late, other, before = replaced()
    world.isolate(leader)
    admit(world, leader, other)
    assert world.node(leader).change is not None
    assert world.acknowledged(leader, other) == NO_INDEX
    world.put(other, before)
    world.run_until(lambda: world.leader in {late, other})
    world.heal()
    world.run_until(lambda: world.settled() and world.leader is not None)
    assert world.node(leader).change is None
    assert world.node(leader).membership.bound == FOUNDED
    world.crash(late)
    assert world.elect() in {leader, other}, "it counts the former one again"
    world.restart(leader, other)
    world.elect()


def test_neither_incarnation_counts_for_the_admission_itself():
    world, leader, late, other, _ = replaced()
    world.crash(late)
    index = admit(world, leader, other)
    world.run(900)
    assert world.node(leader).committed_index < index
    world.run(5_000)
    assert world.leader is None
    world.start(late)
    world.elect()
    world.run_until(lambda: world.node(late).committed_index >= index)


def test_the_new_one_counts_at_once_for_what_it_had_before_the_commit():
    world, leader, late, other, _ = replaced()
    index = admit(world, leader, other)
    assert world.propose(leader, b"b", b"c")
    world.run_until(lambda: world.node(leader).committed_index >= index)
    world.crash(late)
    world.run_until(lambda: world.node(leader).committed_index >= index + 2)
    assert world.acknowledged(leader, other) >= index + 2


def entries_with(*bodies: bytes, term: int = 1, after: list[Entry] | None = None) -> list[Entry]:
    end = LogEnd.after(after[-1]) if after else LogEnd()
    return list(stamp_all(end, Term(term), MAGIC_NORMAL, bodies, 1 << 20))


ADMIT = admit_body(N2, NEW, -1)
ADMITTED = (*FOUNDED[:2], (N2, NEW))
CHANGE = Change(Position(Term(1), Index(1)), NO_INDEX, N2, NEW)


def member(changes: tuple[Change, ...] = (), *, incarnation: int = 100) -> Membership:
    """The record of a member of the founded group, with changes that are not committed."""
    return Membership(incarnation, NO_INDEX, FOUNDED, changes, **GROUP)


def follower(
    entries: list[Entry], committed: int = -1, changes: tuple[Change, ...] = (), **summary
) -> RaftNode:
    log = replace(summary_of(entries, committed), **summary)
    return started(log, log.end.position.term, membership=member(changes), change_of=change_of)


def test_the_record_is_given_out_with_the_entry_and_before_it_is_written():
    node = follower(entries_with(b"a"))
    follow(node, 1)
    entries = entries_with(ADMIT, after=entries_with(b"a"))
    ready = heard(node, push(APPEND, 1, (1, 0), entries))
    assert ready.append == tuple(entries)
    assert ready.membership == member((CHANGE,)), "saved before it is written"
    assert node.change == CHANGE


@pytest.mark.parametrize(
    ("entries", "known"),
    [
        (entries_with(b"a"), None),
        (entries_with(b"a", ADMIT), CHANGE),
        (entries_with(b"a") + entries_with(b"other", term=2, after=entries_with(b"a")), None),
    ],
    ids=["before the entry", "with the entry", "with another one in its place"],
)
def test_a_restart_knows_the_change_whose_entry_the_log_holds(entries, known):
    assert follower(entries, changes=(CHANGE,)).change == known


def test_a_cut_that_a_crash_undid_leaves_the_change_in_force():
    """The new leader's record is saved before its cut is carried out: the entry may be there
    again."""
    node = follower(entries_with(b"a", ADMIT), changes=(CHANGE,))
    follow(node, 2)
    other = entries_with(b"x", admit_body(N1, 901, -1), term=2, after=entries_with(b"a"))
    ready = heard(node, push(TRUNCATE, 2, (1, 0), other[:1]))
    node.truncated(LogEnd.after(entries_with(b"a")[0]))
    assert ready.truncate_to == 0
    assert node.change is None
    ready = heard(node, push(APPEND, 2, (2, 1), other[1:]))
    assert node.change is not None
    assert node.change.node == N1
    assert ready.membership is not None
    again = follower(entries_with(b"a", ADMIT), changes=ready.membership.changes)
    assert again.change == CHANGE


def test_change_with_damaged_entry_is_in_force_until_entry_is_known():
    other = entries_with(b"a", b"b", term=1) + entries_with(
        b"c", term=3, after=entries_with(b"a", b"b")
    )
    change = Change(Position(Term(2), Index(1)), NO_INDEX, N2, NEW)
    node = follower(other, changes=(change,), faulty=((Index(1), Index(1)),))
    assert node.change == change
    node.set_faulty((), 0)
    assert node.change is None


def test_unrecorded_change_is_recorded_when_damaged_entry_is_repaired():
    """An older release kept no record, so nobody could tell before that it is one."""
    entries = entries_with(b"a", ADMIT, b"c")
    node = follower(entries, faulty=((Index(1), Index(1)),))
    assert node.change is None
    node.repaired(entries[1:2])
    ready = node.set_faulty((), 0)
    assert node.change == CHANGE
    assert ready.membership == member((CHANGE,))
    node.repaired(entries[1:2])
    assert node.set_faulty((), 0).membership is None, "once"


def test_a_commit_binds_the_change_and_forgets_the_record():
    node = follower(entries_with(b"a", ADMIT), changes=(CHANGE,))
    follow(node, 1)
    ready = heard(node, push(COMPARE, 1, (1, 1), commit=1))
    assert ready.membership == Membership(100, Index(1), ADMITTED, (), Term(1), **GROUP)
    assert node.change is None


def test_later_change_in_log_shows_that_previous_one_is_committed():
    node = follower(entries_with(b"a", ADMIT), changes=(CHANGE,))
    follow(node, 1)
    second = entries_with(admit_body(N1, 901, 1), after=entries_with(b"a", ADMIT))
    heard(node, push(APPEND, 1, (1, 1), second))
    assert node.membership.of(N2) == NEW
    assert node.change is not None
    assert node.change.node == N1


def test_of_two_changes_that_crossed_the_second_is_void():
    node = follower(entries_with(b"a"))
    follow(node, 1)
    crossed = entries_with(ADMIT, admit_body(N1, 901, -1), after=entries_with(b"a"))
    heard(node, push(APPEND, 1, (1, 0), crossed, commit=2))
    assert node.membership.bound == ADMITTED
    assert node.change is None


@pytest.mark.parametrize(("who", "incarnation"), [(N2, 102), (N2, NEW), (N1, 101)])
def test_a_vote_is_given_to_neither_while_the_change_is_pending(who, incarnation):
    node = follower(entries_with(b"a", ADMIT), changes=(CHANGE,))
    request = replace(vote(9, (1, 5), of=who), incarnation=incarnation, pre_vote=True)
    [answer] = heard(node, request).messages
    assert (answer.result is VoteResult.REJECT_NOT_ADMITTED) is (who == N2)


def test_a_node_that_the_change_replaces_is_not_admitted_any_more():
    log = summary_of(entries_with(b"a", ADMIT))
    record = member((CHANGE,), incarnation=102)
    assert not started(log, 1, membership=record, me=N2, change_of=change_of).is_admitted


def test_candidate_asks_about_its_change_and_takes_term_of_confirmer():
    """The question is whether the change is committed."""
    node = follower(entries_with(b"a", ADMIT), changes=(CHANGE,))
    request = only(node.tick(0), MemberRequest, N2)
    assert request.change == CHANGE.position
    known = {"index": Index(1), "change": CHANGE.position, "is_committed": True}
    heard(node, told(request, N2, NEW, ADMITTED, term=7, **known))
    assert (node.term, node.committed_index, node.change) == (7, 1, None)
    assert node.membership.of(N2) == NEW
    assert not sent(node.tick(node.deadline_ms()), MemberRequest), "nothing is left to ask"


def test_an_answer_on_another_entry_says_nothing():
    node = follower(entries_with(b"a", ADMIT), changes=(CHANGE,))
    request = only(node.tick(0), MemberRequest, N2)
    other = {"change": Position(Term(2), Index(1)), "is_committed": True}
    heard(node, told(request, N2, NEW, term=1, **other))
    assert node.change == CHANGE


@pytest.mark.parametrize(
    ("position", "expected"), [((1, 1), True), ((2, 1), False), ((1, 2), False), ((-1, -1), 0)]
)
def test_only_a_committed_entry_of_that_term_is_said_to_be_committed(position, expected):
    node = follower(entries_with(b"a", ADMIT, b"c"), committed=1)
    change = Position(Term(position[0]), Index(position[1]))
    request = message(MemberRequest, N1, N0, 1, incarnation=101, nonce=3, change=change)
    assert only(heard(node, request), MemberResponse).is_committed == expected


def test_who_is_told_of_its_admission_takes_the_term_of_the_teller():
    """It would else vote in a term from before the commit, where another quorum may have elected
    somebody."""
    node = node_with(1, term=2, membership=Membership(NEW), me=N2)
    request = only(node.tick(0), MemberRequest, N0)
    answer = told(request, N0, 100, ADMITTED, term=5, index=Index(1), group_id="")
    ready = heard(node, answer)
    assert node.is_admitted
    assert ready.hard_state is not None
    assert ready.hard_state.term == 5


def test_a_leader_knows_when_a_quorum_knows():
    world, leader, late, other, _ = replaced()
    index = admit(world, leader, other)
    world.run_until(lambda: world.node(leader).committed_index >= index)
    assert not world.node(leader).is_known(index)
    world.run_until(lambda: world.node(leader).is_known(index))
    assert world.node(late).membership.index == index
    assert world.members[late].disk.membership.index == index, "durably"


def leader_of_five() -> tuple[RaftNode, int]:
    node, requests, now_ms = asking(0, group=config(5), change_of=change_of)
    for _ in range(2):
        for request in requests:
            requests = (
                sent(node.step(answer(request, VoteResult.ACCEPT), now_ms), VoteRequest) or requests
            )
    assert node.role is Role.LEADER
    return node, now_ms


def test_what_the_replaced_one_answered_before_serves_no_read_after():
    node, now_ms = leader_of_five()
    noop = node.noop_index
    node.persisted(node.end.position, now_ms)
    for of in (N1, N2):
        catches_up(node, of, noop, now_ms)
    assert node.committed_index == noop
    ready = node.read_index(5, now_ms)
    round_ = only(ready, HeartBeatRequest, N4).round
    node.step(beat_answer(node, N4, round_), now_ms)
    node.propose([admit_body(N4, NEW, -1)], now_ms)
    assert node.step(beat_answer(node, N1, round_), now_ms).reads == ()
    assert node.step(beat_answer(node, N2, round_), now_ms).reads == (
        ReadDone(5, Code.SUCCESS, noop),
    )


def test_what_the_replaced_one_acknowledged_before_commits_nothing_after():
    node, now_ms = leader_of_five()
    noop = node.noop_index
    catches_up(node, N4, noop, now_ms)
    node.propose([admit_body(N4, NEW, -1)], now_ms)
    node.persisted(node.end.position, now_ms)
    for of in (N1, N2):
        assert node.committed_index < noop
        catches_up(node, of, noop, now_ms)
    assert node.committed_index == noop


def test_a_found_disk_of_before_does_not_vote_for_who_lacks_the_admission():
    """Five members, the entry is on three: the former machine and one that lacks it get no third
    vote."""
    world, leader, a, b, lacking, other = led(new_group(5))
    assert world.propose(leader, b"a")
    world.run_until(world.settled)
    world.run(300)
    before = deepcopy(world.replace(other, NEW))
    world.run_until(lambda: other in world.node(leader).heard and world.settled())
    world.isolate(lacking)
    index = admit(world, leader, other)
    world.run_until(lambda: all(world.node(m).committed_index >= index for m in (leader, a, b)))
    world.crash(leader)
    world.heal()
    world.put(other, before)
    assert world.elect() in {a, b}
