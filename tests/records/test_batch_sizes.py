"""Batches cut and put together: every record once, in order, in bodies of the right size."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger.errors import ConfigError, RecordTooLarge
from dledger.records.body.build import make_records
from dledger.records.body.header import Codec
from dledger.records.body.records import encode_batch
from dledger.records.body.sizer import OVERHEAD, coalesce, split_batch

SIZES = st.lists(st.integers(0, 300), max_size=60)


def records(sizes: list[int], **columns: Any) -> pa.RecordBatch:
    return make_records([b"%d" % at + b"v" * size for at, size in enumerate(sizes)], **columns)


def column(name: str, batches: list[pa.RecordBatch]) -> list[Any]:
    """Of all batches together."""
    return [row.get(name) for batch in batches for row in batch.to_pylist()]


def body_size(batch: pa.RecordBatch, codec: Codec) -> int:
    return sum(map(len, encode_batch(batch, topic_id=1, partition=0, now_us=0, codec=codec)))


@given(
    sizes=SIZES,
    room=st.integers(800, 3000),
    codec=st.sampled_from(Codec),
    full=st.booleans(),
    start=st.integers(0, 9),
)
def test_pieces_hold_all_records_in_order_and_fit(
    sizes: list[int], room: int, codec: Codec, full: bool, start: int
) -> None:
    count = len(sizes)
    columns = (
        {"keys": [b"k"] * count, "headers": [("h", b"x")], "timestamps": list(range(count))}
        if full
        else {}
    )
    whole = records(sizes, **columns).slice(min(start, count))
    pieces = split_batch(whole, OVERHEAD + room)
    assert column("value", pieces) == column("value", [whole])
    assert all(body_size(piece, codec) <= OVERHEAD + room for piece in pieces)
    sums = [piece.nbytes for piece in pieces]
    assert all(a + b > room - 20 for a, b in pairwise(sums)), "neighbours that fit into one are one"


def test_batch_that_fits_is_one_piece_and_none_without_records() -> None:
    batch = records([10] * 5)
    assert split_batch(batch, 10_000) == [batch]
    assert split_batch(batch.slice(0, 0), 10_000) == []


def test_one_record_over_the_limit_is_named() -> None:
    with pytest.raises(RecordTooLarge, match="record 2 "):
        split_batch(records([10, 10, 5000, 10]), OVERHEAD + 1000)


def test_limit_without_room_for_any_record_is_refused() -> None:
    with pytest.raises(ConfigError):
        split_batch(records([10]), OVERHEAD)


@given(
    parts=st.lists(st.tuples(SIZES, st.sampled_from(["", "keys", "timestamps"])), max_size=8),
    room=st.integers(0, 9000),
)
def test_small_batches_are_put_together_in_order(
    parts: list[tuple[list[int], str]], room: int
) -> None:
    """Also when only some have keys or times."""
    batches = []
    for sizes, more in parts:
        columns = {"keys": [b"k"] * len(sizes), "timestamps": list(range(len(sizes)))}
        batches.append(records(sizes, **{more: columns[more]} if more else {}))
    merged = list(coalesce(batches, OVERHEAD + room))

    for name in ("value", "key", "timestamp"):
        assert column(name, merged) == column(name, batches)
    largest = max((batch.nbytes for batch in batches), default=0)
    assert all(body_size(batch, Codec.NONE) <= OVERHEAD + max(room, largest) for batch in merged)


def test_each_body_is_filled_up_to_the_limit_and_not_over_it() -> None:
    """Also the ones behind the first: what a body really needs beside its columns is less than is
    left for it."""
    batch = records([3000])
    merged = coalesce([batch] * 7, OVERHEAD + 2 * batch.nbytes)
    assert [piece.num_rows for piece in merged] == [2, 2, 2, 1]


def test_batches_far_below_the_limit_become_one() -> None:
    assert [batch.num_rows for batch in coalesce([records([1])] * 100, 1 << 20)] == [100]
