"""The outcome of a run."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any


class SeedCounts:
    """How often each kind of fault was ordered, and how often it really changed something."""

    def __init__(self) -> None:
        self.injected: Counter[str] = Counter()
        self.bites: Counter[str] = Counter()

    def inject(self, kind: str) -> None:
        self.injected[kind] += 1

    def bite(self, kind: str, times: int = 1) -> None:
        self.bites[kind] += times


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken promise.

    Attributes:
        invariant: which one: ``I1`` to ``I31``, ``D11``, ``S1``, ``Q1`` to ``Q4``, or a word.
        text: the contradiction that was seen.
        at_ms: simulated milliseconds since the start.
    """

    invariant: str
    text: str
    at_ms: int

    def __str__(self) -> str:
        return f"{self.invariant} at {self.at_ms} ms: {self.text}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedOutcome:
    """One seed's run.

    Attributes:
        simulated_ms: virtual time that passed.
        events: callbacks, arrivals and turns of background work.
        trace_hash: of all that arrived, was done and was answered; equal for the same seed and
            commit.
        injected, bites: by kind of fault: ordered, and really changed something.
        operations, acknowledged, records: calls of clients, those that succeeded, and records
            acknowledged.
        elections: terms that had a leader.
        config: the settings that were drawn.
        violation: the first broken promise, or None.
        story: the last things that each process did.
    """

    seed: int
    simulated_ms: int
    events: int
    trace_hash: str
    bites: dict[str, int]
    injected: dict[str, int] = field(default_factory=dict)
    operations: int = 0
    acknowledged: int = 0
    records: int = 0
    elections: int = 0
    config: dict[str, Any] = field(default_factory=dict)
    violation: Violation | None = None
    story: str = ""
