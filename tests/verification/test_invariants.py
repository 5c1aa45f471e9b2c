"""Each invariant holds for a group that does nothing wrong, and is broken by one that does."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from dledger.catalog.results import CommandResult, DataResult
from dledger.errors import CorruptEntry, StorageError
from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.entry import HEADER_SIZE, MAGIC_NORMAL, Entry, LogEnd, stamp
from dledger.protocol.messages.entry_runs import Entries, stamp_all
from dledger.protocol.messages.membership import Change, Member, MemberRole
from dledger.protocol.messages.peer import (
    HeartBeatRequest,
    PushEntryRequest,
    PushEntryResponse,
    PushType,
    VoteRequest,
    VoteResponse,
    VoteResult,
)
from dledger.raft.roles.leader import Leader
from dledger.raft.state.ready import ReadDone
from dledger.records.body.header import BodyHeader, BodyKind, Flag, encode_header
from dledger.testing.checkers.notation import parse
from dledger.types import Index, NodeId, Position, Role, Term
from tests.verification.watching import breaks
from verification.disk.memory_store import owned
from verification.invariants.reads import leads_with_quorum
from verification.invariants.view import Memory

Group = Any  # the fixture of conftest


def message(kind: type[Any], of: str, to: str, term: int, **fields: Any) -> Any:
    sides = {"group": "default", "local_id": NodeId(of), "remote_id": NodeId(to)}
    return kind(**sides, term=Term(term), **fields)


def vote(
    me: str, candidate: str, term: int, result: VoteResult = VoteResult.ACCEPT, **more: Any
) -> VoteResponse:
    return message(
        VoteResponse, me, candidate, term, request_term=Term(term), result=result, **more
    )


def ask(me: str, voter: str, term: int, **more: Any) -> VoteRequest:
    end = Position(Term(0), Index(0))
    return message(VoteRequest, me, voter, term, ledger_end=end, **more)


def send(group: Group, *messages: Any) -> None:
    for message in messages:
        group.watch.sent(message.local_id, message.remote_id, message)


def votes(group: Group, name: str, candidate: str, term: int) -> None:
    """The node gives its vote, and has it on its disk."""
    group.save(name, term, candidate)
    send(group, vote(name, candidate, term))


def test_group_that_does_nothing_wrong_breaks_nothing(group: Group) -> None:
    group.replicate(1, 3)
    group.replicate(2, 2, leader="n1")
    group.watch.ended("n2")
    for name in ("n0", "n1"):
        group.look(name)
    assert group.watch.broken is None
    assert group.watch.truth.committed_index == 4


# --- elections ------------------------------------------------------------------------------------


def test_i1_two_leaders_in_one_term_are_found(group: Group) -> None:
    group.lead("n0", 3)
    breaks("I1", group.lead, "n1", 3)
    assert group.watch.broken is not None


def test_i1_a_node_that_leads_the_same_term_again_after_a_restart_is_found(group: Group) -> None:
    group.lead("n0", 3)
    group.watch.ended("n0")
    group.nodes["n0"] = group.start("n0", term=3, voted_for="n0")
    breaks("I1", group.lead, "n0", 3)


def test_i1_a_leader_whose_vote_could_not_be_saved_was_none(group: Group) -> None:
    """A group of one elects itself within one step of the core, before the disk is asked."""
    group.role("n0", Role.LEADER, 3, "n0", saved=False)
    group.watch.ended("n0")
    group.nodes["n0"] = group.start("n0", term=2)
    group.lead("n0", 3)
    assert group.watch.broken is None


def test_i1_a_leader_counts_once_its_vote_is_saved(group: Group) -> None:
    group.role("n0", Role.LEADER, 3, "n0", saved=False)
    group.save("n0", 3, "n0")
    group.look("n0")
    breaks("I1", group.lead, "n1", 3)


def test_i4_a_leader_without_a_committed_entry_is_found(group: Group) -> None:
    group.on_disks("n0", "n1")
    group.commit("n0", 1)
    breaks("I4", group.lead, "n2", 2)


def test_i4_a_commit_of_an_old_leader_that_a_newer_one_lacks_is_found(group: Group) -> None:
    group.on_disks("n0", "n1")
    group.lead("n2", 2)
    breaks("I4", group.commit, "n0", 1)


def test_i4_late_leader_of_an_old_term_may_lack_newer_commits(group: Group) -> None:
    """Its votes were under way when the newer one was elected; nobody follows it."""
    group.on_disks("n0", "n1", term=3)
    group.commit("n0", 1)
    group.lead("n2", 2)


def test_d11_vote_request_without_a_quorum_of_pre_votes_is_found(group: Group) -> None:
    """A candidate has asked for votes too early."""
    group.save("n0", 3, "n0")
    group.save("n1", 3)
    refused = vote("n1", "n0", 3, VoteResult.REJECT_ALREADY_HAS_LEADER, pre_vote=True)
    send(group, refused, vote("n1", "n0", 2, pre_vote=True), vote("n1", "n2", 3, pre_vote=True))
    breaks("D11", send, group, ask("n0", "n1", 3))
    send(group, ask("n0", "n1", 3, transfer=True))
    send(group, vote("n1", "n0", 3, pre_vote=True), ask("n0", "n1", 3))


def test_i8_two_votes_in_one_term_are_found(group: Group) -> None:
    votes(group, "n0", "n1", 2)
    group.save("n0", 2, "n2")
    breaks("I8", send, group, vote("n0", "n2", 2))


def test_i8_a_vote_for_another_after_ones_own_is_found(group: Group) -> None:
    group.save("n0", 2, "n0")
    send(group, ask("n0", "n1", 2, transfer=True))
    group.save("n0", 2, "n2")
    breaks("I8", send, group, vote("n0", "n2", 2))


def test_i8_a_vote_that_is_forgotten_at_a_restart_is_found(group: Group) -> None:
    votes(group, "n0", "n1", 2)
    group.watch.ended("n0")
    breaks("I8", lambda: group.start("n0", term=2, voted_for=None))


def test_i8_a_vote_that_changes_within_a_term_is_found(group: Group) -> None:
    group.role("n0", Role.CANDIDATE, 2, "n1")
    breaks("I8", group.role, "n0", Role.CANDIDATE, 2, "n2")


def test_i8_pre_votes_bind_nobody(group: Group) -> None:
    group.save("n0", 2)
    send(group, vote("n0", "n1", 2, pre_vote=True), vote("n0", "n2", 2, pre_vote=True))


def test_i8_a_node_that_lost_its_disk_owes_no_vote(group: Group) -> None:
    votes(group, "n0", "n1", 2)
    group.lose_disk("n0")
    group.start("n0", term=2, voted_for=None)


def test_i9_a_term_that_goes_back_is_found(group: Group) -> None:
    group.role("n0", Role.CANDIDATE, 5)
    breaks("I9", group.role, "n0", Role.CANDIDATE, 4)


def test_i9_a_term_that_is_forgotten_at_a_restart_is_found(group: Group) -> None:
    group.save("n0", 5)
    send(group, vote("n0", "n1", 5, VoteResult.REJECT_ALREADY_VOTED))
    group.watch.ended("n0")
    breaks("I9", lambda: group.start("n0", term=4))


# --- logs -----------------------------------------------------------------------------------------


def test_i2_a_leader_that_cuts_its_log_is_found(group: Group) -> None:
    group.lead("n0", 1)
    group.append(group.entries(1, 3), "n0")
    group.nodes["n0"].log.truncate(Index(1))
    breaks("I2", group.look, "n0")
    breaks("I2", group.ready, "n0", truncate_to=Index(1))


def test_i3_two_entries_in_one_place_of_one_term_are_found(group: Group) -> None:
    group.append(group.entries(1, 2), "n0")
    other = stamp(LogEnd(), Term(1), MAGIC_NORMAL, b"other", group.config.segment_bytes)
    breaks("I3", group.append, (other,), "n1")


def test_i3_an_entry_that_leaves_a_gap_is_found(group: Group) -> None:
    breaks("I3", group.ready, "n0", append=group.entries(1, 2)[1:])


def test_i3_terms_that_go_back_in_a_log_are_found(group: Group) -> None:
    first = group.entries(2, 1)
    group.append(first, "n0")
    breaks("I3", group.ready, "n0", append=group.entries(1, 1, LogEnd.after(first[0])))


def test_i3_a_log_that_is_not_what_its_effects_make_is_found(group: Group) -> None:
    entries = group.entries(1, 2)
    group.nodes["n0"].log.append(Entries.of(entries))
    breaks("I3", group.ready, "n0", append=entries[:1])


def test_i3_a_recovered_log_that_nobody_wrote_is_found(group: Group) -> None:
    group.append(group.entries(1, 2), "n0")
    group.watch.ended("n0")
    (first,) = group.entries(1, 1)
    other = stamp(LogEnd.after(first), Term(1), MAGIC_NORMAL, b"x", 1 << 20)
    breaks("I3", group.start, "n0", (first, other))


def test_i14_a_cut_below_what_the_node_knew_to_be_committed_is_found(group: Group) -> None:
    group.replicate(1, 3)
    breaks("I14", group.ready, "n1", truncate_to=Index(1))


def test_i14_a_cut_of_an_entry_that_others_have_committed_is_found(group: Group) -> None:
    group.on_disks("n0", "n1")
    group.commit("n0", 1)
    breaks("I14", group.ready, "n1", truncate_to=Index(0))


def test_i14_a_cut_of_an_entry_that_another_took_the_place_of_is_right(group: Group) -> None:
    group.append(group.entries(1, 2), "n2")
    group.on_disks("n0", "n1", term=2)
    group.commit("n0", 1)
    group.cut("n2", -1)


def test_i14_a_cut_that_a_crash_undid_is_made_again_in_a_later_life(group: Group) -> None:
    """What took the place of the old entries was committed, but had not come to this node's
    disk."""
    old = group.entries(1, 2)
    group.append(old, "n2")
    new = group.on_disks("n0", "n1", term=2)
    group.commit("n0", 1)
    group.cut("n2", -1)
    group.nodes["n2"].log.append(Entries.of(new))
    group.ready("n2", append=new)
    group.commit("n2", 1)
    for _ in range(2):
        group.watch.ended("n2")
        group.nodes["n2"] = group.start("n2", old)
    group.cut("n2", -1)
    assert group.watch.broken is None


@pytest.mark.parametrize("begin", [4, -1])
def test_i15_a_log_that_begins_behind_its_commit_or_goes_back_is_found(
    group: Group, begin: int
) -> None:
    group.replicate(1, 3)
    node = group.nodes["n0"]
    node.log.begin_index = node.store.begin_index = Index(begin)
    breaks("I15", group.look, "n0")


def test_i15_a_log_that_begins_later_after_retention_is_right(group: Group) -> None:
    group.replicate(1, 3)
    node = group.nodes["n0"]
    node.log.begin_index = node.store.begin_index = Index(2)
    group.look("n0")


# --- commits --------------------------------------------------------------------------------------


def test_i6_a_commit_index_that_goes_back_is_found(group: Group) -> None:
    group.replicate(1, 3)
    breaks("I6", group.commit, "n1", 1)


def test_i6_a_commit_that_a_follower_makes_is_found(group: Group) -> None:
    group.append(group.entries(1, 2), "n0", "n1", "n2")
    breaks("I6", group.commit, "n1", 1)


def test_i6_a_commit_of_an_old_term_by_counting_is_found(group: Group) -> None:
    group.append(group.entries(1, 2), "n0", "n1", "n2")
    group.lead("n0", 2)
    breaks("I6", group.commit, "n0", 1)


def test_i6_a_follower_that_calls_another_entry_committed_is_found(group: Group) -> None:
    group.on_disks("n0", "n1", term=2)
    group.commit("n0", 1)
    group.append(group.entries(1, 2), "n2")
    breaks("I6", group.commit, "n2", 1)


def test_i6_a_node_that_starts_with_a_commit_that_nobody_had_is_found(group: Group) -> None:
    group.append(group.entries(1, 2), "n0")
    node = group.nodes["n0"]
    node.log.committed_index = Index(1)
    breaks("I6", group.watch.started, NodeId("n0"), node.server)


def test_i7_a_commit_that_is_on_too_few_disks_is_found(group: Group) -> None:
    entries = group.on_disks("n0")
    group.nodes["n1"].log.append(Entries.of(entries))
    group.ready("n1", append=entries)
    assert "['n0']" in breaks("I7", group.commit, "n0", 1)


def test_i7_a_commit_counts_what_a_node_that_is_down_has_on_its_disk(group: Group) -> None:
    group.on_disks("n0", "n1")
    group.watch.ended("n1")
    group.commit("n0", 1)


def test_i7_commit_counts_a_disk_lost_after_its_node_acknowledged(group: Group) -> None:
    group.on_disks("n0", "n1")
    group.lose_disk("n1")
    group.commit("n0", 1)


def test_i7_a_commit_that_a_lost_disk_never_had_is_found(group: Group) -> None:
    entries = group.on_disks("n0")
    group.append(entries[:1], "n1")
    group.lose_disk("n1")
    assert "['n0']" in breaks("I7", group.commit, "n0", 1)


@pytest.mark.parametrize("is_lost", [True, False], ids=["lost disk", "machine that is there"])
def test_i7_commit_that_counts_a_replaced_member_is_found(group: Group, is_lost: bool) -> None:
    """Another disk was admitted in place of the one that has the entry."""
    group.on_disks("n0", "n1")
    if is_lost:
        group.lose_disk("n1")
    group.count("n0", 0, n1=7)
    assert "['n0']" in breaks("I7", group.commit, "n0", 1)


def test_i7_a_commit_counts_what_a_machine_has_that_is_away(group: Group) -> None:
    entries = group.on_disks("n0")
    group.watch.ended("n1")
    former = group.watch.exchanged("n1", Memory())
    group.nodes["n1"] = group.start("n1", term=1)
    group.append(entries, "n1")
    group.watch.ended("n1")
    group.watch.exchanged("n1", former)
    group.commit("n0", 1)


def test_i8_a_disk_that_comes_back_owes_its_votes(group: Group) -> None:
    votes(group, "n0", "n1", 2)
    group.watch.ended("n0")
    former = group.watch.exchanged("n0", Memory())
    group.start("n0", term=0, voted_for=None)
    group.watch.ended("n0")
    group.watch.exchanged("n0", former)
    breaks("I8", lambda: group.start("n0", term=2, voted_for=None))


def test_i7_a_core_that_takes_more_for_durable_than_its_store_is_found(group: Group) -> None:
    group.append(group.entries(1, 2), "n0")
    group.nodes["n0"].store.durable = Position(Term(1), Index(0))
    group.nodes["n0"].view.durable = -1
    breaks("I7", group.look, "n0")


def test_i7_a_log_that_comes_back_shorter_than_what_was_durable_is_found(group: Group) -> None:
    entries = group.entries(1, 3)
    group.append(entries, "n0")
    group.watch.ended("n0")
    breaks("I7", group.start, "n0", entries[:2])


@pytest.mark.parametrize(
    ("durable", "faulty", "is_found"),
    [(2, (), True), (1, (), True), (1, (1, 1), False), (1, (2, 2), True), (2, (1, 2), True)],
)
def test_i7_only_a_damaged_entry_before_the_last_may_change_its_term(
    group: Group, durable: int, faulty: tuple[int, int], is_found: bool
) -> None:
    """A log that comes back with another entry has lost what it had."""
    entries = group.entries(1, 3)
    others = (*entries[:1], *group.entries(2, 2, LogEnd.after(entries[0])))
    group.append(entries, "n0")
    group.append(others, "n1")
    group.watch.ended("n0")
    group.nodes["n0"].view.memory.durable = durable
    if is_found:
        breaks("I7", group.start, "n0", others, faulty)
    else:
        group.start("n0", others, faulty)


# --- members --------------------------------------------------------------------------------------


def bind(group: Group, name: str, index: int, **changed: int) -> None:
    group.count(name, index, **changed)
    group.look(name)


def test_i17_members_admitted_in_turn_by_all_nodes_alike_are_right(group: Group) -> None:
    group.replicate(1, 3)
    for name in ("n0", "n1"):
        bind(group, name, 1, n1=7)
        bind(group, name, 2, n1=7, n2=8)
    bind(group, "n2", 2, n1=7, n2=8)
    assert group.watch.broken is None


@pytest.mark.parametrize(
    ("before", "node", "index", "changed"),
    [({}, "n0", 1, {"n1": 7, "n2": 8}), ({"n1": 7}, "n1", 1, {"n1": 9}), ({}, "n0", 3, {"n1": 7})],
    ids=["two at once", "others by the same entry", "by an entry that is not committed"],
)
def test_i17_a_change_of_who_counts_that_no_entry_makes_is_found(
    group: Group, before: dict[str, int], node: str, index: int, changed: dict[str, int]
) -> None:
    group.replicate(1, 3)
    if before:
        bind(group, "n0", 1, **before)
    breaks("I17", bind, group, node, index, **changed)


def test_i17_a_node_that_takes_part_with_another_list_of_members_is_found(group: Group) -> None:
    group.config = replace(group.config, members=(NodeId("n0"), NodeId("n1")))
    group.watch.ended("n1")
    assert "n1 takes part with ('n0', 'n1')" in breaks("I17", group.start, "n1")


def test_i17_a_list_under_way_may_be_told_beside_one_of_the_log(group: Group) -> None:
    """An operator tells a new list at once; the entry may be cut while the node runs."""
    told = NodeId("n0"), NodeId("n1")
    group.config = replace(group.config, members=told)
    some = tuple(Member(node, node, 1, MemberRole.VOTER, 0) for node in told)
    change = Change(Position(Term(1), Index(1)), Index(-1), NodeId(""), 0, some)
    admission = group.nodes[NodeId("n1")].machine.admission
    view = group.nodes[NodeId("n1")].view
    view.machine.config = group.config
    known = replace(admission.membership, changes=(change,))
    members = group.watch.members
    assert "takes part with" in breaks("I17", members._told, view, known), "the told list counts"
    members._told(view, replace(known, listed=some[:1]))
    members._told(view, replace(known, listed=some[:1], changes=()))


def test_i17_lists_whose_majorities_need_not_meet_are_found(group: Group) -> None:
    group.replicate(1, 3)
    group.nodes[NodeId("n0")].machine.voters = (NodeId("n0"), NodeId("n3"), NodeId("n4"))
    assert "counts" in breaks("I17", bind, group, "n0", 1, n1=7)


def test_i17_two_lists_in_flight_are_found(group: Group) -> None:
    group.replicate(1, 3)
    node = group.nodes[NodeId("n0")]
    one = Member(NodeId("n0"), "n0", 1, MemberRole.VOTER, 0)
    flying = [
        Change(Position(Term(1), Index(at)), Index(-1), NodeId(""), 0, (one,)) for at in (1, 2)
    ]
    group.watch.members._truth = SimpleNamespace(committed_index=0)
    admission = node.machine.admission
    admission.membership = replace(admission.membership, changes=tuple(flying))
    assert "in flight" in breaks("I17", group.look, "n0")


def test_i17_a_change_that_is_taken_back_is_found(group: Group) -> None:
    group.replicate(1, 3)
    bind(group, "n0", 2, n1=7)
    breaks("I17", bind, group, "n0", 1, n1=7)


def test_i17_a_node_that_ends_by_a_list_from_before_its_disk_is_found(group: Group) -> None:
    group.replicate(1, 3)
    members, admission = group.watch.members, group.nodes[NodeId("n0")].machine.admission
    bind(group, "n0", 1, n1=7)
    without, members._bound[2] = (("n1", 7), ("n2", 0)), members._bound[1]
    members._bound[0] = without
    admission.end()
    group.watch.memories["n0"].since = 0
    group.look("n0")
    group.watch.memories["n0"].since = members.newest
    admission.membership = replace(admission.membership)
    assert "takes itself for removed" in breaks("I17", group.look, "n0")


def test_i17_an_admission_of_another_disk_than_there_is_is_found(group: Group) -> None:
    group.replicate(1, 3)
    bind(group, "n0", 1, n1=7)
    bind(group, "n0", 2, n1=8)
    for incarnation in (7, 8):
        group.watch.members.admitted("n1", incarnation)
    assert "no list has it as 9" in breaks("I17", group.watch.members.admitted, "n1", 9)


def test_i17_a_group_that_is_founded_twice_is_found(group: Group) -> None:
    breaks("I17", bind, group, "n0", -1, n0=5)


# --- what is applied ------------------------------------------------------------------------------


def data(*headers: dict[str, Any]) -> tuple[Entry, ...]:
    """Entries with a batch of two records for topic 1 each."""
    bodies = [
        encode_header(BodyHeader(BodyKind.DATA, **({"topic_id": 1, "count": 2} | header)))
        for header in headers
    ]
    return tuple(map(owned, stamp_all(LogEnd(), Term(1), MAGIC_NORMAL, bodies, 1 << 20)))


def committed(group: Group, *headers: dict[str, Any]) -> tuple[Entry, ...]:
    """Batches that all nodes have and call committed."""
    group.lead("n0", 1)
    entries = data(*headers)
    group.append(entries, "n0", "n1", "n2")
    for name in ("n0", "n1", "n2"):
        group.commit(name, len(entries) - 1)
    return entries


def apply(group: Group, name: str, entry: Entry, result: Any) -> None:
    group.watch.applied(group.nodes[name].view, entry, result)


def ok(base: int) -> DataResult:
    return DataResult(Code.SUCCESS, base)


def test_i5_a_node_that_applies_another_entry_is_found(group: Group) -> None:
    committed(group, {})
    breaks("I5", apply, group, "n0", *data({"count": 3}), ok(0))


def test_i5_a_node_that_applies_changed_bytes_is_found(group: Group) -> None:
    [entry] = committed(group, {})
    changed = bytearray(entry.body)
    changed[-1] ^= 1
    breaks("I5", apply, group, "n0", replace(entry, body=bytes(changed)), ok(0))


def test_i5_nodes_that_make_different_things_of_an_entry_are_found(group: Group) -> None:
    [entry] = committed(group, {})
    apply(group, "n0", entry, ok(0))
    breaks("I5", apply, group, "n1", entry, ok(2))


def test_i11_an_offset_that_is_given_twice_or_left_out_is_found(group: Group) -> None:
    first, second, third = committed(group, {}, {}, {})
    apply(group, "n0", first, ok(0))
    apply(group, "n0", second, ok(2))
    breaks("I11", apply, group, "n0", third, ok(5))


def test_i11_transactions_share_the_offsets_of_their_partitions(group: Group) -> None:
    first, commit = committed(group, {}, {"flags": Flag.STAGED})
    topics = group.nodes["n0"].catalog.topics_state.by_name
    topics["t"] = SimpleNamespace(topic_id=1)
    apply(group, "n0", first, ok(0))
    made = {"repeated": False, "records": 3, "offsets": {"t": {0: [1, 4]}}}
    breaks("I11", apply, group, "n0", commit, CommandResult(Code.SUCCESS, "", made))


SESSION = {"producer_id": 7, "sequence": 0}


@pytest.mark.parametrize(
    ("before", "batch"),
    [
        (SESSION, SESSION),
        (SESSION, {"producer_id": 7, "sequence": 2}),
        ({"producer_id": 7, "producer_epoch": 1}, SESSION),
    ],
    ids=["taken twice", "before its turn", "of a fenced session"],
)
def test_i16_a_batch_that_is_not_the_next_of_its_session_is_found(
    group: Group, before: dict[str, int], batch: dict[str, int]
) -> None:
    first, second = committed(group, before, batch)
    apply(group, "n0", first, ok(0))
    breaks("I16", apply, group, "n0", second, ok(2))


def test_i16_a_batch_that_is_repeated_with_its_first_offset_is_right(group: Group) -> None:
    first, second = committed(group, SESSION, SESSION)
    apply(group, "n0", first, ok(0))
    apply(group, "n0", second, ok(0))


def test_i10_an_acknowledgement_of_what_is_not_there_is_found(group: Group) -> None:
    [entry] = committed(group, {})
    group.watch.applied_log.topic_ids["t"] = [1]
    apply(group, "n0", entry, ok(0))
    group.watch.applied_log.acknowledged("t", 0, 0, 2)
    breaks("I10", group.watch.applied_log.acknowledged, "t", 0, 1, 3)


# --- reads ----------------------------------------------------------------------------------------


def test_i12_a_catalog_that_shows_more_than_is_committed_is_found(group: Group) -> None:
    group.replicate(1, 3)
    group.nodes["n0"].catalog.applied_index = Index(3)
    breaks("I12", group.look, "n0")


def test_i12_an_entry_that_is_applied_before_it_is_committed_is_found(group: Group) -> None:
    entries = group.entries(1, 1)
    group.append(entries, "n0")
    breaks("I12", apply, group, "n0", entries[0], None)


def test_i12_a_body_that_is_served_before_it_is_committed_is_found(group: Group) -> None:
    entry = group.entries(1, 1)[0]
    group.append((entry,), "n0")
    view, refs = group.nodes["n0"].view, [(0, 0, entry.size)]
    breaks("I12", group.watch.storage.bodies, view, refs, [entry.body])


def test_i13_a_read_index_below_what_was_committed_before_is_found(group: Group) -> None:
    group.replicate(1, 3)
    group.watch.reads.asked(group.nodes["n1"].view, 1)
    breaks("I13", group.ready, "n1", reads=(ReadDone(1, Code.SUCCESS, Index(1)),))


def test_i13_a_read_that_is_refused_may_say_anything(group: Group) -> None:
    group.replicate(1, 3)
    group.watch.reads.asked(group.nodes["n1"].view, 1)
    group.ready("n1", reads=(ReadDone(1, Code.NOT_LEADER, Index(-1)),))


def test_i13_a_catalog_that_goes_back_is_found(group: Group) -> None:
    group.replicate(1, 3)
    group.nodes["n0"].catalog.applied_index = Index(2)
    group.look("n0")
    group.nodes["n0"].catalog.applied_index = Index(1)
    breaks("I13", group.look, "n0")


def leads(group: Group, *followers: Any, **parts: Any) -> Any:
    """n0 leads, and sends to these followers."""
    group.lead("n0", 1)
    leader = group.nodes["n0"].machine.acting = Leader.__new__(Leader)
    leader.dispatchers = {NodeId(f"n{at}"): one for at, one in enumerate(followers, 1)}
    vars(leader).update(parts)
    return group.nodes["n0"].view


def leader_that_heard(group: Group, *heard_ms: int) -> Any:
    return leads(group, *(SimpleNamespace(heard_ms=ms) for ms in heard_ms))


def test_i18_a_leader_that_lost_its_quorum_and_goes_on_is_found(group: Group) -> None:
    view = leader_that_heard(group, 1000, 1000)
    late_ms = 1000 + group.config.election_ms + group.config.heartbeat_ms + 1
    breaks("I18", leads_with_quorum, view, late_ms)


def test_i18_a_leader_that_hears_one_of_two_goes_on(group: Group) -> None:
    view = leader_that_heard(group, 0, 5000)
    leads_with_quorum(view, 5000 + group.config.election_ms)


# --- storage --------------------------------------------------------------------------------------


def test_i20_an_entry_that_is_read_and_was_never_written_is_found(group: Group) -> None:
    breaks("I20", group.watch.storage.entries, group.nodes["n0"].view, group.entries(1, 1))


def test_i20_wrong_bytes_of_an_entry_are_found(group: Group) -> None:
    entry = group.entries(1, 1)[0]
    group.append((entry,), "n0")
    view, wrong = group.nodes["n0"].view, replace(entry, body=b"bodX")
    breaks("I20", group.watch.storage.entries, view, (wrong,))


def test_i20_wrong_bytes_for_a_reader_are_found(group: Group) -> None:
    entry = group.replicate(1, 1)[0]
    view, refs, bodies = group.nodes["n0"].view, [(0, 0, entry.size)], group.watch.storage.bodies
    bodies(view, refs, [entry.body])
    breaks("I20", bodies, view, refs, [b"bodX"])
    breaks("I20", bodies, view, refs, [entry.body + b"x"])
    assert entry.size == HEADER_SIZE + 4


def test_i20_a_disk_that_has_another_log_at_the_end_is_found(group: Group) -> None:
    entries = group.replicate(1, 2)
    view = group.nodes["n0"].view
    view.store.read = lambda begin, size, end: list(entries[begin:end])
    assert group.watch.storage.read_all(view) == 1
    view.store.read = lambda begin, size, end: list(group.entries(3, 2)[begin:end])
    breaks("I20", group.watch.storage.read_all, view)
    view.store.read = lambda begin, size, end: []
    breaks("I20", group.watch.storage.read_all, view)


def test_i20_an_entry_that_the_store_calls_damaged_is_counted(group: Group) -> None:
    group.replicate(1, 2)

    def damaged(begin: Index, size: int, end: Index) -> list[Entry]:
        raise CorruptEntry("rot")

    view = group.nodes["n0"].view
    view.store.read = damaged
    group.watch.storage.read_all(view)
    assert group.watch.storage.faulty == 2


def beat(term: int) -> HeartBeatRequest:
    return message(HeartBeatRequest, "n0", "n1", term, leader_id=NodeId("n0"))


def test_i21_a_node_that_speaks_or_acts_after_a_fatal_error_is_found(group: Group) -> None:
    node = group.nodes["n0"]
    group.save("n0", 1)
    send(group, beat(1))
    node.server._error = StorageError("the disk failed")
    breaks("I21", send, group, beat(1))
    breaks("I21", group.ready, "n0", committed=Index(0))


def test_i21_a_node_that_writes_after_a_fatal_error_is_found(group: Group) -> None:
    node = group.nodes["n0"]
    node.server._error = StorageError("the disk failed")
    group.look("n0")
    node.disk.operations += 1
    breaks("I21", group.look, "n0")


def test_i22_snapshots_that_differ_are_found(group: Group) -> None:
    group.replicate(1, 3)
    group.watch.storage.saved(group.nodes["n0"].view, b"state", 2)
    breaks("I22", group.watch.storage.saved, group.nodes["n1"].view, b"other", 2)


def test_i22_a_snapshot_of_what_is_not_committed_is_found(group: Group) -> None:
    group.replicate(1, 3)
    breaks("I22", group.watch.storage.saved, group.nodes["n0"].view, b"state", 3)


def test_i22_a_catalog_that_is_restored_differently_is_found(group: Group) -> None:
    entries = group.replicate(1, 3)
    group.watch.storage.saved(group.nodes["n0"].view, b"state", 2)
    group.watch.ended("n0")
    node = type(group.nodes["n0"])(NodeId("n0"), group.config, entries)
    node.catalog.applied_index, node.catalog.snapshot = Index(2), lambda: b"state"
    group.watch.started(NodeId("n0"), node.server)
    node.catalog.snapshot = lambda: b"other"
    breaks("I22", group.watch.started, NodeId("n0"), node.server)


# --- messages and limits --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "message",
    [
        ask("n0", "n1", 2),
        vote("n0", "n1", 2),
        beat(2),
        vote("n0", "n1", 2, VoteResult.REJECT_ALREADY_VOTED),
    ],
)
def test_i23_a_message_before_its_term_or_vote_is_durable_is_found(
    group: Group, message: Any
) -> None:
    group.save("n0", 1)
    breaks("I23", send, group, message)


def test_i23_a_vote_that_is_not_the_durable_one_is_found(group: Group) -> None:
    group.save("n0", 2, "n2")
    breaks("I23", send, group, vote("n0", "n1", 2))
    breaks("I23", send, group, ask("n0", "n1", 2))


def acknowledge(index: int) -> PushEntryResponse:
    fields = {"type": PushType.APPEND, "code": Code.SUCCESS, "index": Index(index)}
    return message(PushEntryResponse, "n1", "n0", 1, **fields)


def test_i23_an_acknowledgement_of_what_is_not_durable_is_found(group: Group) -> None:
    group.append(group.entries(1, 2), "n1")
    group.save("n1", 1)
    send(group, acknowledge(1))
    breaks("I23", send, group, acknowledge(2))


def test_i23_a_message_that_goes_to_another_is_found(group: Group) -> None:
    group.save("n0", 1)
    breaks("I23", group.watch.sent, NodeId("n0"), NodeId("n2"), beat(1))


def test_i19_a_push_over_its_limit_is_found(group: Group) -> None:
    entries = tuple(replace(entry, body=bytes(3 << 20)) for entry in group.entries(1, 2))
    fields = {"leader_id": NodeId("n0"), "type": PushType.APPEND, "entries": entries}
    push = message(PushEntryRequest, "n0", "n1", 1, **fields)
    breaks("I19", group.ready, "n0", messages=(push,))


def leader_with(group: Group, pending: int = 0, flying: int = 0, size: int = 0) -> Any:
    follower = SimpleNamespace(_in_flight=[None] * flying, _in_flight_bytes=size, heard_ms=0)
    leads(group, follower, acks=SimpleNamespace(pending_bytes=pending))
    return lambda: group.ready("n0", messages=(beat(1),))


@pytest.mark.parametrize(
    "over",
    [
        {"pending": 1 << 30},
        {"flying": 100, "size": 1},
        {"flying": 1, "size": 1 << 40},
        {"flying": 0, "size": 5},
    ],
)
def test_i19_a_queue_over_its_limit_is_found(group: Group, over: dict[str, int]) -> None:
    breaks("I19", leader_with(group, **over))


def test_i19_a_cache_over_its_limit_is_found(group: Group) -> None:
    group.append(group.entries(1, 5), "n0")
    group.nodes["n0"].log._cache_bytes = 10
    breaks("I19", group.ready, "n0", messages=(beat(1),))


def test_i19_a_cache_of_what_is_still_to_be_written_is_right(group: Group) -> None:
    group.append(group.entries(1, 5), "n0")
    log = group.nodes["n0"].log
    log._cache_bytes, log.durable_index = 10, Index(-1)
    group.ready("n0", messages=(beat(1),))


def test_i19_queues_within_their_limits_are_right(group: Group) -> None:
    leader_with(group, pending=1000, flying=64, size=1000)()


# --- the end --------------------------------------------------------------------------------------


def finish(group: Group) -> None:
    """All nodes as they should be at the end."""
    entries = group.replicate(1, 2)
    for name, node in group.nodes.items():
        node.catalog.applied_index = Index(1)
        node.machine.term = Term(1)
        node.store.read = lambda begin, size, end: list(entries[begin:end])
        group.look(name)


def test_i24_equal_nodes_are_right(group: Group) -> None:
    finish(group)
    assert group.watch.finish().operations == 0


@pytest.mark.parametrize(
    "differ",
    [
        lambda node: setattr(node.catalog, "applied_index", Index(0)),
        lambda node: setattr(node.log, "committed_index", Index(0)),
        lambda node: setattr(node.catalog, "digest", lambda: 1),
        lambda node: setattr(node.machine, "term", Term(0)),
    ],
)
def test_i24_a_node_that_is_not_like_the_others_at_the_end_is_found(
    group: Group, differ: Any
) -> None:
    finish(group)
    differ(group.nodes["n2"])
    breaks("I24", group.watch.finish)


def test_i24_a_group_without_a_leader_at_the_end_is_found(group: Group) -> None:
    finish(group)
    group.nodes["n0"].machine.role = Role.FOLLOWER
    breaks("I24", group.watch.finish)


def test_i25_a_healed_group_that_commits_nothing_is_found(group: Group) -> None:
    group.replicate(1, 2)
    group.watch.healed()
    group.now_ms = 20 * group.config.election_ms
    group.look("n0")
    group.now_ms += 1
    breaks("I25", group.look, "n0")


def test_i25_a_healed_group_that_commits_in_time_is_right(group: Group) -> None:
    group.replicate(1, 2)
    group.watch.healed()
    group.now_ms = 5000
    group.replicate(2, 1, leader="n1")
    group.now_ms = 1_000_000
    group.look("n0")


def test_i25_a_group_that_is_hurt_again_owes_nothing(group: Group) -> None:
    group.watch.healed()
    group.watch.hurt()
    group.now_ms = 1_000_000
    group.look("n0")


def test_i26_a_history_that_is_none_of_a_log_is_found(group: Group) -> None:
    finish(group)
    history = parse("w 0-1 append a -> 0\nr 2-3 end -> 0")
    assert "lost write" in breaks("I26", group.watch.finish, history)
