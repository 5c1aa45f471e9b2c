"""The form of a fault."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from verification.chaos.scene import Scene

Run = Callable[[Scene], Awaitable[int]]


@dataclass(frozen=True, slots=True)
class Fault:
    """One kind of fault.

    Attributes:
        name: of the kind.
        what: the action, in words.
        bite: the unit of the number that `run` returns.
        run: do it, undo it, and return how often it bit; 0 when it had no effect.
        on_links: it sets the rules of links; two such are never under way at the same time.
        is_change: it changes the group's members as an operator does, and nothing fails by it; by
            itself it is a planned change, in which no append may fail.
    """

    name: str
    what: str
    bite: str
    run: Run
    on_links: bool = False
    is_change: bool = False


def fault(
    what: str, bite: str, *, on_links: bool = False, is_change: bool = False
) -> Callable[[Run], Fault]:
    """A function as the kind of fault of its name."""

    def made(run: Run) -> Fault:
        return Fault(run.__name__, what, bite, run, on_links, is_change)

    return made
