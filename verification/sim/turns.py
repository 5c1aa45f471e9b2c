"""The turns of a process's threads: each one event, or left at some of its disk operations and
locks, to go on later.

In between everything else happens: events of the same process's loop, other turns, kills. And while
the loop itself is inside an operation of the disk, turns go on or begin.
"""

from __future__ import annotations

import asyncio.events
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from verification.disk.memory_disk import ProcessKilled
from verification.greenlets import Greenlet, current_greenlet, new_greenlet
from verification.sim.process_loop import ProcessLoop
from verification.sim.scheduler import Handle

LONGEST_NS: Final = 20_000_000
"""For how long a turn is left at most while there are faults."""
HEALED_NS: Final = 1_000_000
"""And when all faults have ended. Entries that a follower lacks are read from the leader's disk,
one read after another: where each takes 10 ms and finds one small entry, a healed group commits no
entry for half a minute."""
TO_ITS_END: Final = object()
_set_running = asyncio.events._set_running_loop


class HeldLock(Protocol):
    """See `verification.sim.locks.SimLock`."""

    holder: TurnUnderWay | None

    def locked(self) -> bool: ...


@dataclass(slots=True, eq=False)
class TurnUnderWay:
    """One call of a thread. ``done(result)`` is called when its callbacks arrive."""

    turns: Turns
    rest_ns: int
    done: Callable[[Any], None]
    greenlet: Greenlet = field(init=False)
    said: list[Handle] = field(default_factory=list)
    number: int = 0
    """How often it was left."""
    result: Any = None
    ended: bool = False
    killed: bool = False
    waits_for: HeldLock | None = None
    until: object = None
    """It is not left again before it lets go of this lock, or `TO_ITS_END`, because another thread
    waits for that."""

    def leave(self) -> None:
        """Leave the turn: all others go on.

        Raises:
            ProcessKilled: the process is gone.
        """
        self.greenlet.parent.switch()


class Running:
    """Which turn runs now, in all of the simulation; None: a loop does."""

    turn: TurnUnderWay | None = None


class Turns:
    """Those of one process."""

    def __init__(self, loop: ProcessLoop) -> None:
        self._loop = loop
        self._rng = loop.rng.fork("turns")
        self.often = 0
        """At so many of a million disk operations and locks a turn is left, or taken up."""
        self.longest_ns = LONGEST_NS
        """For how long a turn is left at most."""
        self.due: list[Callable[[], None]] = []
        """The next actions of threads that have work and have not begun."""
        self.lefts = 0
        self._left: list[TurnUnderWay] = []
        self._interrupted = -1
        """The number of the event in which the loop's thread was in the disk while another thread
        went on."""
        self._inside = False
        """The loop, or another turn, is in the middle of something while a turn goes on."""

    def begin(
        self, function: Callable[[], Any], rest_ns: int, done: Callable[[Any], None]
    ) -> TurnUnderWay:
        """Call it as one of the process's threads would."""
        turn = TurnUnderWay(self, rest_ns, done)
        if self.often:
            turn.greenlet = new_greenlet(lambda: _body(turn, function), current_greenlet())
            self._go_on(turn)
        else:
            self._slice(turn, lambda: _body(turn, function))
        return turn

    def _slice(self, turn: TurnUnderWay, run: Callable[[], None]) -> int:
        """A part of a turn; returns what its disk operations cost."""
        loop, scheduler = self._loop, self._loop.scheduler
        outer, loop_that_runs = Running.turn, asyncio.events._get_running_loop()
        before = loop.posted, loop.spent_ns, scheduler.speaker
        Running.turn, loop.posted, loop.spent_ns, scheduler.speaker = turn, turn.said, 0, loop.name
        _set_running(None)
        try:
            run()
        finally:
            spent = loop.spent_ns
            Running.turn = outer
            loop.posted, loop.spent_ns, scheduler.speaker = before
            _set_running(loop_that_runs)
        if turn.ended:
            if not self._inside and loop.after_callback is not None and not loop.dead:
                loop.after_callback()
            if not turn.killed:
                loop.disk_waits.after(turn.rest_ns + spent, self._arrived, turn)
        return spent

    def _arrived(self, turn: TurnUnderWay) -> None:
        self._loop.deliver(turn.said)
        turn.done(turn.result)

    def _go_on(self, turn: TurnUnderWay) -> int:
        """Go on until the turn is left or ends."""
        turn.greenlet.parent = current_greenlet()
        spent = self._slice(turn, turn.greenlet.switch)
        if not turn.ended and not self._loop.dead:
            loop = self._loop
            said, turn.said = turn.said, []
            loop.disk_waits.after(spent, loop.deliver, said)
            turn.number += 1
            self.lefts += 1
            self._left.append(turn)
            loop.scheduler.after(
                spent + self._rng.spread(1000, self.longest_ns), self._take_up, turn, turn.number
            )
        return spent

    def _take_up(self, turn: TurnUnderWay, number: int) -> None:
        is_left = turn in self._left and turn.number == number
        if is_left and not self._loop.hold(self._take_up, turn, number):
            self._left.remove(turn)
            self._go_on(turn)

    @property
    def is_going_on(self) -> bool:
        """Whether the running turn or callback was interrupted by others: it cannot know their
        results yet."""
        turn = Running.turn
        return self._interrupted == self._loop.scheduler.events if turn is None else turn.number > 0

    # --- switching points -------------------------------------------------------------------------

    def point(self) -> None:
        """The thread that runs is about to use the disk, or a lock.

        Raises:
            ProcessKilled: the process is gone by now.
        """
        if not self.often or not self._rng.chance(self.often):
            return
        turn = Running.turn
        if turn is None:
            if self._loop.in_callback:
                self._interrupted = self._loop.scheduler.events
                self._meanwhile()
        elif turn.until is None:
            turn.leave()

    def _meanwhile(self) -> None:
        """Another thread goes on or begins while the loop waits for the disk."""
        free = [turn for turn in self._left if turn.waits_for is None]
        if free:
            turn = self._rng.pick(free)
            self._left.remove(turn)
            self._nested(turn)
        elif self.due:
            before, self._inside = self._inside, True
            self._rng.pick(self.due)()
            self._inside = before
        if self._loop.dead:
            raise ProcessKilled("while another thread went on")

    def _nested(self, turn: TurnUnderWay) -> int:
        before, self._inside = self._inside, True
        try:
            return self._go_on(turn)
        finally:
            self._inside = before

    def wait_for(self, lock: HeldLock) -> None:
        """The loop, or a turn that may not be left, waits for a lock that a left turn holds: that
        goes on first."""
        while (holder := lock.holder) is not None:
            wanted: object = lock
            while holder.waits_for is not None and holder.waits_for.holder is not None:
                wanted, holder = holder.waits_for, holder.waits_for.holder
            if holder.waits_for is not None and holder.waits_for.locked():
                raise RuntimeError(
                    "a deadlock: a thread waits for a lock of the loop, which waits for one of "
                    "its own"
                )
            self._hurry(holder, wanted)

    def finish(self, turn: TurnUnderWay) -> None:
        """The turn goes on to its end."""
        while not turn.ended and not self._loop.dead:
            lock = turn.waits_for
            if lock is not None and lock.holder is not None:
                self.wait_for(lock)
            self._hurry(turn, TO_ITS_END)

    def _hurry(self, turn: TurnUnderWay, until: object) -> None:
        if turn not in self._left:
            raise RuntimeError("a deadlock: a thread waits for a lock that only it can give back")
        self._left.remove(turn)
        turn.until = until
        self._loop.spent_ns += self._nested(turn)
        turn.until = None
        if self._loop.dead:
            raise ProcessKilled("while another thread went on")

    def bury(self) -> None:
        """The process is gone: so are its threads, wherever they are."""
        left, self._left = self._left, []
        for turn in left:
            before, Running.turn = Running.turn, turn
            turn.greenlet.parent = current_greenlet()
            with suppress(ProcessKilled):
                turn.greenlet.throw(ProcessKilled("the process is gone"))
            Running.turn = before


def _body(turn: TurnUnderWay, function: Callable[[], Any]) -> None:
    try:
        turn.result = function()
    except ProcessKilled:
        turn.killed = True
    finally:
        turn.ended = True
