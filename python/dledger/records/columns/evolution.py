"""How a typed topic's columns may change, and which columns a frame must have to be written to it.
Pure, and for ever: every node decides by these rules, so a release that changes them needs a
command of its own.

A topic's columns may get new nullable ones behind those that are there, in structs too, and wider
numbers. No column is taken away, renamed or moved, and one that may not be null stays so. Columns
are matched by name, as Spark does it: in any order and any case.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from dledger.records.columns.types import (
    INTEGERS,
    VOID,
    Array,
    Atom,
    Columns,
    Field,
    Map,
    Struct,
    Type,
    by_name,
)

_ORDER: Final = list(INTEGERS)
SHOWN: Final = 44
"""Width of a column in the text that shows two schemas side by side."""


@dataclass(frozen=True, slots=True)
class Merged:
    """A topic's columns and a frame's, put together."""

    columns: Columns
    """The topic's columns when the frame is written to it."""
    problems: dict[str, str] = field(default_factory=dict)
    """Column -> why the frame cannot be written, with any change of the topic."""
    changes: dict[str, str] = field(default_factory=dict)
    """Column -> its change in `columns`."""


def merge(topic: Columns, frame: Columns) -> Merged:
    """The columns of a topic that holds a frame.

    A frame may leave nullable columns out, have narrower numbers, or be nullable where the topic is
    not: that changes nothing, and a null where none may be is noticed when it is written.
    """
    step = Merged(topic)
    fields = _merge_fields(topic.fields, frame.fields, "", step)
    for what, mine, other in (("key", topic.key, frame.key), ("time", topic.time, frame.time)):
        if other and other.lower() != mine.lower():
            step.problems[other] = (
                f"is to be the {what} column, but the topic's is {mine or 'none'}"
            )
    return replace(step, columns=replace(topic, fields=tuple(fields)))


def is_evolution(before: Columns, after: Columns) -> bool:
    """Whether a topic's columns may become these."""
    step = merge(before, after)
    return not step.problems and step.columns == after


def _merge_fields(
    mine: tuple[Field, ...], other: tuple[Field, ...], path: str, step: Merged
) -> list[Field]:
    found = []
    here, there = by_name(mine), by_name(other)
    for one in mine:
        at = there.get(one.name.lower(), -1)
        full = f"{path}{one.name}"
        if at >= 0:
            found.append(replace(one, type=_merge_type(one.type, other[at].type, full, step)))
            continue
        found.append(one)
        if not one.nullable:
            step.problems[full] = "must not be null, and the frame has no such column"
    for new in other:
        if new.name.lower() not in here:
            step.changes[f"{path}{new.name}"] = "new"
            found.append(replace(new, nullable=True))  # the entries that are there have none
    return found


def _merge_type(mine: Type, other: Type, path: str, step: Merged) -> Type:
    match mine, other:
        case Struct(), Struct():
            return Struct(tuple(_merge_fields(mine.fields, other.fields, f"{path}.", step)))
        case Array(), Array():
            return replace(
                mine, element=_merge_type(mine.element, other.element, f"{path}[]", step)
            )
        case Map(), Map():
            key = _merge_type(mine.key, other.key, f"{path}.key", step)
            return replace(
                mine, key=key, value=_merge_type(mine.value, other.value, f"{path}.value", step)
            )
    if mine == other or holds(mine, other):
        return mine
    if holds(other, mine):
        step.changes[path] = f"{mine} becomes {other}"
        return other
    step.problems[path] = f"{other} does not go into {mine}"
    return mine


def holds(wide: Type, narrow: Type) -> bool:
    """Whether a type has room for every value of another one, exactly."""
    if narrow == VOID:
        return True
    if not isinstance(wide, Atom) or not isinstance(narrow, Atom):
        return False
    if narrow.name in INTEGERS:
        if wide.name in INTEGERS:
            return _ORDER.index(wide.name) >= _ORDER.index(narrow.name)
        if wide.name == "double":
            return narrow.name != "long"
        return wide.digits is not None and wide.digits[0] - wide.digits[1] >= INTEGERS[narrow.name]
    if narrow.name == "float":
        return wide.name == "double"
    if narrow.digits is None or wide.digits is None:
        return False
    return (
        wide.digits[1] >= narrow.digits[1]
        and wide.digits[0] - wide.digits[1] >= narrow.digits[0] - narrow.digits[1]
    )


def side_by_side(
    mine: str, topic: Columns, other: str, frame: Columns, remarks: dict[str, str]
) -> str:
    """Two schemas as a text, one column a line, with a remark beside those that have one.

    Args:
        mine: the name of the first one, as a heading; ``other`` likewise.
        remarks: path of a column -> its remark.
    """
    rows = [("", mine, other, "")]
    here, beside = by_name(topic.fields), by_name(frame.fields)
    for one in topic.fields:
        at = beside.get(one.name.lower(), -1)
        there = str(frame.fields[at]) if at >= 0 else "-"
        rows.append(_row(one.name, str(one), there, remarks))
    for new in frame.fields:
        if new.name.lower() not in here:
            rows.append(_row(new.name, "-", str(new), remarks))
    for what, left, right in (("key", topic.key, frame.key), ("time", topic.time, frame.time)):
        if left or right:
            rows.append(("", f"{what} column: {left or '-'}", f"{what} column: {right or '-'}", ""))
    return "\n".join(_lines(rows))


def _row(name: str, left: str, right: str, remarks: dict[str, str]) -> tuple[str, str, str, str]:
    inside = (f"{name}.", f"{name}[")
    said = [
        f"{path}: {text}" if path != name else text
        for path, text in remarks.items()
        if path == name or path.startswith(inside)
    ]
    return "!" if said else "", left, right, "; ".join(said)


def _lines(rows: Iterable[tuple[str, str, str, str]]) -> Iterable[str]:
    for mark, left, right, remark in rows:
        lefts, rights = textwrap.wrap(left, SHOWN) or [""], textwrap.wrap(right, SHOWN) or [""]
        for line in range(max(len(lefts), len(rights))):
            a, b = (parts[line] if line < len(parts) else "" for parts in (lefts, rights))
            yield (
                f"{mark if not line else '':2}{a:{SHOWN}} | {b:{SHOWN}} "
                f"{remark if not line else ''}"
            ).rstrip()
