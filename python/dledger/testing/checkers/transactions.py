"""Transactions in a history: each takes effect in all of its partitions or in none, and once."""

from __future__ import annotations

from collections.abc import Mapping

from dledger.testing.checkers.anomaly import Anomaly, Findings
from dledger.testing.checkers.history import Operation, OperationOutcome
from dledger.testing.checkers.places import OffsetValues

Partitions = Mapping[tuple[str, int], OffsetValues]
Attempts = dict[int, list[Operation]]


def check_transactions(partitions: Partitions, findings: Findings) -> None:
    """Find what is half there, there twice, or was acknowledged and is not there."""
    by_name: dict[str, Attempts] = {}
    for places in partitions.values():
        for write in places.writes():
            if write.transaction:
                by_name.setdefault(write.transaction, {}).setdefault(write.attempt, []).append(
                    write
                )
    for name, attempts in by_name.items():
        _check_attempts(name, attempts, partitions, findings)
        for parts in attempts.values():
            _check_parts(name, parts, partitions, findings)


def _places(part: Operation, partitions: Partitions) -> OffsetValues:
    return partitions[part.topic, part.partition]


def _shown(part: Operation, partitions: Partitions) -> Operation | None:
    """A read that returned some of the part's values, the first of them."""
    seen = _places(part, partitions).seen
    return min(
        (seen[value] for value in part.values if value in seen),
        key=lambda op: op.returned_ns,
        default=None,
    )


def _check_attempts(
    name: str, attempts: Attempts, partitions: Partitions, findings: Findings
) -> None:
    happened = [
        number
        for number, parts in attempts.items()
        if any(
            (part.values and part.outcome is OperationOutcome.OK) or _shown(part, partitions)
            for part in parts
        )
    ]
    if len(happened) > 1:
        shown_by = [attempts[number][0] for number in happened]
        findings.add(
            Anomaly.DUPLICATE, f"attempts {sorted(happened)} of transaction {name}", *shown_by
        )
    every = [part for parts in attempts.values() for part in parts]
    repeats = [part for part in every if part.outcome is OperationOutcome.OK and not part.values]
    if happened or not repeats:
        return
    known_ns = min(part.returned_ns for part in repeats)
    written = [
        part for part in every if part.values and part.outcome is not OperationOutcome.FAILED
    ]
    if written and all(_places(part, partitions).is_absent(part, known_ns) for part in written):
        findings.add(Anomaly.LOST, f"transaction {name} was there already, and is not", *repeats)


def _check_parts(
    name: str, parts: list[Operation], partitions: Partitions, findings: Findings
) -> None:
    reads = [read for part in parts if (read := _shown(part, partitions)) is not None]
    if not reads:
        return
    first = min(reads, key=lambda read: read.returned_ns)
    for part in parts:
        if part.values and _shown(part, partitions) is None:
            places = _places(part, partitions)
            if places.is_absent(part, first.returned_ns):
                text = f"transaction {name}: {places} has not got its part"
                findings.add(Anomaly.TORN, text, part, first)
