"""Producer sessions: each batch once and in order, over retries, changes of leader, and restarts of
the producer.

A session numbers its batches from 0 in each partition. Only the next number is taken. One that was
taken already is answered with its first result, as long as it is among the last `WINDOW` of its
partition; a retry from before that is refused for good, never appended again (B24).
"""

from __future__ import annotations

from array import array
from collections.abc import Set
from dataclasses import dataclass, field
from typing import Final

from dledger.catalog.results import CommandResult, DataResult
from dledger.protocol.messages.catalog_commands import InitProducer
from dledger.protocol.messages.codes import Code
from dledger.records.body.header import BodyHeader

WINDOW: Final = 2048
"""Results remembered for each producer and partition: twice a client's batches in flight."""
SESSION_MS: Final = 7 * 24 * 3600 * 1000
"""A session that sent nothing for this long is forgotten."""
MAX_SESSIONS: Final = 100_000
MAX_RESULTS: Final = 8_000_000
"""Remembered results of all sessions, 8 bytes each."""


@dataclass(slots=True)
class ResultWindow:
    """The number that comes next, and the base offsets of the last ones, at their number modulo
    WINDOW."""

    next_sequence: int = 0
    results: array[int] = field(default_factory=lambda: array("q"))


@dataclass(slots=True)
class ProducerState:
    """One producer. ``used_at`` is the entry of its last batch or opening, ``used_ms`` a time not
    after that."""

    name: str
    producer_id: int
    epoch: int = 0
    used_at: int = 0
    used_ms: int = 0
    windows: dict[int, ResultWindow] = field(default_factory=dict)


class Producers:
    """All sessions, by id and by name."""

    def __init__(self, max_sessions: int = MAX_SESSIONS, max_results: int = MAX_RESULTS) -> None:
        self.max_sessions = max_sessions
        self.max_results = max_results
        self.sessions: dict[int, ProducerState] = {}
        self.by_name: dict[str, ProducerState] = {}
        self.next_id = 1
        self.results = 0
        self.scanned_at = -1
        self.next_expiry_ms: int | None = None

    def open(self, index: int, command: InitProducer, now_ms: int) -> CommandResult:
        """The answer to a program that opens a session: its id and epoch."""
        session = self.init(index, command.producer_name, now_ms)
        return CommandResult(
            Code.SUCCESS, "", {"producer_id": session.producer_id, "epoch": session.epoch}
        )

    def init(self, index: int, name: str, now_ms: int) -> ProducerState:
        """Open a session, or raise the epoch of the one that has this name."""
        session = self.by_name.get(name)
        if session is None:
            session = ProducerState(name, self.next_id)
            self.next_id += 1
            self.sessions[session.producer_id] = self.by_name[name] = session
        else:
            session.epoch += 1
            self._forget_windows(session)
        session.used_at = index
        session.used_ms = now_ms
        if self.next_expiry_ms is None:
            self.next_expiry_ms = now_ms + SESSION_MS
        if len(self.sessions) > self.max_sessions:
            self._evict(len(self.sessions) - self.max_sessions + self.max_sessions // 100, 0)
        return session

    def check(self, header: BodyHeader, key: int) -> DataResult | None:
        """None when this is the next batch of its session in partition ``key``, else why not."""
        session = self.sessions.get(header.producer_id)
        if session is None:
            return DataResult(
                Code.UNKNOWN_PRODUCER,
                -1,
                f"no session of producer {header.producer_id}: it expired; open a new one",
            )
        if header.producer_epoch != session.epoch:
            return _wrong_epoch(header, session)
        window = session.windows.get(key)
        expected = window.next_sequence if window is not None else 0
        sequence = header.sequence
        if sequence == expected:
            return None
        if sequence > expected or window is None:
            return DataResult(
                Code.OUT_OF_ORDER_SEQUENCE,
                -1,
                f"producer {session.name!r}: batch {sequence} came before batch {expected}; send "
                f"that first",
            )
        if sequence < expected - WINDOW:
            return DataResult(
                Code.OUT_OF_ORDER_SEQUENCE,
                -1,
                f"producer {session.name!r}: batch {sequence} was taken, but its result is "
                f"forgotten: only those of "
                f"the last {WINDOW} before batch {expected} are remembered",
            )
        return DataResult(Code.SUCCESS, window.results[sequence % WINDOW])

    def remember(self, index: int, header: BodyHeader, key: int, base_offset: int) -> None:
        """The batch, which `check` let pass, has its offsets."""
        session = self.sessions[header.producer_id]
        session.used_at = index
        window = session.windows.get(key)
        if window is None:
            window = session.windows[key] = ResultWindow()
        if window.next_sequence < WINDOW:
            self.results += 1
            if self.results > self.max_results:
                self._evict(0, self.results - self.max_results + self.max_results // 100)
            window.results.append(base_offset)
        else:
            window.results[window.next_sequence % WINDOW] = base_offset
        window.next_sequence += 1

    def expire(self, index: int, now_ms: int) -> None:
        """Forget sessions that were idle for SESSION_MS.

        Batches carry no clock, so a session that was used since the last scan counts as used now:
        never forgotten too early, at most SESSION_MS too late.
        """
        if self.next_expiry_ms is None or now_ms < self.next_expiry_ms:
            return
        for session in list(self.sessions.values()):
            if session.used_at > self.scanned_at:
                session.used_ms = max(session.used_ms, now_ms)
            elif session.used_ms + SESSION_MS <= now_ms:
                self._drop(session)
        self.scanned_at = index
        oldest = min((session.used_ms for session in self.sessions.values()), default=None)
        self.next_expiry_ms = None if oldest is None else oldest + SESSION_MS

    def drop_partitions(self, keys: Set[int]) -> None:
        """These partitions were deleted: nothing will be sent to them again."""
        for session in self.sessions.values():
            for key in keys & session.windows.keys():
                self.results -= len(session.windows.pop(key).results)

    def _evict(self, sessions: int, results: int) -> None:
        """Forget the longest unused sessions: so many, and until so many results are gone; never
        the newest one."""
        target = self.results - results
        oldest = sorted(self.sessions.values(), key=lambda session: session.used_at)[:-1]
        for at, session in enumerate(oldest):
            if at >= sessions and self.results <= target:
                break
            self._drop(session)

    def _drop(self, session: ProducerState) -> None:
        self._forget_windows(session)
        del self.sessions[session.producer_id]
        del self.by_name[session.name]

    def _forget_windows(self, session: ProducerState) -> None:
        self.results -= sum(len(window.results) for window in session.windows.values())
        session.windows.clear()


def _wrong_epoch(header: BodyHeader, session: ProducerState) -> DataResult:
    if header.producer_epoch > session.epoch:
        return DataResult(
            Code.MALFORMED,
            -1,
            f"producer {session.name!r} has epoch {session.epoch}; {header.producer_epoch} was "
            f"given to nobody",
        )
    return DataResult(
        Code.PRODUCER_FENCED,
        -1,
        f"producer {session.name!r}: a newer session took over; epoch is {session.epoch}, not "
        f"{header.producer_epoch}",
    )
