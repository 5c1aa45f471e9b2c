"""Bodies that nodes make by themselves."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger.records.body.build import make_records
from dledger.records.body.keyed_record import encode_keyed_record
from dledger.records.body.records import decode_batch, encode_batch


def made(key: bytes, value: bytes) -> bytes:
    return encode_keyed_record(
        key, value, topic_id=7, time_us=1_700_000_000_000_001, producer_id=5, epoch=2, sequence=9
    )


@given(key=st.binary(min_size=1, max_size=40), value=st.binary(max_size=5000))
def test_a_body_made_without_arrow_is_the_one_arrow_makes(key: bytes, value: bytes) -> None:
    expected = encode_batch(
        make_records(value, keys=key),
        topic_id=7,
        partition=0,
        producer_id=5,
        epoch=2,
        sequence=9,
        now_us=1_700_000_000_000_001,
    )
    assert made(key, value) == b"".join(map(bytes, expected))


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 500_000])
def test_a_body_made_without_arrow_is_read(size: int) -> None:
    body = made(b"n0", b"x" * size)
    header, batch = decode_batch(body)
    assert (header.topic_id, header.producer_id, header.sequence) == (7, 5, 9)
    assert batch.column("key").to_pylist() == [b"n0"]
    assert batch.column("value").to_pylist() == [b"x" * size]
