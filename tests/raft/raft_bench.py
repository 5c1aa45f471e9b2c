"""One node on a bench: its log as a list of terms, messages made in a word, its answers looked at
one by one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

from dledger.config import GroupConfig
from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.entry import MAGIC_NORMAL, Entry, HardState, LogEnd, stamp
from dledger.protocol.messages.peer import (
    HeartBeatRequest,
    HeartBeatResponse,
    LeadershipTransferRequest,
    PushEntryRequest,
    PushEntryResponse,
    PushType,
    VoteRequest,
    VoteResponse,
    VoteResult,
)
from dledger.raft import LogSummary, RaftNode, Ready
from dledger.raft.state.saved_state import RaftOptions, SavedState
from dledger.types import NO_INDEX, NO_TERM, NOWHERE, Index, NodeId, Position, Role, Term

N0, N1, N2, N3, N4 = (NodeId(f"n{i}") for i in range(5))
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


def summary_of(entries: Sequence[Entry], committed: int = -1) -> LogSummary:
    terms: list[tuple[Term, Index]] = []
    for entry in entries:
        if not terms or terms[-1][0] != entry.term:
            terms.append((entry.term, entry.index))
    end = LogEnd.after(entries[-1]) if entries else LogEnd()
    return LogSummary(Index(0), end, tuple(terms), Index(committed))


def node_with(
    *terms: int,
    term: int | None = None,
    voted_for: NodeId | None = None,
    committed: int = -1,
    me: NodeId = N0,
    group: GroupConfig | None = None,
    dice: int = 0,
    cache_bytes: int = 1 << 20,
) -> RaftNode:
    """A freshly started node at time 0 with such a log on disk; ``term`` is the last one's unless
    given."""
    now = Term(max((*terms, -1)) if term is None else term)
    hard_state = HardState(now, voted_for, Index(committed))
    log = summary_of(log_of(*terms), committed)
    return RaftNode(
        group or config(),
        me,
        saved=SavedState(hard_state, log),
        dice=lambda n: min(dice, n - 1),
        now_ms=0,
        options=RaftOptions(cache_bytes=cache_bytes),
    )


def vote(
    term: int,
    end: tuple[int, int] = (-1, -1),
    of: NodeId = N1,
    to: NodeId = N0,
    *,
    pre: bool = False,
    transfer: bool = False,
    group: str = "default",
) -> VoteRequest:
    """``end`` is (term, index)."""
    return VoteRequest(
        group=group,
        local_id=of,
        remote_id=to,
        term=Term(term),
        ledger_end=Position(Term(end[0]), Index(end[1])),
        pre_vote=pre,
        transfer=transfer,
    )


def answer(request: VoteRequest, result: VoteResult, term: int | None = None) -> VoteResponse:
    return VoteResponse(
        group=request.group,
        local_id=request.remote_id,
        remote_id=request.local_id,
        term=request.term if term is None else Term(term),
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
    group: str = "default",
) -> HeartBeatRequest:
    return HeartBeatRequest(
        group=group,
        local_id=of,
        remote_id=to,
        term=Term(term),
        leader_id=leader or of,
        round=round_,
    )


def beat_answer(
    node: RaftNode, of: NodeId, round_: int, code: Code = Code.SUCCESS, term: int | None = None
) -> Any:
    return HeartBeatResponse(
        group="default",
        local_id=of,
        remote_id=node.node_id,
        term=node.term if term is None else Term(term),
        code=code,
        round=round_,
        durable_index=node.watermarks.get(of, Index(-1)),
    )


def push(
    kind: PushType,
    term: int,
    previous: tuple[int, int] = (-1, -1),
    entries: Sequence[Entry] = (),
    commit: int = -1,
    of: NodeId = N1,
    to: NodeId = N0,
    leader: NodeId | None = None,
    group: str = "default",
) -> PushEntryRequest:
    """``previous`` is (term, index)."""
    return PushEntryRequest(
        group=group,
        local_id=of,
        remote_id=to,
        term=Term(term),
        leader_id=leader or of,
        type=kind,
        previous=Position(Term(previous[0]), Index(previous[1]))
        if previous != (-1, -1)
        else NOWHERE,
        commit_index=Index(commit),
        entries=tuple(entries),
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
    return PushEntryResponse(
        group="default",
        local_id=of,
        remote_id=node.node_id,
        term=node.term if term is None else Term(term),
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
    return LeadershipTransferRequest(
        group="default",
        local_id=of,
        remote_id=to,
        term=Term(term),
        take_leadership_index=Index(index),
    )


def sent(ready: Ready, kind: type[M], to: NodeId | None = None) -> list[M]:
    """The messages of one kind."""
    return [m for m in ready.messages if isinstance(m, kind) and to in {None, m.remote_id}]  # type: ignore[attr-defined]


def only(ready: Ready, kind: type[M], to: NodeId | None = None) -> M:
    [message] = sent(ready, kind, to)
    return message


def asked(node: RaftNode) -> tuple[Ready, list[VoteRequest], int]:
    """Let time pass until the node asks for votes; the effects, the questions, and the time."""
    for _ in range(100):
        now_ms = node.deadline_ms()
        ready = node.tick(now_ms)
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
