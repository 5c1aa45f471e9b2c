"""Bodies of one record each, decoded at once: the same as one by one, or not at all."""

from __future__ import annotations

from array import array
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger.records.body import one_record
from dledger.records.body.build import make_records
from dledger.records.body.header import Codec
from dledger.records.body.one_record import LARGEST, OneRecord, encode_record
from dledger.records.body.one_records import LEARNED, decode_one_records
from dledger.records.body.read_one_record import decode_record
from dledger.records.body.records import decode_batch, encode_batch, with_offsets

NUMBERS: dict[str, Any] = {"topic_id": 7, "partition": 3, "now_us": 11}
VALUES = st.lists(st.binary(max_size=70), min_size=1, max_size=12)


def body(value: bytes, key: bytes | None = None, **numbers: int) -> bytes:
    return b"".join(encode_record(OneRecord(value, key), **(NUMBERS | numbers)))


def by_arrow(values: Any, staged: bool = False, codec: Codec = Codec.NONE, **columns: Any) -> bytes:
    records = make_records(values, **columns)
    header, payload = encode_batch(records, **NUMBERS, staged=staged, codec=codec)
    return header + payload.to_pybytes()


def decoded(*bodies: bytes) -> pa.RecordBatch | None:
    """More than one try: of many lengths only some are learned at once."""
    found = None
    for _ in range(LEARNED):
        found = found or decode_one_records(b"".join(bodies), array("q", map(len, bodies)))
    return found


@given(VALUES, st.none() | st.lists(st.binary(max_size=20), min_size=12, max_size=12), st.data())
def test_bodies_of_one_record_are_decoded_as_one_by_one(
    values: list[bytes], keys: list[bytes] | None, data: st.DataObject
) -> None:
    bodies = []
    for at, value in enumerate(values):
        key, time = None if keys is None else keys[at], data.draw(st.integers(0, 1 << 60))
        bodies.append(body(value, key, now_us=time, sequence=at, topic_id=at))
    found = decoded(*bodies)
    assert found is not None
    found.validate(full=True)
    assert found.equals(pa.concat_batches([decode_batch(one)[1] for one in bodies]))


def alone(one: bytes, offset: int = 5) -> pa.RecordBatch | None:
    """More than one try: lengths are learned when they come again."""
    tries = [decode_record(memoryview(one), offset) for _ in range(2)]
    return tries[1]


@given(
    st.binary(max_size=300),
    st.none() | st.binary(max_size=40),
    st.integers(-(1 << 62), 1 << 62),
    st.integers(0, 1 << 62),
    st.sampled_from([0, 9]),
)
def test_body_that_came_alone_is_decoded_as_by_arrow(
    value: bytes, key: bytes | None, time: int, offset: int, producer: int
) -> None:
    one = body(value, key, now_us=time, producer_id=producer)
    found = alone(one, offset)
    assert found is not None
    found.validate(full=True)
    assert found.equals(with_offsets(decode_batch(one)[1], offset))


def test_lengths_are_learned_from_bodies_alone_when_they_come_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one, other = by_arrow(b"four", keys=b"k"), by_arrow(b"seven")
    monkeypatch.setattr(one_record, "_frames", {})
    monkeypatch.setattr(one_record, "_met", set())
    tries = [decode_record(memoryview(each), 0) is not None for each in (one, other, one, one)]
    assert tries == [False, False, True, True]
    monkeypatch.setattr(one_record, "LENGTHS", 1)
    monkeypatch.setattr(one_record, "_frames", {})
    monkeypatch.setattr(one_record, "_met", set())
    for each in (one, other, one, other):  # two take turns where one has room
        assert decode_record(memoryview(each), 0) is None


def test_staged_bodies_are_decoded_beside_others() -> None:
    found = decoded(body(b"v"), by_arrow(b"w", staged=True))
    assert found is not None
    assert found["value"].to_pylist() == [b"v", b"w"]


@pytest.mark.parametrize(
    "other",
    [
        by_arrow([b"v", b"w"]),
        by_arrow(b"v", keys=b"k"),
        by_arrow([None]),
        by_arrow(b"v", headers=[("h", b"x")]),
        by_arrow(b"v" * 1000, codec=Codec.LZ4),
        body(bytes(LARGEST)),
        body(b"v")[:64],
        body(b"v")[:-1],
        b"DB" + bytes(62),
        bytes(200),
    ],
    ids=["two records", "a key", "null", "headers", "packed", "large", "no payload", "odd",
         "no kind", "zeros"],
)  # fmt: skip
def test_bodies_beside_one_of_another_shape_are_left_to_arrow(other: bytes) -> None:
    for bodies in ((body(b"v"), other), (other, body(b"v"))):
        assert decoded(*bodies) is None
    found = alone(other)
    assert found is None or found.equals(with_offsets(decode_batch(other)[1], 5))


@pytest.mark.parametrize("key", [None, b"key"], ids=repr)
def test_body_that_is_too_short_or_long_is_left_to_arrow(key: bytes | None) -> None:
    sound = body(b"value", key)
    for size in range(64, len(sound), 8):
        assert decoded(sound[:size], sound) is None
        assert alone(sound[:size]) is None
    assert alone(sound + bytes(8)) is None
    assert decoded(sound + bytes(8), sound) is None


@pytest.mark.parametrize("key", [None, b"key"], ids=repr)
def test_each_changed_byte_that_arrow_would_read_is_seen(key: bytes | None) -> None:
    """All but times, ids, the reserved bytes and the padding make another body of it."""
    sound = body(b"value", key)
    for at in range(len(sound)):
        changed = bytearray(sound)
        changed[at] ^= 0x40
        found = decoded(sound, bytes(changed))
        if found is not None:
            assert found.slice(1).equals(decode_batch(changed)[1])
        single = alone(bytes(changed))
        if single is not None:
            assert single.equals(with_offsets(decode_batch(changed)[1], 5))


def test_as_many_lengths_are_learned_as_pay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one_record, "_frames", {})
    bodies = [body(bytes(size), now_us=size) for size in range(40)]
    monkeypatch.setattr(one_record, "_frames", {})
    sizes = array("q", map(len, bodies))
    tries = [decode_one_records(b"".join(bodies), sizes) is not None for _ in range(LEARNED + 1)]
    assert tries == [False] * (LEARNED - 1) + [True] * 2
