"""Records to bodies and back: nothing lost, nothing that was not there, nothing that a slice leaves
out."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dledger.errors import ConfigError, CorruptEntry, ProtocolError, RecordTooLarge
from dledger.records.body.build import make_records
from dledger.records.body.header import (
    BODY_HEADER_SIZE,
    BodyHeader,
    BodyKind,
    Codec,
    Flag,
    decode_header,
    encode_header,
)
from dledger.records.body.records import decode_batch, encode_batch, with_offsets
from dledger.records.body.schema import READ_SCHEMA, RECORD_SCHEMA
from dledger.records.body.sizer import split_batch
from dledger.records.body.unpacked_size import MAX_DECODED_BYTES, check_sizes

NOW = 1_700_000_000_000_000
BYTES = st.one_of(st.none(), st.binary(max_size=12))
PAIRS = st.lists(st.tuples(st.text(max_size=5), BYTES), max_size=3)
RECORDS = st.lists(
    st.tuples(
        st.one_of(st.none(), st.integers(-(10**15), 10**15)),
        BYTES,
        BYTES,
        st.one_of(st.none(), PAIRS),
    ),
    min_size=1,
    max_size=30,
)
"""(time, key, value, headers)"""
U32, U64 = (st.integers(0, 2**bits - 1) for bits in (32, 64))
I64 = st.integers(-(2**63), 2**63 - 1)


def encoded(batch: pa.RecordBatch, **settings: Any) -> bytes:
    settings = {"topic_id": 1, "partition": 0, "now_us": NOW, **settings}
    return b"".join(encode_batch(batch, **settings))


def as_batch(records: list[Any]) -> pa.RecordBatch:
    rows = [
        {
            "timestamp": time,
            "key": key,
            "value": value,
            "headers": headers and [{"key": k, "value": v} for k, v in headers],
        }
        for time, key, value, headers in records
    ]
    return pa.RecordBatch.from_pylist(rows, schema=RECORD_SCHEMA)


def rows(batch: pa.RecordBatch) -> list[Any]:
    """The records as Python values."""
    times = batch.column("timestamp").cast(pa.int64())
    columns = (column.to_pylist() for column in (times, *batch.columns[1:]))
    return [
        (*row, headers and [(pair["key"], pair["value"]) for pair in headers])
        for *row, headers in zip(*columns, strict=True)
    ]


@given(
    records=RECORDS,
    cut=st.tuples(st.integers(0, 30), st.integers(1, 30)),
    codec=st.sampled_from(Codec),
)
def test_records_come_back_as_they_went_in(
    records: list[Any], cut: tuple[int, int], codec: Codec
) -> None:
    """Any columns, any slice of them, any compression; records without a time get the time of
    writing."""
    start = min(cut[0], len(records) - 1)
    records_cut = records[start : start + cut[1]]
    header, batch = decode_batch(encoded(as_batch(records).slice(start, cut[1]), codec=codec))
    assert batch.schema == RECORD_SCHEMA
    expected = [(NOW if time is None else time, *rest) for time, *rest in records_cut]
    assert rows(batch) == expected
    times = [time for time, *_ in expected]
    assert header.count == len(expected)
    assert (header.first_time_us, header.last_time_us) == (min(times), max(times))
    _, keys, _, headers = zip(*records_cut, strict=True)
    for flag, is_stored in (
        (Flag.HAS_KEYS, any(key is not None for key in keys)),
        (Flag.HAS_HEADERS, any(pairs is not None for pairs in headers)),
        (Flag.HAS_TIMES, len(set(times)) > 1),
    ):
        assert bool(header.flags & flag) is is_stored


def test_header_carries_what_the_catalog_needs() -> None:
    body = encoded(
        make_records([b"x", None]),
        topic_id=7,
        partition=3,
        producer_id=1 << 60,
        epoch=4,
        sequence=9,
        staged=True,
    )
    assert decode_header(body) == BodyHeader(
        BodyKind.DATA, 7, 3, 2, NOW, NOW, 1 << 60, 4, 9, Codec.NONE, Flag.STAGED, 0
    )


@given(
    st.builds(
        BodyHeader,
        st.sampled_from(BodyKind),
        *(U32, U32, U32, I64, I64, U64, U32, U64),
        st.sampled_from(Codec),
        st.sampled_from([Flag(flags) for flags in range(16)]),
        U32,
    )
)
def test_any_header_comes_back_as_it_went_in(header: BodyHeader) -> None:
    assert decode_header(encode_header(header)) == header


@pytest.mark.parametrize(
    ("at", "value"), [(0, 0), (2, 9), (3, 0), (3, 7), (4, 3), (5, 16), (5, 255)], ids=str
)
def test_header_that_nobody_writes_is_refused(at: int, value: int) -> None:
    body = bytearray(encoded(make_records(b"x")))
    body[at] = value
    with pytest.raises(ValueError):
        decode_header(body)
    with pytest.raises(ProtocolError):
        decode_batch(body)


def test_slice_is_stored_without_what_it_leaves_out() -> None:
    whole = make_records(
        [b"v" * 1000] * 1000, keys=[b"k" * 100] * 1000, headers=[("h", b"x" * 100)]
    )
    assert len(encoded(whole.slice(500, 2))) < 2 * 1300 + 1100
    assert rows(decode_batch(encoded(whole.slice(999, 1)))[1]) == [
        (NOW, b"k" * 100, b"v" * 1000, [("h", b"x" * 100)])
    ]


def test_decoded_values_lie_in_the_body_itself() -> None:
    """A reader of a large log must not copy it."""
    body = encoded(make_records([b"v" * 1000] * 100))
    value = decode_batch(body)[1].column("value").buffers()[2]
    begin = pa.py_buffer(body).address
    assert begin <= value.address < begin + len(body)


@pytest.mark.parametrize("codec", [Codec.LZ4, Codec.ZSTD])
def test_compression_is_used_only_where_it_makes_bodies_smaller(codec: Codec) -> None:
    repeated = make_records([b"the same again"] * 1000)
    assert len(encoded(repeated, codec=codec)) < len(encoded(repeated)) / 2
    small = encoded(make_records(b"x"), codec=codec)
    assert decode_header(small).codec is Codec.NONE
    assert len(small) == len(encoded(make_records(b"x")))


def test_excessive_declared_size_is_refused_before_decompression() -> None:
    """A few bytes can declare any size: the node that unpacks them would be gone."""
    body = bytearray(encoded(make_records([b"abc" * 100] * 1000), codec=Codec.ZSTD))
    at = body.index((300_000).to_bytes(8, "little"))
    body[at : at + 8] = (MAX_DECODED_BYTES + 1).to_bytes(8, "little")
    with pytest.raises(CorruptEntry, match="decompressed"):
        decode_batch(body)
    body[at : at + 8] = (-2).to_bytes(8, "little", signed=True)  # it would make room for another's
    with pytest.raises(CorruptEntry, match="a buffer of -2"):
        decode_batch(body)


def test_buffers_that_declare_too_much_together_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each of them is below the limit; a reader unpacks all."""
    keyed = pa.record_batch(
        {"key": pa.array([b"key" * 100] * 1000), "value": pa.array([b"abc" * 100] * 1000)}
    )
    payload = encoded(keyed, codec=Codec.ZSTD)[BODY_HEADER_SIZE:]
    check_sizes(payload, Codec.ZSTD, 1000)
    monkeypatch.setattr("dledger.records.body.unpacked_size.MAX_DECODED_BYTES", 500_000)
    with pytest.raises(ValueError, match="decompressed it has over 500000 bytes"):
        check_sizes(payload, Codec.ZSTD, 1000)
    monkeypatch.setattr("dledger.records.body.unpacked_size.MAX_DECODED_BYTES", 700_000)
    check_sizes(payload, Codec.ZSTD, 1000)


def test_batch_of_more_records_or_buffers_than_a_reader_takes_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nulls take no byte of a body, and a reader counts each; a node looks at each buffer."""
    payload = encoded(make_records([b"abc" * 100] * 1000), codec=Codec.ZSTD)[BODY_HEADER_SIZE:]
    monkeypatch.setattr("dledger.records.body.unpacked_size.MAX_BUFFERS", 2)
    with pytest.raises(ValueError, match="it has 3 buffers, over 2"):
        check_sizes(payload, Codec.ZSTD, 1000)
    monkeypatch.setattr("dledger.records.body.unpacked_size.MAX_RECORDS", 999)
    with pytest.raises(ValueError, match="it has 1000 records, over 999"):
        check_sizes(payload, Codec.ZSTD, 1000)
    with pytest.raises(ValueError, match="promises 999 records, the payload has 1000"):
        check_sizes(payload, Codec.ZSTD, 999)


def test_batch_of_more_records_than_a_reader_takes_is_cut_or_not_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in ("records", "sizer"):
        monkeypatch.setattr(f"dledger.records.body.{module}.MAX_RECORDS", 8)
    batch = make_records([b"x"] * 20)
    assert [one.num_rows for one in split_batch(batch, 1 << 20)] == [8, 8, 4]
    with pytest.raises(RecordTooLarge, match="20 records is over the 8 of a reader"):
        encoded(batch)


@pytest.mark.parametrize("codec", [Codec.LZ4, Codec.ZSTD])
def test_compression_that_the_header_does_not_name_is_refused(codec: Codec) -> None:
    """It would be unpacked without a limit."""
    body = bytearray(encoded(make_records([b"abc" * 100] * 1000), codec=codec))
    body[4] = Codec.NONE
    with pytest.raises(CorruptEntry, match="compression"):
        decode_batch(body)


def test_batch_too_large_to_be_unpacked_again_is_not_packed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("dledger.records.body.records.MAX_DECODED_BYTES", 1000)
    batch = make_records([b"x" * 100] * 20)
    with pytest.raises(RecordTooLarge):
        encoded(batch, codec=Codec.LZ4)
    encoded(batch)


def test_count_that_is_not_the_payloads_is_refused() -> None:
    body = bytearray(encoded(make_records([b"x"] * 3)))
    body[16:20] = (4).to_bytes(4, "big")
    with pytest.raises(CorruptEntry, match="4 records"):
        decode_batch(body)


@settings(max_examples=300)
@given(
    codec=st.sampled_from(Codec),
    damage=st.lists(st.tuples(st.integers(0, 2500), st.integers(0, 255)), max_size=8),
    cut=st.one_of(st.none(), st.integers(0, 2500)),
)
def test_damaged_body_is_refused_or_read_but_never_ends_the_process(
    codec: Codec, damage: list[tuple[int, int]], cut: int | None
) -> None:
    records = make_records(
        [b"a" * i for i in range(40)],
        keys=[None if i % 3 else b"key" for i in range(40)],
        headers=[[("text", b"x" * i)] if i % 5 else None for i in range(40)],
        timestamps=list(range(40)),
    )
    body = bytearray(encoded(records, codec=codec))
    for at, value in damage:
        body[at % len(body)] = value
    with suppress(CorruptEntry, ProtocolError):
        _, batch = decode_batch(body[:cut])
        for name in ("key", "value", "headers"):
            batch.column(name).to_pylist()


@given(st.binary(max_size=400))
def test_garbage_behind_a_header_is_refused(garbage: bytes) -> None:
    header = encode_header(BodyHeader(BodyKind.DATA, count=1))
    with pytest.raises(CorruptEntry):
        decode_batch(header + garbage)
    with pytest.raises(ProtocolError):
        decode_batch(garbage[:BODY_HEADER_SIZE])


@pytest.mark.parametrize(
    "header", [BodyHeader(BodyKind.COMMAND), BodyHeader(BodyKind.DATA, schema_version=1)]
)
def test_body_of_another_kind_is_no_batch(header: BodyHeader) -> None:
    with pytest.raises(ProtocolError):
        decode_batch(encode_header(header) + bytes(64))


def test_batch_without_records_is_refused() -> None:
    with pytest.raises(ConfigError):
        encoded(make_records([]))


@given(
    base=st.integers(0, 2**62),
    count=st.integers(1, 50),
    start=st.integers(-5, 60),
    length=st.integers(-5, 60),
)
def test_offsets_follow_from_the_base_and_the_range_cuts(
    base: int, count: int, start: int, length: int
) -> None:
    records = decode_batch(encoded(make_records([b"%d" % i for i in range(count)])))[1]
    read = with_offsets(records, base, base + start, base + start + length)
    expected = [i for i in range(count) if start <= i < start + length]
    assert read.schema == READ_SCHEMA
    assert read.column("offset").to_pylist() == [base + i for i in expected]
    assert read.column("value").to_pylist() == [b"%d" % i for i in expected]
    assert with_offsets(records, base).num_rows == count


def test_offsets_of_a_batch_larger_than_those_before_are_right() -> None:
    for count in (1, 20_000, 5, 40_000):
        records = decode_batch(encoded(make_records([b""] * count)))[1]
        offsets = with_offsets(records, 10).column("offset")
        assert (offsets[0].as_py(), offsets[-1].as_py()) == (10, 9 + count)
