"""Reading a range of offsets, as one request after the other. Pure; the shells send and receive."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dledger.client.protocol.outcome import AnswerOutcome, answer_outcome, error_for
from dledger.errors import CorruptEntry, ProtocolError
from dledger.protocol.messages.client import FetchRequest, TopicInfo
from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.fetched import FetchedBatches, FetchResponse

if TYPE_CHECKING:
    from dledger.client.protocol.reading.damage import DamagePolicy
    from dledger.client.protocol.reading.fetched import FetchedBodies

FETCH_BYTES = 8 << 20
"""Stored bytes of one answer, unless the caller says otherwise."""
WAIT_MS = 1000
"""How long a node holds a request for records that are not there yet."""


@dataclass(slots=True)
class Fetcher:
    """Where a read is, its next request, and whether an answer is a proper one."""

    topic_id: int
    partition: int
    position: int
    """Offset of the next record."""
    end: int | None
    """Offset behind the last one that is wanted; None is never reached."""
    max_bytes: int
    what: str
    """The read, for messages of errors."""
    on_read: Callable[[int], None] | None = None
    """Called with the offset behind the last record read."""
    damage: DamagePolicy | None = None
    """What its reader does about a batch that cannot be opened; None: it raises CorruptEntry."""
    takes_run: bool = True
    """Until one was damaged: a node that looks at each entry says so, and repairs it."""

    topic: TopicInfo | None = None
    """As it was when the read began, where that is known."""

    @property
    def done(self) -> bool:
        return self.end is not None and self.position >= self.end

    def request(self, position: int | None = None) -> FetchRequest:
        """The next question, of a reader at ``position`` if it is not at its own."""
        return FetchRequest(
            topic_id=self.topic_id,
            partition=self.partition,
            start_offset=self.position if position is None else position,
            end_offset=-1 if self.end is None else self.end,
            max_bytes=self.max_bytes,
            wait_ms=WAIT_MS,
            takes_run=self.takes_run,
        )

    def request_behind(self, answer: FetchResponse) -> FetchRequest | None:
        """The question that follows an answer, should `take` find that sound. None where the answer
        has no records, or there are none behind them: at the end of the log the caller has the
        records first, and the node its rest."""
        if answer.run.rows:
            position = answer.run.end_offset
        elif answer.batches:
            position = FetchedBatches.of(answer.batches).end_offset
        else:
            return None
        last = answer.end_offset if self.end is None else min(answer.end_offset, self.end)
        return self.request(position) if self.position < position < last else None

    def take(self, answer: FetchResponse, payload: memoryview) -> FetchedBodies:
        """The bodies of an answer; moves `position` behind them.

        Raises:
            DLedgerError: one of the kinds of `elsewhere` when another replica may know better.
        """
        from dledger.client.protocol.reading.fetched import FetchedBodies  # loads Arrow

        if answer.code is not Code.SUCCESS:
            raise error_for(
                answer.code,
                answer.message,
                self.what,
                begin=answer.begin_offset,
                end=answer.end_offset,
            )
        if answer.run.rows:
            found = FetchedBodies.of_run(answer.run, payload, self.damage)
        else:
            found = FetchedBodies(FetchedBatches.of(answer.batches), payload, damage=self.damage)
        sound, position, is_damaged = found.count_sound(self.position)
        if sound < len(found):
            return self._refused(found.batches.part(sound, sound + 1), position, is_damaged, answer)
        if sound:
            self.position = position
            if self.on_read is not None:
                self.on_read(position)
        return found

    def _refused(
        self, batches: FetchedBatches, position: int, is_damaged: bool, answer: FetchResponse
    ) -> FetchedBodies:
        """None, where a node is to look at each entry; else the error of the first one of these."""
        base, count, *_ = next(batches.rows())
        span = f"offsets [{base}, {base + count})"
        if not is_damaged:
            raise ProtocolError(f"{self.what}: {span} where {position} comes next")
        if self.takes_run and answer.run.rows:
            from dledger.client.protocol.reading.fetched import NO_BODIES

            self.takes_run = False
            return NO_BODIES
        raise CorruptEntry(f"{self.what}: the body of {span} does not match its CRC")


def elsewhere(code: Code) -> bool:
    """Whether another replica may give the records that this one refused."""
    return code is Code.CORRUPT_ENTRY or answer_outcome(code) in {
        AnswerOutcome.AGAIN,
        AnswerOutcome.UNCLEAR,
    }
