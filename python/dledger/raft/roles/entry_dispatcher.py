"""The pushes to one follower: DLedger's EntryDispatcher."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.entry import Entry
from dledger.protocol.messages.entry_runs import NO_ENTRIES, Entries, EntryRun
from dledger.protocol.messages.peer import PushEntryRequest, PushEntryResponse, PushType
from dledger.raft.roles.catch_up import CatchUp
from dledger.raft.roles.fill_pace import FillPace, Turn
from dledger.raft.state.raft_state import RaftState
from dledger.raft.state.ready import Load
from dledger.types import NO_INDEX, NO_TERM, NOWHERE, Index, NodeId, Position

MAX_IN_FLIGHT: Final = 64
"""Unanswered APPENDs to one follower. Beyond, entries gather into larger pushes instead of more of
them."""
COMMIT_DELAY_MS: Final = 3
"""How long a moved committedIndex waits for an APPEND to carry it before a COMMIT carries it: one
append in flight would else cost two messages more for each follower. A follower at which requests
wait for the commit is told at once."""


class PushState(Enum):
    """COMPARE until the place is found up to which the logs agree, then APPEND from there on.
    INSTALL_SNAPSHOT while the follower needs entries that retention took."""

    COMPARE = "COMPARE"
    APPEND = "APPEND"
    INSTALL_SNAPSHOT = "INSTALL_SNAPSHOT"


@dataclass(slots=True)
class InFlight:
    last: Index
    size: int
    sent_ms: int


class EntryDispatcher:
    """Pushes to one follower, one leadership long.

    In COMPARE one question is open at a time: does the follower hold ``compare_index``, and if it
    has more behind it, TRUNCATE. In APPEND pushes are pipelined up to a window of bytes; an
    unanswered one leads back to COMPARE, which tells a lost push from a slow disk without sending
    any entry twice. In INSTALL_SNAPSHOT the follower is told now and then where this log begins
    (``compare_index``), until it says that it holds that entry.
    """

    def __init__(
        self,
        core: RaftState,
        peer: NodeId,
        *,
        compare_index: Index,
        pace: FillPace,
        now_ms: int,
    ) -> None:
        self.core = core
        self._pace = pace
        self.peer = peer
        self.state = PushState.COMPARE
        self.compare_index = compare_index
        self.next_index = Index(compare_index + 1)
        self.watermark = NO_INDEX
        self.heard_ms = now_ms
        """When the follower last answered anything in this term."""
        self.incarnation: int | None = None
        """The incarnation that answered; None before the first answer."""
        self.counts = peer in core.voters and core.admission.of(peer) is not None
        """Whether its answers count for a quorum."""
        self.catch_up = CatchUp(now_ms, compare_index)
        self.members_index = NO_INDEX
        """The index of its membership, as it last reported."""
        self.checks: deque[tuple[int, Index]] = deque(maxlen=MAX_IN_FLIGHT)
        """Rounds whose beats are not answered, each with what the follower had acknowledged when
        the beat left: the answer must say no less. A round that would say what the one before it
        says is left out."""
        self.is_truncating = False
        self.is_watched = False
        """Requests waited at the follower for entries to be committed when it last answered."""
        self._asked_ms: int | None = None
        self._in_flight: deque[InFlight] = deque()
        self._in_flight_bytes = 0
        self._loading: Index | None = None
        self._paused_until_ms = now_ms
        self._commit_sent = NO_INDEX
        self._commit_answered = NO_INDEX
        self._commit_sent_ms = now_ms
        self.turn = Turn()
        self.due_ms: int | None = None
        """When a COMMIT is to go out, or more entries may; None while there is nothing to tell, or
        an answer comes first."""

    def fill(self, now_ms: int) -> None:
        """Send all that may be sent now."""
        if now_ms < self._paused_until_ms:
            self.due_ms = None
            return
        if self.state is not PushState.APPEND:
            if self._asked_ms is None:
                self._ask(now_ms)
            return
        if not self._in_flight:
            self.turn.drained(now_ms)
        log = self.core.log
        if self.next_index <= log.end_index and not self._fill_window(now_ms):
            return
        if not self._in_flight and self._commit_sent < log.committed_index:
            if self.due_ms is None:
                self.due_ms = now_ms + COMMIT_DELAY_MS
            if self.is_watched or now_ms >= self.due_ms:
                self._commit(now_ms)
        elif self.due_ms is not None and now_ms >= self.due_ms:
            self.due_ms = None  # the rest is over, and an answer or a read comes first

    def _fill_window(self, now_ms: int) -> bool:
        """Push entries, up to the window; False where no COMMIT may go now."""
        log, config, is_far = self.core.log, self.core.config, self._pace.is_far(self, now_ms)
        limit = config.catch_up_bytes_per_s if is_far else 0
        most = self._pace.most(limit) if limit else config.push_batch_bytes
        while (
            self.next_index <= log.end_index
            and self._in_flight_bytes < config.push_window_bytes
            and len(self._in_flight) < MAX_IN_FLIGHT
        ):
            if is_far and (wait_ms := self._pace.wait_ms(self, limit, now_ms)) != 0:
                self.due_ms = None if wait_ms is None else now_ms + wait_ms
                return False  # the next APPEND carries the commit
            entries = log.slice(self.next_index, most)
            # An APPEND names the entry before it, and the follower checks that it holds that one.
            # Where its term is not known here any more, no push can be checked, and the follower is
            # offered the state instead.
            begin = None if entries is None else entries.follows
            previous = (
                log.known_position(Index(self.next_index - 1)) if begin is None else begin.position
            )
            if previous is None:
                self._compare(Index(self.next_index - 1))
                self._ask(now_ms)
                return False
            if entries is None:
                self._load(self.next_index, most)
                break
            self._append(previous, entries, now_ms)
        return True

    @property
    def commit_answered(self) -> Index:
        """The highest committedIndex that the follower has said it knows."""
        return self._commit_answered

    def check_in(self, round_: int) -> None:
        """The beat of that round leaves now."""
        if not self.checks or self.checks[-1][1] < self.watermark:
            self.checks.append((round_, self.watermark))

    def checked_by(self, round_: int) -> Index:
        """What the follower had acknowledged when the newest beat up to ``round_`` left; NO_INDEX
        where no check is open."""
        had = NO_INDEX
        while self.checks and self.checks[0][0] <= round_:
            _, had = self.checks.popleft()
        return had

    def tick(self, now_ms: int) -> None:
        """Resend pushes that were not answered in time; called with every heartbeat."""
        config, log = self.core.config, self.core.log
        if self.state is not PushState.APPEND:
            if self._asked_ms is not None and now_ms - self._asked_ms >= config.push_timeout_ms:
                self._asked_ms = None
        elif self._in_flight and now_ms - self._in_flight[0].sent_ms >= config.push_timeout_ms:
            self._compare(Index(self.next_index - 1))
        self.fill(now_ms)
        is_idle = self.state is PushState.APPEND and not self._in_flight
        if is_idle and now_ms - self._commit_sent_ms >= (
            config.heartbeat_ms
            if self._commit_answered < log.committed_index
            else config.election_ms
        ):
            self._commit(now_ms)

    def reconnected(self, now_ms: int) -> None:
        """A message under way may be lost with the old connection: ask now, not when it is late."""
        if self.state is PushState.COMPARE:
            self._compare(self.compare_index)
        elif self.state is PushState.INSTALL_SNAPSHOT:
            self._asked_ms = None
        elif self._in_flight:
            self._compare(Index(self.next_index - 1))
        self.fill(now_ms)

    def loaded(self, entries: Sequence[Entry], now_ms: int) -> None:
        """The store has read the entries that were asked for. A result for an earlier leadership is
        ignored."""
        if self._loading is None or (entries and entries[0].index != self._loading):
            return
        self._loading = None
        # No entry could be read, or an earlier leadership of this node asked, and its entries were
        # cut since. Only entries of the present log may be pushed: ask again after a pause.
        found = Entries.of(entries)
        if not found.runs or not all(map(self._is_ours, found.runs)):
            self._paused_until_ms = now_ms + self.core.config.push_timeout_ms
            return
        previous = self.core.log.known_position(Index(entries[0].index - 1))
        if previous is None:
            self._compare(Index(entries[0].index - 1))
        elif self.is_truncating and entries[0].index == self.compare_index + 1:
            self._truncate(found[:1], now_ms)
        elif self.state is PushState.APPEND and entries[0].index == self.next_index:
            self._append(previous, found, now_ms)
        self.fill(now_ms)

    def _is_ours(self, run: EntryRun) -> bool:
        """Whether this log has these very entries. Terms never fall along a log, so the ends
        tell."""
        term_at = self.core.log.term_at
        return term_at(run.index) == run.term == term_at(run.last)

    def on_response(self, response: PushEntryResponse, now_ms: int) -> None:
        """Take an answer of this term in; ``watermark`` may have moved after it, and `fill` may
        find something to send."""
        self.is_watched = response.is_watched
        if response.code is Code.DISK_FULL:
            self._paused_until_ms = now_ms + self.core.config.push_timeout_ms
            self._compare(Index(self.next_index - 1))
        elif response.type is PushType.COMMIT:
            self._commit_answered = max(self._commit_answered, response.index)
        elif response.type is PushType.APPEND:
            self._on_append_response(response)
        elif response.type is PushType.INSTALL_SNAPSHOT:
            if self.state is PushState.INSTALL_SNAPSHOT and response.code is Code.SUCCESS:
                self._compare(response.index)  # it holds that entry by now
        elif (
            self.state is PushState.COMPARE
            and self._asked_ms is not None
            and response.index == self.compare_index
        ):
            self._on_compare_response(response, now_ms)

    def _on_append_response(self, response: PushEntryResponse) -> None:
        if response.code is Code.SUCCESS:
            # An acknowledgement covers all entries up to its index, so it also answers the pushes
            # whose own answers were lost.
            if response.index > self.watermark:
                self.watermark = response.index
            while self._in_flight and self._in_flight[0].last <= self.watermark:
                self._in_flight_bytes -= self._in_flight.popleft().size
            if self.state is PushState.APPEND and self.next_index <= self.watermark:
                self.next_index = Index(self.watermark + 1)
        elif (
            response.code is Code.INCONSISTENT_STATE
            and self.state is PushState.APPEND
            # else the follower has got further since it wrote this
            and response.index > self.watermark
        ):
            self._step_back(response)

    def _on_compare_response(self, response: PushEntryResponse, now_ms: int) -> None:
        self._asked_ms = None
        is_last = (
            response.end_index <= self.compare_index
            or self.compare_index >= self.core.log.end_index
        )
        if response.code is Code.INCONSISTENT_STATE:
            if response.index <= self.watermark:
                self.core.out.fact(
                    "follower_fell_back", follower=self.peer, at=response.index, had=self.watermark
                )
            self._step_back(response)
        elif response.code is not Code.SUCCESS:
            return
        elif response.type is PushType.TRUNCATE or is_last:
            self._resume(now_ms)
        else:
            self._start_truncate(now_ms)

    def _step_back(self, response: PushEntryResponse) -> None:
        """The follower does not hold ``response.index``: go back to where both may agree, over a
        whole term at once."""
        log, below = self.core.log, Index(response.index - 1)
        # Without a term the follower's log ends before that entry, or cannot tell its term: one
        # step back, or to its end. With one, this log may agree up to its own last entry of that
        # term. Where it has none, no entry of that term can match, so the place lies before the
        # follower's first one.
        if response.x_term == NO_TERM:
            target = min(below, response.end_index)
        else:
            target = log.last_index_at_most(response.x_term, below)
            if log.term_at(target) != response.x_term:
                target = min(target, Index(response.x_index - 1))
        # Up to the watermark both logs agreed. An answer at or below it shows that the follower has
        # lost entries, and then the watermark is no lower bound.
        if response.index > self.watermark:
            target = max(target, self.watermark)
        self._compare(max(target, NO_INDEX))

    def _compare(self, index: Index) -> None:
        self.state = PushState.COMPARE
        self.due_ms = None
        self.compare_index = index
        self.is_truncating = False
        self._asked_ms = None

    def _resume(self, now_ms: int) -> None:
        """The logs agree up to ``compare_index``, and the follower has nothing else behind it."""
        self.state = PushState.APPEND
        self.is_truncating = False
        self.next_index = Index(self.compare_index + 1)
        if self._in_flight and self._in_flight[-1].last == self.compare_index:
            for push in self._in_flight:  # all arrived; its disk is slow
                push.sent_ms = now_ms
        else:
            self._in_flight.clear()
            self._in_flight_bytes = 0

    def _ask(self, now_ms: int) -> None:
        compared = self.core.log.known_position(self.compare_index)
        if self.state is PushState.INSTALL_SNAPSHOT or compared is None:
            self._offer_state(now_ms)
            return
        self._asked_ms = now_ms
        self._push(PushType.COMPARE, compared)

    def _offer_state(self, now_ms: int) -> None:
        """The follower needs entries that retention took: tell it where the log begins, so that it
        fetches the state that they came to. Only a committed entry may stand at the beginning of
        another log."""
        log = self.core.log
        first = log.begin_index
        if self.state is not PushState.INSTALL_SNAPSHOT:
            self.state = PushState.INSTALL_SNAPSHOT
            self.core.out.fact(
                "follower_too_far_behind", follower=self.peer, at=self.compare_index, begin=first
            )
        self.compare_index = first
        self._asked_ms = now_ms
        if first <= log.committed_index:
            self._push(PushType.INSTALL_SNAPSHOT, log.position_at(first))

    def _start_truncate(self, now_ms: int) -> None:
        begin = Index(self.compare_index + 1)
        entries = self.core.log.cached(begin, Index(begin + 1))
        self.is_truncating, self._asked_ms = True, now_ms
        if entries:
            self._truncate(entries, now_ms)
        else:
            self._load(begin, 1)

    def _truncate(self, first: Entries, now_ms: int) -> None:
        self._asked_ms = now_ms
        self._push(PushType.TRUNCATE, self.core.log.position_at(self.compare_index), first)

    def _append(self, previous: Position, entries: Entries, now_ms: int) -> None:
        last, size = entries.last_index, entries.span
        self._in_flight.append(InFlight(last, size, now_ms))
        self._in_flight_bytes += size
        self.turn.sent(size, self.core.log.end.end_pos, now_ms)
        self._pace.sent(self, size, now_ms)
        self.next_index = Index(last + 1)
        self._commit_sent = self.core.log.committed_index
        self.due_ms = None
        self._push(PushType.APPEND, previous, entries)

    def _commit(self, now_ms: int) -> None:
        log = self.core.log
        self._commit_sent, self._commit_sent_ms = log.committed_index, now_ms
        self.due_ms = None
        index = min(log.committed_index, self.watermark)
        self._push(
            PushType.COMMIT, NOWHERE if log.term_at(index) is None else log.position_at(index)
        )

    def _load(self, begin: Index, max_bytes: int) -> None:
        if self._loading is None:
            self._loading = begin
            self.core.out.load.append(Load(self.peer, begin, max_bytes))

    def _push(self, kind: PushType, previous: Position, entries: Entries = NO_ENTRIES) -> None:
        core = self.core
        core.send(
            PushEntryRequest(
                group=core.tag,
                local_id=core.me,
                remote_id=self.peer,
                term=core.term,
                leader_id=core.me,
                type=kind,
                previous=previous,
                commit_index=core.log.committed_index,
                entries=entries,
            )
        )
