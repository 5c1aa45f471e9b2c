"""Which group a node belongs to (B26): who it hears, and how it comes to know."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace

import pytest
from raft_bench import N0, N1, N2, beat, config, heard, log_of, only, push, sent, summary_of, vote
from raft_harness import Chaos, SimDisk, World

from dledger.errors import ConfigError
from dledger.protocol.messages.entry import HardState
from dledger.protocol.messages.membership import Membership
from dledger.protocol.messages.peer import MemberRequest, MemberResponse, PushType, group_tag
from dledger.raft import RaftNode
from dledger.raft.state.saved_state import RaftOptions, SavedState
from dledger.types import NO_INDEX, Index, NodeId, Role, Term

FOUNDED = ((N0, 100), (N1, 101), (N2, 102))
MEMBERS = (N0, N1, N2)
DRAWN = "0123456789abcdef" * 2


def node_of(membership: Membership, *, me: NodeId = N1, group: str = "default") -> RaftNode:
    return RaftNode(
        config(group=group),
        me,
        saved=SavedState(HardState(Term(0)), summary_of(log_of(0)), membership),
        dice=lambda n: 5 % n,
        now_ms=0,
        options=RaftOptions(cache_bytes=1 << 20),
    )


def member(group_id: str = "A", me: NodeId = N1) -> RaftNode:
    own = dict(FOUNDED)[me]
    return node_of(Membership(own, NO_INDEX, FOUNDED, group_id=group_id, members=MEMBERS), me=me)


def group(count: int = 3, **more) -> World:
    return World(
        count, disks=[SimDisk(membership=Membership(100 + n)) for n in range(count)], **more
    )


def ids(world: World) -> set[str]:
    return {state.disk.membership.group_id for state in world.members.values()}


SAID = [
    beat(7, of=N0, to=N1),
    push(PushType.APPEND, 7, (0, 0), log_of(0, 7)[1:], of=N0, to=N1),
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
    assert (node.hard_state, node.leader_id, node.end_index, node.role) == (
        before,
        None,
        0,
        Role.CANDIDATE,
    )


@pytest.mark.parametrize("message", SAID, ids=lambda message: type(message).__name__)
@pytest.mark.parametrize(
    "tag",
    [
        "default",
        *(
            group_tag("default", *of)
            for of in ((MEMBERS, "B"), (MEMBERS, ""), ((*MEMBERS, "n3"), "A"))
        ),
    ],
)
def test_a_member_hears_neither_another_group_of_its_name_nor_another_list(message, tag):
    node = member()
    before = node.hard_state
    ready = node.step(replace(message, group=tag), 0)
    assert (node.hard_state, node.leader_id) == (before, None)
    assert any(fact.event == "other_group" for fact in ready.facts)
    assert node.strangers[N0].tag == tag
    heard(node, message)
    assert node.term == 7


def test_another_group_is_named_in_the_log_once_in_a_while():
    node = member()
    told = [
        any(fact.event == "other_group" for fact in node.step(beat(7, of=N0, to=N1), now_ms).facts)
        for now_ms in (0, 100, 9_999, 10_000, 10_100)
    ]
    assert told == [True, False, False, True, False]
    assert node.strangers[N0].messages == 5


def test_the_founder_draws_the_id_and_all_keep_it():
    world = group()
    world.elect()
    world.run(500)
    [drawn] = ids(world)
    assert drawn
    for name in world.config.members:
        world.crash(name)
        world.start(name)
    world.elect()
    assert ids(world) == {drawn}
    assert ids(group(seed=1)) == {""}


def test_a_name_that_was_drawn_is_the_id():
    world = World(3, disks=[SimDisk(membership=Membership(100 + n)) for n in range(3)], group=DRAWN)
    world.elect()
    world.run(500)
    assert ids(world) == {DRAWN}
    old = node_of(Membership(101, NO_INDEX, FOUNDED), group=DRAWN)
    assert old.membership.group_id == DRAWN


def test_an_emptied_member_joins_the_group_that_answers_its_own_question():
    node = node_of(Membership(555))
    request = only(node.tick(0), MemberRequest, N0)
    answer = MemberResponse(
        group=group_tag("default", MEMBERS, "A"),
        local_id=N0,
        remote_id=N1,
        term=Term(0),
        incarnation=100,
        asked=555,
        nonce=request.nonce,
        bound={str(name): drawn for name, drawn in FOUNDED},
        group_id="A",
    )
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
        answer = MemberResponse(
            group="default",
            local_id=of,
            remote_id=N0,
            term=Term(-1),
            incarnation=incarnation,
            asked=555,
            nonce=requests[of].nonce,
            is_empty=True,
        )
        node.step(answer, 0)
    assert not node.membership.founded


def old_disks(count: int = 3) -> list[SimDisk]:
    """As they were before there were ids: one committed entry, and a founding that names
    incarnations alone."""
    world = group(count)
    leader = world.elect()
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
    world.chaos = Chaos()
    for name, state in world.members.items():
        if state.node is None:
            world.start(name)
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
    question = MemberRequest(
        group=node.tag, local_id=N0, remote_id=N1, term=Term(0), incarnation=200, nonce=1
    )
    node.step(question, 0)
    nonce = sent(node.tick(0), MemberRequest)[0].nonce
    late = MemberResponse(
        group=group_tag("default", MEMBERS, "A"),
        local_id=N0,
        remote_id=N1,
        term=Term(0),
        incarnation=100,
        asked=101,
        nonce=nonce,
        bound={str(name): drawn for name, drawn in FOUNDED},
        group_id="A",
    )
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


def test_an_older_record_without_a_member_that_does_not_count_is_taken():
    """The list may be a wrong one: only an id, which all members of one list agree on, brings it on
    the record."""
    node = node_of(Membership(101, Index(3), FOUNDED[:2]))
    assert node.membership.members == ()
    question = sent(node.tick(0), MemberRequest)[0]
    node.step(answer_to(question, MEMBERS), 0)
    assert node.membership.members == MEMBERS
    assert node_of(Membership(101, NO_INDEX, FOUNDED)).membership.members == MEMBERS


def answer_to(
    question: MemberRequest, members, *, of: NodeId = N0, bound=FOUNDED
) -> MemberResponse:
    """Of a member of group A that was founded with ``members``."""
    return MemberResponse(
        group=group_tag("default", members, "A"),
        local_id=of,
        remote_id=question.local_id,
        term=Term(0),
        incarnation=dict(bound)[of],
        asked=question.incarnation,
        nonce=question.nonce,
        bound={str(name): drawn for name, drawn in bound},
        group_id="A",
    )


def test_first_start_with_wrong_list_records_nothing_against_right_one():
    """The right list is taken afterwards."""
    empty = Membership(555)
    wrong = RaftNode(
        config(2),
        N1,
        saved=SavedState(HardState(), summary_of([]), empty),
        dice=lambda n: 5 % n,
        now_ms=0,
        options=RaftOptions(cache_bytes=1 << 20),
    )
    question = only(wrong.tick(0), MemberRequest, N0)
    ready = wrong.step(answer_to(question, MEMBERS), 0)
    assert ready.membership is None
    assert wrong.membership == empty
    assert wrong.strangers[N0].tag == group_tag("default", MEMBERS, "A")
    right = node_of(wrong.membership)
    right.step(answer_to(only(right.tick(0), MemberRequest, N0), MEMBERS), 0)
    assert right.membership == Membership(555, group_id="A", members=MEMBERS)


def test_a_group_is_not_founded_with_a_list_that_a_member_does_not_have():
    """n0 was told two members, n1 three."""
    founder = RaftNode(
        config(2),
        N0,
        saved=SavedState(HardState(), summary_of([]), Membership(100)),
        dice=lambda n: 5 % n,
        now_ms=0,
        options=RaftOptions(cache_bytes=1 << 20),
    )
    other = node_of(Membership(101))
    question = only(founder.tick(0), MemberRequest, N1)
    for answer in sent(other.step(question, 0), MemberResponse):
        founder.step(answer, 0)
    answer = MemberResponse(
        group=other.tag,
        local_id=N1,
        remote_id=N0,
        term=Term(-1),
        incarnation=101,
        asked=100,
        nonce=question.nonce,
        is_empty=True,
    )
    founder.step(answer, 0)
    assert not founder.membership.founded
    assert founder.strangers[N1].tag == other.tag
    assert other.strangers[N0].tag == founder.tag


def test_an_id_is_not_learned_from_another_group_that_got_ids_before():
    """Both are of one name and one list, and nobody of the one was ever in the other."""
    node = member("")
    others = tuple((name, drawn + 1000) for name, drawn in FOUNDED)
    question = only(node.tick(0), MemberRequest, N0)
    node.step(answer_to(question, MEMBERS, bound=others), 0)
    assert node.membership.group_id == ""
    node.step(answer_to(question, MEMBERS, bound=(others[0], *FOUNDED[1:])), 0)
    assert node.membership.group_id == "A"
