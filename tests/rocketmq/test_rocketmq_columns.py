"""Columns have the same messages, and the same damage, as reading one message after the other."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger.rocketmq.columns.commit_log import column_batches
from dledger.rocketmq.columns.messages import SCHEMA
from dledger.rocketmq.columns.properties import PropertyColumns
from dledger.rocketmq.format.compression import compress, compression_flags
from dledger.rocketmq.format.hosts import Host
from dledger.rocketmq.format.message import Compression, Message, decode_message, encode_message
from dledger.rocketmq.format.properties import parse_properties
from dledger.rocketmq.format.scan import Scanner, scan
from dledger.rocketmq.format.scanned_piece import PieceKind, ScannedPiece
from tests.rocketmq.made_logs import FIVE, column, damage_of, make_log, of_messages

START = 4096
TEXT = st.text("ab\x01\x02ü", max_size=12)
HOSTS = st.builds(
    Host,
    st.binary(min_size=4, max_size=4) | st.binary(min_size=16, max_size=16),
    st.integers(0, 65535),
)
LONG = st.integers(-(1 << 63), (1 << 63) - 1)
INT = st.integers(-(1 << 31), (1 << 31) - 1)
MESSAGES = st.builds(
    Message,
    topic=st.text("Tü%", max_size=5),
    body=st.binary(max_size=30),
    properties=TEXT,
    queue_id=INT,
    queue_offset=LONG,
    flag=INT,
    sys_flag=INT.map(lambda n: n & ~1),
    born_timestamp=LONG,
    born_host=HOSTS,
    store_timestamp=st.integers(0, 1 << 42),
    store_host=HOSTS,
    reconsume_times=INT,
    prepared_transaction_offset=LONG,
    version=st.sampled_from([1, 2]),
)


def rows_and_damage(
    data: bytes, start: int, **how: Any
) -> tuple[list[dict[str, Any]], list[ScannedPiece]]:
    batches = list(column_batches(data, start, **how))
    return [row for one in batches if one.rows for row in one.rows.to_pylist()], damage_of(batches)


def expected_row(data: bytes, start: int, piece: ScannedPiece) -> dict[str, Any]:
    """A row as the one-by-one reader gives it, times left out."""
    m = decode_message(data, piece.message_offset - start)
    properties = m.property_map()
    return {
        "topic": m.topic,
        "queue_id": m.queue_id,
        "queue_offset": m.queue_offset,
        "physical_offset": m.physical_offset,
        "message_id": str(m.offset_id),
        "unique_key": properties.get("UNIQ_KEY"),
        "keys": properties.get("KEYS"),
        "tags": properties.get("TAGS"),
        "body": m.body,
        "properties": sorted(properties.items()),
        "born_host": str(m.born_host),
        "store_host": str(m.store_host),
        "flag": m.flag,
        "sys_flag": m.sys_flag,
        "transaction": m.transaction.name.lower(),
        "reconsume_times": m.reconsume_times,
        "prepared_transaction_offset": m.prepared_transaction_offset,
        "body_crc": m.body_crc,
        "stored_size": piece.end - piece.message_offset,
    }


def assert_same(data: bytes, start: int, **how: Any) -> None:
    pieces = list(scan(data, start))
    rows, damage = rows_and_damage(data, start, **how)
    packed = {p.start for p in damage if "unpack" in p.reason or "compression" in p.reason}
    expected_damage = [p for p in pieces if p.kind is PieceKind.DAMAGE]
    assert [p for p in damage if p.start not in packed] == expected_damage
    messages = of_messages(pieces)
    assert len(rows) == len(messages)
    for row, piece in zip(rows, messages, strict=True):
        row["properties"] = sorted(row["properties"])
        expected = expected_row(data, start, piece)
        # it says that its body is compressed, which the scan does not look at
        if expected["sys_flag"] & 1:
            assert (row["body"] is None) == (piece.message_offset in packed)
            expected["body"] = row["body"]
        assert {name: row[name] for name in expected} == expected
        assert (row["entry_index"] is not None) == (piece.kind is PieceKind.ENTRY)


@pytest.mark.parametrize("entries", [False, True])
@pytest.mark.parametrize("batch_bytes", [1, 300, 1 << 20])
def test_columns_of_a_sound_file_are_its_messages(entries: bool, batch_bytes: int) -> None:
    assert_same(make_log(FIVE * 3, START, 1 << 14, entries=entries), START, batch_bytes=batch_bytes)


@pytest.mark.parametrize("entries", [False, True])
def test_columns_with_any_byte_changed_have_what_the_scan_has(entries: bool) -> None:
    whole = make_log(FIVE, START, 2048, entries=entries)
    for at in range(0, len(whole.rstrip(b"\0")), 3):
        data = bytearray(whole)
        data[at] ^= 0x81
        assert_same(bytes(data), START)


CHANGES = st.lists(st.tuples(st.integers(0), st.integers(1, 255)), max_size=3)


@given(st.lists(MESSAGES, max_size=8), st.booleans(), CHANGES)
def test_columns_of_anything_have_what_the_scan_has(
    messages: list[Message], entries: bool, changes: list[tuple[int, int]]
) -> None:
    data = bytearray(make_log(messages, START, 8192, entries=entries))
    used = max(1, len(bytes(data).rstrip(b"\0")))
    for at, value in changes:
        data[at % used] ^= value
    assert_same(bytes(data), START)


@given(st.lists(TEXT, max_size=6))
def test_property_columns_read_as_one_message_is_read(texts: list[str]) -> None:
    columns = PropertyColumns(pa.array(texts, pa.string()))
    expected = [parse_properties(text) for text in texts]
    assert [dict(m) for m in columns.map().to_pylist()] == expected
    assert [len(m) for m in columns.map().to_pylist()] == [len(e) for e in expected]
    for name in ("a", "b", "ü", "ab"):
        assert columns.values(name).to_pylist() == [e.get(name) for e in expected]


def test_property_columns_with_very_many_names_keep_the_later_of_two() -> None:
    texts = ["\x02".join(f"n{i}\x01{i}" for i in range(100)) + "\x02n7\x01later"] * 2
    maps = PropertyColumns(pa.array(texts)).map().to_pylist()
    assert [(len(m), dict(m)["n7"]) for m in maps] == [(100, "later")] * 2
    repeated = PropertyColumns(pa.array(["a\x011\x02a\x012", "a\x013"]))
    assert repeated.map().to_pylist() == [[("a", "2")], [("a", "3")]]


@pytest.mark.parametrize("kind", [k for k in Compression if k is not Compression.NONE])
def test_body_column_unpacks_what_was_compressed(kind: Compression) -> None:
    text = b"again and again " * 500
    packed = replace(FIVE[0], body=compress(text, kind), sys_flag=compression_flags(kind))
    batches = list(column_batches(make_log([FIVE[1], packed, FIVE[0]]), columns=["body"]))
    assert column(batches, "body") == [FIVE[1].body, text, FIVE[0].body]
    assert not damage_of(batches)


def test_body_that_does_not_unpack_is_null_and_reported() -> None:
    broken = replace(FIVE[0], sys_flag=compression_flags(Compression.ZLIB))
    batches = list(column_batches(make_log([FIVE[0], broken]), columns=["body", "topic"]))
    assert column(batches, "body") == [FIVE[0].body, None]
    size = len(encode_message(FIVE[0]))
    assert [(p.start, p.end) for p in damage_of(batches)] == [(size, 2 * size)]


@pytest.mark.parametrize("entries", [False, True])
def test_parts_of_a_file_together_have_each_message_once(entries: bool) -> None:
    """Cut anywhere; each part looks for its first message by itself and stops where the next part
    begins."""
    data, name = make_log(FIVE, START, 2048, entries=entries), "physical_offset"
    whole = column(column_batches(data, START), name)
    for cut in range(START + 1, START + len(data.rstrip(b"\0"))):
        parts = column(column_batches(data, START, columns=[name], stop=cut), name)
        first = Scanner(data, START).next_sound(cut)
        if first is not None:
            behind = column_batches(data[first.start - START :], first.start, columns=[name])
            parts += column(behind, name)
        assert parts == whole, cut


def test_columns_that_do_not_exist_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match="no column 'topics'"):
        list(column_batches(b"", columns=["topics"]))


def test_time_outside_the_calendar_is_null() -> None:
    late = [replace(FIVE[0], born_timestamp=t) for t in (1 << 62, 253_402_300_800_000)]
    assert column(column_batches(make_log(late)), "born_timestamp") == [None] * 2


def test_empty_file_has_no_rows() -> None:
    assert rows_and_damage(b"", 0) == ([], [])
    assert len(SCHEMA) == 23
