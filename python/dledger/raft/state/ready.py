"""The effects of each call as data, in the order in which the node must carry them out."""

from __future__ import annotations

from dataclasses import dataclass, field

from dledger.errors import StorageError
from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.entry import HardState
from dledger.protocol.messages.entry_runs import NO_ENTRIES, Entries
from dledger.protocol.messages.membership import Member, Membership
from dledger.protocol.messages.peer import PeerMessage
from dledger.types import Index, NodeId, Position, Role, Term, slots_dataclass


@slots_dataclass()
class Fact:
    """An event worth a line in the trace. Never needed for correctness."""

    event: str
    about: tuple[tuple[str, int | str], ...] = ()

    def __str__(self) -> str:
        return " ".join((self.event, *(f"{name}={value}" for name, value in self.about)))


class SafetyViolation(StorageError):
    """A promise of the protocol is broken: a leader contradicts what this node knows to be
    committed (D7).

    The node halts and cuts nothing; an operator must find out which disk lied. ``fact`` is the
    alarm for the trace.
    """

    def __init__(self, message: str, fact: Fact) -> None:
        super().__init__(message)
        self.fact = fact


@slots_dataclass()
class Finished:
    """The appends ``first`` to ``last``, both included, are answered with ``code``.

    SUCCESS: committed. WAIT_QUORUM_ACK_TIMEOUT and EXPIRED_TERM: not known to be, they may still
    commit (D9).
    """

    first: Index
    last: Index
    code: Code


@slots_dataclass()
class Load:
    """Entries for ``peer`` are not cached any more: read from ``begin_index`` on at most
    ``max_bytes`` (but at least one entry) and call ``loaded(peer, entries)``; with no entries when
    they could not be read."""

    peer: NodeId
    begin_index: Index
    max_bytes: int


@slots_dataclass()
class Install:
    """This node lacks entries that the log of ``leader_id``, which begins at ``first``, has no
    more: fetch its state, then ask ``install_mode``."""

    leader_id: NodeId
    first: Position


@slots_dataclass()
class ReadDone:
    """The answer to ``read_index(token)``. On SUCCESS the state is linearizable once ``index`` is
    applied."""

    token: int
    code: Code
    index: Index


@slots_dataclass()
class RoleChange:
    """The role of this node from now on, and the leader that it follows (itself when it leads; None
    when it knows none)."""

    role: Role
    term: Term
    leader_id: NodeId | None


@slots_dataclass()
class TransferDone:
    """The end of a leadership transfer: SUCCESS when ``to`` leads now."""

    to: NodeId
    code: Code


@slots_dataclass(kw_only=True)
class Ready:
    """The effects that the caller must now carry out, in field order."""

    hard_state: HardState | None = None
    """1. Durable before any of ``messages`` leaves this process."""
    membership: Membership | None = None
    """1. As well."""
    truncate_to: Index | None = None
    """2. Cut everything behind this index, then call ``truncated(the store's end)``."""
    append: Entries = field(default_factory=lambda: NO_ENTRIES)
    """3. Write; call ``persisted(position of the last)`` once durable. ``messages`` need not wait
    for that."""
    messages: tuple[PeerMessage, ...] = ()
    """4. Send, after 1. They may be lost, doubled or late. All receivers are members of the
    group."""
    committed: Index | None = None
    """5. committedIndex moved to here."""
    finished: tuple[Finished, ...] = ()
    load: tuple[Load, ...] = ()
    """Read after 3."""
    install: Install | None = None
    reads: tuple[ReadDone, ...] = ()
    role: RoleChange | None = None
    members: tuple[Member, ...] | None = None
    """Where the members are is told by this list from now on, the newest in the log, or what a node
    without its log was told; empty: by the settings."""
    transfer: TransferDone | None = None
    facts: tuple[Fact, ...] = ()

    def __bool__(self) -> bool:
        return self is not IDLE


IDLE = Ready()
"""Nothing to do."""


@dataclass(slots=True)
class Outbox:
    """Collects the effects of one call; `Machine.take` makes a `Ready` of them."""

    save: bool = False
    truncate_to: Index | None = None
    append: Entries = field(default_factory=lambda: NO_ENTRIES)
    messages: list[PeerMessage] = field(default_factory=list)
    committed: Index | None = None
    finished: list[Finished] = field(default_factory=list)
    load: list[Load] = field(default_factory=list)
    install: Install | None = None
    reads: list[ReadDone] = field(default_factory=list)
    transfer: TransferDone | None = None
    facts: list[Fact] = field(default_factory=list)

    def fact(self, event: str, **about: int | str) -> None:
        self.facts.append(Fact(event, tuple(about.items())))
