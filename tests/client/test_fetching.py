"""What a reader takes for the answer to its question, without sockets."""

from __future__ import annotations

import pytest

from dledger.client.protocol.reading.fetching import Fetcher
from dledger.errors import ProtocolError
from dledger.protocol.messages.client import FetchedBatch, FetchResponse
from dledger.protocol.messages.codes import Code


def take(position: int, *spans: tuple[int, int]) -> int:
    """Where a reader at ``position`` stands when it was given these offsets, [first, end) of each
    batch."""
    fetcher = Fetcher(1, 0, position, None, 1 << 20, "read 't'")
    batches = tuple(
        FetchedBatch(base_offset=first, count=end - first, size=1, crc=0) for first, end in spans
    )
    fetcher.take(FetchResponse(code=Code.SUCCESS, batches=batches), memoryview(bytes(len(spans))))
    return fetcher.position


def test_batches_that_go_on_where_the_reader_stands_are_taken() -> None:
    assert take(5, (5, 7), (7, 8)) == 8
    assert take(5, (3, 6)) == 6
    assert take(5) == 5


@pytest.mark.parametrize(
    "spans",
    [((6, 8),), ((3, 5),), ((4, 5), (5, 6)), ((5, 7), (8, 9)), ((5, 7), (6, 8))],
    ids=["a gap of one", "nothing new", "nothing new at first", "a gap between", "some twice"],
)
def test_batches_that_leave_offsets_out_or_bring_nothing_new_are_refused(
    spans: tuple[tuple[int, int], ...],
) -> None:
    with pytest.raises(ProtocolError, match="where"):
        take(5, *spans)
