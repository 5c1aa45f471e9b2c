"""Digests of rows: the same for the same rows in any order and any split, another one for any other
rows."""

from __future__ import annotations

import datetime as dt
import decimal
import struct
import zlib
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger.records import digest as package
from dledger.records.digest import RowsSum, digest, sum_rows, texts
from dledger.records.digest import values as plain

natively: ModuleType | None
try:
    import dledger.records.digest.natively as natively
except ImportError:
    natively = None

MASK = (1 << 64) - 1
BASE = 0x9E3779B97F4A7C15
DAY = dt.date(2026, 11, 24)
NOON = dt.datetime(2026, 11, 24, 12, tzinfo=dt.UTC)
TYPES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "bool": (pa.bool_(), [True, False, None]),
    "byte": (pa.int8(), [-1, 0, 127, None]),
    "short": (pa.int16(), [-1, 0, 300, None]),
    "int": (pa.int32(), [-1, 0, 70_000, None]),
    "long": (pa.int64(), [-1, 0, 1 << 40, None]),
    "float": (pa.float32(), [1.5, -1.5, 0.0, None]),
    "double": (pa.float64(), [1.5, -1.5, 0.0, None]),
    "decimal": (pa.decimal128(38, 2), [decimal.Decimal("1.25"), decimal.Decimal(10) ** 30, None]),
    "string": (pa.string(), ["", "a", "12345678", "x" * 64, "y" * 5000, None]),
    "binary": (pa.binary(), [b"", b"\0", b"\0\0", b"\0" * 8, b"\0" * 64, b"\0" * 128, None]),
    "large string": (pa.large_string(), ["", "a", None]),
    "date": (pa.date32(), [DAY, DAY + dt.timedelta(1), None]),
    "timestamp": (pa.timestamp("us", "UTC"), [NOON, NOON + dt.timedelta(0, 1), None]),
    "interval": (pa.duration("us"), [dt.timedelta(1), dt.timedelta(2), None]),
    "void": (pa.null(), [None]),
    "list": (pa.list_(pa.int32()), [[], [1], [1, 2], [2, 1], [None], [0], None]),
    "list of lists": (
        pa.list_(pa.list_(pa.string())),
        [[], [[]], [[], []], [["a"], []], [[], ["a"]], None],
    ),
    "map": (
        pa.map_(pa.string(), pa.int32()),
        [[], [("a", 1)], [("a", 2)], [("b", 1)], [("a", 1), ("b", 2)], None],
    ),
    "struct": (
        pa.struct([("a", pa.int32()), ("b", pa.int32())]),
        [{"a": 1, "b": 2}, {"a": 2, "b": 1}, {"a": None, "b": 1}, {"a": None, "b": None}, None],
    ),
}


@pytest.fixture(autouse=True, params=["arrow", "native"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each test runs with and without the extension."""
    chosen = plain if request.param == "arrow" else natively
    if chosen is None:
        pytest.skip("the extension could not be compiled here")
    monkeypatch.setattr(package, "way", chosen)
    return str(request.param)


def hashes_of_bytes(array: pa.Array) -> list[int]:
    """By the way that is tested."""
    found = package.way.hashes_of_bytes(array)
    return found.to_pylist() if package.way is plain else memoryview(found).cast("Q").tolist()


def frame(kind: pa.DataType, values: list[Any], name: str = "x") -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(values, kind)], names=[name])


def rows_of(value: bytes) -> pa.RecordBatch:
    return frame(pa.binary(), [value], "value")


@pytest.mark.parametrize("name", TYPES)
def test_values_of_each_type_have_digests_of_their_own(name: str) -> None:
    kind, values = TYPES[name]
    assert len({digest(frame(kind, [value])) for value in values}) == len(values)


@pytest.mark.parametrize("name", TYPES)
def test_order_and_split_do_not_count(name: str) -> None:
    kind, values = TYPES[name]
    rows = frame(kind, values * 3)
    pieces = [rows.slice(at, 2) for at in range(0, rows.num_rows, 2)]
    assert sum(map(sum_rows, pieces), RowsSum()) == RowsSum(rows.num_rows, digest(rows))
    assert digest(frame(kind, values[::-1] * 3)) == digest(rows)


@pytest.mark.parametrize("name", TYPES)
def test_a_row_more_or_less_counts_also_when_it_stands_there_already(name: str) -> None:
    kind, values = TYPES[name]
    assert len({digest(frame(kind, values[:1] * count)) for count in range(5)}) == 5


def test_what_lies_under_a_null_does_not_count() -> None:
    for kind, values in (
        (pa.int32(), ([1, 2], [3, 2])),
        (pa.binary(), ([b"one", b"2"], [b"", b"2"])),
    ):
        one, other = (pa.array(v, kind) for v in values)
        valid = pa.py_buffer(b"\x02")
        nulls = [
            pa.Array.from_buffers(kind, 2, [valid, *array.buffers()[1:]]) for array in (one, other)
        ]
        assert [array.null_count for array in nulls] == [1, 1]
        assert len({digest(pa.RecordBatch.from_arrays([array], ["x"])) for array in nulls}) == 1


def test_names_count_and_the_order_of_columns_does_not() -> None:
    one, two = pa.array([1, 2]), pa.array([2, 1])
    rows = pa.RecordBatch.from_arrays([one, two], ["a", "b"])
    assert digest(rows) == digest(pa.RecordBatch.from_arrays([two, one], ["B", "A"]))
    assert digest(rows) != digest(pa.RecordBatch.from_arrays([one, two], ["b", "c"]))
    assert digest(rows, [1]) == digest(pa.RecordBatch.from_arrays([two], ["b"]))


def test_columns_of_nulls_change_nothing() -> None:
    rows = frame(pa.int32(), [1, None], "a")
    more = pa.RecordBatch.from_arrays(
        [*rows.columns, pa.nulls(2, pa.string()), pa.nulls(2)], ["a", "b", "c"]
    )
    assert digest(more) == digest(rows)


def test_a_wider_integer_has_the_same_digest() -> None:
    kinds = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
    assert len({digest(frame(kind, [-3, 100, None])) for kind in kinds}) == 1


def test_a_string_is_its_bytes() -> None:
    assert digest(frame(pa.string(), ["é"])) == digest(frame(pa.binary(), ["é".encode()]))


def test_swapping_values_between_rows_is_seen() -> None:
    def pair(*rows: tuple[str, int]) -> int:
        return digest(pa.RecordBatch.from_pylist([{"k": key, "v": value} for key, value in rows]))

    assert pair(("a", 1), ("b", 2)) != pair(("a", 2), ("b", 1))


def test_an_unknown_type_is_refused() -> None:
    with pytest.raises(TypeError, match="month_day_nano_interval"):
        digest(frame(pa.month_day_nano_interval(), [(1, 2, 3)]))


def _mix(value: int) -> int:
    value = ((value ^ value >> 30) * 0xBF58476D1CE4E5B9) & MASK
    value = ((value ^ value >> 27) * 0x94D049BB133111EB) & MASK
    return value ^ value >> 31


def reference(value: bytes) -> int:
    """The hash of one value's bytes, as the docstrings of the module say it, in plain
    arithmetic."""
    words = struct.unpack_from(f"<{len(value) // 8}Q", value)
    whole = len(words)
    sizes = [4096] * (whole // 4096) + [1 << bit for bit in range(11, -1, -1) if whole >> bit & 1]
    found, at = len(value), 0
    for size in sizes:
        block = sum(
            (word ^ word >> 32) * (_mix(i + 1) | 1) for i, word in enumerate(words[at : at + size])
        )
        found = (found * BASE + block) & MASK
        at += size
    return (found * BASE + int.from_bytes(value[8 * at :], "little")) & MASK


def reference_of_rows(rows: list[dict[str, int | bytes | None]]) -> int:
    """The digest of such rows."""
    total = 0
    for row in rows:
        found = BASE
        for name, value in row.items():
            if value is not None:
                hashed = value & MASK if isinstance(value, int) else reference(value)
                salt = _mix(zlib.crc32(name.encode()) + 1)
                found += (hashed ^ hashed >> 32) * (salt | 1) + salt
        total += _mix(found & MASK)
    return total & MASK


LONG_VALUES = st.integers(0, 80_000).map(lambda size: bytes(at % 251 for at in range(size)))


@given(st.lists(st.one_of(st.binary(max_size=200), LONG_VALUES), min_size=1, max_size=40))
def test_hashes_of_bytes_are_those_of_plain_arithmetic(values: list[bytes]) -> None:
    assert hashes_of_bytes(pa.array(values, pa.binary())) == [reference(value) for value in values]


def test_digests_of_rows_are_those_of_plain_arithmetic() -> None:
    rows: list[dict[str, int | bytes | None]] = [
        {"key": b"%d" % n if n % 3 else None, "value": b"v" * 100, "n": -n, "other": b"z" * n}
        for n in range(200)
    ]
    batch = pa.RecordBatch.from_pylist(rows)
    assert sum_rows(batch) == RowsSum(len(rows), reference_of_rows(rows))
    assert sum_rows(batch.slice(17, 50)) == RowsSum(50, reference_of_rows(rows[17:67]))


@pytest.mark.parametrize("length", [1, 7, 8, 12, 100, 200, 40_000])
def test_values_of_one_length_have_the_hashes_of_others(length: int) -> None:
    values = [bytes((at * n + n) % 251 for at in range(length)) for n in range(50)]
    alone, among_others = (
        hashes_of_bytes(pa.array(some, pa.binary())) for some in (values, [*values, b"other"])
    )
    assert alone == among_others[:-1] == [reference(value) for value in values]
    part = hashes_of_bytes(pa.array(values, pa.binary()).slice(20, 9))
    assert part == alone[20:29]


def test_two_changes_of_a_sign_are_seen() -> None:
    """Of numbers that are packed into a value, or stand in two columns: a product alone would lose
    these bits."""
    packed = [struct.pack("<12d", *(sign * n for n in range(1, 13))) for sign in (1, -1)]
    packed += [struct.pack("<12d", *(n if n > 2 else -n for n in range(1, 13)))]
    assert len({digest(frame(pa.binary(), [value])) for value in packed}) == 3
    rows = [
        pa.RecordBatch.from_pylist([{"x": x, "y": y}])
        for x, y in ((1.0, 2.0), (-1.0, -2.0), (-1.0, 2.0))
    ]
    assert len(set(map(digest, rows))) == 3


@pytest.mark.parametrize(
    "length", [0, 1, 7, 8, 9, 15, 16, 63, 64, 65, 127, 128, 4095, 4096, 4097, 70_000]
)
def test_every_byte_of_a_value_counts(length: int) -> None:
    value = bytearray(length)
    seen = {digest(rows_of(bytes(value)))}
    some = (0, 63, 64, length // 2, length - 65, length - 64, length - 1)
    places = range(length) if length < 200 else some
    for place in places:
        for bit in (0, 7):
            value[place] ^= 1 << bit
            seen.add(digest(rows_of(bytes(value))))
            value[place] ^= 1 << bit
    assert len(seen) == 1 + 2 * len(places)


def test_the_digest_of_known_rows_never_changes() -> None:
    """Digests are kept in groups: a release that finds another one would refuse every batch that is
    run again."""
    rows = pa.RecordBatch.from_pydict(
        {
            "key": pa.array([b"k", None], pa.binary()),
            "value": pa.array([b"v" * 100, b"w"], pa.binary()),
            "number": pa.array([-1, 1 << 40], pa.int64()),
            "tags": pa.array([["a"], []], pa.list_(pa.string())),
        }
    )
    assert f"{digest(rows):016x}" == "bf640e5319155bb8"


def test_a_batch_of_many_long_values_has_the_digest_of_its_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """More of them than are hashed at once."""
    monkeypatch.setattr(texts, "AT_ONCE", 1000)
    values = [b"%d" % at * (at % 400) for at in range(100)]
    rows = (sum_rows(frame(pa.binary(), [value])) for value in values)
    assert sum_rows(frame(pa.binary(), values)) == sum(rows, RowsSum())
