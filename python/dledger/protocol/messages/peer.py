"""The messages of the nodes of a group to one another, in DLedger's words.

Every message travels one way and names its group, sender and receiver, so that a stray or replayed
one is recognised (D6). ``group`` is the `group_tag` of the group's name, id and members. ``term``
is the sender's, -1 where it has none to offer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field
from enum import IntEnum
from typing import Final

from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.entry import Entry
from dledger.protocol.messages.membership import Ancestors, Member, fingerprint
from dledger.types import NO_INDEX, NO_TERM, NOWHERE, Index, NodeId, Position, Term, slots_dataclass


def group_tag(name: str, members: Iterable[str], group_id: str | None) -> str:
    """One word for a group: founding members that are not of one opinion have different ones, and
    groups of one name too. A node that knows of no founding says no id, not even an empty one; one
    that joins a group says no members before it knows the group's."""
    founders = tuple(members)
    tag = f"{name}/{fingerprint(founders):08x}" if founders else f"{name}/"
    return tag if group_id is None else f"{tag}/{group_id}"


class VoteResult(IntEnum):
    """A voter's answer; names and order are DLedger's."""

    UNKNOWN = 0
    ACCEPT = 1
    REJECT_UNKNOWN_LEADER = 2
    REJECT_UNEXPECTED_LEADER = 3
    REJECT_EXPIRED_VOTE_TERM = 4
    REJECT_ALREADY_VOTED = 5
    REJECT_ALREADY_HAS_LEADER = 6
    REJECT_TERM_NOT_READY = 7
    REJECT_TERM_SMALL_THAN_LEDGER = 8
    REJECT_EXPIRED_LEDGER_TERM = 9
    REJECT_SMALL_LEDGER_END_INDEX = 10
    REJECT_TAKING_LEADERSHIP = 11
    REJECT_NOT_ADMITTED = 12
    """dledger's own: the candidate, or this voter, is not the incarnation that the group knows."""


class PushType(IntEnum):
    """The five things an EntryDispatcher pushes."""

    APPEND = 0
    COMMIT = 1
    COMPARE = 2
    TRUNCATE = 3
    INSTALL_SNAPSHOT = 4


@slots_dataclass(kw_only=True)
class MemberMessage:
    """The fields that begin each message of a node to another one."""

    group: str
    local_id: NodeId
    remote_id: NodeId


@slots_dataclass(kw_only=True)
class TermMessage(MemberMessage):
    """A message of the protocol of Raft."""

    term: Term


@slots_dataclass(kw_only=True)
class VoteRequest(TermMessage):
    """A candidate asks for a vote; with ``pre_vote`` only whether it would get one."""

    ledger_end: Position
    pre_vote: bool = False
    transfer: bool = False
    """The leader asked the candidate to take over, so a living leader is no reason to refuse."""
    incarnation: int = 0
    """The sender's, as in every message that gives a vote or an acknowledgement, or asks for one;
    see `Membership`."""


@slots_dataclass(kw_only=True)
class VoteResponse(TermMessage):
    request_term: Term
    """The term that was asked for, so that a late answer is not counted in another round."""
    result: VoteResult
    pre_vote: bool = False
    incarnation: int = 0


@slots_dataclass(kw_only=True)
class HeartBeatRequest(TermMessage):
    """The leader lives. ``round`` numbers the beats of a term, for reads that wait for a quorum of
    answers. ``lost`` is the receiver's incarnation when it has less than it had acknowledged, else
    0: it is to take another one."""

    leader_id: NodeId
    round: int = 0
    lost: int = 0


@slots_dataclass(kw_only=True)
class HeartBeatResponse(TermMessage):
    """``durable_index``: how far the sender's log was on its disk when it answered.
    ``members_index``: the committed entry of its membership."""

    code: Code
    round: int = 0
    incarnation: int = 0
    durable_index: Index = NO_INDEX
    members_index: Index = NO_INDEX


@slots_dataclass(kw_only=True)
class PushEntryRequest(TermMessage):
    """Leader to follower. APPEND carries consecutive entries right behind ``previous``; COMPARE
    asks whether the follower holds ``previous``; TRUNCATE orders it to cut everything behind
    ``previous``, which it holds; COMMIT only moves ``commit_index``, which every kind carries;
    INSTALL_SNAPSHOT says that the leader's log begins at ``previous``: a follower that does not
    reach up to it has to fetch the state (`dledger.protocol.messages.snapshot`)."""

    leader_id: NodeId
    type: PushType
    previous: Position = NOWHERE
    commit_index: Index = NO_INDEX
    entries: Sequence[Entry] = ()

    def __str__(self) -> str:
        count = f" +{len(self.entries)}" if self.entries else ""
        return (
            f"{self.type.name} {self.local_id}>{self.remote_id} t{self.term} after "
            f"{self.previous.index}@{self.previous.term}{count} commit {self.commit_index}"
        )


@slots_dataclass(kw_only=True)
class PushEntryResponse(TermMessage):
    """``index`` is the follower's durable watermark for APPEND (its log matches the leader's up to
    there), the compared index for COMPARE, TRUNCATE and INSTALL_SNAPSHOT. On INCONSISTENT_STATE
    ``x_term`` and ``x_index`` name the follower's term at the compared index and that term's first
    index there (fast back-up over whole terms)."""

    type: PushType
    code: Code
    index: Index = NO_INDEX
    begin_index: Index = NO_INDEX
    end_index: Index = NO_INDEX
    x_term: Term = NO_TERM
    x_index: Index = NO_INDEX
    incarnation: int = 0
    is_watched: bool = False
    """Requests wait at the follower for entries to be committed."""


@slots_dataclass(kw_only=True)
class LeadershipTransferRequest(TermMessage):
    """The leader asks ``remote_id`` to take over once its log reaches ``take_leadership_index``."""

    take_leadership_index: Index


@slots_dataclass(kw_only=True)
class LeadershipTransferResponse(TermMessage):
    code: Code


@slots_dataclass(kw_only=True)
class MemberRequest(TermMessage):
    """Asks for the receiver's incarnation, and for the incarnations of the group. ``nonce`` is
    drawn once in the sender's life. ``change``: is this entry ``Admit`` of the sender's log
    committed?"""

    incarnation: int
    nonce: int
    change: Position = NOWHERE


@slots_dataclass(kw_only=True)
class MemberResponse(TermMessage):
    """``bound``, ``group_id`` and ``ancestors`` as in `Membership`, empty when the sender does not
    know; ``asked``, ``nonce`` and ``change`` are the request's."""

    incarnation: int
    asked: int
    nonce: int
    index: Index = NO_INDEX
    bound: dict[str, int] = field(default_factory=dict)
    is_empty: bool = False
    """The sender has no log and never voted."""
    change: Position = NOWHERE
    is_committed: bool = False
    """The sender knows that ``change`` is."""
    group_id: str = ""
    ancestors: Ancestors = ()
    founders: tuple[NodeId, ...] = ()
    """`Membership.members`; empty, as the two behind it, while the group never changed its
    list."""
    members: tuple[Member, ...] = ()
    """`Membership.listed`."""
    former: tuple[int, ...] = ()


FIRST_FIELDS: Final[dict[type, int]] = {PushEntryResponse: 12, MemberResponse: 14}
"""How many fields of these are always there; those behind them are left out where they say
nothing."""

PeerMessage = (
    VoteRequest
    | VoteResponse
    | HeartBeatRequest
    | HeartBeatResponse
    | PushEntryRequest
    | PushEntryResponse
    | LeadershipTransferRequest
    | LeadershipTransferResponse
    | MemberRequest
    | MemberResponse
)
