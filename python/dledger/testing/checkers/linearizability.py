"""Checks whether appends, reads and end offsets of one partition are linearizable: each seems to
happen at one moment.

The search is that of Wing and Gong ("Testing and Verifying Concurrent Objects", 1993) in Lowe's
just-in-time form with memory ("Testing for linearizability", Concurrency and Computation, 2017):
walk through the calls and returns in time, keep every configuration that the past allows, and when
a call returns that a configuration has not let happen yet, let pending calls happen in every order
that ends in that one. It is NP-complete in general. A log makes it cheap, because its answers tell
offsets:

- an append whose offset is known, from its own answer or from any read of its values, can only
  happen when the log is that long, and at no other moment;
- reads and end offsets change nothing, so each may happen as soon as one can: no need to try it
  later too;
- only an append without an answer whose values no call read can happen anywhere or never. It can
  only fill a hole between known places, so configurations branch there and nowhere else; those that
  are alike become one;
- two such appends of one size cannot be told apart, so the one goes first that has to return first.

Calls that promise nothing about freshness (``stale``) and reads below the end only have to be
explained by the log's contents and by its length when they return.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from dledger.testing.checkers.anomaly import Anomaly, Finding
from dledger.testing.checkers.history import (
    NEVER,
    Operation,
    OperationKind,
    OperationOutcome,
    in_pieces,
)
from dledger.testing.checkers.places import WRITES, end_of, is_fresh_end, offsets_of
from dledger.types import slots_dataclass

MAX_CONFIGURATIONS = 100_000
"""More than these at one time, and the search gives up; histories of a log have a handful."""


class TooHard(Exception):
    """The history has more configurations than `MAX_CONFIGURATIONS`: too many unanswered appends at
    once."""


@slots_dataclass()
class Configuration:
    """One way in which the past can have been: how long the log is, and which pending calls have
    happened.

    Appends with a known place need not be remembered: those below ``length`` have happened.
    """

    length: int
    happened: frozenset[int]
    """Numbers of pending observations, and of the appends without a known place that were used."""


@dataclass(slots=True)
class _Append:
    number: int
    size: int
    start: int | None
    """Where it is known to be."""
    operation: Operation


@dataclass(slots=True)
class _Observation:
    """A read or end offset: it can happen while the log's length is in [low, high]."""

    number: int
    low: int
    high: int | None
    operation: Operation


@dataclass(slots=True)
class _Search:
    known: dict[int, _Append] = field(default_factory=dict)
    """By start: appends that were invoked and are not below every configuration yet."""
    starts: list[int] = field(default_factory=list)
    """Of all appends with a known place, sorted."""
    loose: dict[int, list[_Append]] = field(default_factory=dict)
    """By size: invoked appends without a known place, those first that must happen first."""
    observing: dict[int, _Observation] = field(default_factory=dict)
    """Invoked, and not returned."""

    def settle(self, length: int, happened: frozenset[int]) -> Configuration:
        """All pending observations that can happen now, happen now."""
        now = [
            o.number
            for o in self.observing.values()
            if o.number not in happened and o.low <= length and (o.high is None or length <= o.high)
        ]
        return Configuration(length, happened.union(now) if now else happened)

    def steps(self, at: Configuration) -> Iterator[Configuration]:
        """Every append that can happen next."""
        known = self.known.get(at.length)
        if known is not None:
            yield self.settle(at.length + known.size, at.happened)
        place = bisect_right(self.starts, at.length - 1)
        room = self.starts[place] - at.length if place < len(self.starts) else None
        if room == 0:
            return
        for size, loose in self.loose.items():
            if room is None or size <= room:
                append = next(
                    (append for append in loose if append.number not in at.happened), None
                )
                if append is not None:
                    yield self.settle(at.length + size, at.happened | {append.number})

    def reach(
        self, configurations: Iterable[Configuration], goal: _Append | _Observation
    ) -> set[Configuration]:
        """The configurations in which ``goal`` has happened, by way of as many other calls as need
        be."""
        reached: set[Configuration] = set()
        stack = list(configurations)
        tried = set(stack)
        while stack:
            at = stack.pop()
            if self._has_happened(at, goal):
                reached.add(at)
                continue
            if isinstance(goal, _Observation) and goal.high is not None and at.length > goal.high:
                continue
            if isinstance(goal, _Append) and goal.start is not None and at.length > goal.start:
                continue
            for step in self.steps(at):
                if step not in tried:
                    tried.add(step)
                    stack.append(step)
            if len(tried) > MAX_CONFIGURATIONS:
                raise TooHard(f"more than {MAX_CONFIGURATIONS} configurations at {goal.operation}")
        return reached

    @staticmethod
    def _has_happened(at: Configuration, goal: _Append | _Observation) -> bool:
        if isinstance(goal, _Append) and goal.start is not None:
            return at.length >= goal.start + goal.size
        return goal.number in at.happened


def check_linearizable(history: Iterable[Operation]) -> Finding | None:
    """Why the calls of one partition are not linearizable, or None when they are.

    Raises:
        TooHard: too many unanswered appends whose values no call read; let a last read go over the
            whole log.
        ValueError: the calls are of more than one partition.
    """
    operations = sorted(in_pieces(history), key=lambda op: op.invoked_ns)
    if len({(op.topic, op.partition) for op in operations}) > 1:
        raise ValueError("the calls are of more than one partition")
    placed = _place([op for op in operations if op.outcome is not OperationOutcome.FAILED])
    if isinstance(placed, Finding):
        return placed
    calls = placed
    search = _Search(
        starts=sorted(
            call.start for call in calls if isinstance(call, _Append) and call.start is not None
        )
    )
    configurations = {Configuration(0, frozenset())}
    for is_return, call in _events(calls):
        if not is_return:
            _begin(search, call)
            if isinstance(call, _Observation):
                configurations = {search.settle(at.length, at.happened) for at in configurations}
            continue
        reached = search.reach(configurations, call)
        if not reached:
            return _explain(call, configurations)
        configurations = _end(search, call, reached)
    return None


def _begin(search: _Search, call: _Append | _Observation) -> None:
    if isinstance(call, _Observation):
        search.observing[call.number] = call
    elif call.start is None:
        insort(search.loose.setdefault(call.size, []), call, key=_deadline)
    else:
        search.known[call.start] = call


def _end(
    search: _Search, call: _Append | _Observation, reached: set[Configuration]
) -> set[Configuration]:
    """The call has returned, so configurations need not remember any more that it has happened."""
    if isinstance(call, _Append) and call.start is not None:
        return reached  # it stays among the known: other configurations may not be beyond it yet
    if isinstance(call, _Observation):
        del search.observing[call.number]
    else:
        search.loose[call.size].remove(call)
    return {Configuration(at.length, at.happened - {call.number}) for at in reached}


def _events(calls: Sequence[_Append | _Observation]) -> list[tuple[bool, _Append | _Observation]]:
    """Calls (False) and returns (True) in time; at one moment calls come first, so that they
    overlap."""
    events = [(call.operation.invoked_ns, False, call.number, call) for call in calls]
    events += [
        (_deadline(call), True, call.number, call) for call in calls if _deadline(call) != NEVER
    ]
    return [
        (is_return, call) for _, is_return, _, call in sorted(events, key=lambda event: event[:3])
    ]


def _deadline(call: _Append | _Observation) -> int:
    """By when it must have happened."""
    return call.operation.returned_ns if call.operation.outcome is OperationOutcome.OK else NEVER


def _explain(call: _Append | _Observation, configurations: Iterable[Configuration]) -> Finding:
    lengths = sorted({at.length for at in configurations})
    text = (
        f"no order of the calls until {call.operation.returned_ns} explains this answer; the "
        f"log was {lengths} long"
    )
    return Finding(Anomaly.NOT_LINEARIZABLE, text, (call.operation,))


# --- from operations to calls ---------------------------------------------------------------------


def _place(operations: Sequence[Operation]) -> list[_Append | _Observation] | Finding:
    """Give every append the place that an answer told, if one did, and check that no two answers
    differ."""
    contents: dict[int, tuple[int, Operation]] = {}
    offset_of: dict[int, int] = {}
    answered = [op for op in operations if op.outcome is OperationOutcome.OK]
    for operation in answered:
        if operation.kind is OperationKind.READ:
            offsets: Sequence[int] = offsets_of(operation)
        elif operation.kind in WRITES and operation.start >= 0:
            offsets = range(operation.start, operation.start + len(operation.values))
        else:
            continue
        if list(offsets) != list(range(operation.start, operation.start + len(offsets))):
            return Finding(Anomaly.NOT_LINEARIZABLE, "offsets are left out", (operation,))
        for offset, value in zip(offsets, operation.values, strict=True):
            known, claimed = contents.setdefault(offset, (value, operation))
            if known != value:
                text = f"two values at offset {offset}"
                return Finding(Anomaly.NOT_LINEARIZABLE, text, (claimed, operation))
            if offset_of.setdefault(value, offset) != offset:
                return Finding(Anomaly.NOT_LINEARIZABLE, "one value at two offsets", (operation,))
    calls: list[_Append | _Observation] = []
    written: dict[int, int] = {}
    for number, operation in enumerate(operations):
        if operation.kind in WRITES:
            call = _append(number, operation, offset_of)
            if isinstance(call, Finding):
                return call
            written.update(dict.fromkeys(operation.values, number))
            if call.size:
                calls.append(call)
        elif operation.outcome is OperationOutcome.OK and operation.kind is not OperationKind.BEGIN:
            calls.append(_observation(number, operation))
    unwritten = [value for value in offset_of if value not in written]
    if unwritten:
        shown_by = contents[offset_of[unwritten[0]]][1]
        return Finding(
            Anomaly.NOT_LINEARIZABLE, "a value that no append can have written", (shown_by,)
        )
    return _without_overlap(calls)


def _append(number: int, operation: Operation, offset_of: dict[int, int]) -> _Append | Finding:
    starts = {
        offset_of[value] - at for at, value in enumerate(operation.values) if value in offset_of
    }
    if len(starts) > 1:
        return Finding(
            Anomaly.NOT_LINEARIZABLE, "the values of an append are not side by side", (operation,)
        )
    return _Append(number, len(operation.values), next(iter(starts), None), operation)


def _observation(number: int, operation: Operation) -> _Observation:
    end = end_of(operation)
    return _Observation(number, end, end if is_fresh_end(operation) else None, operation)


def _without_overlap(calls: list[_Append | _Observation]) -> list[_Append | _Observation] | Finding:
    known = sorted(
        (call.start, call.number, call)
        for call in calls
        if isinstance(call, _Append) and call.start is not None
    )
    end, before = 0, None
    for start, _, append in known:
        if start < end and before is not None:
            shown_by = (before.operation, append.operation)
            return Finding(Anomaly.NOT_LINEARIZABLE, f"two appends at offset {start}", shown_by)
        end, before = start + append.size, append
    return calls
