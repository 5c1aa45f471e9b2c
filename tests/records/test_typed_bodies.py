"""Bodies of typed topics: there and back, their times and keys, and what keeps them apart from
records."""

from __future__ import annotations

import sys
from typing import Any

import pyarrow as pa
import pytest

from dledger.errors import CorruptEntry, ProtocolError, SchemaMismatch
from dledger.records.body.build import make_records
from dledger.records.body.header import Codec
from dledger.records.body.records import decode_batch, encode_batch
from dledger.records.body.sizer import coalesce, split_batch
from dledger.records.body.typed import (
    arrow_schema,
    convert,
    decode_typed,
    key_bytes,
    record_times,
    stamped,
)
from dledger.records.columns.types import Array, Atom, Columns, Field, Map, Struct

PLAIN = Columns(
    (Field("id", Atom("integer")), Field("who", Struct((Field("name", Atom("string")),)))), key="id"
)
TIMED = Columns((*PLAIN.fields, Field("at", Atom("timestamp"))), key="id", time="at")


def batch(columns: Columns, version: int, rows: int = 3, **more: Any) -> pa.RecordBatch:
    extra = [{name: given[i] for name, given in more.items()} for i in range(rows)]
    data = [{"id": i, "who": {"name": "n" * i} if i else None, **extra[i]} for i in range(rows)]
    made = pa.RecordBatch.from_pylist(data, schema=arrow_schema(columns))
    return pa.RecordBatch.from_arrays(made.columns, schema=stamped(columns, version))


def body(of: pa.RecordBatch, **more: Any) -> bytes:
    return b"".join(encode_batch(of, topic_id=1, partition=0, now_us=77, **more))


@pytest.mark.parametrize("codec", list(Codec))
def test_rows_come_back_with_the_version_that_they_were_written_under(codec: Codec) -> None:
    one = batch(PLAIN, 3, 500)
    header, columns, back = decode_typed(body(one, codec=codec), {3: PLAIN}.__getitem__)
    assert (header.schema_version, header.count, columns) == (3, 500, PLAIN)
    assert back.equals(one)
    assert back.schema.equals(arrow_schema(PLAIN))


def test_a_slice_is_stored_without_what_it_leaves_out() -> None:
    whole = batch(PLAIN, 1, 2000)
    part = body(whole.slice(1990))
    assert len(part) < 40_000
    assert decode_typed(part, {1: PLAIN}.__getitem__)[2].equals(whole.slice(1990))


def test_rows_of_a_slice_keep_their_own_arrays_and_maps_in_wider_columns() -> None:
    narrow, wide = (
        Columns((Field("a", Array(Atom(kind))), Field("m", Map(Atom("string"), Atom(kind)))))
        for kind in ("integer", "long")
    )
    rows = [{"a": [i] * (i % 3), "m": [(str(i), i)]} for i in range(9)]
    whole = pa.RecordBatch.from_pylist(rows, schema=arrow_schema(narrow))
    assert convert(whole.slice(4, 3), narrow, wide).to_pylist() == rows[4:7]


def test_rows_of_equal_columns_are_handed_on_as_they_lie_but_for_nulls() -> None:
    """Also under the version of a write; a null where none may be is noticed all the same."""
    required = Columns((Field("id", Atom("integer"), nullable=False), *PLAIN.fields[1:]))
    same = Columns(tuple(required.fields))
    rows = batch(required, 1)
    found = convert(rows, required, same, stamped(same, 7))
    assert found.schema.equals(stamped(same, 7), check_metadata=True)
    assert found.column(0).buffers()[1].address == rows.column(0).buffers()[1].address
    holes = rows.set_column(0, arrow_schema(required).field(0), pa.array([1, None, 2], pa.int32()))
    with pytest.raises(SchemaMismatch, match="column 'id' is null in some rows"):
        convert(holes, required, same)


def test_conversion_looks_at_each_column_a_fixed_number_of_times() -> None:
    """None at all, in Python, where the columns are equal."""

    def calls(count: int, there: str, wanted: str) -> int:
        source, goal = (
            Columns(tuple(Field(f"c{i}", Atom(kind)) for i in range(count)))
            for kind in (there, wanted)
        )
        rows = pa.RecordBatch.from_arrays(
            [pa.nulls(1, pa.int32())] * count, schema=arrow_schema(source)
        )
        schema = arrow_schema(goal)
        seen: list[str] = []
        sys.setprofile(lambda frame, event, _: seen.append(event))
        try:
            convert(rows, source, goal, schema)
        finally:
            sys.setprofile(None)
        return len(seen)

    assert calls(400, "integer", "long") < 4.5 * calls(100, "integer", "long")
    assert calls(400, "integer", "integer") == calls(100, "integer", "integer")


def test_record_times_come_from_the_event_time_column_or_the_write() -> None:
    """The time of the write stands in where the event time is null."""
    for written, columns, bounds, times in (
        (batch(TIMED, 1, at=[5, None, 9]), TIMED, (5, 77), [5, 77, 9]),
        (batch(PLAIN, 1), PLAIN, (77, 77), [77] * 3),
    ):
        header, _, back = decode_typed(body(written), {1: columns}.__getitem__)
        assert (header.first_time_us, header.last_time_us) == bounds
        assert record_times(header, columns, back).cast(pa.int64()).to_pylist() == times


def test_keys_are_the_text_of_the_key_column() -> None:
    keys = key_bytes(PLAIN, batch(PLAIN, 1))
    assert keys is not None
    assert keys.to_pylist() == [b"0", b"1", b"2"]


def test_records_and_rows_are_never_taken_for_one_another() -> None:
    with pytest.raises(ProtocolError, match="not plain records"):
        decode_batch(body(batch(PLAIN, 1)))
    with pytest.raises(ProtocolError, match="not a typed topic's"):
        decode_typed(body(make_records([b"v"])), {1: PLAIN}.__getitem__)


def test_a_body_of_other_columns_is_corrupt_and_not_misread() -> None:
    with pytest.raises(CorruptEntry):
        decode_typed(body(batch(PLAIN, 1)), {1: TIMED}.__getitem__)


def test_batches_are_cut_and_put_together_within_their_version_only() -> None:
    parts = [*(batch(PLAIN, version) for version in (1, 1, 2)), make_records([b"v"])]
    parts.append(batch(TIMED, 3, at=[1, 2, 3]))
    together = list(coalesce(parts, 1 << 20))
    assert [part.num_rows for part in together] == [6, 3, 1, 3]
    assert [part.schema.metadata for part in together] == [
        parts[i].schema.metadata for i in (0, 2, 3, 4)
    ]
    pieces = split_batch(batch(PLAIN, 1, 2000), 40_000)
    assert len(pieces) > 1
    assert pa.concat_batches(pieces).equals(batch(PLAIN, 1, 2000))
    assert all(piece.schema.metadata == parts[0].schema.metadata for piece in pieces)
