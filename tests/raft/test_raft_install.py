"""Taking over a leader's state: when a follower asks for it, and what then becomes of its log."""

from __future__ import annotations

import pytest

from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.entry import LogEnd
from dledger.protocol.messages.peer import PushEntryResponse, VoteResult
from dledger.raft import LogSummary, RaftNode, SafetyViolation
from dledger.raft.roles.snapshot_install import InstallMode
from dledger.types import Index, Position, Role, Term
from tests.raft.raft_bench import (
    APPEND,
    COMPARE,
    INSTALL,
    N1,
    N2,
    follow,
    following,
    lead,
    log_of,
    node_with,
    only,
    push,
    started,
    vote,
    voted,
)


def first(term, index):
    return Position(Term(term), Index(index))


def test_follower_below_the_leaders_first_entry_asks_for_its_state():
    node = following(0, 0)
    ready = node.step(push(INSTALL, 5, (4, 7), commit=9), 0)
    assert (ready.install.leader_id, ready.install.first) == (N1, first(4, 7))
    response = only(ready, PushEntryResponse)
    assert (response.type, response.code, response.index) == (INSTALL, Code.INCONSISTENT_STATE, 7)
    assert node.end_index == 1, "nothing is changed before the state is here"
    assert node.committed_index == -1, "nothing counts as committed that is not here"


def test_a_follower_that_holds_the_leaders_first_entry_asks_for_nothing():
    node = following(0, 0, 4)
    ready = node.step(push(INSTALL, 5, (4, 2), commit=2), 0)
    assert ready.install is None
    assert only(ready, PushEntryResponse).code is Code.SUCCESS


def test_a_leader_of_an_old_term_gives_no_state():
    """D6: as any push."""
    node = following(0, 0)
    ready = node.step(push(INSTALL, 4, (4, 7), commit=9, of=N2), 0)
    assert ready.install is None
    assert only(ready, PushEntryResponse).code is Code.EXPIRED_TERM


def test_a_first_entry_above_the_leaders_commit_is_not_believed():
    node = following(0, 0)
    ready = node.step(push(INSTALL, 5, (4, 7), commit=6), 0)
    assert ready.install is None
    assert [fact.event for fact in ready.facts] == ["malformed_push"]


def test_a_first_entry_that_contradicts_a_committed_one_stops_the_node():
    node = following(0, 0, 1, committed=2)
    with pytest.raises(SafetyViolation, match="keeps its files"):
        node.step(push(INSTALL, 5, (4, 2), commit=9), 0)
    with pytest.raises(SafetyViolation):
        following(0, 0, 1, committed=2).install_mode(first(4, 2))


@pytest.mark.parametrize(
    ("log", "state"), [((0, 0), (4, 7)), ((0, 0, 1, 1), (4, 2))], ids=["shorter", "other entry"]
)
def test_a_log_without_the_first_entry_of_the_state_is_replaced(log, state):
    """An entry in that place and those behind it are not committed: the logs do not match (Raft
    paper, 5.3)."""
    assert following(*log).install_mode(first(*state)) is InstallMode.REPLACE


def test_a_log_that_holds_that_entry_keeps_what_is_behind_it():
    """Others may count on its acknowledgement of that."""
    assert following(0, 0, 4, 4).install_mode(first(4, 2)) is InstallMode.KEEP


def test_a_damaged_committed_entry_in_that_place_is_the_same_one():
    node = following(0, 0, 1, 4, committed=3)
    node.set_faulty([(Index(1), Index(2))], 0)
    assert node.install_mode(first(4, 2)) is InstallMode.KEEP


def test_a_log_that_begins_there_or_later_gains_nothing():
    node = following(0, 0, 4, 4, committed=3)
    node.forget(Index(2))
    assert node.install_mode(first(4, 2)) is None
    assert node.install_mode(first(0, 1)) is None


def test_a_leader_takes_no_state_over():
    node = node_with(0, 0)
    lead(node)
    assert node.role is Role.LEADER
    assert node.install_mode(first(9, 70)) is None


def installed() -> RaftNode:
    """A node whose log consists of entry 7, as a state that was taken over leaves it."""
    end = LogEnd.after(log_of(*[0] * 7, 4)[-1])
    log = LogSummary(Index(7), end, ((Term(4), Index(7)),), Index(7))
    node = started(log, 5)
    follow(node, 5)
    return node


def test_a_node_with_a_state_goes_on_behind_its_first_entry():
    node = installed()
    offered = node.step(push(INSTALL, 5, (4, 7), commit=9), 0)
    assert only(offered, PushEntryResponse).code is Code.SUCCESS
    ready = node.step(push(COMPARE, 5, (4, 7), commit=9), 0)
    watermarks = [m.index for m in ready.messages if m.type is APPEND]
    assert watermarks == [7], "its first entry is durable, and with it all before it"
    ready = node.step(push(APPEND, 5, (4, 7), log_of(*[0] * 7, 4, 5)[8:], commit=9), 0)
    assert [entry.index for entry in ready.append] == [8]
    assert node.committed_index == 8
    node.check()


def test_a_node_with_a_state_votes_by_the_term_of_its_entry():
    """A log that ended at a mere place would say yes to whoever is shorter."""
    node = installed()
    refusals = {
        (3, 9): VoteResult.REJECT_EXPIRED_LEDGER_TERM,
        (4, 6): VoteResult.REJECT_SMALL_LEDGER_END_INDEX,
    }
    for end, result in refusals.items():
        assert voted(node, vote(9, end), 10_000) is result
