"""Ranges and their pieces travel packed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger.errors import ProtocolError
from dledger.protocol.messages.splits import (
    SplitRequest,
    SplitSpan,
    pack_cuts,
    unpack_cuts,
    unpack_sizes,
)

NUMBER = st.integers(-(1 << 63), (1 << 63) - 1)


@given(st.lists(st.builds(SplitSpan, *[NUMBER] * 6)))
def test_spans_come_back_as_they_were(spans: list[SplitSpan]) -> None:
    assert list(SplitRequest.of(spans).rows()) == spans


@given(st.lists(st.lists(st.tuples(NUMBER, NUMBER), max_size=5)))
def test_pieces_come_back_as_they_were(cuts: list[list[tuple[int, int]]]) -> None:
    assert unpack_cuts(*pack_cuts(cuts)) == cuts


@given(st.lists(st.lists(st.tuples(NUMBER, NUMBER), min_size=1, max_size=2)))
def test_sizes_are_the_sums_of_the_pieces(cuts: list[list[tuple[int, int]]]) -> None:
    sums = [sum(size for _, size in pieces) for pieces in cuts]
    assert list(unpack_sizes(*pack_cuts(cuts))) == sums
    whole = [pieces[:1] for pieces in cuts]
    assert list(unpack_sizes(*pack_cuts(whole))) == [pieces[0][1] for pieces in whole]


def test_bytes_that_are_no_spans_or_pieces_are_refused() -> None:
    with pytest.raises(ProtocolError, match="47 bytes are no spans"):
        SplitRequest(spans=bytes(47)).rows()
    with pytest.raises(ProtocolError, match="cannot be sent"):
        SplitRequest.of([SplitSpan(1, 0, 0, 5, 1 << 63)])
    counts, pieces = pack_cuts([[(5, 9)], []])
    for wrong in ((counts[1:], pieces), (counts, pieces[1:]), (counts, b""), (b"", pieces)):
        with pytest.raises(ProtocolError, match="do not agree"):
            unpack_cuts(*wrong)
        with pytest.raises(ProtocolError, match="do not agree"):
            unpack_sizes(*wrong)
