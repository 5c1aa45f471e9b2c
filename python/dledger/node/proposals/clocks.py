"""The clocks of a node: the catalog's time, which runs by monotonic time, and a wall clock that
does not jump.

Stages and producers' sessions end by catalog time. It is the largest time that a command in the log
carries, and between two of them it runs on by each node's monotonic clock, so that a wall clock
that jumps, on any leader, makes no time-out longer or shorter (D10). The wall clock only says where
catalog time begins, and makes up for the sleep of a group: catalog time steps forward to it while
that cuts nothing short, and never back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final

from dledger.catalog.state_machine import Catalog
from dledger.environment import Environment
from dledger.types import Term

logger = logging.getLogger(__name__)

FAR_MS: Final = 10_000
"""A wall clock that is off by more than this is reported."""
DOUBT_MS: Final = 3_600_000
"""A wall clock that jumped is believed only after this long: so much time has an operator, or NTP,
to put it right."""
STEP_MS: Final = 1_000
"""Catalog time is not stepped for less."""
SESSION_SPARE_MS: Final = 24 * 3_600_000
"""No step brings catalog time closer than this to the end of a producer's session."""


class SteadyWall:
    """The wall clock, but for jumps."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._believed = self._seen = environment.wall_ms() - environment.now_ms()
        self._since_ms = environment.now_ms()
        self.jumps = 0

    def now_ms(self) -> int:
        """Milliseconds since 1970. Call it often: a jump is noticed between two calls."""
        now = self._environment.now_ms()
        offset = self._environment.wall_ms() - now
        if abs(offset - self._seen) > FAR_MS:
            self.jumps += 1
            self._since_ms = now
            logger.warning(
                "the wall clock jumped by %d s (or the machine slept); retention goes by the time "
                "before for %d min, records are stamped with the new one: look at NTP",
                (offset - self._seen) // 1000,
                DOUBT_MS // 60_000,
            )
        self._seen = offset
        if abs(offset - self._believed) <= FAR_MS or now - self._since_ms >= DOUBT_MS:
            self._believed = offset
        return now + self._believed


class Clocks:
    """One node's view of both."""

    def __init__(
        self,
        environment: Environment,
        catalog: Catalog,
        *,
        leads_in: Callable[[], Term | None],
        is_settled: Callable[[], bool],
    ) -> None:
        """``leads_in``: the term in which this node leads and has applied all entries of earlier
        leaders, if it does. ``is_settled``: it does, and no command on its way into the log begins
        a time-out."""
        self._environment = environment
        self._catalog = catalog
        self._leads_in = leads_in
        self._led_in: Term | None = None
        """`leads_in` at the last look."""
        self._is_settled = is_settled
        self._wall = SteadyWall(environment)
        self._heard = self._time = catalog.clock_ms
        self._at = environment.now_ms()
        self._ahead: int | None = None
        """Of the leader's wall clock, when last compared; None: not compared."""
        self._told = ""

    def wall_ms(self) -> int:
        """The wall clock without jumps: the ages of files go by it."""
        return self._wall.now_ms()

    def now_ms(self) -> int:
        """Catalog time, as far as this node can tell; a leader writes it into commands that begin
        or end a time-out."""
        now, heard, term = self._environment.now_ms(), self._catalog.clock_ms, self._leads_in()
        if heard != self._heard:
            self._heard = heard
            # A leader's own commands come back later than it stamped them. A stamp of another
            # leader, even of the one before, counts from here on: its clock may have been far
            # behind this one.
            if heard > self._time + now - self._at or term is None or term != self._led_in:
                self._time, self._at = heard, now
        if term is not None and term != self._led_in and self._time + now - self._at <= heard:
            # The others, whose clocks may be far ahead, hear of a stamp by catalog time, which that
            # has to move.
            self._time, self._at = heard + 1, now
        self._led_in = term
        time, wall = self._time + now - self._at, self._wall.now_ms()
        if wall >= time + STEP_MS and (target := self._may_step_to(wall)) > time:
            self._time, self._at = time, now = target, now
        return time

    def _may_step_to(self, wall: int) -> int:
        """How far catalog time may step forward at once: no open stage ends the sooner for it."""
        if self._catalog.transactions.stages or not self._is_settled():
            return 0
        session_ends = self._catalog.producers.next_expiry_ms
        return wall if session_ends is None else min(wall, session_ends - SESSION_SPARE_MS)

    def label_ms(self) -> int:
        """For commands that only note when something was done: the wall clock, but nothing that
        would move catalog time."""
        return min(self._environment.wall_ms(), self.now_ms())

    def compare(self, leader_ms: int, asked_ms: int) -> None:
        """The leader's wall clock showed ``leader_ms`` when it was asked, at ``asked_ms`` of the
        own monotonic one."""
        now, wall = self._environment.now_ms(), self._environment.wall_ms()
        ahead, unsure = wall - (now - asked_ms) // 2 - leader_ms, (now - asked_ms) // 2
        self._ahead = ahead
        self._tell(f"{_by(ahead)} the leader's" if abs(ahead) - unsure > FAR_MS else "")

    def leads(self) -> None:
        """This node leads: no other wall clock is there to compare with, only the time that the
        group has seen."""
        self._ahead = None
        ahead = self._environment.wall_ms() - self.now_ms()
        self._tell(
            f"{_by(ahead)} the group's catalog, which leaders stamped before"
            if ahead < -FAR_MS
            else ""
        )

    def _tell(self, off: str) -> None:
        if bool(off) != bool(self._told):
            if off:
                logger.warning(
                    "the wall clock is %s; records are stamped with it all the same: look at NTP",
                    off,
                )
            else:
                logger.info("the wall clock is right again")
        self._told = off

    @property
    def off(self) -> str:
        """How far the wall clock is off, in words; empty where it is right."""
        return self._told

    def status(self) -> dict[str, Any]:
        wall = self._environment.wall_ms()
        return {
            "wall_ms": wall,
            "catalog_ms": self.now_ms(),
            "ahead_of_leader_ms": self._ahead,
            "jumps": self._wall.jumps,
            "off": self._told,
        }


def _by(ahead: int) -> str:
    return f"{round(abs(ahead) / 1000)} s {'ahead of' if ahead > 0 else 'behind'}"
