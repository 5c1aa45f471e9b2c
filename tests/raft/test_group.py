"""Which group a node belongs to (B26): who it hears, and how it comes to know."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace

import pytest

from dledger.errors import ConfigError
from dledger.protocol.messages.membership import Member, MemberRole, Membership
from dledger.protocol.messages.peer import MemberRequest, MemberResponse, group_tag
from dledger.raft import RaftNode
from dledger.types import NO_INDEX, Index, NodeId, Role
from tests.raft.raft_bench import (
    APPEND,
    FOUNDED,
    N0,
    N1,
    N2,
    beat,
    config,
    events,
    heard,
    log_of,
    message,
    node_with,
    only,
    push,
    sent,
    told,
    vote,
)
from tests.raft.raft_harness import Chaos, SimDisk, World, led, new_group

MEMBERS = (N0, N1, N2)
DRAWN = "0123456789abcdef" * 2


def node_of(membership: Membership, *, me: NodeId = N1, group: str = "default") -> RaftNode:
    return node_with(0, membership=membership, me=me, group=config(group=group), dice=5)


def member(group_id: str = "A", me: NodeId = N1) -> RaftNode:
    own = dict(FOUNDED)[me]
    return node_of(Membership(own, NO_INDEX, FOUNDED, group_id=group_id, members=MEMBERS), me=me)


def ids(world: World) -> set[str]:
    return {state.disk.membership.group_id for state in world.members.values()}


SAID = [
    beat(7, of=N0, to=N1),
    push(APPEND, 7, (0, 0), log_of(0, 7)[1:], of=N0, to=N1),
    replace(vote(7, (6, 9), of=N0, to=N1), incarnation=100),
]


@pytest.mark.parametrize("message", SAID, ids=lambda message: type(message).__name__)
@pytest.mark.parametrize(
    "tag", ["default", *(group_tag("default", MEMBERS, drawn) for drawn in ("A", "", None))]
)
def test_a_node_that_knows_of_no_founding_hears_no_leader_and_no_candidate(message, tag):
    """A leader of another group of the same name may take its address for a member's, and a
    stranger its own tag."""
    node = node_of(Membership(101))
    before = node.hard_state
    node.step(replace(message, group=tag), 0)
    assert (node.hard_state, node.leader_id, node.end_index) == (before, None, 0)
    assert node.role is Role.CANDIDATE


@pytest.mark.parametrize("message", SAID, ids=lambda message: type(message).__name__)
@pytest.mark.parametrize(
    "tag",
    [
        "default",
        group_tag("default", MEMBERS, "B"),
        group_tag("default", MEMBERS, ""),
        group_tag("default", (*MEMBERS, "n3"), "A"),
    ],
)
def test_a_member_hears_neither_another_group_of_its_name_nor_another_list(message, tag):
    node = member()
    before = node.hard_state
    ready = node.step(replace(message, group=tag), 0)
    assert (node.hard_state, node.leader_id) == (before, None)
    assert "other_group" in events(ready)
    assert node.strangers[N0].tag == tag
    heard(node, message)
    assert node.term == 7


def test_another_group_is_named_in_the_log_once_in_a_while():
    node = member()
    reported = [
        now_ms
        for now_ms in (0, 100, 9_999, 10_000, 10_100)
        if "other_group" in events(node.step(beat(7, of=N0, to=N1), now_ms))
    ]
    assert reported == [0, 10_000]
    assert node.strangers[N0].messages == 5


def test_node_still_to_be_told_of_its_group_names_it_another_only_late():
    """The others' first messages come before their answer to its question."""
    node, tag = node_of(Membership(101)), group_tag("default", MEMBERS, "A")
    question = only(node.tick(0), MemberRequest, N0)
    early = replace(beat(7, of=N0, to=N1), group=tag)
    reported = [
        now_ms for now_ms in (0, 9_999, 10_000) if "other_group" in events(node.step(early, now_ms))
    ]
    assert reported == [10_000]
    assert set(node.strangers) == {N0}
    node.step(told(question, N0, 100, FOUNDED), 10_000)
    assert not node.strangers


def test_the_founder_draws_the_id_and_all_keep_it():
    world = new_group()
    world.elect()
    world.run(500)
    [drawn] = ids(world)
    assert drawn
    world.restart(*world.config.members)
    world.elect()
    assert ids(world) == {drawn}
    assert ids(new_group(seed=1)) == {""}


def test_a_name_that_was_drawn_is_the_id():
    world = new_group(group=DRAWN)
    world.elect()
    world.run(500)
    assert ids(world) == {DRAWN}
    old = node_of(Membership(101, NO_INDEX, FOUNDED), group=DRAWN)
    assert old.membership.group_id == DRAWN


def test_an_emptied_first_member_founds_no_group_of_a_drawn_name_again():
    """What it is told of its group leaves its id as it was: that alone is no reason to found it."""
    node = node_of(Membership(555), me=N0, group=DRAWN)
    request = only(node.tick(0), MemberRequest, N2)
    said = told(request, N2, 102, FOUNDED, group=node.tag, group_id=DRAWN)
    assert "not_admitted" in events(node.step(said, 0))
    for now_ms in range(0, 60_000, 1000):
        node.tick(now_ms)
    assert not node.membership.founded
    assert not node.is_admitted
    assert not node.not_heard_yet, "its group has begun"


def test_an_emptied_member_joins_the_group_that_answers_its_own_question():
    node = node_of(Membership(555))
    request = only(node.tick(0), MemberRequest, N0)
    answer = told(request, N0, 100, FOUNDED)
    assert node.step(replace(answer, nonce=request.nonce + 1), 0).membership is None
    ready = node.step(answer, 0)
    assert ready.membership == Membership(555, group_id="A", members=MEMBERS)
    assert not node.is_admitted
    node.step(replace(beat(7, of=N0, to=N1), group=group_tag("default", MEMBERS, "B")), 0)
    assert node.term == 0
    for _ in range(2):
        heard(node, beat(7, of=N0, to=N1))
    assert node.leader_id == N0


def test_a_founder_that_lost_its_disk_and_has_joined_founds_nothing():
    node = node_of(Membership(555, group_id="A", members=MEMBERS), me=N0)
    requests = {request.remote_id: request for request in sent(node.tick(0), MemberRequest)}
    for of, incarnation in ((N1, 901), (N2, 902)):
        heard(node, told(requests[of], of, incarnation, term=-1, is_empty=True))
    assert not node.membership.founded


def old_disks(count: int = 3) -> list[SimDisk]:
    """As they were before there were ids: one committed entry, and a founding that names
    incarnations alone."""
    world, leader, *_ = led(new_group(count))
    assert world.propose(leader, b"a")
    world.run_until(world.settled)
    disks = [deepcopy(state.disk) for state in world.members.values()]
    for disk in disks:
        disk.membership = replace(disk.membership, group_id="", members=())
    return disks


def test_group_from_before_ids_has_none_until_all_members_have_come():
    world = World(3, disks=old_disks())
    world.crash(N2)
    settled = world.elect()
    assert world.propose(settled, b"b")
    world.run_until(lambda: world.node(settled).committed_index == world.node(settled).end_index)
    world.run(3_000)
    assert {world.members[name].disk.membership.group_id for name in (N0, N1)} == {""}
    world.start(N2)
    world.run_until(lambda: "" not in ids(world))
    assert len(ids(world)) == 1
    assert world.propose(world.elect(), b"c")
    world.run_until(world.settled)


@pytest.mark.parametrize("seed", range(20))
def test_that_id_is_one_through_lost_and_late_messages_and_crashes(seed):
    world = World(
        3,
        seed=seed,
        disks=old_disks(),
        chaos=Chaos(loss=0.2, double=0.2, long_delay=0.1, crash=0.01),
    )
    world.run(5_000)
    world.mend()
    world.run_until(lambda: "" not in ids(world))
    assert len(ids(world)) == 1
    world.elect()


def test_an_emptied_member_of_a_group_without_an_id_gets_everything_too():
    world = World(3, disks=old_disks())
    world.crash(N2)
    world.elect()
    world.replace(N2, 900)
    world.run_until(world.settled)
    assert world.node(N2).end_index >= 1
    assert not world.node(N2).is_admitted
    world.run_until(lambda: "" not in ids(world))


def test_a_lost_founders_id_is_not_taken_by_a_member_that_knew_none():
    node = member("")
    heard(node, message(MemberRequest, N0, N1, 0, incarnation=200, nonce=1))
    late = told(sent(node.tick(0), MemberRequest)[0], N0, 100, FOUNDED)
    node.step(late, 0)
    assert node.membership.group_id == ""
    node.step(
        replace(late, incarnation=200, group_id="B", group=group_tag("default", MEMBERS, "B")), 0
    )
    assert node.membership.group_id == "B"


@pytest.mark.parametrize(
    "known",
    [
        Membership(101, NO_INDEX, FOUNDED, members=(N0, N1)),
        Membership(101, NO_INDEX, (*FOUNDED, (NodeId("n3"), 103), (NodeId("n4"), 104))),
        Membership(101, group_id="A", members=(*MEMBERS, NodeId("n3"))),
    ],
)
def test_a_record_of_other_members_is_refused_with_both_lists(known):
    with pytest.raises(
        ConfigError, match=r"n0, n1.* but it was told that they are n0, n1, n2"
    ) as caught:
        node_of(known)
    assert "docs/operations.md" in str(caught.value)


def test_with_join_a_founder_may_be_told_any_list_beside_one_of_its_log():
    """While the founding list counts it is told that one, or the told one would count."""
    known = Membership(100, NO_INDEX, FOUNDED, group_id="A", members=(N0, N1))
    listed = known.with_list(tuple(Member(one, one, 1, MemberRole.VOTER, 1) for one in (N0, N1)))
    node = node_with(0, membership=listed, only_asks=True)
    assert node.voters == (N0, N1)
    for membership, only_asks in ((known, True), (listed, False)):
        with pytest.raises(ConfigError, match="told that they are n0, n1, n2"):
            node_with(0, membership=membership, only_asks=only_asks)


def test_an_older_record_without_a_member_that_does_not_count_is_taken():
    """The list may be a wrong one: only an id, which all members of one list agree on, brings it on
    the record."""
    node = node_of(Membership(101, Index(3), FOUNDED[:2]))
    assert node.membership.members == ()
    question = sent(node.tick(0), MemberRequest)[0]
    node.step(told(question, N0, 100, FOUNDED), 0)
    assert node.membership.members == MEMBERS
    assert node_of(Membership(101, NO_INDEX, FOUNDED)).membership.members == MEMBERS


def test_first_start_with_wrong_list_records_nothing_against_right_one():
    """The right list is taken afterwards."""
    empty = Membership(555)
    wrong = node_with(membership=empty, me=N1, group=config(2), dice=5)
    question = only(wrong.tick(0), MemberRequest, N0)
    ready = wrong.step(told(question, N0, 100, FOUNDED), 0)
    assert ready.membership is None
    assert wrong.membership == empty
    assert wrong.strangers[N0].tag == group_tag("default", MEMBERS, "A")
    right = node_of(wrong.membership)
    right.step(told(only(right.tick(0), MemberRequest, N0), N0, 100, FOUNDED), 0)
    assert right.membership == Membership(555, group_id="A", members=MEMBERS)


def test_a_group_is_not_founded_with_a_list_that_a_member_does_not_have():
    """n0 was told two members, n1 three."""
    founder = node_with(membership=Membership(100), group=config(2), dice=5)
    other = node_of(Membership(101))
    question = only(founder.tick(0), MemberRequest, N1)
    for answer in sent(other.step(question, 0), MemberResponse):
        founder.step(answer, 0)
    founder.step(told(question, N1, 101, term=-1, is_empty=True), 0)
    assert not founder.membership.founded
    assert founder.strangers[N1].tag == other.tag
    assert other.strangers[N0].tag == founder.tag


def test_an_id_is_not_learned_from_another_group_that_got_ids_before():
    """Both are of one name and one list, and nobody of the one was ever in the other."""
    node = member("")
    others = tuple((name, drawn + 1000) for name, drawn in FOUNDED)
    question = only(node.tick(0), MemberRequest, N0)
    node.step(told(question, N0, 1100, others), 0)
    assert node.membership.group_id == ""
    node.step(told(question, N0, 1100, (others[0], *FOUNDED[1:])), 0)
    assert node.membership.group_id == "A"
