"""Strategies that choose the thread that goes on at a switching point: by priorities, by chance, as
before, or one after the other of all there are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from operator import attrgetter

from verification.interleave.scheduler import NEVER, Strategy, Thread
from verification.sim.rng import Rng


class Priorities(Strategy):
    """PCT: random priorities, and ``depth - 1`` random steps at which the running thread gets the
    lowest one.

    The thread of the highest priority that can run does. A bug that needs ``depth`` ordered events
    among n threads and k steps is found with a probability of at least 1 / (n * k ** (depth - 1)) a
    schedule (Burckhardt, Kothari, Musuvathi, Nagarakatte: A randomized scheduler with probabilistic
    guarantees of finding bugs, ASPLOS 2010).
    """

    def __init__(self, rng: Rng, depth: int, steps: int, at: frozenset[str] = frozenset()) -> None:
        """
        Args:
            steps: about how many a schedule has.
            at: a thread is interrupted at the first of these switching points from the random step
                on, as within a sync, where threads spend most of their time, or where others see
                another disk than before; empty: at any.
        """
        self._rng = rng
        self._places = at
        self._changes = sorted(1 + rng.below(max(steps, 1)) for _ in range(depth - 1))
        self._lows = list(range(depth - 1))
        rng.shuffle(self._lows)
        self._at = 0
        self.quiet_until = self._changes[0] if self._changes else NEVER

    def born(self, thread: Thread) -> None:
        thread.priority = (1 + self._rng.below(1 << 30)) * 64 + thread.number

    def choose(self, ready: list[Thread], current: Thread | None, step: int, what: str) -> Thread:
        changes = self._changes
        while self._at < len(changes) and step >= changes[self._at]:
            if self._places and what not in self._places:
                self.quiet_until = step + 1
                return max(ready, key=attrgetter("priority"))
            if current is not None:
                current.priority = self._lows[self._at]
            self._at += 1
            if self._places:
                break  # the next one waits for another place
        self.quiet_until = changes[self._at] if self._at < len(changes) else NEVER
        return max(ready, key=attrgetter("priority"))


class Interruptions(Strategy):
    """Threads run one after the other, more often in the order of their numbers, but for up to
    three interruptions. Each is at a place that is drawn by how many of its kind come before it,
    and the interrupted thread goes on last."""

    def __init__(self, rng: Rng, places: frozenset[str], most: int, passed: int = 0) -> None:
        """
        Args:
            places: switching points that count; empty: all.
            most: fewer than so many of them lie before the first interruption, and between two.
            passed: and so many more before the first one.
        """
        self._rng = rng
        self._places = places
        self._gaps = [rng.below(most) for _ in range(rng.between(1, 3))]
        self._gaps[0] += passed
        self._in_order = rng.chance(750_000)
        self._lowest = 0

    def born(self, thread: Thread) -> None:
        thread.priority = 64 - thread.number if self._in_order else 1 + self._rng.below(64)

    def choose(self, ready: list[Thread], current: Thread | None, step: int, what: str) -> Thread:
        gaps = self._gaps
        if gaps and current is not None and what and (not self._places or what in self._places):
            if gaps[0]:
                gaps[0] -= 1
            else:
                gaps.pop(0)
                self._lowest -= 1
                current.priority = self._lowest
        if not gaps:
            self.quiet_until = NEVER
        return max(ready, key=attrgetter("priority"))


class Chance(Strategy):
    """Each thread that can run is as likely as the others; the running one goes on for ``stay``
    steps at the mean."""

    def __init__(self, rng: Rng, stay: int) -> None:
        self._rng = rng
        self._stay = stay

    def choose(self, ready: list[Thread], current: Thread | None, step: int, what: str) -> Thread:
        self.quiet_until = step + 1 + self._rng.below(2 * self._stay - 1)
        return self._rng.pick(ready)


class Replay(Strategy):
    """Goes on with the running thread, and with the one of the lowest number where it cannot run,
    but for the steps at which ``decisions`` says otherwise."""

    def __init__(self, decisions: Mapping[int, int]) -> None:
        self._decisions = decisions

    def choose(self, ready: list[Thread], current: Thread | None, step: int, what: str) -> Thread:
        wanted = self._decisions.get(step)
        usual = self.usual(ready, current)
        return next((thread for thread in ready if thread.number == wanted), usual)


@dataclass(slots=True)
class _Choice:
    """One place in a schedule where several threads could run."""

    options: int
    taken: int
    """0: the usual one, which is no preemption."""
    preempts: bool
    """Another one than the usual one interrupts a thread that could have gone on."""


class Exhaustive(Strategy):
    """Every schedule with no more than ``preemptions`` interruptions of a thread that could have
    gone on, each once: after one schedule, `advance` makes it the next one (Musuvathi, Qadeer:
    Iterative context bounding, PLDI 2007)."""

    def __init__(self, preemptions: int) -> None:
        self._bound = preemptions
        self._choices: list[_Choice] = []
        self._at = 0

    def choose(self, ready: list[Thread], current: Thread | None, step: int, what: str) -> Thread:
        usual = self.usual(ready, current)
        options = [usual, *(thread for thread in ready if thread is not usual)]
        if self._at == len(self._choices):
            self._choices.append(_Choice(len(options), 0, usual is current))
        choice = self._choices[self._at]
        self._at += 1
        return options[choice.taken]

    def advance(self) -> bool:
        """The next schedule; False when there is none."""
        choices = self._choices[: self._at]
        self._at = 0
        while choices:
            last = choices[-1]
            used = sum(choice.preempts and choice.taken > 0 for choice in choices[:-1])
            if last.taken + 1 < last.options and (not last.preempts or used < self._bound):
                last.taken += 1
                self._choices = choices
                return True
            choices.pop()
        return False
