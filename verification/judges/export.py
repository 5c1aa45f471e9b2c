"""Histories in the form that the Go program of porcupine/ reads: one JSON object per operation and
line.

::

    {"history": "sim 7", "call": 12, "return": 15, "op": "write",
     "parts": [{"log": 0, "start": 4, "values": [71, 72]}], "end": null}

- ``history``: operations of one name are judged together; ``log`` numbers the partitions in it from
  0.
- ``return``: null when the outcome of the call is unknown: it may have happened at any time after
  ``call``, or never.
- ``write``: puts ``values`` at the end of each part's log, all parts at one moment. ``start``: the
  offset told, or -1.
- ``observe``: the log had ``values`` from ``start`` on, and was at least so long; with ``end``
  exactly so long.

Left out are calls that definitely failed (a value of theirs that is read then has no write, which
no order explains), reads without an answer, and first offsets (retention moves them, and no order
of writes explains when). A stale answer promises only that the log was at least so long at some
moment of the call.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, Final

from dledger.testing.checkers.history import (
    NEVER,
    Operation,
    OperationKind,
    OperationOutcome,
    in_pieces,
)
from dledger.testing.checkers.places import WRITES, is_fresh_end, offsets_of

IMPOSSIBLE: Final = -(1 << 62)
"""In the place of a value that no log can hold there: the read left out offsets."""


def exported(name: str, history: Iterable[Operation]) -> Iterator[dict[str, Any]]:
    """The operations of one history, as plain values; a transaction's parts are one write."""
    logs: dict[tuple[str, int], int] = {}
    transactions: dict[tuple[str, int], list[Operation]] = {}
    for operation in sorted(in_pieces(history), key=lambda op: op.invoked_ns):
        if operation.outcome is OperationOutcome.FAILED or not _says_something(operation):
            continue
        if operation.kind is OperationKind.TRANSACTION:
            transactions.setdefault((operation.transaction, operation.attempt), []).append(
                operation
            )
            continue
        yield {"history": name, **_plain([operation], logs)}
    for parts in transactions.values():
        yield {"history": name, **_plain(parts, logs)}


def lines(name: str, history: Iterable[Operation]) -> Iterator[str]:
    """`exported` as text."""
    return (json.dumps(found, separators=(",", ":")) + "\n" for found in exported(name, history))


def _says_something(operation: Operation) -> bool:
    if operation.kind in WRITES:
        return bool(operation.values)
    return operation.outcome is OperationOutcome.OK and operation.kind is not OperationKind.BEGIN


def _plain(parts: list[Operation], logs: dict[tuple[str, int], int]) -> dict[str, Any]:
    """Parts overlap in time; the write that they are parts of began with the first and was answered
    with the last."""
    answered = all(part.outcome is OperationOutcome.OK for part in parts)
    returned = max(part.returned_ns for part in parts)
    first = parts[0]
    return {
        "call": min(part.invoked_ns for part in parts),
        "return": returned if answered and returned != NEVER else None,
        "op": "write" if first.kind in WRITES else "observe",
        "parts": [
            {"log": logs.setdefault((part.topic, part.partition), len(logs)), **_part(part)}
            for part in parts
        ],
        "end": _part(first)["start"] + len(first.values) if is_fresh_end(first) else None,
    }


def _part(operation: Operation) -> dict[str, Any]:
    values = operation.values
    if operation.kind is OperationKind.READ and list(offsets_of(operation)) != list(
        range(operation.start, operation.start + len(values))
    ):
        values = (IMPOSSIBLE,)
    told = operation.outcome is OperationOutcome.OK or operation.kind not in WRITES
    start = (
        operation.start
        if told and (operation.kind is not OperationKind.READ or values or operation.to_end)
        else -1
    )
    if operation.kind is OperationKind.READ and start < 0:
        start = 0
    return {"start": start, "values": list(values)}
