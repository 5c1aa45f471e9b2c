"""Small histories of one partition, drawn: answers that a real log may give, and the same with one
lie in them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from dledger.testing.checkers.history import NEVER, Operation, OperationKind, OperationOutcome
from verification.sim.rng import Rng

PPM: Final = 1_000_000
CLIENTS: Final = 4


def sound(rng: Rng, calls: int = 14) -> list[Operation]:
    """A history that has an order: each call's moment is drawn first, and its begin and answer
    around it."""
    log: list[int] = []
    history: list[Operation] = []
    for number in range(calls):
        moment = 10 * number + 5
        asked: dict[str, Any] = {
            "session": f"s{rng.below(CLIENTS)}",
            "topic": "t",
            "partition": 0,
            "invoked_ns": moment - 1 - rng.below(40),
            "returned_ns": moment + 1 + rng.below(40),
        }
        history.append(
            _write(rng, log, number, asked) if rng.chance(PPM // 2) else _look(rng, log, asked)
        )
    return history


def _write(rng: Rng, log: list[int], number: int, asked: dict[str, Any]) -> Operation:
    values = tuple(10 * number + at for at in range(rng.between(1, 2)))

    def answered(outcome: OperationOutcome, start: int = -1) -> Operation:
        return Operation(OperationKind.APPEND, **asked, outcome=outcome, values=values, start=start)

    fate = rng.below(10)
    start = len(log)
    if fate < 7:
        log += values
        return answered(OperationOutcome.OK, start if fate < 6 else -1)
    if fate == 7:
        return answered(OperationOutcome.FAILED)
    if rng.chance(PPM // 2):
        log += values
    if fate == 8:
        asked["returned_ns"] = NEVER
    return answered(OperationOutcome.UNKNOWN)


def _look(rng: Rng, log: list[int], asked: dict[str, Any]) -> Operation:
    asked["outcome"] = OperationOutcome.OK
    if rng.chance(PPM // 3):
        stale = rng.chance(PPM // 3)
        start = rng.between(0, len(log)) if stale else len(log)
        return Operation(OperationKind.END, **asked, start=start, stale=stale)
    start = rng.between(0, len(log))
    end = len(log) if rng.chance(PPM // 2) else rng.between(start, len(log))
    stale = end < len(log) and rng.chance(PPM // 3)
    asked.update(start=start, values=tuple(log[start:end]), stale=stale)
    return Operation(OperationKind.READ, **asked, to_end=end == len(log) or stale)


def broken(rng: Rng, calls: int = 14) -> list[Operation]:
    """A sound one of which an answer or a time was changed: most of them have no order any more,
    some still do."""
    history = sound(rng, calls)
    for _ in range(rng.between(1, 2)):
        at = rng.below(len(history))
        history[at] = rng.pick(_LIES)(rng, history[at])
    return history


def _other_place(rng: Rng, op: Operation) -> Operation:
    return replace(op, start=max(0, op.start + rng.pick((-1, 1))))


def _lost_value(rng: Rng, op: Operation) -> Operation:
    at = rng.below(len(op.values)) if op.values else 0
    return replace(op, values=op.values[:at] + op.values[at + 1 :])


def _doubled_value(rng: Rng, op: Operation) -> Operation:
    return (
        replace(op, values=op.values + op.values[-1:])
        if op.kind is OperationKind.READ
        else _lost_value(rng, op)
    )


def _swapped(rng: Rng, op: Operation) -> Operation:
    return (
        replace(op, values=op.values[::-1])
        if op.kind is OperationKind.READ
        else _other_place(rng, op)
    )


def _other_outcome(rng: Rng, op: Operation) -> Operation:
    return replace(op, outcome=rng.pick((OperationOutcome.OK, OperationOutcome.FAILED)))


def _other_time(rng: Rng, op: Operation) -> Operation:
    by = rng.between(-60, 60)
    returned = op.returned_ns if op.returned_ns == NEVER else op.returned_ns + by
    return replace(op, invoked_ns=op.invoked_ns + by, returned_ns=returned)


def _fresh(rng: Rng, op: Operation) -> Operation:
    return replace(op, stale=not op.stale)


_LIES: Final[tuple[Callable[[Rng, Operation], Operation], ...]] = (
    _other_place, _lost_value, _doubled_value, _swapped, _other_outcome, _other_time, _fresh,
)  # fmt: skip
