"""One node on a bench: its log as a list of terms, messages made in a word, its answers looked at
one by one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from dledger.config import GroupConfig
from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.entry import MAGIC_NORMAL, Entry, HardState, LogEnd, stamp
from dledger.protocol.messages.membership import Membership
from dledger.protocol.messages.peer import (
    HeartBeatRequest,
    HeartBeatResponse,
    LeadershipTransferRequest,
    MemberRequest,
    MemberResponse,
    PushEntryRequest,
    PushEntryResponse,
    PushType,
    VoteRequest,
    VoteResponse,
    VoteResult,
    group_tag,
)
from dledger.raft import LogSummary, RaftNode, Ready
from dledger.raft.state.incarnations import ChangeOf, no_change
from dledger.raft.state.saved_state import RaftOptions, SavedState
from dledger.types import NO_INDEX, NO_TERM, Index, NodeId, Position, Role, Term

N0, N1, N2, N3, N4 = (NodeId(f"n{i}") for i in range(5))
FOUNDED = ((N0, 100), (N1, 101), (N2, 102))
Bound = Sequence[tuple[NodeId, int]]
APPEND, COMMIT, COMPARE, TRUNCATE, INSTALL = PushType
M = TypeVar("M")


def config(count: int = 3, **settings: Any) -> GroupConfig:
    settings = {"segment_bytes": 1 << 20, "max_body_bytes": 1 << 16} | settings
    return GroupConfig(members=(N0, N1, N2, N3, N4)[:count], **settings)


def log_of(*terms: int, body: bytes = b"x") -> list[Entry]:
    """A log whose entries have these terms, one each from index 0 on; equal beginnings are equal
    byte for byte."""
    entries: list[Entry] = []
    end = LogEnd()
    for term in terms:
        entry = stamp(end, Term(term), MAGIC_NORMAL, body, 1 << 20)
        entries.append(entry)
        end = LogEnd.after(entry)
    return entries


def with_chain(entry: Entry, chain_crc: int) -> Entry:
    """The entry with another ``chainCrc`` in its header."""
    header = bytes(entry.header)
    changed = header[:36] + chain_crc.to_bytes(4, "big") + header[40:]
    return replace(entry, chain_crc=chain_crc, header=changed)


def summary_of(entries: Sequence[Entry], committed: int = -1) -> LogSummary:
    terms: list[tuple[Term, Index]] = []
    for entry in entries:
        if not terms or terms[-1][0] != entry.term:
            terms.append((entry.term, entry.index))
    end = LogEnd.after(entries[-1]) if entries else LogEnd()
    return LogSummary(Index(0), end, tuple(terms), Index(committed))


def started(
    log: LogSummary,
    term: int,
    *,
    voted_for: NodeId | None = None,
    membership: Membership | None = None,
    me: NodeId = N0,
    group: GroupConfig | None = None,
    dice: int = 0,
    cache_bytes: int = 1 << 20,
    change_of: ChangeOf = no_change,
    only_asks: bool = False,
) -> RaftNode:
    """A node that starts at time 0 with these records on its disk; its dice show ``dice`` where
    they can."""
    return RaftNode(
        group or config(),
        me,
        saved=SavedState(HardState(Term(term), voted_for, log.committed), log, membership),
        dice=lambda n: min(dice, n - 1),
        now_ms=0,
        options=RaftOptions(cache_bytes, change_of, only_asks=only_asks),
    )


def node_with(*terms: int, term: int | None = None, committed: int = -1, **more: Any) -> RaftNode:
    """A node that starts with such a log; ``term`` is the last one's unless given, and ``more`` is
    for `started`."""
    summary = summary_of(log_of(*terms), committed)
    return started(summary, max((*terms, -1)) if term is None else term, **more)


def message(kind: type[M], of: NodeId, to: NodeId, term: int, **fields: Any) -> M:
    """A message of the group "default", unless ``fields`` name another one."""
    sides = {"group": "default", "local_id": of, "remote_id": to, "term": Term(term)}
    return kind(**(sides | fields))


def vote(
    term: int,
    end: tuple[int, int] = (-1, -1),
    of: NodeId = N1,
    to: NodeId = N0,
    *,
    pre: bool = False,
    **more: Any,
) -> VoteRequest:
    """``end`` is (term, index)."""
    ledger_end = Position(Term(end[0]), Index(end[1]))
    return message(VoteRequest, of, to, term, ledger_end=ledger_end, pre_vote=pre, **more)


def answer(request: VoteRequest, result: VoteResult, term: int | None = None) -> VoteResponse:
    return message(
        VoteResponse,
        request.remote_id,
        request.local_id,
        request.term if term is None else term,
        group=request.group,
        request_term=request.term,
        result=result,
        pre_vote=request.pre_vote,
    )


def beat(
    term: int,
    of: NodeId = N1,
    to: NodeId = N0,
    leader: NodeId | None = None,
    round_: int = 1,
    **more: Any,
) -> HeartBeatRequest:
    return message(HeartBeatRequest, of, to, term, leader_id=leader or of, round=round_, **more)


def beat_answer(
    node: RaftNode,
    of: NodeId,
    round_: int,
    code: Code = Code.SUCCESS,
    term: int | None = None,
    **more: Any,
) -> HeartBeatResponse:
    more = {"durable_index": node.watermarks.get(of, NO_INDEX)} | more
    term = node.term if term is None else term
    return message(HeartBeatResponse, of, node.node_id, term, code=code, round=round_, **more)


def push(
    kind: PushType,
    term: int,
    previous: tuple[int, int] = (-1, -1),
    entries: Sequence[Entry] = (),
    commit: int = -1,
    of: NodeId = N1,
    to: NodeId = N0,
    leader: NodeId | None = None,
    **more: Any,
) -> PushEntryRequest:
    """``previous`` is (term, index)."""
    return message(
        PushEntryRequest,
        of,
        to,
        term,
        leader_id=leader or of,
        type=kind,
        previous=Position(Term(previous[0]), Index(previous[1])),
        commit_index=Index(commit),
        entries=tuple(entries),
        **more,
    )


def pushed(
    node: RaftNode,
    of: NodeId,
    kind: PushType,
    index: int,
    code: Code = Code.SUCCESS,
    end: int | None = None,
    x: tuple[int, int] = (NO_TERM, NO_INDEX),
    term: int | None = None,
) -> PushEntryResponse:
    """A follower's answer to the leader ``node``; ``x`` is (x_term, x_index)."""
    return message(
        PushEntryResponse,
        of,
        node.node_id,
        node.term if term is None else term,
        type=kind,
        code=code,
        index=Index(index),
        begin_index=Index(0),
        end_index=Index(index if end is None else end),
        x_term=Term(x[0]),
        x_index=Index(x[1]),
    )


def heard(node: RaftNode, message: Any, now_ms: int = 0) -> Ready:
    """The node takes in a message of its own group."""
    return node.step(replace(message, group=node.tag), now_ms)


def take_over(of: NodeId, term: int, index: int, to: NodeId = N0) -> LeadershipTransferRequest:
    return message(LeadershipTransferRequest, of, to, term, take_leadership_index=Index(index))


def told(
    question: MemberRequest,
    of: NodeId,
    incarnation: int,
    bound: Bound = (),
    *,
    term: int = 0,
    members: Sequence[NodeId] = (N0, N1, N2),
    **more: Any,
) -> MemberResponse:
    """The answer to ``question`` by a member of group A, which was founded with ``bound`` and these
    ``members``; without ``bound`` by a member that knows of no founding."""
    group_id = "A" if bound else ""
    fields = {
        "group": group_tag("default", members, group_id or None),
        "group_id": group_id,
        "incarnation": incarnation,
        "asked": question.incarnation,
        "nonce": question.nonce,
        "bound": {str(member): drawn for member, drawn in bound},
    }
    return message(MemberResponse, of, question.local_id, term, **(fields | more))


def sent(ready: Ready, kind: type[M], to: NodeId | None = None) -> list[M]:
    """The messages of one kind."""
    return [m for m in ready.messages if isinstance(m, kind) and to in {None, m.remote_id}]  # type: ignore[attr-defined]


def only(ready: Ready, kind: type[M], to: NodeId | None = None) -> M:
    [message] = sent(ready, kind, to)
    return message


def ticks(node: RaftNode, *peers: NodeId, most: int = 100) -> Iterator[tuple[int, Ready]]:
    """The node's next deadlines, with the effects of each, after which these peers answer its
    heartbeats."""
    for _ in range(most):
        now_ms = node.deadline_ms()
        ready = node.tick(now_ms)
        for peer in peers:
            node.step(beat_answer(node, peer, 1), now_ms)
        yield now_ms, ready


def asked(node: RaftNode) -> tuple[Ready, list[VoteRequest], int]:
    """Let time pass until the node asks for votes; the effects, the questions, and the time."""
    for now_ms, ready in ticks(node):
        if requests := sent(ready, VoteRequest):
            return ready, requests, now_ms
    raise AssertionError(f"{node.node_id} never asks for votes")


def lead(node: RaftNode, voter: NodeId = N1) -> tuple[Ready, int]:
    """Elect the node with the votes of one other and return the effects of its becoming leader, and
    the time."""
    _, requests, now_ms = asked(node)
    ready = Ready()
    for _ in range(2):
        request = next(r for r in requests if r.remote_id == voter)
        ready = node.step(answer(request, VoteResult.ACCEPT), now_ms)
        requests = sent(ready, VoteRequest)
    assert node.role is Role.LEADER
    return ready, now_ms


def follow(node: RaftNode, term: int, leader: NodeId = N1, now_ms: int = 0) -> None:
    """Let the node follow ``leader`` of ``term``."""
    for _ in range(2):
        heard(node, beat(term, of=leader, to=node.node_id), now_ms)
    assert node.leader_id == leader


def following(*terms: int, term: int = 5, **more: Any) -> RaftNode:
    """A node with such a log that follows n1 in ``term``."""
    node = node_with(*terms, term=term, **more)
    follow(node, term)
    return node


def elected(*terms: int, **more: Any) -> tuple[RaftNode, int]:
    """A leader, and the time; its NOOP is on no disk yet."""
    node = node_with(*terms, **more)
    return node, lead(node)[1]


def leading(*terms: int, **more: Any) -> tuple[RaftNode, int]:
    """A leader whose NOOP is durable, and the time; its followers have answered nothing yet."""
    node, now_ms = elected(*terms, **more)
    node.persisted(node.end.position, now_ms)
    return node, now_ms


def asking(*terms: int, **more: Any) -> tuple[RaftNode, list[VoteRequest], int]:
    """A node that has just asked for votes, its questions, and the time."""
    node = node_with(*terms, **more)
    _, requests, now_ms = asked(node)
    return node, requests, now_ms


def catches_up(node: RaftNode, of: NodeId, index: int, now_ms: int) -> Ready:
    """A follower whose log matches the leader's in front of its NOOP has all up to ``index`` on its
    disk; the effects of its last answer."""
    node.step(pushed(node, of, COMPARE, node.noop_index - 1), now_ms)
    return node.step(pushed(node, of, APPEND, index), now_ms)


def voted(node: RaftNode, request: VoteRequest, now_ms: int = 0) -> VoteResult:
    return only(node.step(request, now_ms), VoteResponse).result


def events(ready: Ready) -> list[str]:
    return [fact.event for fact in ready.facts]
