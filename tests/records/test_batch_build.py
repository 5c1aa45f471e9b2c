"""Record columns out of whatever callers have."""

from __future__ import annotations

import re
from array import array
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pyarrow as pa
import pytest

from dledger.errors import ConfigError
from dledger.records.body.build import as_records, binary_column, make_records
from dledger.records.body.schema import HEADERS, TIMESTAMP

PAIR = [{"key": "a", "value": b"1"}]


def stable(value: object) -> str:
    """The name of a case, the same in each process."""
    return re.sub(r" at 0x\w+", "", str(value))


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (b"x", [b"x"]),
        (bytearray(b"x"), [b"x"]),
        (memoryview(b"x"), [b"x"]),
        ("é", ["é".encode()]),
        (["é", b"x"], ["é".encode(), b"x"]),
        (["é", None], ["é".encode(), None]),
        ([], []),
        ([b"x", b"", b"yz"], [b"x", b"", b"yz"]),
        ((b"x", None), [b"x", None]),
        ([bytearray(b"x"), memoryview(b"yz")], [b"x", b"yz"]),
        (pa.array([b"x", None]), [b"x", None]),
        (pa.array(["é", None]), ["é".encode(), None]),
        (pa.array([b"x"], pa.large_binary()), [b"x"]),
        (pa.array(["x"], pa.large_string()), [b"x"]),
        (pa.array([b"xy"], pa.binary(2)), [b"xy"]),
        (pa.array([b"x", b"x"]).dictionary_encode(), [b"x", b"x"]),
        (pa.array([None, None]), [None, None]),
        (pa.chunked_array([[b"x"], [b"y"]]), [b"x", b"y"]),
        (pa.chunked_array([], pa.binary()), []),
        (pa.array([b"a", b"b", b"c"]).slice(1), [b"b", b"c"]),
    ],
    ids=stable,
)
def test_values_of_any_binary_like_form_become_one_binary_column(
    values: Any, expected: list[bytes | None]
) -> None:
    column = binary_column("value", values)
    assert column.type == pa.binary()
    column.validate(full=True)
    assert column.to_pylist() == expected


@pytest.mark.parametrize(
    "values",
    ["\ud800", ["\ud800"], ["a", 1], [1], 5, pa.array([1]), [memoryview(array("q", [1, 2]))]],
    ids=stable,
)
def test_values_that_are_no_bytes_are_refused(values: Any) -> None:
    with pytest.raises(ConfigError, match="value"):
        make_records(values)


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ([("a", b"1")], [PAIR, PAIR]),
        ([], [[], []]),
        ([[("a", b"1")], None], [PAIR, None]),
        ([[], [("a", None)]], [[], [{"key": "a", "value": None}]]),
        (pa.array([[("a", b"1")], None], pa.map_(pa.string(), pa.binary())), [PAIR, None]),
        (
            pa.array([None, [("a", b"1")], []], pa.map_(pa.string(), pa.binary())).slice(1),
            [PAIR, []],
        ),
        (pa.array([PAIR, None], pa.large_list(HEADERS.value_type)), [PAIR, None]),
    ],
    ids=str,
)
def test_headers_are_pairs_for_all_or_for_each_or_arrow(headers: Any, expected: list[Any]) -> None:
    column = make_records([b"x", b"y"], headers=headers).column("headers")
    column.validate(full=True)
    assert column.type == HEADERS
    assert [
        pairs if pairs is None else [dict(pair) for pair in pairs] for pairs in column.to_pylist()
    ] == expected


@pytest.mark.parametrize("headers", [[[("a",)]], [[(1, b"x")]], [5], pa.array([1, 2])], ids=str)
def test_headers_that_are_no_pairs_are_refused(headers: Any) -> None:
    with pytest.raises(ConfigError, match="headers"):
        make_records([b"x", b"y"], headers=headers)


AT = datetime(2024, 1, 2, 3, 4, 5, 6, tzinfo=UTC)
AT_US = 1_704_164_645_000_006


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        (AT_US, [AT_US, AT_US]),
        (-5, [-5, -5]),
        (AT, [AT_US, AT_US]),
        (AT.replace(tzinfo=None), [AT_US, AT_US]),
        ([AT_US, 7], [AT_US, 7]),
        ([AT, None], [AT_US, None]),
        ([AT.astimezone(timezone(timedelta(hours=5))), AT], [AT_US, AT_US]),
        (pa.array([AT_US, 7]), [AT_US, 7]),
        (pa.array([5, 7], pa.int32()), [5, 7]),
        (pa.array([1_999, None], pa.timestamp("ns")), [1, None]),
        (pa.array([AT_US, 7], pa.timestamp("us", "Europe/Paris")), [AT_US, 7]),
        (pa.array([2, 7], pa.timestamp("s")), [2_000_000, 7_000_000]),
    ],
    ids=str,
)
def test_times_are_microseconds_or_datetimes_or_arrow(
    times: Any, expected: list[int | None]
) -> None:
    column = make_records([b"x", b"y"], timestamps=times).column("timestamp")
    column.validate(full=True)
    assert column.type == TIMESTAMP
    assert column.cast(pa.int64()).to_pylist() == expected


@pytest.mark.parametrize("times", [1 << 70, ["now", "then"], pa.array(["x", "y"]), 1.5], ids=str)
def test_times_that_are_none_are_refused(times: Any) -> None:
    with pytest.raises(ConfigError, match="timestamp"):
        make_records([b"x", b"y"], timestamps=times)


@pytest.mark.parametrize(
    "extra", [{"keys": [b"k"]}, {"keys": b"k"}, {"headers": [None]}, {"timestamps": [1, 2, 3]}]
)
def test_columns_of_different_lengths_are_refused(extra: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="2 values"):
        make_records([b"x", b"y"], **extra)


def test_columns_come_in_the_records_order_and_types_whatever_they_were() -> None:
    batch = pa.record_batch(
        {"value": ["v"], "timestamp": pa.array([5], pa.timestamp("ms")), "key": ["k"]}
    )
    records = as_records(batch)
    assert records.schema.names == ["timestamp", "key", "value"]
    assert records.schema.types == [TIMESTAMP, pa.binary(), pa.binary()]
    assert as_records(records) is records


@pytest.mark.parametrize(
    "batch",
    [
        pa.record_batch({"value": [b"v"], "vlaue": [b"v"]}),
        pa.record_batch({"key": [b"v"]}),
        pa.record_batch({"value": [1]}),
        pa.RecordBatch.from_arrays([pa.array([b"v"]), pa.array([b"v"])], ["value", "value"]),
        pa.record_batch({"value": [b"v"], "headers": [["a"]]}),
    ],
)
def test_batch_with_columns_that_are_no_records_is_refused(batch: pa.RecordBatch) -> None:
    with pytest.raises(ConfigError):
        as_records(batch)
