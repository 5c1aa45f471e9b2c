"""Numbers, offsets and words of Arrow's buffers, without a copy where there need not be one."""

from __future__ import annotations

from array import array
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger.records.columns.arrays import (
    counting,
    number,
    number_column,
    numbers_of,
    offsets_of,
    repeated,
)
from dledger.records.columns.words import cut_into_words


@pytest.mark.parametrize("count", [0, 1, 2, 127, 128, 129, 1000, 1 << 17, (1 << 17) + 1])
def test_counting_gives_one_number_after_the_other(count: int) -> None:
    for start in (0, 7, -3, 1 << 40):
        found = counting(start, count)
        assert found.type == pa.int64()
        assert found.to_pylist() == list(range(start, start + count))


@pytest.mark.parametrize("kind", [pa.int8(), pa.uint16(), pa.int32(), pa.uint64()])
def test_numbers_of_a_column_are_those_it_was_made_of(kind: pa.DataType) -> None:
    low = -1 if kind in (pa.int8(), pa.int32()) else 0
    assert repeated(kind, low, 3).to_pylist() == [low] * 3
    assert number(kind, 7).as_py() == 7
    assert number(kind, low) == pa.array([low], kind)[0]
    assert numbers_of(pa.array([1, 2, 3], kind).slice(1)).tolist() == [2, 3]
    assert numbers_of(pa.nulls(0, kind)).tolist() == []


@pytest.mark.parametrize(
    "values",
    [
        array("h", [1, -2]),
        memoryview(array("h", [1, -2])),
        bytes(array("h", [1, -2])),
        pa.array([1, -2], pa.int16()).buffers()[1],
    ],
)
def test_a_column_is_made_of_any_buffer(values: Any) -> None:
    found = number_column(pa.int16(), values)
    assert found.to_pylist()[:2] == [1, -2]


@pytest.mark.parametrize(
    "kind",
    [
        pa.string(),
        pa.binary(),
        pa.large_binary(),
        pa.list_(pa.int8()),
        pa.map_(pa.int8(), pa.int8()),
    ],
)
def test_offsets_lie_around_the_values(kind: pa.DataType) -> None:
    is_map, is_text = pa.types.is_map(kind), kind == pa.string()
    values = [[(1, 2)], [], [(1, 2), (3, 4)]] if is_map else [b"a", b"", b"bc"]
    column = pa.array([value.decode() for value in values] if is_text else values, kind)
    assert offsets_of(column).to_pylist() == [0, 1, 1, 3]
    assert offsets_of(column.slice(1)).to_pylist() == [1, 1, 3]
    assert offsets_of(column.slice(3)).to_pylist() == [3]
    assert offsets_of(pa.array([], kind)).to_pylist() == [0]


@given(st.lists(st.binary(max_size=20), min_size=1), st.sampled_from([4, 8]), st.integers(0, 3))
def test_words_are_the_bytes_of_the_values(values: list[bytes], size: int, skip: int) -> None:
    kind = pa.uint32() if size == 4 else pa.uint64()
    for of in (pa.binary(), pa.large_binary()):
        column = pa.array([b"xyz"] * skip + values, of).slice(skip)
        lengths, words, rests = (part.to_pylist() for part in cut_into_words(column, kind))
        assert lengths == list(map(len, values))
        cuts = [len(value) // size * size for value in values]
        whole = b"".join(value[:cut] for value, cut in zip(values, cuts, strict=True))
        assert b"".join(word.to_bytes(size, "little") for word in words) == whole
        assert rests == [
            int.from_bytes(value[cut:], "little") for value, cut in zip(values, cuts, strict=True)
        ]
