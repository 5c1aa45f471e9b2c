"""The history that the checkers judge: calls of clients and their answers.

An `Operation` is one call of one client on one topic partition. Calls that never came back are in
the history too, as `OperationOutcome.UNKNOWN`: they may have happened. A `Recorder` notes calls as
they begin and end; with a file to write to, it puts each down before it begins and again when it
ends, so that a killed process leaves a history all the same.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields, replace
from enum import Enum
from pathlib import Path
from typing import Any, Final, TextIO

from dledger.types import slots_dataclass

NEVER: Final = 1 << 62
"""``returned_ns`` of a call that did not come back."""


class OperationKind(Enum):
    """The kind of a call."""

    APPEND = "append"
    """Put ``values`` at the end, one behind the other."""
    TRANSACTION = "transaction"
    """The part of a transaction that lies in this partition: all of its parts take effect at once,
    or none does."""
    READ = "read"
    """Read from offset ``start`` on."""
    END = "end"
    """Ask for the end offset."""
    BEGIN = "begin"
    """Ask for the first offset that is kept."""


class OperationOutcome(Enum):
    """The outcome that the client was told."""

    OK = "ok"
    FAILED = "failed"
    """Definite: it did not happen and never will."""
    UNKNOWN = "unknown"
    """Indefinite: it may have happened, may happen still, or never."""


@slots_dataclass()
class Operation:
    """One call on one partition.

    Attributes:
        session: the caller's. Calls of one session may overlap, and none of its reads may go back
            behind another.
        topic, partition: where. A topic that is created anew is another topic: name it by its log
            id too.
        invoked_ns, returned_ns: of one clock that all sessions share and that never goes back, in
            nanoseconds.
        values: numbers of the records (`values.value_id`), each used once in a whole history: those
            to be written, or those that were read.
        start: APPEND and TRANSACTION: the offset of the first value, -1 if it was not told. READ:
            the offset asked for. END and BEGIN: the answer.
        offsets: of ``values`` of a READ, where they are not ``start``, ``start`` + 1 and so on.
        to_end: of a READ: it came back because there was nothing more.
        stale: an END or READ of a replica that may be behind; it has to be monotonic, not fresh.
        producer: an idempotent producer, whose values keep the order in which it sent them; ""
            promises no order. It may cut an append into several entries; then records of others lie
            between, and ``start`` is the first's.
        sequence: grows with each call of a producer on one partition, in the order of sending.
        transaction: name of a transaction: its parts and its attempts share it.
        attempt: of a transaction; of all attempts of one name at most one takes effect.
    """

    kind: OperationKind
    session: str
    topic: str
    partition: int
    invoked_ns: int
    returned_ns: int = NEVER
    outcome: OperationOutcome = OperationOutcome.UNKNOWN
    values: tuple[int, ...] = ()
    start: int = -1
    offsets: tuple[int, ...] = ()
    to_end: bool = False
    stale: bool = False
    producer: str = ""
    sequence: int = 0
    transaction: str = ""
    attempt: int = 0

    def __str__(self) -> str:
        returned = "never" if self.returned_ns == NEVER else str(self.returned_ns)
        what = self.kind.value + (f" {self.transaction}#{self.attempt}" if self.transaction else "")
        where = f"{self.topic}/{self.partition}" + (f" at {self.start}" if self.start >= 0 else "")
        values = f" [{_brief(self.values)}]" if self.values else ""
        return (
            f"{self.session} {self.invoked_ns}-{returned} {what} {where}{values} "
            f"{self.outcome.value}"
        )

    def as_dict(self) -> dict[str, Any]:
        """As plain JSON values, without those that are the default."""
        plain: dict[str, Any] = {}
        for name, default in _DEFAULTS.items():
            value = getattr(self, name)
            if value != default:
                plain[name] = value.value if isinstance(value, Enum) else value
        return plain

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> Operation:
        """The operation of `as_dict`. Raises: KeyError, TypeError, ValueError for anything else."""
        made = dict(plain)
        made["kind"] = OperationKind(plain["kind"])
        made["outcome"] = OperationOutcome(plain.get("outcome", OperationOutcome.UNKNOWN.value))
        for name in ("values", "offsets"):
            made[name] = tuple(plain.get(name, ()))
        return cls(**made)


def in_pieces(history: Iterable[Operation]) -> Iterator[Operation]:
    """The history with each append of a producer cut into its values, because that is how it may
    take effect."""
    for operation in history:
        if (
            operation.producer
            and operation.kind is OperationKind.APPEND
            and len(operation.values) > 1
        ):
            for at, value in enumerate(operation.values):
                yield replace(operation, values=(value,), start=-1 if at else operation.start)
        else:
            yield operation


_DEFAULTS: Final = {field.name: field.default for field in fields(Operation)}


def _brief(values: Sequence[int]) -> str:
    shown = [str(value) for value in values]
    return " ".join(shown if len(shown) <= 6 else [*shown[:3], "...", *shown[-2:]])


class OpenOperation:
    """A call that is under way; end it once with `ok`, `failed` or `unknown`, or let it stay
    open."""

    __slots__ = ("_fields", "_number", "_recorder")

    def __init__(self, recorder: Recorder, number: int, *, known: dict[str, Any]) -> None:
        self._recorder = recorder
        self._number = number
        self._fields = known

    def ok(self, **known: Any) -> None:
        """It took effect; ``known`` are fields of `Operation` that the answer tells: start, values,
        offsets, to_end."""
        self._end(OperationOutcome.OK, known)

    def failed(self) -> None:
        """A definite error."""
        self._end(OperationOutcome.FAILED, {})

    def unknown(self) -> None:
        """An indefinite error."""
        self._end(OperationOutcome.UNKNOWN, {})

    def _end(self, outcome: OperationOutcome, known: dict[str, Any]) -> None:
        self._recorder.end(
            self._number,
            Operation(
                **{**self._fields, **known},
                outcome=outcome,
                returned_ns=self._recorder.now_ns(),
            ),
        )


class Recorder:
    """Notes the calls of all sessions of one process."""

    def __init__(self, now_ns: Callable[[], int], out: TextIO | None = None) -> None:
        """``now_ns``: the clock of the history. ``out``: where each call is written down at once,
        as JSON lines."""
        self.now_ns = now_ns
        self._out = out
        self._operations: list[Operation] = []

    def begin(
        self, kind: OperationKind, session: str, topic: str, partition: int, **known: Any
    ) -> OpenOperation:
        """A call begins now; ``known`` are further fields of `Operation`."""
        asked = dict(
            known,
            kind=kind,
            session=session,
            topic=topic,
            partition=partition,
            invoked_ns=self.now_ns(),
        )
        number = len(self._operations)
        self._operations.append(Operation(**asked))
        self._write(number)
        return OpenOperation(self, number, known=asked)

    def end(self, number: int, operation: Operation) -> None:
        """The ``number``-th call that began is known to be this; `OpenOperation` calls it."""
        self._operations[number] = operation
        self._write(number)

    def history(self) -> list[Operation]:
        """All calls in the order they began; those under way are unknown."""
        return list(self._operations)

    def _write(self, number: int) -> None:
        if self._out is not None:
            self._out.write(_line(number, self._operations[number]))
            self._out.flush()


def _line(number: int, operation: Operation) -> str:
    return json.dumps({"n": number, **operation.as_dict()}, separators=(",", ":")) + "\n"


def save(path: Path, history: Iterable[Operation]) -> None:
    """Write one JSON object per operation and line."""
    with path.open("w", encoding="utf-8") as out:
        for number, operation in enumerate(history):
            out.write(_line(number, operation))


def load(*paths: Path) -> list[Operation]:
    """The operations of one or more files, of `save` or of a `Recorder`, by the time they began.

    A last line that was cut short is left out: its process was killed while it wrote, and if it was
    the end of a call, the line of its beginning is there.

    Raises:
        ValueError: a line is not an operation; the message names it.
    """
    history: list[Operation] = []
    for path in paths:
        found: dict[int, Operation] = {}
        lines = path.read_text(encoding="utf-8").split("\n")
        for at, line in enumerate(lines[:-1]):
            try:
                plain = json.loads(line)
                number = plain.pop("n")
                found[number] = Operation.from_dict(plain)
            except (AttributeError, KeyError, TypeError, ValueError) as error:
                raise ValueError(f"{path}:{at + 1}: not an operation: {error!r}") from error
        history.extend(found.values())
    return sorted(history, key=lambda operation: operation.invoked_ns)
