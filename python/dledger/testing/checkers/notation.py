"""Histories as text, one call a line: for tests and for findings.

::

    w1/p  0-3   append a b    -> 0       session w1, producer p, from time 0 to 3; told: offset 0
    w1    4-    append c      -> ?       never came back; it may have happened
    w1    4-9   append d      -> !       definite error: it did not happen
    w1    4-9   append d      -> +       it happened, no offset was told
    w2    5-8   txn q/1#2 e   -> 3       part of attempt 2 of transaction q/1
    r1    5-6   read 0        -> a b     from offset 0 on
    r1    5-6   read 0        -> a 2:c   c was read at offset 2
    r1    5-6   readall 1     -> b       and there was nothing more
    r1    7-8   end           -> 2       the end offset; `begin` for the first one
    r1    7-8   stale end     -> 1       from any replica; also `stale readall`
    r1    7-8   end @u/1      -> 0       partition 1 of topic u; else t/0

Values are names: each stands for one number. ``#`` is a damaged value. Everything behind two
hyphens is a comment.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dledger.testing.checkers.history import NEVER, Operation, OperationKind, OperationOutcome
from dledger.testing.checkers.values import DAMAGED

_KINDS = {
    "append": OperationKind.APPEND,
    "txn": OperationKind.TRANSACTION,
    "read": OperationKind.READ,
    "readall": OperationKind.READ,
    "end": OperationKind.END,
    "begin": OperationKind.BEGIN,
}


def parse(text: str) -> list[Operation]:
    """The history that ``text`` describes.

    Raises:
        ValueError: a line is not in this notation; the message shows it.
    """
    numbers: dict[str, int] = {"#": DAMAGED}
    history: list[Operation] = []
    for raw in text.splitlines():
        line = raw.split("--")[0].strip()
        if line:
            try:
                history.append(_operation(line, numbers, len(history)))
            except (IndexError, KeyError, ValueError) as error:
                raise ValueError(f"not a call: {line!r}") from error
    return history


def _operation(line: str, numbers: dict[str, int], at: int) -> Operation:
    asked, told = (part.split() for part in line.split("->"))
    session, _, producer = asked[0].partition("/")
    invoked, returned = asked[1].split("-")
    known: dict[str, Any] = {"topic": "t", "partition": 0, "stale": asked[2] == "stale"}
    word, *rest = asked[3:] if known["stale"] else asked[2:]
    if rest and rest[-1].startswith("@"):
        known["topic"], number = rest.pop()[1:].rsplit("/", 1)
        known["partition"] = int(number)
    kind = _KINDS[word]
    if kind is OperationKind.TRANSACTION:
        known["transaction"], attempt = rest.pop(0).split("#")
        known["attempt"] = int(attempt)
    if kind in {OperationKind.APPEND, OperationKind.TRANSACTION}:
        known["values"] = tuple(_number(name, numbers) for name in rest)
    elif kind is OperationKind.READ:
        known["start"] = int(rest[0])
        known["to_end"] = word == "readall"
    outcome = {"?": OperationOutcome.UNKNOWN, "!": OperationOutcome.FAILED}.get(
        told[0] if told else "", OperationOutcome.OK
    )
    if outcome is OperationOutcome.OK:
        known |= _told(kind, told, numbers, known.get("start", 0))
    return Operation(
        kind=kind,
        session=session,
        invoked_ns=int(invoked),
        returned_ns=int(returned) if returned else NEVER,
        outcome=outcome,
        producer=producer,
        sequence=at,
        **known,
    )


def _told(
    kind: OperationKind, told: list[str], numbers: dict[str, int], start: int
) -> dict[str, Any]:
    if kind is not OperationKind.READ:
        return {} if told == ["+"] else {"start": int(told[0])}
    values, offsets, due = [], [], start
    for word in told:
        place, _, name = word.rpartition(":")
        offsets.append(int(place) if place else due)
        values.append(_number(name, numbers))
        due = offsets[-1] + 1
    is_plain = offsets == list(range(start, start + len(offsets)))
    return {"values": tuple(values), "offsets": () if is_plain else tuple(offsets)}


def _number(name: str, numbers: dict[str, int]) -> int:
    return numbers.setdefault(name, len(numbers))


def show(history: Iterable[Operation]) -> str:
    """A history as text; its values' names are their numbers."""
    return "\n".join(
        _line(operation) for operation in sorted(history, key=lambda op: op.invoked_ns)
    )


def _line(op: Operation) -> str:
    who = f"{op.session}/{op.producer}" if op.producer else op.session
    when = f"{op.invoked_ns}-{'' if op.returned_ns == NEVER else op.returned_ns}"
    values = ["#" if value == DAMAGED else f"v{value}" for value in op.values]
    if op.kind is OperationKind.READ:
        what = [("readall" if op.to_end else "read"), str(op.start)]
        told = (
            [f"{at}:{value}" for at, value in zip(op.offsets, values, strict=True)]
            if op.offsets
            else values
        )
    elif op.kind in {OperationKind.END, OperationKind.BEGIN}:
        what, told = [op.kind.value], [str(op.start)]
    else:
        name = [f"{op.transaction}#{op.attempt}"] if op.kind is OperationKind.TRANSACTION else []
        what = ["txn" if name else "append", *name, *values]
        told = ["+" if op.start < 0 else str(op.start)]
    if op.outcome is not OperationOutcome.OK:
        told = ["?" if op.outcome is OperationOutcome.UNKNOWN else "!"]
    words = [
        who,
        when,
        *(["stale"] if op.stale else []),
        *what,
        f"@{op.topic}/{op.partition}",
        "->",
        *told,
    ]
    return " ".join(words)
