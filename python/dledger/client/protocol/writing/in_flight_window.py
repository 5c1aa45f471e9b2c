"""Appends in flight: in order, numbered, and sent again as they were until each one's outcome is
known. Pure.

A session numbers the batches of each partition from 0 without gaps; a node takes only the next
number. So when a batch is refused for a moment, all behind it are refused too, and go out again
behind it. When a number will never be taken (its batch was refused for good, or given up) the
session is over: the batches behind are numbered anew in the next session, which fences the former
one, after the outcome of every batch numbered in the old one is known.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from dledger.client.protocol.outcome import AnswerOutcome, answer_outcome, error_for
from dledger.client.protocol.session import ProducerSession
from dledger.errors import DLedgerError, OutcomeUnknown, Unavailable
from dledger.protocol.messages.codes import Code
from dledger.types import Buffer

Done = Callable[[int | DLedgerError], None]
"""Told the first record's offset (-1 when staged), or the error; once."""
LOST_SESSION = (Code.OUT_OF_ORDER_SEQUENCE, Code.UNKNOWN_PRODUCER)


@dataclass(slots=True, eq=False)
class Item:
    """One batch on its way."""

    topic_id: int
    partition: int
    header: Buffer
    payload: Buffer
    deadline_ms: float
    done: Done
    order: int = 0
    sequence: int = -1
    """-1: has no number yet."""
    maybe: bool = False
    """An attempt was sent whose outcome is open."""

    @property
    def tag(self) -> int:
        """The request id."""
        return self.order % 0x7FFFFFFF + 1


class InFlightWindow:
    """The batches of one producer, or with a ``stage`` of one stage, which is a session with one
    row of numbers."""

    def __init__(self, what: str, stage: ProducerSession | None = None) -> None:
        self.broken: DLedgerError | None = None
        """Why nothing more can be sent."""
        self.waiting: deque[Item] = deque()
        """To be sent, in order."""
        self.unanswered: dict[int, Item] = {}
        """Sent on the connection that is open now, by tag."""
        self.again: list[Item] = []
        """To be sent again, once everything sent is answered."""
        self._renumber: list[Item] = []
        self._session = stage
        self._staged = stage is not None
        self._what = what
        self._order = 0

    @property
    def empty(self) -> bool:
        return not (self.waiting or self.unanswered or self.again or self._renumber)

    @property
    def needs_session(self) -> bool:
        """Whether nothing can go on before `opened`."""
        if self._session is not None or self.unanswered or self.again:
            return False
        return self.waiting[0].sequence < 0 if self.waiting else bool(self._renumber)

    def opened(self, session: ProducerSession) -> None:
        """A new session is there."""
        self._session = session
        self.waiting.extendleft(sorted(self._renumber, key=lambda item: -item.order))
        self._renumber.clear()

    def push(self, item: Item) -> None:
        """One more batch, behind all others. In a broken window it fails at once."""
        if self.broken is not None:
            item.done(self.broken)
            return
        self._order += 1
        item.order = self._order
        self.waiting.append(item)

    def next(self) -> Item | None:
        """The batch to send now, with its number in its header; None when there is nothing or it
        must wait."""
        if self.again or not self.waiting:
            return None
        item = self.waiting[0]
        if item.sequence < 0:
            session = self._session
            if session is None:
                return None
            at = (0, 0) if self._staged else (item.topic_id, item.partition)
            item.sequence = session.next.get(at, 0)
            item.header = session.stamp(item.header, *at)
            session.advance(*at)
        self.waiting.popleft()
        self.unanswered[item.tag] = item
        return item

    def answered(self, tag: int, code: Code, message: str, base_offset: int) -> None:
        """The batch with this tag was answered."""
        item = self.unanswered.pop(tag, None)
        if item is None:
            return
        if code is Code.SUCCESS:
            item.done(base_offset)
            return
        found = answer_outcome(code)
        if found is AnswerOutcome.FAILED:
            self._refused(item, code, message)
            return
        item.maybe = item.maybe or found is AnswerOutcome.UNCLEAR
        self.again.append(item)

    def lost(self) -> None:
        """The connection is gone: all batches sent on it may have been done."""
        for item in self.unanswered.values():
            item.maybe = True
        self.again.extend(self.unanswered.values())
        self.unanswered.clear()

    def resume(self) -> None:
        """Send batches again that have to be, in order, before any new one."""
        self.waiting.extendleft(sorted(self.again, key=lambda item: -item.order))
        self.again.clear()

    def expire(self, now_ms: float) -> None:
        """Give up the batches that are not under way and whose time is over."""
        for items in (self.again, self.waiting, self._renumber):
            late = [item for item in items if item.deadline_ms <= now_ms]
            for item in late:
                items.remove(item)
                error = Unavailable(f"{self._what}: gave up; no leader took it in time")
                if self._staged:
                    self.fail_all(error)
                    item.done(error)
                    return
                if item.sequence >= 0:
                    self._session = None
                self._fail(item, error)

    def fail_all(self, error: DLedgerError) -> None:
        """No batch can go on: every one fails, and so do later ones."""
        self.broken = error
        everything = [*self.unanswered.values(), *self.again, *self.waiting, *self._renumber]
        self.unanswered.clear()
        self.again.clear()
        self.waiting.clear()
        self._renumber.clear()
        for item in sorted(everything, key=lambda item: item.order):
            self._fail(item, error)

    def _fail(self, item: Item, error: DLedgerError) -> None:
        # a stage that is not committed was never written
        if item.maybe and not self._staged and error.definite:
            error = OutcomeUnknown(
                f"{error}; an earlier attempt was sent, and may or may not have been done"
            )
        item.done(error)

    def _refused(self, item: Item, code: Code, message: str) -> None:
        if code is Code.OUT_OF_ORDER_SEQUENCE and self._waits_for_earlier(item):
            self.again.append(item)
            return
        error = error_for(code, message, self._what)
        if self._staged or code is Code.PRODUCER_FENCED:
            self._fail(item, error)
            self.fail_all(error)
            return
        self._session = None
        if code in LOST_SESSION and not item.maybe:
            item.sequence = -1
            self._renumber.append(item)
        else:
            self._fail(item, error)

    def _waits_for_earlier(self, item: Item) -> bool:
        """Whether a batch before this one, in the same row of numbers, is still open."""
        at = item.topic_id, item.partition
        return any(
            0 <= other.sequence < item.sequence
            and (self._staged or (other.topic_id, other.partition) == at)
            for other in (*self.again, *self.unanswered.values(), *self.waiting)
        )
