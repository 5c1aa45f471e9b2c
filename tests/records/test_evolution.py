"""How columns may change: random schemas, random changes, and the rows of each version read under
every other one."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dledger.errors import SchemaMismatch
from dledger.records.body.typed import arrow_schema, convert
from dledger.records.columns.evolution import holds, is_evolution, merge, side_by_side
from dledger.records.columns.types import Array, Atom, Columns, Field, Map, Struct, Type

WIDER = {
    "void": ["long", "string"], "byte": ["short", "decimal(5,2)"], "short": ["integer", "double"],
    "integer": ["long", "double", "decimal(12,2)"], "float": ["double"],
    "decimal(5,2)": ["decimal(9,4)"],
}  # fmt: skip
NUMBERS = {"byte": 7, "short": 15, "integer": 31, "long": 63}
ATOMS = st.sampled_from(
    [*WIDER, "long", "double", "string", "boolean", "date", "timestamp", "interval day to second"]
)
NAMES = st.sampled_from("abcdef")


def types() -> st.SearchStrategy[Type]:
    return st.recursive(
        ATOMS.map(Atom),
        lambda inner: st.one_of(
            inner.map(Array),
            st.builds(Map, st.just(Atom("string")), inner),
            fields(inner, 3).map(Struct),
        ),
        max_leaves=4,
    )


def fields(inner: st.SearchStrategy[Type], most: int) -> st.SearchStrategy[tuple[Field, ...]]:
    return st.lists(
        st.builds(Field, NAMES, inner), min_size=1, max_size=most, unique_by=lambda f: f.name
    ).map(tuple)


SCHEMAS = fields(types(), 4).map(Columns)


@st.composite
def changed(draw: st.DrawFn, before: Columns) -> Columns:
    """A frame that evolves these columns, or fits them: wider, narrower, fewer, more, in another
    order."""
    kept = [
        replace(one, type=draw(wider(one.type))) for one in before.fields if draw(st.integers(0, 3))
    ]
    more = draw(fields(types(), 2))
    found = kept + [one for one in more if all(one.name != other.name for other in before.fields)]
    return Columns(tuple(draw(st.permutations(found or list(before.fields)))))


@st.composite
def wider(draw: st.DrawFn, kind: Type) -> Type:
    match kind:
        case Array():
            return replace(kind, element=draw(wider(kind.element)))
        case Map():
            return replace(kind, value=draw(wider(kind.value)))
        case Struct():
            more = [
                one
                for one in draw(fields(ATOMS.map(Atom), 1))
                if all(one.name != f.name for f in kind.fields)
            ]
            return Struct(
                (*(replace(one, type=draw(wider(one.type))) for one in kind.fields), *more)
            )
    return Atom(draw(st.sampled_from([kind.name, *WIDER.get(kind.name, [])])))


def values(kind: Type) -> st.SearchStrategy[Any]:
    """A value, or None, as Arrow takes it."""
    return st.none() | some(kind)


def some(kind: Type) -> st.SearchStrategy[Any]:
    match kind:
        case Array():
            return st.lists(values(kind.element), max_size=3)
        case Map():
            pair = st.tuples(st.sampled_from("xyz"), values(kind.value))
            return st.lists(pair, max_size=2, unique_by=lambda found: found[0])
        case Struct():
            return st.fixed_dictionaries({one.name: values(one.type) for one in kind.fields})
    if kind.name in NUMBERS:
        return st.integers(-(1 << NUMBERS[kind.name]), (1 << NUMBERS[kind.name]) - 1)
    if kind.digits:
        return st.decimals(-999, 999, places=2)
    return {
        "void": st.none(),
        "boolean": st.booleans(),
        "float": st.floats(width=32, allow_nan=False),
        "double": st.floats(allow_nan=False),
        "string": st.text(max_size=3),
        "date": st.dates(),
        "timestamp": st.integers(0, 1 << 50),
        "interval day to second": st.integers(0, 1 << 40),
    }[kind.name]


def rows(columns: Columns) -> st.SearchStrategy[pa.RecordBatch]:
    row = st.fixed_dictionaries({one.name: values(one.type) for one in columns.fields})
    return st.lists(row, max_size=4).map(
        lambda found: pa.RecordBatch.from_pylist(found, schema=arrow_schema(columns))
    )


@given(data=st.data())
@settings(max_examples=150)
def test_a_merge_holds_the_topic_and_the_frame_and_changes_nothing_twice(
    data: st.DataObject,
) -> None:
    topic = data.draw(SCHEMAS)
    frame = data.draw(changed(topic))
    step = merge(topic, frame)
    assert not step.problems
    assert is_evolution(topic, step.columns)
    assert bool(step.changes) == (step.columns != topic)
    again = merge(step.columns, frame)
    assert (again.columns, again.changes, again.problems) == (step.columns, {}, {})
    assert merge(topic, topic).columns == topic


@given(data=st.data())
@settings(max_examples=150)
def test_rows_of_each_version_convert_to_later_ones_and_back_unchanged(
    data: st.DataObject,
) -> None:
    versions = [data.draw(SCHEMAS)]
    for _ in range(3):
        versions.append(merge(versions[-1], data.draw(changed(versions[-1]))).columns)
    for at, written in enumerate(versions):
        batch = data.draw(rows(written))
        for later in versions[at:]:
            assert is_evolution(written, later)
            read = convert(batch, written, later)
            read.validate(full=True)
            assert read.schema == arrow_schema(later)
            assert convert(read, later, written) == batch, "nothing was rounded, moved or lost"
            assert convert(batch, written, versions[-1]) == convert(read, later, versions[-1]), (
                "by any way"
            )


@given(data=st.data())
@settings(max_examples=100)
def test_concurrent_schema_changes_both_fit_or_the_second_is_refused(
    data: st.DataObject,
) -> None:
    """In the end the columns hold what both writers need, or the second one gets an error."""
    topic = data.draw(SCHEMAS)
    one, two = data.draw(changed(topic)), data.draw(changed(topic))
    first = merge(topic, one).columns
    second = merge(first, two)
    if second.problems:
        assert not merge(topic, two).problems, "it would have fitted, had it come first"
        return
    for frame in (one, two):
        step = merge(second.columns, frame)
        assert (step.changes, step.problems) == ({}, {})


@given(data=st.data())
@settings(max_examples=60)
def test_a_slice_converts_as_the_whole_does(data: st.DataObject) -> None:
    written = data.draw(SCHEMAS)
    later = merge(written, data.draw(changed(written))).columns
    batch = data.draw(rows(written))
    start = data.draw(st.integers(0, batch.num_rows))
    part = convert(batch.slice(start), written, later)
    part.validate(full=True)
    assert part == convert(batch, written, later).slice(start)


@pytest.mark.parametrize(
    ("wide", "narrow", "fits"),
    [
        ("long", "byte", True),
        ("integer", "long", False),
        ("double", "integer", True),
        ("double", "long", False),
        ("float", "integer", False),
        ("double", "float", True),
        ("decimal(10,0)", "integer", True),
        ("decimal(10,2)", "integer", False),
        ("decimal(12,4)", "decimal(10,2)", True),
        ("string", "integer", False),
        ("decimal(12,4)", "decimal(11,2)", False),
        ("timestamp", "date", False),
        ("string", "void", True),
        ("decimal(38,0)", "double", False),
    ],
)
def test_a_type_holds_another_only_where_every_value_fits_exactly(
    wide: str, narrow: str, fits: bool
) -> None:
    assert holds(Atom(wide), Atom(narrow)) is fits


def columns(*given: tuple[str, str], nullable: bool = True, **named: str) -> Columns:
    return Columns(tuple(Field(name, Atom(kind), nullable) for name, kind in given), **named)


@pytest.mark.parametrize(
    "after",
    [
        columns(("a", "long")),
        columns(("b", "string"), ("a", "integer")),
        columns(("a", "integer"), ("c", "string")),
        columns(("a", "byte"), ("b", "string")),
        columns(("a", "string"), ("b", "string")),
        columns(("a", "integer"), ("b", "string"), key="a"),
        columns(("a", "integer"), ("b", "string"), nullable=False),
        columns(("A", "integer"), ("b", "string")),
    ],
)
def test_column_is_never_dropped_renamed_moved_narrowed_or_made_strict(after: Columns) -> None:
    assert not is_evolution(columns(("a", "integer"), ("b", "string")), after)


def test_what_does_not_fit_is_shown_side_by_side_with_the_reason() -> None:
    topic = Columns(
        (
            Field("id", Atom("long"), False),
            Field("amount", Atom("integer")),
            Field("who", Struct((Field("name", Atom("string")),))),
        ),
        key="id",
    )
    frame = Columns(
        (
            Field("amount", Atom("string")),
            Field("who", Struct((Field("name", Atom("date")),))),
            Field("note", Atom("string")),
        ),
        key="note",
    )
    found = merge(topic, frame)
    text = side_by_side(
        "topic 'orders'", topic, "the frame", frame, {**found.problems, "note": "new"}
    )
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert lines == [
        "topic 'orders' | the frame",
        "! id bigint not null | - must not be null, and the frame has no such column",
        "! amount int | amount string string does not go into int",
        "! who struct<name:string> | who struct<name:date> who.name: date does not go into string",
        "! - | note string new",
        "key column: id | key column: note",
    ]


@pytest.mark.parametrize(
    ("wanted", "value"), [("byte", 128), ("float", 0.1), ("decimal(5,2)", 1000)]
)
def test_value_outside_its_column_type_is_an_error_and_is_not_altered(
    wanted: str, value: float
) -> None:
    """For a query that began under narrower columns."""
    there = {"byte": "long", "float": "double", "decimal(5,2)": "decimal(9,2)"}[wanted]
    have, want = columns(("n", there)), columns(("n", wanted))
    exact = Decimal if wanted.startswith("decimal") else float if wanted == "float" else int
    column = pa.array([exact(1), None, exact(value)], arrow_schema(have).field(0).type)
    batch = pa.RecordBatch.from_arrays([column], ["n"])
    with pytest.raises(SchemaMismatch, match="column 'n'"):
        convert(batch, have, want)
    assert convert(batch.slice(0, 2), have, want).column(0).null_count == 1


@pytest.mark.parametrize("nested", [False, True])
def test_a_null_where_none_may_be_is_an_error_that_names_the_column(nested: bool) -> None:
    strict: Type = Struct((Field("x", Atom("long"), False),)) if nested else Atom("long")
    loose: Type = Struct((Field("x", Atom("long")),)) if nested else Atom("long")
    have, want = Columns((Field("n", loose),)), Columns((Field("n", strict, nested),))
    batch = pa.RecordBatch.from_pylist(
        [{"n": {"x": None} if nested else None}], schema=arrow_schema(have)
    )
    with pytest.raises(SchemaMismatch, match=r"'n\.x'" if nested else "'n'"):
        convert(batch, have, want)
    if nested:
        whole = pa.RecordBatch.from_pylist(
            [{"n": None}, {"n": {"x": 1}}], schema=arrow_schema(have)
        )
        assert convert(whole, have, want).column(0).null_count == 1, (
            "a struct that is null has no parts"
        )
