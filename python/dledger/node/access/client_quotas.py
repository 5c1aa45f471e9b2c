"""Quotas of principals at one node: rates, and the number of connections.

A principal has one budget over all its connections. While that is overdrawn the node takes no more
requests of the principal, as Kafka mutes a channel: its connections are read no further, so that
nothing gathers in memory. Answers wait as well, up to `MOST_HELD_S`, where it was appends or
requests that were too many; a commit never does. Clients are told for how long
(`ThrottleNotice`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from dledger.catalog.access.quotas import BYTES_IN, BYTES_OUT, CONNECTIONS, REQUESTS
from dledger.net import Connection
from dledger.net.limits.turns import Clock
from dledger.node.access.traffic import MOST_NAMES, OTHER
from dledger.node.context import NodeContext, NodePart
from dledger.protocol.messages.throttling import ThrottleNotice
from dledger.protocol.wire import encode
from dledger.token_bucket import TokenBucket
from dledger.types import Principal

MOST_HELD_S: Final = 2.0
"""The longest delay of an answer that is ready: clients take a longer silence for a dead node."""
LEAST_PAUSE_S: Final = 0.005
"""The shortest pause: to pause and resume a thousand connections for less would cost more than the
requests."""
BURST_SHARE: Final = 50
"""Requests of one connection that are taken in one turn, as a share of those of a second."""

RATES: Final = (BYTES_IN, BYTES_OUT, REQUESTS)
Counts = dict[str, dict[str, int]]
Resume = Callable[[Connection], None]


class Session(Protocol):
    """A client's connection that has said hello."""

    principal: Principal
    takes_notices: bool
    budget: Budget | None


class Budget:
    """The rates of one principal, over all its connections.

    Args:
        resume: reads on from a connection, unless it has to wait for another reason.
        note: is told of each pause: requests that it delays, and seconds.
        clock: the running loop, or a test's.
    """

    def __init__(
        self,
        quotas: Mapping[str, int],
        *,
        resume: Resume,
        note: Callable[[int, float], None] = lambda requests, pause_s: None,
        clock: Clock | None = None,
    ) -> None:
        self.connections: dict[Connection, Session] = {}
        self._resume = resume
        self._note = note
        self._clock = clock or asyncio.get_running_loop()
        self._buckets: dict[str, TokenBucket] = {}
        self._waiting: deque[tuple[Connection, Callable[[], None]]] = deque()
        """Fetches that are not looked at before the pause ends."""
        self._timer: asyncio.TimerHandle | None = None
        self._release: asyncio.TimerHandle | None = None
        self.change(quotas)

    @property
    def is_paused(self) -> bool:
        return self._timer is not None

    @property
    def is_unused(self) -> bool:
        """Whether a new one would do the same."""
        now_s = self._clock.time()
        full = all(bucket.is_full(now_s) for bucket in self._buckets.values())
        return full and not self.connections

    def change(self, quotas: Mapping[str, int]) -> None:
        """Other rates from now on."""
        now_s = self._clock.time()
        for name in RATES:
            if name not in quotas:
                self._buckets.pop(name, None)
            elif name in self._buckets:
                self._buckets[name].change(quotas[name], now_s)
            else:
                self._buckets[name] = TokenBucket(quotas[name], now_s)
        for connection in self.connections:
            self._limit_turns(connection)
        if self._timer is not None:
            self._end_pause()

    def add(self, connection: Connection, session: Session) -> None:
        """A connection of this principal."""
        self.connections[connection] = session
        session.budget = self
        self._limit_turns(connection)
        if self.is_paused:
            connection.pause_reading()

    def _limit_turns(self, connection: Connection) -> None:
        requests = self._buckets.get(REQUESTS)
        connection.most_frames = None if requests is None else 1 + requests.rate // BURST_SHARE

    def remove(self, connection: Connection, *, is_open: bool = False) -> None:
        """It has ended, or (``is_open``) its principal has no rates any more."""
        session = self.connections.pop(connection)
        session.budget = None
        if is_open:
            connection.most_frames = None
            connection.release_answers()
            self._resume(connection)

    def close(self) -> None:
        """The principal has no rates any more: all its connections go on."""
        self._cancel()
        for connection in tuple(self.connections):
            self.remove(connection, is_open=True)
        waiting, self._waiting = self._waiting, deque()
        for connection, work in waiting:
            if not connection.closing:
                work()

    def charge(self, *, requests: int = 0, bytes_in: int = 0, bytes_out: int = 0) -> None:
        """So much is on its way; where that is too much a pause begins."""
        now_s = self._clock.time()
        for name, amount in ((REQUESTS, requests), (BYTES_IN, bytes_in), (BYTES_OUT, bytes_out)):
            if amount and (bucket := self._buckets.get(name)) is not None:
                bucket.take(amount, now_s)
        if self._timer is None and (wait_s := self._wait_s(RATES, now_s)):
            self._begin_pause(wait_s, self._wait_s((BYTES_IN, REQUESTS), now_s), requests or 1)

    def _wait_s(self, names: tuple[str, ...], now_s: float) -> float:
        return max(
            (self._buckets[name].wait_s(now_s) for name in names if name in self._buckets),
            default=0.0,
        )

    def holds(self, connection: Connection, work: Callable[[], None]) -> bool:
        """Whether a fetch has to wait; then its ``work`` is done behind the pause."""
        if self._timer is not None:
            self._waiting.append((connection, work))
            self._note(1, 0.0)
        return self._timer is not None

    def _begin_pause(self, wait_s: float, held_s: float, requests: int) -> None:
        wait_s = max(wait_s, LEAST_PAUSE_S)
        self._note(requests, wait_s)
        self._timer = self._clock.call_later(wait_s, self._end_pause)
        notice = encode(ThrottleNotice(throttle_ms=max(1, round(wait_s * 1000))))
        for connection, session in self.connections.items():
            if session.takes_notices and connection.is_asked:
                connection.send_frame(notice, 0)
            if held_s:
                connection.hold_answers()
            connection.pause_reading()
        if held_s > MOST_HELD_S:
            self._release = self._clock.call_later(MOST_HELD_S, self._release_answers)

    def _release_answers(self) -> None:
        self._release = None
        for connection in self.connections:
            connection.release_answers()

    def _cancel(self) -> None:
        for timer in (self._timer, self._release):
            if timer is not None:
                timer.cancel()
        self._timer = self._release = None

    def _end_pause(self) -> None:
        """Also before its time, where the rates have changed: then the rest of it may be a pause of
        its own."""
        self._cancel()
        self._release_answers()
        while self._waiting and not self.is_paused:
            connection, work = self._waiting.popleft()
            if not connection.closing:
                work()
        if not self.is_paused:
            self.charge()
        if not self.is_paused:
            for connection in tuple(self.connections):
                self._resume(connection)


class ClientQuotas(NodePart):
    """The budgets of the principals that have quotas, and the connections of each principal."""

    def __init__(self, context: NodeContext, *, resume: Resume) -> None:
        """``resume`` as `Budget` has it."""
        super().__init__(context)
        self._resume = resume
        self._sessions: dict[Principal, dict[Connection, Session]] = {}
        self._budgets: dict[Principal, Budget] = {}
        """Also of those that have no connection now: opening a new one pays no debt."""
        self.throttled: Counts = {}
        """By principal: ``requests`` that had to wait or made others wait, and ``ms``."""
        context.events.quotas_altered.subscribe(self._altered)
        context.status.add(lambda: {"throttled": self.throttled} if self.throttled else {})

    def refusal(self, principal: Principal) -> str:
        """Why a principal may not have one more connection; empty where it may."""
        most = self._catalog.quotas.of(principal).get(CONNECTIONS)
        if most is None or len(self._sessions.get(principal, ())) < most:
            return ""
        return f"{principal} may have {most} connections to {self._node_id}: a quota of the group"

    def begin(self, connection: Connection, session: Session) -> None:
        """A client's connection was taken."""
        principal = session.principal
        self._sessions.setdefault(principal, {})[connection] = session
        if (budget := self._budget(principal)) is not None:
            budget.add(connection, session)

    def end(self, connection: Connection, session: Session) -> None:
        """It has ended."""
        sessions = self._sessions[session.principal]
        del sessions[connection]
        if not sessions:
            del self._sessions[session.principal]
        if session.budget is not None:
            session.budget.remove(connection)

    def _budget(self, principal: Principal) -> Budget | None:
        quotas = self._catalog.quotas.of(principal)
        if not any(name in quotas for name in RATES):
            return None
        budget = self._budgets.get(principal)
        if budget is None:
            for name in [name for name, one in self._budgets.items() if one.is_unused]:
                del self._budgets[name]
            budget = self._budgets[principal] = Budget(
                quotas,
                resume=self._resume,
                note=lambda requests, pause_s: self._note(principal, requests, pause_s),
            )
        return budget

    def _altered(self) -> None:
        """Principals have other quotas; those connections over their number stay."""
        of = self._catalog.quotas.of
        for principal, budget in tuple(self._budgets.items()):
            quotas = of(principal)
            if any(name in quotas for name in RATES):
                budget.change(quotas)
            else:
                del self._budgets[principal]
                budget.close()
        for principal in self._sessions.keys() - self._budgets.keys():
            if (new := self._budget(principal)) is not None:
                for connection, session in self._sessions[principal].items():
                    new.add(connection, session)

    def _note(self, principal: Principal, requests: int, pause_s: float) -> None:
        is_known = principal in self.throttled or len(self.throttled) < MOST_NAMES
        name = principal if is_known else OTHER
        counts: dict[str, Any] = self.throttled.setdefault(name, {"requests": 0, "ms": 0})
        counts["requests"] += requests
        counts["ms"] += round(pause_s * 1000)
        if self._context.meters is not None:
            self._context.meters.throttled += requests
