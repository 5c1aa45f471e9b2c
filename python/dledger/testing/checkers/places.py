"""Which value stands at which offset of one partition, as acknowledgements and reads tell it."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate

from dledger.testing.checkers.anomaly import Anomaly, Findings
from dledger.testing.checkers.history import Operation, OperationKind, OperationOutcome
from dledger.testing.checkers.values import DAMAGED

WRITES = (OperationKind.APPEND, OperationKind.TRANSACTION)


def offsets_of(read: Operation) -> Sequence[int]:
    """The offsets of the values of a read."""
    return read.offsets or range(read.start, read.start + len(read.values))


def end_of(operation: Operation) -> int:
    """How long the log was, at least, when this answer came back; of fresh ends (`is_fresh_end`)
    exactly."""
    if operation.kind is OperationKind.READ and operation.values:
        return max(offsets_of(operation)) + 1
    if operation.kind is OperationKind.READ:
        return operation.start if operation.to_end else 0
    if operation.kind in WRITES:
        return operation.start + len(operation.values) if operation.start >= 0 else 0
    return operation.start


def is_fresh_end(operation: Operation) -> bool:
    """Whether this answer promised to know the very end."""
    return (
        operation.outcome is OperationOutcome.OK
        and not operation.stale
        and (
            operation.kind is OperationKind.END
            or (operation.kind is OperationKind.READ and operation.to_end)
        )
    )


class Reach:
    """How far answers had shown the log to reach, by the time they came back."""

    def __init__(self, answers: Iterable[tuple[int, int]]) -> None:
        """``answers``: (returned_ns, end) of each."""
        self._returned: list[int] = []
        self._ends: list[int] = []
        highest = 0
        for returned_ns, end in sorted(answers):
            highest = max(highest, end)
            self._returned.append(returned_ns)
            self._ends.append(highest)

    def before(self, time_ns: int) -> int:
        """The highest end of the answers that came back before ``time_ns``; 0 without any."""
        at = bisect_left(self._returned, time_ns)
        return self._ends[at - 1] if at else 0


class OffsetValues:
    """The answers of one partition, indexed.

    ``value_at`` and ``offset_of`` hold the first claim of each, be it an acknowledgement or a read;
    later ones that differ are findings. ``read_at`` and ``seen`` hold what reads returned: by
    offset, and the first read of each value.
    """

    def __init__(self, name: tuple[str, int], operations: Sequence[Operation]) -> None:
        self.name = name
        self.operations = operations
        self.value_at: dict[int, int] = {}
        self.offset_of: dict[int, int] = {}
        self.read_at: dict[int, int] = {}
        self.seen: dict[int, Operation] = {}
        self._claims: dict[int, Operation] = {}
        self.answered = sorted(
            (op for op in operations if op.outcome is OperationOutcome.OK),
            key=lambda op: op.returned_ns,
        )
        self.reach = Reach((op.returned_ns, end_of(op)) for op in self.answered)
        self.fresh = sorted(
            (op for op in self.answered if is_fresh_end(op)), key=lambda op: op.invoked_ns
        )
        reads = [op for op in self.fresh if op.kind is OperationKind.READ]
        self._reads_invoked = [op.invoked_ns for op in reads]
        self._lowest_start = list(accumulate((op.start for op in reversed(reads)), min))[::-1]

    def is_absent(self, write: Operation, time_ns: int) -> bool:
        """Whether values of ``write`` that no read has seen cannot have been there at ``time_ns``.

        They would stand behind all that was there before the write began. A fresh read to the end
        that began no later than that place, and was asked for after ``time_ns``, would have seen
        them.
        """
        at = bisect_right(self._reads_invoked, time_ns)
        return at < len(self._lowest_start) and self._lowest_start[at] <= self.reach.before(
            write.invoked_ns
        )

    def place(self, writers: Mapping[int, Operation], findings: Findings) -> None:
        """Take every claim in; a claim that contradicts an earlier one, or a write, is a
        finding."""
        for operation in self.answered:
            if operation.kind in WRITES and operation.start >= 0:
                for offset, value in enumerate(operation.values, operation.start):
                    self._claim(offset, value, operation, findings)
            elif operation.kind is OperationKind.READ:
                self._read(operation, writers, findings)

    def _read(self, read: Operation, writers: Mapping[int, Operation], findings: Findings) -> None:
        self._check_offsets(read, findings)
        for offset, value in zip(offsets_of(read), read.values, strict=True):
            if value == DAMAGED:
                findings.add(Anomaly.CHANGED, f"{self} at offset {offset}", read)
                continue
            known = self.seen.setdefault(value, read)
            self.read_at.setdefault(offset, value)
            self._claim(offset, value, read, findings)
            if known is read:
                self._check_origin(offset, value, read, writers.get(value), findings)

    def _check_offsets(self, read: Operation, findings: Findings) -> None:
        expected = read.start
        for offset in read.offsets:
            if offset > expected:
                text = f"{self}: offsets {expected} to {offset - 1} left out"
                findings.add(Anomaly.GAP, text, read)
            elif offset < expected:
                text = f"{self}: offset {offset} where {expected} was due"
                findings.add(Anomaly.NON_MONOTONIC, text, read)
            expected = offset + 1

    def _check_origin(
        self, offset: int, value: int, read: Operation, write: Operation | None, findings: Findings
    ) -> None:
        if write is None:
            findings.add(Anomaly.INVENTED, f"{self} at {offset}: nobody wrote {value}", read)
        elif (write.topic, write.partition) != self.name:
            findings.add(
                Anomaly.INVENTED, f"{self} at {offset}: {value} was written elsewhere", write, read
            )
        elif write.outcome is OperationOutcome.FAILED:
            findings.add(
                Anomaly.ABORTED, f"{self} at {offset}: the write of {value} failed", write, read
            )
        elif write.invoked_ns > read.returned_ns:
            findings.add(
                Anomaly.INVENTED, f"{self} at {offset}: {value} before it was written", write, read
            )

    def _claim(self, offset: int, value: int, operation: Operation, findings: Findings) -> None:
        known = self.value_at.setdefault(offset, value)
        if known != value:
            text = f"{self} at {offset}: {known} and {value}"
            findings.add(Anomaly.TWO_VALUES, text, self._claims[offset], operation)
        else:
            self._claims.setdefault(offset, operation)
        first = self.offset_of.setdefault(value, offset)
        if first != offset:
            text = f"{self}: {value} at {first} and at {offset}"
            shown_by = self._claims.get(first, operation)
            findings.add(Anomaly.DUPLICATE, text, shown_by, operation)

    def writes(self) -> Iterator[Operation]:
        """The appends and parts of transactions, in the order of the history."""
        return (op for op in self.operations if op.kind in WRITES)

    def __str__(self) -> str:
        return f"{self.name[0]}/{self.name[1]}"
