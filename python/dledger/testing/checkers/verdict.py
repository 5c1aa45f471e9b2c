"""All checkers over a whole history."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from dledger.testing.checkers.anomaly import Finding
from dledger.testing.checkers.history import Operation, OperationOutcome, in_pieces
from dledger.testing.checkers.linearizability import TooHard, check_linearizable
from dledger.testing.checkers.log_checker import check_log
from dledger.testing.checkers.places import WRITES


@dataclass(slots=True)
class Verdict:
    """The findings of the checkers, and how much they had to look at: a verdict over no calls
    proves nothing."""

    findings: list[Finding] = field(default_factory=list)
    operations: int = 0
    unknown: int = 0
    """Calls without a definite answer."""
    partitions: int = 0
    acknowledged: int = 0
    """Values whose write was acknowledged."""
    read: int = 0
    """Values that reads returned, each as often as it was read."""
    too_hard: list[str] = field(default_factory=list)
    """Partitions that the search for an order gave up; the log checker has judged them all the
    same."""

    def __str__(self) -> str:
        return "\n".join(str(finding) for finding in self.findings) or "a log"

    def as_dict(self) -> dict[str, Any]:
        """As plain JSON values."""
        return {
            "findings": [str(finding) for finding in self.findings],
            "operations": self.operations,
            "unknown": self.unknown,
            "partitions": self.partitions,
            "acknowledged": self.acknowledged,
            "read": self.read,
            "too_hard": list(self.too_hard),
        }


def check_history(history: Iterable[Operation]) -> Verdict:
    """Judge a history by every checker.

    Raises:
        ValueError: two writes have a value in common: the history's writer is wrong, not the log.
    """
    operations = list(history)
    pieces = list(in_pieces(operations))
    by_partition: dict[tuple[str, int], list[Operation]] = {}
    verdict = Verdict(check_log(pieces), len(operations))
    for piece in pieces:
        by_partition.setdefault((piece.topic, piece.partition), []).append(piece)
    for operation in operations:
        if operation.outcome is OperationOutcome.UNKNOWN:
            verdict.unknown += 1
        elif operation.outcome is OperationOutcome.OK and operation.kind in WRITES:
            verdict.acknowledged += len(operation.values)
        elif operation.outcome is OperationOutcome.OK:
            verdict.read += len(operation.values)
    verdict.partitions = len(by_partition)
    for (topic, partition), mine in by_partition.items():
        try:
            finding = check_linearizable(mine)
        except TooHard:
            verdict.too_hard.append(f"{topic}/{partition}")
        else:
            if finding is not None:
                verdict.findings.append(finding)
    return verdict
