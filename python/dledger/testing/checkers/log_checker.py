"""Checks whether a history is one of a log: nothing lost, doubled, reordered, left out, invented or
changed.

The rules are those of jepsen.tests.kafka, and the further promises of dledger: offsets without
gaps, appends that know their offsets, fresh answers, transactions that are all there or not at all.
Time and memory are O(n log n) in the number of calls and values, so a whole night's history can be
checked. Questions that need a search are left to `dledger.testing.checkers.linearizability`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from dledger.testing.checkers.anomaly import Anomaly, Finding, Findings
from dledger.testing.checkers.history import Operation, OperationKind, OperationOutcome, in_pieces
from dledger.testing.checkers.places import WRITES, OffsetValues, Reach, end_of
from dledger.testing.checkers.transactions import check_transactions


def check_log(history: Iterable[Operation]) -> list[Finding]:
    """All anomalies of a history; none when it is that of a log.

    Raises:
        ValueError: two writes have a value in common: the history's writer is wrong, not the log.
    """
    operations = sorted(in_pieces(history), key=lambda op: op.invoked_ns)
    writers: dict[int, Operation] = {}
    by_partition: dict[tuple[str, int], list[Operation]] = {}
    for operation in operations:
        by_partition.setdefault((operation.topic, operation.partition), []).append(operation)
        if operation.kind in WRITES:
            for value in operation.values:
                if writers.setdefault(value, operation) is not operation:
                    raise ValueError(
                        f"value {value} is written twice: {writers[value]} and {operation}"
                    )
    findings = Findings()
    partitions = {name: OffsetValues(name, mine) for name, mine in by_partition.items()}
    for places in partitions.values():
        places.place(writers, findings)
        _check_partition(places, findings)
    check_transactions(partitions, findings)
    return findings.found


def _check_partition(places: OffsetValues, findings: Findings) -> None:
    _check_order(places, findings)
    _check_whole(places, findings)
    _check_lost(places, findings)
    _check_fresh(places, findings)
    _check_sessions(places, findings)
    _check_length(places, findings)


def _check_order(places: OffsetValues, findings: Findings) -> None:
    """A producer's values stand in the order in which it sent them."""
    by_producer: dict[str, list[Operation]] = {}
    for write in places.writes():
        if write.producer:
            by_producer.setdefault(write.producer, []).append(write)
    for producer, writes in by_producer.items():
        last, last_write = -1, writes[0]
        for write in sorted(writes, key=lambda op: op.sequence):
            for value in write.values:
                offset = places.offset_of.get(value)
                if offset is None:
                    continue
                if offset < last:
                    text = (
                        f"{places}: {value} of {producer} at {offset}, what it sent before at "
                        f"{last}"
                    )
                    findings.add(Anomaly.REORDER, text, last_write, write)
                last, last_write = offset, write


def _check_whole(places: OffsetValues, findings: Findings) -> None:
    """The values of one write stand side by side, in their order."""
    for write in places.writes():
        begins = {
            at: offset - at
            for at, value in enumerate(write.values)
            if (offset := places.offset_of.get(value)) is not None
        }
        if len(set(begins.values())) > 1:
            text = f"{places}: values at {[places.offset_of.get(value) for value in write.values]}"
            findings.add(Anomaly.TORN, text, write)
            continue
        if not begins:
            continue
        start = next(iter(begins.values()))
        taken = [
            start + at
            for at, value in enumerate(write.values)
            if at not in begins and places.value_at.get(start + at, value) != value
        ]
        if taken:
            text = f"{places}: other values at {taken}, where the rest of the write belongs"
            findings.add(Anomaly.TORN, text, write)


def _check_lost(places: OffsetValues, findings: Findings) -> None:
    """An acknowledged value is read in its place, or at least not missed where it would be."""
    for write in places.writes():
        if write.outcome is not OperationOutcome.OK:
            continue
        unseen = [value for value in write.values if value not in places.seen]
        if not unseen:
            continue
        if write.start < 0:
            is_lost = places.is_absent(write, write.returned_ns)
        else:
            is_lost = any(
                value in unseen and places.read_at.get(offset, value) != value
                for offset, value in enumerate(write.values, write.start)
            )
        if is_lost:
            findings.add(Anomaly.LOST, f"{places}: {unseen} were acknowledged", write)


def _check_fresh(places: OffsetValues, findings: Findings) -> None:
    """An answer that promises to be fresh reaches as far as any that came back before it was asked
    for.

    If a later one reaches that far again, it was stale; else what was there is lost.
    """
    highest_after = 0
    for operation in reversed(places.fresh):
        end, known = end_of(operation), places.reach.before(operation.invoked_ns)
        if end < known:
            anomaly = Anomaly.STALE if highest_after >= known else Anomaly.LOST
            text = f"{places}: the log ends at {end}, before this was asked for it reached {known}"
            findings.add(anomaly, text, operation)
        highest_after = max(highest_after, end)


def _check_sessions(places: OffsetValues, findings: Findings) -> None:
    """No session sees the log shorter than before, nor are its appends acknowledged before earlier
    ones."""
    by_session: dict[str, list[Operation]] = {}
    for operation in places.answered:
        by_session.setdefault(operation.session, []).append(operation)
    for session, operations in by_session.items():
        seen = Reach(
            (op.returned_ns, end_of(op))
            for op in operations
            if op.kind in {OperationKind.END, OperationKind.READ}
        )
        written = Reach(
            (op.returned_ns, end_of(op)) for op in operations if op.kind is OperationKind.APPEND
        )
        for operation in operations:
            if operation.kind is OperationKind.APPEND and operation.start >= 0:
                known, found = written.before(operation.invoked_ns), operation.start
            elif operation.kind is OperationKind.END or operation.to_end:
                known, found = seen.before(operation.invoked_ns), end_of(operation)
            else:
                continue
            if found < known:
                text = f"{places}: {session} comes to {found} after {known}"
                findings.add(Anomaly.NON_MONOTONIC, text, operation)


def _check_length(places: OffsetValues, findings: Findings) -> None:
    """No answer tells of more records than were written until it came back."""
    begun, counts, total = [], [0], 0
    for write in places.writes():
        if write.outcome is not OperationOutcome.FAILED:
            begun.append(write.invoked_ns)
            total += len(write.values)
            counts.append(total)
    for operation in places.answered:
        possible = counts[bisect_right(begun, operation.returned_ns)]
        if end_of(operation) > possible:
            text = (
                f"{places}: the log reaches {end_of(operation)}, at most {possible} records "
                f"were written"
            )
            findings.add(Anomaly.INVENTED, text, operation)
