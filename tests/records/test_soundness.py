"""Values of a batch from a stranger: whatever `check_values` takes, Arrow's full validation takes
too."""

from __future__ import annotations

from array import array

import pyarrow as pa
import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

from dledger.records.body.soundness import _is_plain, check_values

KINDS = {pa.string(): "i", pa.binary(): "i", pa.large_string(): "q"}


def column(kind: pa.DataType, offsets: list[int], data: bytes, start: int = 0) -> pa.Array:
    """An array over these buffers, whatever they say."""
    starts = pa.py_buffer(array(KINDS[kind], offsets))
    count = len(offsets) - 1 - start
    return pa.Array.from_buffers(kind, count, [None, starts, pa.py_buffer(data)], offset=start)


def is_sound(array: pa.Array) -> bool:
    """In Arrow's opinion."""
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


@given(
    st.sampled_from(sorted(KINDS, key=str)),
    st.lists(st.integers(-2, 20), min_size=1, max_size=8),
    st.one_of(st.binary(max_size=20), st.text("aé€", max_size=8).map(str.encode)),
    st.integers(0, 2),
)
def test_arrow_takes_and_refuses_the_same(
    kind: pa.DataType, offsets: list[int], data: bytes, start: int
) -> None:
    try:
        array = column(kind, offsets, data, min(start, len(offsets) - 1))
    except pa.ArrowInvalid:  # the first and the last offset, which every look at an array compares
        reject()
    batch = pa.RecordBatch.from_arrays([array], ["x"])
    if is_sound(array):
        check_values(batch)
    else:
        with pytest.raises(pa.ArrowInvalid):
            check_values(batch)


def test_ascii_is_found_sound_without_a_look_at_each_value() -> None:
    plain = pa.array(["order 1", "", "a much longer text than a word has"] * 10)
    assert _is_plain(plain)
    assert _is_plain(plain.slice(3, 5))
    assert not _is_plain(pa.array(["order 1", "é"]))
    assert not _is_plain(pa.array(["order 1", None]))


@pytest.mark.parametrize("at", range(19))
def test_no_byte_of_a_text_is_left_out(at: int) -> None:
    data = bytearray(b"x" * 19)
    data[at] = 0xFF
    text = column(pa.string(), [0, 9, 19], bytes(data))
    with pytest.raises(pa.ArrowInvalid, match="UTF8"):
        check_values(pa.RecordBatch.from_arrays([text], ["x"]))


def test_an_offset_that_falls_back_is_refused() -> None:
    text = column(pa.string(), [0, 5, 3, 9], b"x" * 9)
    with pytest.raises(pa.ArrowInvalid, match="non-monotonic"):
        check_values(pa.RecordBatch.from_arrays([text], ["x"]))
