"""Whom to ask, when again, and what to say in the end: without sockets and without a clock."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dledger.client.protocol.outcome import VERDICTS, AnswerOutcome, answer_outcome, error_for
from dledger.client.protocol.routing import (
    CLOSINGS,
    LIST_MS,
    Ask,
    Call,
    CallPolicy,
    Probe,
    RetryTimes,
    Routes,
    Wait,
)
from dledger.errors import (
    Behind,
    DiskFull,
    DLedgerError,
    NotLeader,
    OffsetOutOfRange,
    OutcomeUnknown,
    ProtocolError,
    QueueFull,
    TopicNotFound,
    Unavailable,
)
from dledger.protocol.messages.client import MetadataResponse
from dledger.protocol.messages.codes import Code
from dledger.types import NodeId

PEERS = {"n0": "a:1", "n1": "b:1", "n2": "c:1"}
WRITE = CallPolicy(what="write", writes=True)
ONCE = CallPolicy(what="write", writes=True, repeatable=False)
READ = CallPolicy(what="read")


def metadata(leader: str = "n0") -> MetadataResponse:
    return MetadataResponse(code=Code.SUCCESS, group="g", leader_id=NodeId(leader), peers=PEERS)


def routes(leader: str = "n0") -> Routes:
    known = Routes(["boot:1"])
    known.learned(metadata(leader))
    return known


def call(known: Routes, terms: CallPolicy = WRITE) -> Call:
    return Call(known, terms, patience=RetryTimes(1000, 20, 250), now_ms=0, dice=lambda: 0.5)


def test_leader_that_moved_is_asked_where_it_answers() -> None:
    """It says of itself that it is where the log has it: without this nobody could tell the group
    where it is, since that is a request to the leader."""
    known = Routes(["a:1", "moved:1"])
    one = call(known)
    assert one.step(0) == Probe("moved:1")
    here = replace(metadata("n0"), node_id=NodeId("n0"))
    one.learned("moved:1", here)
    assert one.step(0) == Ask("a:1"), "the address in the log is tried first"
    one.unreachable("a:1", "refused")
    while (step := one.step(0)) != Probe("moved:1"):
        if isinstance(step, Probe):
            one.unreachable(step.address, "refused")
    one.learned("moved:1", here)
    assert one.step(0) == Ask("moved:1")
    assert one.answered("moved:1", Code.SUCCESS, "", "", 0)
    assert call(known).step(0) == Ask("moved:1")


def test_call_that_knows_nobody_probes_then_asks_the_leader() -> None:
    known = Routes(["boot:1"])
    one = call(known)
    assert one.step(0) == Probe("boot:1")
    one.learned("boot:1", metadata("n1"))
    assert one.step(0) == Ask("b:1")
    assert one.answered("b:1", Code.SUCCESS, "", "", 0)
    assert known.group == "g"


def test_call_redirected_goes_to_the_hinted_leader_at_once_then_slower() -> None:
    one = call(routes("n0"))
    assert one.step(0) == Ask("a:1")
    assert not one.answered("a:1", Code.NOT_LEADER, "", "n2", 0)
    assert one.step(0) == Ask("c:1")
    assert not one.answered("c:1", Code.NOT_LEADER, "", "n0", 0)
    assert isinstance(one.step(0), Wait)
    assert one.step(0) == Ask("a:1")


def test_call_redirected_to_a_new_member_asks_for_its_address_at_once() -> None:
    known = routes("n0")
    one = call(known)
    assert not one.answered("a:1", Code.NOT_LEADER, "", "n3", 0)
    assert one.step(0) == Probe("a:1")
    one.learned("a:1", replace(metadata("n3"), peers={"n0": "a:1", "n3": "d:1"}))
    assert one.step(0) == Ask("d:1")
    known.leader = None
    assert {known.next_address() for _ in range(3)} > {"d:1"}  # that was for once


def test_call_redirected_to_nobody_waits_and_probes() -> None:
    one = call(routes("n0"))
    assert not one.answered("a:1", Code.NOT_LEADER, "", "", 0)
    assert isinstance(one.step(0), Wait)
    assert isinstance(one.step(0), Probe)


def test_call_does_not_believe_who_names_a_dead_leader() -> None:
    one = call(routes("n0"))
    one.unreachable("a:1", "refused")
    pauses = []
    for _ in range(6):
        step = one.step(0)
        if isinstance(step, Wait):
            pauses.append(step.ms)
        elif isinstance(step, Probe):
            one.learned(step.address, metadata("n0"))
        else:
            one.unreachable(step.address, "refused")
    assert pauses == sorted(pauses)
    assert len(pauses) >= 2


def test_members_are_asked_for_again_while_the_leader_stays() -> None:
    """By one of the calls that are made at the time, and of the leader."""
    known = routes("n0")
    assert call(known).step(0) == Ask("a:1")
    late = Call(known, WRITE, patience=RetryTimes(9000, 20, 250), now_ms=0, dice=lambda: 0.5)
    assert late.step(LIST_MS - 1) == Ask("a:1")
    assert late.step(LIST_MS) == Probe("a:1")
    assert late.step(LIST_MS) == Ask("a:1")
    late.learned("a:1", metadata("n2"))
    assert late.step(LIST_MS) == Ask("c:1")
    assert late.step(2 * LIST_MS - 1) == Ask("c:1")
    assert late.step(2 * LIST_MS) == Probe("c:1")


def test_call_tries_every_address_before_it_pauses() -> None:
    """The others may know the new leader although the old one is not reached."""
    one = call(routes("n0"))
    one.unreachable("a:1", "refused")
    tried = []
    for _ in range(3):
        step = one.step(0)
        assert isinstance(step, Probe)
        tried.append(step.address)
        one.unreachable(step.address, "refused")
    assert len(set(tried)) == 3
    assert isinstance(one.step(0), Wait)


def test_pauses_grow_to_the_longest_one() -> None:
    one = call(routes())
    pauses = []
    for _ in range(8):
        one.answered("a:1", Code.LEADER_PENDING_FULL, "", "", 0)
        step = one.step(0)
        assert isinstance(step, Wait)
        pauses.append(step.ms)
        assert isinstance(one.step(0), Ask)
    assert pauses == [20, 40, 80, 160, 250, 250, 250, 250]


@pytest.mark.parametrize(
    ("terms", "code", "expected"),
    [
        (WRITE, Code.LEADER_NOT_READY, Unavailable),
        (WRITE, Code.LEADER_PENDING_FULL, QueueFull),
        (WRITE, Code.WAIT_QUORUM_ACK_TIMEOUT, OutcomeUnknown),
        (WRITE, Code.DISK_ERROR, OutcomeUnknown),
        (WRITE, Code.INTERNAL_ERROR, OutcomeUnknown),
        (READ, Code.TIMEOUT, Unavailable),
        (READ, Code.BEHIND, Behind),
    ],
)
def test_call_out_of_time_says_the_truth(
    terms: CallPolicy, code: Code, expected: type[DLedgerError]
) -> None:
    one = call(routes(), terms)
    one.answered("a:1", code, "text", "", 0)
    with pytest.raises(expected) as caught:
        one.step(1000)
    assert type(caught.value) is expected
    assert caught.value.definite is (expected is not OutcomeUnknown)


@pytest.mark.parametrize(
    "code", [Code.TERM_CHANGED, Code.WAIT_QUORUM_ACK_TIMEOUT, Code.INTERNAL_ERROR]
)
def test_call_that_must_not_be_repeated_stops_at_the_first_unclear_answer(code: Code) -> None:
    with pytest.raises(OutcomeUnknown):
        call(routes(), ONCE).answered("a:1", code, "", "", 0)
    with pytest.raises(OutcomeUnknown):
        call(routes(), ONCE).lost("a:1", "closed")


def test_unrepeatable_call_is_asked_again_when_nothing_was_sent() -> None:
    one = call(routes(), ONCE)
    one.unreachable("a:1", "refused")
    assert not one.answered("b:1", Code.NOT_LEADER, "", "n2", 0)
    with pytest.raises(Unavailable):
        one.step(1000)


def test_once_unclear_a_later_definite_end_does_not_make_it_definite() -> None:
    one = call(routes())
    one.lost("a:1", "closed")
    one.answered("b:1", Code.LEADER_NOT_READY, "", "", 0)
    with pytest.raises(OutcomeUnknown):
        one.step(1000)


@pytest.mark.parametrize(
    ("sequenced", "expected"), [(True, OutcomeUnknown), (False, TopicNotFound)]
)
def test_refusal_after_an_unclear_attempt(sequenced: bool, expected: type[DLedgerError]) -> None:
    """A repeat of an append that is refused says nothing of the first attempt; a repeat of a
    command does."""
    one = call(routes(), CallPolicy(what="x", writes=True, sequenced=sequenced))
    one.lost("a:1", "closed")
    with pytest.raises(expected):
        one.answered("b:1", Code.UNKNOWN_TOPIC, "", "", 0)


@pytest.mark.parametrize("code", [Code.LIMIT_REACHED, Code.ILLEGAL_MEMBER_STATE])
def test_refusal_by_current_leader_state_does_not_settle_unclear_attempt(code: Code) -> None:
    """The first attempt may have taken the last place that the group had, and be committed yet."""
    one = call(routes())
    one.lost("a:1", "closed")
    with pytest.raises(OutcomeUnknown):
        one.answered("b:1", code, "", "", 0)
    with pytest.raises(DLedgerError) as at_once:
        call(routes()).answered("a:1", code, "", "", 0)
    assert at_once.value.definite


def test_full_disk_is_waited_for_only_so_long() -> None:
    one = Call(routes(), WRITE, patience=RetryTimes(60_000, 20, 250), now_ms=0, dice=lambda: 0.5)
    assert not one.answered("a:1", Code.DISK_FULL, "", "", 1)
    assert not one.answered("a:1", Code.DISK_FULL, "", "", 2000)
    with pytest.raises(DiskFull):
        one.answered("a:1", Code.DISK_FULL, "", "", 4000)


def test_leader_that_is_behind_is_left() -> None:
    """What it does not know yet, another one may: it was deposed, perhaps."""
    one = call(routes())
    assert not one.answered("a:1", Code.BEHIND, "", "", 0)
    assert isinstance(one.step(0), Wait)
    assert isinstance(one.step(0), Probe)


def test_call_for_anybody_asks_the_leader_or_else_one_after_the_other() -> None:
    one = call(routes(), CallPolicy(what="ends", anybody=True))
    assert one.step(0) == Ask("a:1")
    one.unreachable("a:1", "refused")
    asked = []
    while len(asked) < 4:
        step = one.step(0)
        if isinstance(step, Ask):
            asked.append(step.address)
            one.unreachable(step.address, "refused")
    assert set(asked) == {"a:1", "b:1", "c:1", "boot:1"}


def test_call_to_one_node_asks_nobody_else() -> None:
    one = call(routes(), CallPolicy(what="status", address="c:1"))
    assert one.step(0) == Ask("c:1")
    one.unreachable("c:1", "refused")
    assert isinstance(one.step(0), Wait)
    assert one.step(0) == Ask("c:1")


@pytest.mark.parametrize("code", list(Code))
def test_every_code_has_an_error_that_agrees_with_its_verdict(code: Code) -> None:
    if code is Code.SUCCESS:
        return
    error = error_for(code, "", "x")
    assert error.definite is (answer_outcome(code) is not AnswerOutcome.UNCLEAR)
    if answer_outcome(code) is AnswerOutcome.AGAIN and code is not Code.DISK_FULL:
        assert error.retriable
    assert code in VERDICTS or answer_outcome(code) is AnswerOutcome.FAILED


def test_errors_carry_what_helps() -> None:
    refused = error_for(Code.NOT_LEADER, "", "x", "n2")
    assert isinstance(refused, NotLeader)
    assert refused.leader_id == "n2"
    outside = error_for(Code.OFFSET_OUT_OF_RANGE, "", "x", begin=3, end=9)
    assert isinstance(outside, OffsetOutOfRange)
    assert (outside.begin, outside.end) == (3, 9)


def test_nodes_that_end_each_connection_do_not_know_a_newer_request() -> None:
    """One that is killed ends one connection, and cannot be reached then."""
    newer = CallPolicy(what="join group 'g'", writes=True, since="9.9.0")
    one = call(routes(), newer)
    for _ in range(CLOSINGS - 1):
        one.lost("a:1", "the node closed the connection", closed=True)
    one.unreachable("a:1", "refused")
    for _ in range(CLOSINGS - 1):
        one.lost("a:1", "the node closed the connection", closed=True)
    one.lost("a:1", "no answer in time")
    for _ in range(CLOSINGS - 1):
        one.lost("a:1", "the node closed the connection", closed=True)
    with pytest.raises(ProtocolError, match=r"from dledger 9\.9\.0 on, .* upgrade the nodes"):
        one.lost("a:1", "the node closed the connection", closed=True)
    other = call(routes(), WRITE)
    for _ in range(2 * CLOSINGS):
        other.lost("a:1", "the node closed the connection", closed=True)


def test_addresses_are_looked_up_again_when_all_were_tried_in_vain() -> None:
    """Those of a path's group, which has moved since its client was made."""
    known = Routes(["old:1", "old:2"])
    known.look = lambda: ["new:1"]
    one = call(known)
    tried = []
    for _ in range(4):
        step = one.step(0)
        if isinstance(step, Probe):
            tried.append(step.address)
            one.unreachable(step.address, "refused")
    assert sorted(tried[:2]) == ["old:1", "old:2"]
    assert tried[2] == "new:1"
    known.look = list
    known.look_again()
    assert known.addresses() == ["new:1"], "a path that says nothing takes nothing away"
