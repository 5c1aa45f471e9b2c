"""Requests that wait for records or for applied entries, for as long as their clients say
(RocketMQ's PullRequestHoldService).

They are small and cost nothing to send, so a client could fill a node with them. Their bytes are
bounded, and the connections have equal shares of them. The requests of a partition are in the order
of the offsets that they wait for, so that an append passes over none that it does not serve. A few
are answered in one turn of the loop, where the connections take turns.
"""

from __future__ import annotations

import asyncio
import math
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Final

from dledger.catalog.topics.partitions import Partitions
from dledger.net import Connection
from dledger.node.events import Event

MAX_WAIT_MS: Final = 60_000
"""The longest wait."""
MOST_COST: Final = 1 << 16
"""Of all that wait. One unit is about 100 bytes."""
POLL_COST: Final = 8
"""The cost of each beside the partitions that it names."""
TURN_ANSWERS: Final = 16
"""In one turn of the loop."""


@dataclass(slots=True, eq=False)
class LongPoll:
    """A request that waits.

    Attributes:
        wants: partitions, by the keys that the catalog gives them, and offsets: it is due when one
            of the partitions ends above its offset, or is gone. Without any it is due when anything
            is applied.
        serve: called when it is due.
        give_up: called when its time is over, or there is no room for it any more: it answers, too.
        size: about how many bytes it holds.
    """

    connection: Connection
    wants: Sequence[tuple[int, int]]
    serve: Callable[[], None]
    give_up: Callable[[], None]
    size: int = 0
    timer: asyncio.TimerHandle | None = None
    number: int = -1
    """Among all that have waited."""

    @property
    def cost(self) -> int:
        return POLL_COST + 2 * len(self.wants) + self.size // 100


Places = dict[int, list[tuple[int, int, LongPoll]]]


class LongPolls:
    """All that wait at one node."""

    def __init__(self, growth: Partitions, *, applied: Event[[]], watched: Event[[bool]]) -> None:
        """``applied``: the catalog has taken in some entries; it is heard while a request waits,
        which ``watched`` tells."""
        self._growth = growth
        self._applied = applied
        self._watched = watched
        self._loop = asyncio.get_running_loop()
        self._numbers = count()
        self._held: dict[Connection, dict[LongPoll, None]] = {}
        """The oldest of a connection comes first."""
        self._costs: dict[Connection, int] = {}
        """Of all that have no answer yet; the connection that loses one next comes first."""
        self._cost = 0
        self._places: dict[int, Places] = {}
        """By topic and partition: (offset, number, poll), sorted."""
        self._for_anything: dict[LongPoll, None] = {}
        self._due: dict[Connection, deque[tuple[LongPoll, Callable[[], None]]]] = {}
        """Answers that are due; the connection whose turn is next comes first."""
        self._soon: asyncio.Handle | None = None

    def __len__(self) -> int:
        return sum(map(len, self._held.values()))

    def hold(self, poll: LongPoll, wait_ms: int) -> None:
        """Let it wait, at most so long."""
        if not self._held:  # what has grown before is no news to it
            self._growth.grown.clear()
            self._growth.gone.clear()
            self._growth.is_watched = True
            self._applied.subscribe(self.applied)
            self._watched(True)
        poll.number = next(self._numbers)
        poll.timer = self._loop.call_later(
            min(wait_ms, MAX_WAIT_MS) / 1000, self._end, poll, poll.give_up
        )
        self._held.setdefault(poll.connection, {})[poll] = None
        self._costs[poll.connection] = self._costs.get(poll.connection, 0) + poll.cost
        self._cost += poll.cost
        for key, offset in poll.wants:
            insort(
                self._places.setdefault(key >> 32, {}).setdefault(key, []),
                (offset, poll.number, poll),
            )
        if not poll.wants:
            self._for_anything[poll] = None
        while self._cost > MOST_COST:
            self._make_room()

    def _make_room(self) -> None:
        """The next connection that has more than its share loses its oldest, which is answered at
        once: were it to wait for that, too, it would take as much room as before."""
        share = MOST_COST // len(self._costs)
        connection = next(iter(self._costs))
        cost = self._costs[connection] = self._costs.pop(connection)
        if cost > share:
            if connection in self._due:
                oldest, _ = self._next_due(connection)
            else:
                oldest = next(iter(self._held[connection]))
                self._take_out(oldest)
            self._free(oldest)
            oldest.give_up()

    def _take_out(self, poll: LongPoll) -> None:
        """It waits no more."""
        held = self._held[poll.connection]
        del held[poll]
        if not held:
            del self._held[poll.connection]
            if not self._held:
                self._growth.is_watched = False
                self._applied.unsubscribe(self.applied)
                self._watched(False)
        if poll.timer is not None:
            poll.timer.cancel()
        self._for_anything.pop(poll, None)
        for key, offset in poll.wants:
            topic = self._places[key >> 32]
            waiting = topic[key]
            del waiting[bisect_left(waiting, (offset, poll.number))]
            if not waiting:
                del topic[key]
                if not topic:
                    del self._places[key >> 32]

    def _free(self, poll: LongPoll) -> None:
        """It is answered, and has no cost any more."""
        self._cost -= poll.cost
        self._costs[poll.connection] -= poll.cost
        if not self._costs[poll.connection]:
            del self._costs[poll.connection]

    def _end(self, poll: LongPoll, answer: Callable[[], None]) -> None:
        """It is answered in its connection's turn."""
        self._take_out(poll)
        self._due.setdefault(poll.connection, deque()).append((poll, answer))
        if self._soon is None:
            self._soon = self._loop.call_soon(self._answer)

    def _next_due(self, connection: Connection) -> tuple[LongPoll, Callable[[], None]]:
        """The connection is behind all others then."""
        answers = self._due.pop(connection)
        found = answers.popleft()
        if answers:
            self._due[connection] = answers
        return found

    def applied(self) -> None:
        """Entries were applied: requests that wait for them are answered, the first ones at
        once."""
        growth = self._growth
        for key in growth.grown:
            waiting = self._places.get(key >> 32, {}).get(key)
            if waiting:
                below = bisect_left(waiting, (growth.end_of(key), -math.inf))
                self._all_due([poll for _, _, poll in waiting[:below]])
        for topic_id in growth.gone:
            places = self._places.get(topic_id, {}).values()
            self._all_due([poll for waiting in places for _, _, poll in waiting])
        self._all_due(list(self._for_anything))
        growth.grown.clear()
        growth.gone.clear()
        if self._due and self._soon is not None:
            self._soon.cancel()
            self._answer()

    def _all_due(self, polls: list[LongPoll]) -> None:
        for poll in polls:
            if poll in self._held.get(poll.connection, ()):  # it may wait for two partitions
                self._end(poll, poll.serve)

    def _answer(self) -> None:
        self._soon = None
        for _ in range(TURN_ANSWERS):
            if not self._due:
                return
            poll, answer = self._next_due(next(iter(self._due)))
            self._free(poll)
            answer()
        if self._due and self._soon is None:
            self._soon = self._loop.call_soon(self._answer)

    def forget(self, connection: Connection) -> None:
        """The connection has ended, and its requests with it."""
        for poll in tuple(self._held.get(connection, ())):
            self._take_out(poll)
        self._due.pop(connection, None)
        self._cost -= self._costs.pop(connection, 0)

    def give_up_all(self) -> None:
        """Let none wait any more: each is answered in its turn, as if its time were over."""
        for polls in tuple(self._held.values()):
            for poll in tuple(polls):
                self._end(poll, poll.give_up)

    def stop(self) -> None:
        """Answer all waiting requests; no more records will come."""
        self.give_up_all()
        while self._due:
            self._answer()
