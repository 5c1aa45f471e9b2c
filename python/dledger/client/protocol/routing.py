"""The leader, the next node to ask, the pauses and the deadline: the part of a client that knows no
sockets and no clock.

A `Call` is driven by its shell (`dledger.client.blocking.transport`,
`dledger.client.aio.transport`)::

    while True:
        step = call.step(now)            # raises when the time is over
        Wait -> sleep                    Probe -> ask MetadataRequest there, call.learned(answer)
        Ask  -> send the request there   not sent: call.unreachable()   no answer: call.lost()
                                         answer: call.answered(...) -> True when done
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from dledger.client.protocol.outcome import (
    DISK_FULL_PATIENCE_MS,
    AnswerOutcome,
    answer_outcome,
    error_for,
)
from dledger.client.protocol.results import Lineage
from dledger.errors import DLedgerError, OutcomeUnknown, ProtocolError, Unavailable
from dledger.protocol.messages.client import MetadataResponse
from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.hello import HelloResponse
from dledger.release import RELEASE

CLOSINGS: Final = 5
"""So many nodes that end their connection in a row do not know the request: one that is killed ends
one, and takes the next one when it is back."""
LIST_MS: Final = 3000
"""A client that works asks so often who the members are: those that it knows may all be replaced,
or move, while the leader stays, and then nobody would be left whom it could ask for the next
leader."""
Dice = Callable[[], float]
"""A number in [0, 1)."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Do nothing for so long."""

    ms: float


@dataclass(frozen=True, slots=True)
class Probe:
    """Ask this address for the leader."""

    address: str


@dataclass(frozen=True, slots=True)
class Ask:
    """Send the request to this address."""

    address: str


class Routes:
    """A client's knowledge of a group: addresses to begin with, the group's nodes, and its leader
    if known."""

    def __init__(self, bootstrap: list[str], group: str = "", *, group_id: str = "") -> None:
        self.bootstrap = bootstrap
        self.look: Callable[[], list[str]] = list
        """Where the group is, by the directory that it was found by; empty where there is none."""
        self.group = group
        self.lineage = Lineage(group_id)
        """Of the group that was met first, or is expected."""
        self._foreign: set[str] = set()
        """Addresses at which another group's node has answered since one of ours did."""
        self._refused: set[str] = set()
        """Addresses with a certificate or user refused since a node took a connection."""
        self.peers: dict[str, str] = {}
        self.leader: str | None = None
        """The leader's address."""
        self._informed = ""
        """The address of a node that named a leader whose address is not known here."""
        self.max_body_bytes = 0
        self._turn = 0
        self._due_ms: float | None = None
        """When to ask for the members again; None: as of the next call."""

    def addresses(self) -> list[str]:
        """Every address known, the nodes' own first."""
        return list(dict.fromkeys([*self.peers.values(), *self.bootstrap]))

    def welcomed(self, answer: HelloResponse) -> None:
        """A node of the group answers."""
        self.group = self.group or answer.group
        if answer.group_id:
            self.lineage = Lineage(answer.group_id, answer.ancestors)
        self._foreign.clear()
        self._refused.clear()

    def is_foreign(self, address: str) -> bool:
        """Another group's node answers at ``address``. Whether no address is left that may be the
        group's."""
        self._foreign.add(address)
        return self._foreign.issuperset(self.addresses())

    def is_refused(self, address: str) -> bool:
        """A certificate or user was refused at ``address``. Whether no address is left where none
        was."""
        self._refused.add(address)
        return self._refused.issuperset(self.addresses())

    def look_again(self) -> None:
        """No address has answered: the group may have got others."""
        self.bootstrap = self.look() or self.bootstrap

    def next_address(self) -> str:
        """One address after the other, round and round; but first one that knows the leader."""
        if informed := self._informed:
            self._informed = ""
            return informed
        addresses = self.addresses()
        self._turn += 1
        return addresses[self._turn % len(addresses)]

    def wants_members(self, now_ms: float) -> bool:
        """Whether it is time to ask who the members are. Who is told so asks."""
        is_due = self._due_ms is not None and now_ms >= self._due_ms
        if is_due or self._due_ms is None:
            self._due_ms = now_ms + LIST_MS
        return is_due

    def learned(self, answer: MetadataResponse) -> None:
        """A node has named the members and the leader."""
        if answer.code is not Code.SUCCESS:
            return
        self._due_ms = None
        self.group = self.group or answer.group
        self.peers = dict(answer.peers)
        self.max_body_bytes = answer.max_body_bytes or self.max_body_bytes
        self.leader = self.peers.get(answer.leader_id) if answer.leader_id else None

    def redirected(self, address: str, leader_id: str) -> bool:
        """``address`` does not lead and names the leader; whether that is news. It may be a member
        that came after this client had asked for them: then ``address`` is to be asked next."""
        if self.leader == address or self.leader is None:
            hinted = self.peers.get(leader_id)
            self.leader = hinted if hinted != address else None
            if leader_id and hinted is None:
                self._informed = address
                return True
        return self.leader is not None

    def failed(self, address: str) -> None:
        """``address`` was not reached or fell silent."""
        if self.leader == address:
            self.leader = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CallPolicy:
    """How a call may be tried."""

    what: str
    """A few words for messages: ``append to 'orders'``."""
    address: str | None = None
    """Only this node; None: the leader."""
    anybody: bool = False
    """Where no leader is known, any other node will do."""
    writes: bool = False
    repeatable: bool = True
    """Doing it twice is doing it once."""
    sequenced: bool = False
    """A refusal says nothing of earlier attempts whose outcome is open: it is then indefinite
    too."""
    since: str = ""
    """The release from which on nodes know the request, where that is later than the protocol."""


@dataclass(frozen=True, slots=True)
class RetryTimes:
    """Times of a call, in ms."""

    timeout: float
    pause_min: float
    pause_max: float


class Call:
    """One request with all its attempts."""

    def __init__(
        self, routes: Routes, terms: CallPolicy, *, patience: RetryTimes, now_ms: float, dice: Dice
    ) -> None:
        self.terms = terms
        self.maybe_done = False
        """An attempt was sent and not answered for sure: the outcome is open."""
        self.deadline_ms = now_ms + patience.timeout
        self._routes = routes
        self._patience = patience
        self._dice = dice
        self._pause = 0.0
        self._wait_next = False
        self._in_vain = 0
        self._closed = 0
        """How many nodes in a row ended their connection in place of an answer."""
        self._disk_full_since: float | None = None
        self._last: DLedgerError | None = None
        self._reasons: dict[str, str] = {}

    def step(self, now_ms: float) -> Wait | Probe | Ask:
        """The next step.

        Raises:
            Unavailable: the time is over and the request was not written.
            OutcomeUnknown: the time is over and it may have been.
        """
        if now_ms >= self.deadline_ms:
            raise self._over()
        if self._wait_next:
            self._wait_next = False
            self._pause = min(
                max(2 * self._pause, self._patience.pause_min), self._patience.pause_max
            )
            return Wait(min(self._pause * (0.5 + self._dice()), self.deadline_ms - now_ms))
        if self.terms.address is not None:
            return Ask(self.terms.address)
        if (leader := self._routes.leader) is not None:
            return Probe(leader) if self._routes.wants_members(now_ms) else Ask(leader)
        if self.terms.anybody:
            return Ask(self._routes.next_address())
        return Probe(self._routes.next_address())

    def learned(self, address: str, answer: MetadataResponse) -> None:
        """A probe was answered."""
        self._routes.learned(answer)
        leader = self._routes.leader
        if leader is None:
            self._reasons[address] = "knows no leader"
            self._wait_next = True
        elif leader in self._reasons and answer.node_id == answer.leader_id:
            # it has moved, and no member can say so yet: a request to it has to be the first
            self._routes.leader = address
            self._wait_next = address in self._reasons
        elif leader in self._reasons:  # tried in vain already: give it, or the election, time
            self._wait_next = True

    def refused(self, error: DLedgerError) -> DLedgerError:
        """The exception where no node takes this client any more: an attempt with an open outcome
        stays so."""
        if self.maybe_done and self.terms.writes:
            return OutcomeUnknown(
                f"{self.terms.what}: it may or may not have been done, and then {error}"
            )
        return error

    def unreachable(self, address: str, reason: str) -> None:
        """The request was not sent. Another node may know more, so the pause comes when every
        address was tried."""
        self._routes.failed(address)
        self._reasons[address] = reason
        self._closed = 0
        self._in_vain += 1
        is_round = self._in_vain % len(self._routes.addresses()) == 0
        self._wait_next = self.terms.address is not None or is_round
        if is_round:
            self._routes.look_again()

    def lost(self, address: str, reason: str, *, closed: bool = False) -> None:
        """The request was sent, and no answer came; ``closed``: the node ended the connection.

        Raises:
            OutcomeUnknown: it may have been done and is not safe to repeat.
            ProtocolError: the nodes seem not to know the request.
        """
        self._routes.failed(address)
        self._reasons[address] = reason
        self._closed = self._closed + 1 if closed else 0
        if self.terms.since and self._closed >= CLOSINGS:
            raise ProtocolError(
                f"{self.terms.what}: the node at {address} ends each connection in place of an "
                f"answer, as one does that does not know the request. Nodes know it from dledger "
                f"{self.terms.since} on, and this program is {RELEASE}: upgrade the nodes"
            )
        if self.terms.writes:
            self.maybe_done = True
            if not self.terms.repeatable:
                raise OutcomeUnknown(
                    f"{self.terms.what}: {address}: {reason}; it may or may not have been done"
                )

    def answered(
        self, address: str, code: Code, message: str, leader_id: str, now_ms: float
    ) -> bool:
        """An answer came; True when the call is done, False when it is to be asked again.

        Raises:
            DLedgerError: the call failed, by its kind definitely or not.
        """
        if code is Code.SUCCESS:
            return True
        found = answer_outcome(code)
        error = error_for(code, message, self.terms.what, leader_id)
        if found is AnswerOutcome.FAILED:
            says_nothing = self.terms.sequenced or code in _BEFORE_THE_LOG
            raise self._unknown(error) if self.maybe_done and says_nothing else error
        if found is AnswerOutcome.UNCLEAR and self.terms.writes:
            self.maybe_done = True
            if not self.terms.repeatable:
                raise error
        if code is Code.DISK_FULL:
            self._disk_full_since = self._disk_full_since or now_ms
            if now_ms - self._disk_full_since >= DISK_FULL_PATIENCE_MS:
                raise error if not self.maybe_done else self._unknown(error)
        if code is Code.BEHIND:
            self._routes.failed(address)  # it leads no more, perhaps: ask around for the leader
        self._last = error
        self._reasons[address] = f"{code.name}, {message}" if message else code.name
        if self.terms.address is None and code in _NOT_HERE:
            self._reasons.pop(address)
            self._wait_next = not self._routes.redirected(address, leader_id) or self._pause > 0
            # a second redirection waits: two nodes may point at each other
            self._pause = self._pause or 0.1
        else:
            self._wait_next = True
        return False

    def _over(self) -> DLedgerError:
        tried = (
            "; ".join(f"{address}: {reason}" for address, reason in self._reasons.items())
            or "no time was left"
        )
        text = f"{self.terms.what}: gave up after {self._patience.timeout / 1000:g} s ({tried})"
        if self.maybe_done:
            return OutcomeUnknown(f"{text}; it was sent, and may or may not have been done")
        if isinstance(self._last, Unavailable) and type(self._last) is not Unavailable:
            return self._last
        return Unavailable(f"{text}; nothing was done. Is the group running, at these addresses?")

    def _unknown(self, error: DLedgerError) -> OutcomeUnknown:
        return OutcomeUnknown(
            f"{error}; an earlier attempt was sent, and may or may not have been done"
        )


_BEFORE_THE_LOG = (Code.LIMIT_REACHED, Code.ILLEGAL_MEMBER_STATE, Code.ACCESS_DENIED)
"""A leader refuses so by its present state. An earlier attempt that it let pass may be in the log
and be committed."""
_NOT_HERE = (Code.NOT_LEADER, Code.UNKNOWN_MEMBER)
