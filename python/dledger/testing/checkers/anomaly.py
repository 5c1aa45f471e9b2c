"""Kinds of anomalies that clients can see in a log."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from dledger.testing.checkers.history import Operation

MAX_OF_A_KIND: Final = 10
"""So many anomalies of one kind are told; one cause often has thousands of effects."""


class Anomaly(Enum):
    """Names are those of Jepsen's checker for Kafka-like logs (jepsen.tests.kafka), where it has
    one."""

    LOST = "lost write"
    """Acknowledged, and later not there."""
    DUPLICATE = "duplicate"
    """One value at two offsets, or two attempts of one transaction."""
    REORDER = "reorder"
    """A producer's values not in the order in which it sent them."""
    GAP = "gap"
    """A read that leaves out offsets."""
    ABORTED = "aborted read"
    """A value was seen whose write definitely failed."""
    NON_MONOTONIC = "non-monotonic"
    """An answer to a session goes back behind an earlier one."""
    TWO_VALUES = "two values at one offset"
    INVENTED = "invented record"
    """A value was read that no call wrote there, or not yet."""
    CHANGED = "changed value"
    """Bytes were read that are not those of any value."""
    STALE = "stale read"
    """An answer that promised to be fresh and was not."""
    TORN = "torn write"
    """Some of an append or of a transaction is there and the rest is not, or is elsewhere."""
    NOT_LINEARIZABLE = "not linearizable"
    """No order of the calls explains all answers."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One anomaly: its kind, its place, and the calls that show it."""

    anomaly: Anomaly
    text: str
    shown_by: tuple[Operation, ...] = ()

    def __str__(self) -> str:
        return "\n  ".join(
            [f"{self.anomaly.value}: {self.text}", *(str(operation) for operation in self.shown_by)]
        )


class Findings:
    """Collects findings, at most MAX_OF_A_KIND of each kind; `counts` has them all."""

    def __init__(self) -> None:
        self.found: list[Finding] = []
        self.counts: dict[Anomaly, int] = {}

    def add(self, anomaly: Anomaly, text: str, *shown_by: Operation) -> None:
        count = self.counts[anomaly] = self.counts.get(anomaly, 0) + 1
        if count <= MAX_OF_A_KIND:
            self.found.append(Finding(anomaly, text, shown_by))
