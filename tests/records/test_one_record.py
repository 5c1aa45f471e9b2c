"""The body of a record that is appended by itself: what Arrow would have made of it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger.records.body import one_record
from dledger.records.body.build import make_records
from dledger.records.body.one_record import LENGTHS, OneRecord, encode_record
from dledger.records.body.records import decode_batch, encode_batch

NUMBERS = {"topic_id": 7, "partition": 3, "producer_id": 9, "epoch": 2, "sequence": 5, "now_us": 11}
SIZES = (0, 1, 2, 7, 8, 9, 63, 64, 65, 255, 256, 1000, 65535, 65536)


def by_arrow(value: bytes, key: bytes | None, *, staged: bool = False) -> tuple[bytes, bytes]:
    numbers: dict[str, Any] = {**NUMBERS, "staged": staged}
    header, payload = encode_batch(make_records(value, keys=key), **numbers)
    return header, bytes(payload)


@given(value=st.binary(max_size=300), key=st.none() | st.binary(max_size=40), staged=st.booleans())
def test_body_of_one_record_is_byte_for_byte_that_of_a_batch(
    value: bytes, key: bytes | None, staged: bool
) -> None:
    for given_value in (value, bytes(len(value)), b"\xff" * len(value)):
        found = encode_record(OneRecord(given_value, key), staged=staged, **NUMBERS)
        assert found == by_arrow(given_value, key, staged=staged)


@pytest.mark.parametrize("key", [None, b"", b"k", b"a key of some length"], ids=repr)
@pytest.mark.parametrize("size", SIZES)
def test_body_of_one_record_is_that_of_a_batch_at_each_padding(
    size: int, key: bytes | None
) -> None:
    for fill in (b"\x00", b"\xff", b"v"):
        assert encode_record(OneRecord(fill * size, key), **NUMBERS) == by_arrow(fill * size, key)


def test_record_without_a_key_is_told_from_one_with_an_empty_key() -> None:
    bodies = [b"".join(encode_record(OneRecord(b"v", key), **NUMBERS)) for key in (None, b"")]
    keys = [decode_batch(body)[1].column("key").to_pylist() for body in bodies]
    assert keys == [[None], [b""]]


def test_lengths_that_are_kept_have_a_limit() -> None:
    for size in range(2 * LENGTHS):
        encode_record(OneRecord(bytes(size), None), **NUMBERS)
        assert len(one_record._frames) <= LENGTHS


def test_payload_that_is_laid_out_otherwise_is_stored_and_not_learned_from(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another release of Arrow may pad otherwise."""
    monkeypatch.setattr(one_record, "_frames", {})
    monkeypatch.setattr(one_record, "padded", lambda size: size + 64)
    for value in (b"first", b"other"):
        assert encode_record(OneRecord(value, b"k"), **NUMBERS) == by_arrow(value, b"k")
    assert not one_record._frames
