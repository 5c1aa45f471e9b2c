"""Changes of the list of members, one server at a time (Raft dissertation, 4.1 and 4.2).

The rules, with their reasons:

- A leader proposes a change only behind a committed entry of its own term (the bug of 2015): else a
  change of an earlier leader may be uncommitted elsewhere, and two lists that both follow the same
  one need not have majorities that meet.
- One change at a time, for the same reason.
- The lists before and after differ by at most one voter, so each majority of the one meets each of
  the other. Replacing one in one step would be two: {0, 1, 2} and {0, 1, 3} have the majorities
  {0, 2} and {1, 3}.
- A voter that stays keeps its incarnation; ``Admit`` changes that, in two steps of its own.
- A voter is a learner before, and has the entry that says so: it has to vote for candidates that
  count it, also while its own log does not say yet that it is a voter. It has to be near the end of
  the log, or commits would wait for it.
- The voters after the change that were heard lately are a majority, or nothing could be committed
  any more.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from enum import Enum

from dledger.errors import ConfigError
from dledger.protocol.messages.membership import (
    MOST_LIST_BYTES,
    Member,
    MemberRole,
    pack_list,
)
from dledger.raft.roles.entry_dispatcher import EntryDispatcher
from dledger.raft.roles.fitness import is_heard
from dledger.raft.roles.leader import Leader
from dledger.raft.state.quorum_ack_checker import quorum_size
from dledger.types import NodeId


class Refusal(Enum):
    """Why a change of members is not proposed."""

    NOOP_NOT_COMMITTED = "the leader is new, and has not committed an entry of its term yet"
    UNDER_WAY = "another change of members is under way"
    HANDING_OVER = "leadership is being handed over"
    NO_GROUP_ID = "the group has no id yet: its founding is not over"
    NO_CHANGE = "that is the list already"
    TWICE = "the list has a member twice"
    TOO_LONG = "the list is too long for a node's record"
    LAST_VOTER = "no voter would be left"
    MORE_THAN_ONE_VOTER = "more than one voter would change: their majorities need not meet"
    INCARNATION = "a voter would become another incarnation: it is removed first, and then added"
    NO_LEARNER = "only a learner becomes a voter"
    NOT_HEARD = "the learner has not been heard lately, or is another incarnation"
    NOT_CAUGHT_UP = "the learner has not caught up"
    TOO_SLOW = "the learner does not catch up: more is appended than it can take"
    NO_LIVE_MAJORITY = "fewer than a majority of the voters would be alive"


class MembersRefused(ConfigError):
    """A change of members was not proposed; nothing was done."""

    def __init__(self, reason: Refusal, about: str = "") -> None:
        super().__init__(f"{reason.value}: {about}" if about else reason.value)
        self.reason = reason


def check_change(leader: Leader, members: tuple[Member, ...], now_ms: int) -> None:
    """Whether ``leader`` may make ``members`` the group's list now.

    Raises:
        MembersRefused: it may not; the first reason that holds.
    """
    core = leader.core
    if core.log.committed_index < leader.noop_index:
        raise MembersRefused(Refusal.NOOP_NOT_COMMITTED)
    if core.admission.pending is not None:
        raise MembersRefused(Refusal.UNDER_WAY)
    if leader.transfers.ongoing is not None:
        raise MembersRefused(Refusal.HANDING_OVER)
    if core.watch.is_nameless:
        raise MembersRefused(Refusal.NO_GROUP_ID)
    _check_list(members)
    if members == core.admission.members:
        raise MembersRefused(Refusal.NO_CHANGE)
    _check_voters(leader, members)
    _check_learner(leader, members, now_ms)
    _check_alive(leader, members, now_ms)


def _check_list(members: tuple[Member, ...]) -> None:
    twice = [node for node, count in Counter(one.id for one in members).items() if count > 1]
    if twice:
        raise MembersRefused(Refusal.TWICE, twice[0])
    if len(json.dumps(pack_list(members), separators=(",", ":"))) > MOST_LIST_BYTES:
        raise MembersRefused(Refusal.TOO_LONG, f"{MOST_LIST_BYTES} bytes at most")
    if not any(one.role is MemberRole.VOTER for one in members):
        raise MembersRefused(Refusal.LAST_VOTER)


def _voters(members: tuple[Member, ...]) -> dict[NodeId, Member]:
    return {one.id: one for one in members if one.role is MemberRole.VOTER}


def _check_voters(leader: Leader, members: tuple[Member, ...]) -> None:
    core = leader.core
    after = _voters(members)
    changed = sorted(set(core.voters) ^ after.keys())
    if len(changed) > 1:
        raise MembersRefused(Refusal.MORE_THAN_ONE_VOTER, ", ".join(changed))
    for voter in core.voters:
        known = core.admission.membership.of(voter) or 0
        if voter in after and after[voter].incarnation != known:
            raise MembersRefused(Refusal.INCARNATION, voter)


def _check_learner(leader: Leader, members: tuple[Member, ...], now_ms: int) -> None:
    core, end = leader.core, leader.core.log.end_index
    roles = {one.id: one.role for one in core.admission.members}
    for node, member in _voters(members).items():
        if node in core.voters:
            continue
        if roles.get(node) is not MemberRole.LEARNER:
            raise MembersRefused(Refusal.NO_LEARNER, node)
        if node == core.me:
            continue
        learner = leader.dispatchers[node]
        if learner.incarnation != member.incarnation or not is_heard(core, learner, now_ms):
            raise MembersRefused(Refusal.NOT_HEARD, node)
        if not _is_near(leader, learner, now_ms):
            is_too_slow = learner.catch_up.is_too_slow
            lag = f"{node} lacks {end - learner.watermark} entries"
            raise MembersRefused(Refusal.TOO_SLOW if is_too_slow else Refusal.NOT_CAUGHT_UP, lag)


def _is_near(leader: Leader, learner: EntryDispatcher, now_ms: int) -> bool:
    core = leader.core
    end, election_ms = core.log.end_index, core.config.election_ms
    knows_itself = learner.watermark >= core.admission.membership.index
    return knows_itself and learner.catch_up.is_near(learner.watermark, end, now_ms, election_ms)


@dataclass(frozen=True, slots=True)
class Standing:
    """How a leader sees another member."""

    heard: bool
    """It answered within an election time."""
    near: bool
    """It is heard, and so near to the end of the log that it may be promoted."""
    too_slow: bool
    """It gets no nearer: more is appended than it can take."""


def standings(leader: Leader, now_ms: int) -> dict[NodeId, Standing]:
    """Of each member but the leader."""
    found = {}
    for peer in leader.core.peers:
        follower = leader.dispatchers[peer]
        heard = is_heard(leader.core, follower, now_ms) and follower.incarnation is not None
        near = heard and _is_near(leader, follower, now_ms)
        found[peer] = Standing(heard, near, follower.catch_up.is_too_slow)
    return found


def _check_alive(leader: Leader, members: tuple[Member, ...], now_ms: int) -> None:
    core, voters = leader.core, _voters(members)
    alive = [
        voter
        for voter, member in voters.items()
        if voter == core.me
        or (
            (follower := leader.dispatchers.get(voter)) is not None
            and follower.incarnation == member.incarnation
            and is_heard(core, follower, now_ms)
        )
    ]
    if len(alive) < quorum_size(len(voters)):
        away = ", ".join(sorted(voters.keys() - set(alive)))
        raise MembersRefused(Refusal.NO_LIVE_MAJORITY, f"{away} would be away")
