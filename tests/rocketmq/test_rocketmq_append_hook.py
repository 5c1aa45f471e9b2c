"""The append hook's quick way through messages of the common shape comes to the same as the codec
does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dledger.errors import FormatError
from dledger.rocketmq.format.append_hook import (
    TOPIC,
    Stored,
    Unplaced,
    check_messages,
    read_stored,
    write_place,
)
from dledger.rocketmq.format.hosts import Host
from dledger.rocketmq.format.message import (
    Message,
    check_contents,
    decode_message,
    encode_message,
    lay_out,
)
from dledger.rocketmq.format.properties import java_hash

FOUR, SIX = Host.of("1.2.3.4", 5), Host.of("fd00::1", 6)
SHAPES: list[dict[str, Any]] = [
    {},
    {"body": b""},
    {"properties": ""},
    {"topic": "t" * 127},
    {"topic": "t" * 200, "version": 2},
    {"version": 2},
    {"born_host": SIX},
    {"store_host": SIX},
    {"born_host": SIX, "store_host": SIX, "version": 2},
    {"sys_flag": 4},
    {"sys_flag": 12},
    {"sys_flag": 8},
    {"queue_id": 7, "queue_offset": 9},
    {"body": "é".encode() * 50},
]
PLACE = 1000


def message(**fields: Any) -> Message:
    plain = {
        "topic": "orders", "body": b"hello", "properties": "KEYS\x01k", "physical_offset": PLACE,
        "store_timestamp": 77, "born_host": FOUR, "store_host": FOUR,
    }  # fmt: skip
    return Message(**{**plain, **fields})


def by_the_codec(data: bytes) -> Stored | None:
    """What `read_stored` has to say of these bytes."""
    try:
        layout = lay_out(data, 0, len(data))
        found = decode_message(data, check=False)
        data[layout.topic : layout.topic_end].decode()
    except FormatError:
        return None
    if layout.end != len(data) or found.physical_offset != PLACE:
        return None
    offset = -1 if found.transaction in (4, 12) else found.queue_offset
    return Stored(found.topic, found.queue_id, offset, found.store_timestamp)


@settings(max_examples=1500, deadline=None)
@given(
    st.sampled_from(SHAPES),
    st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=2),
    st.integers(-3, 3),
)
def test_both_ways_agree_on_sound_and_on_damaged_messages(
    shape: dict[str, Any], changes: list[tuple[int, int]], more: int
) -> None:
    data = bytearray(encode_message(message(**shape)))
    for at, value in changes:
        data[at % len(data)] = value
    data = bytes(data[:more]) if more < 0 else bytes(data) + bytes(more)
    stored = read_stored(data, PLACE)
    expected = by_the_codec(data)
    # the codec also decodes properties, which no place depends on
    if expected is None and stored is not None:
        with pytest.raises(FormatError, match="UTF-8"):
            decode_message(data, check=False)
    else:
        assert stored == expected
    try:
        layout = lay_out(data, 0, len(data))
        check_contents(data, 0, layout)
        found = decode_message(data)
        sound = layout.end == len(data) and found.queue_id >= 0 and TOPIC.fullmatch(found.topic)
    except FormatError:
        sound = False
    if not sound:
        with pytest.raises(FormatError):
            check_messages(data, 10)
    else:
        one = Unplaced(0, len(data), found.topic, found.queue_id, found.sys_flag)
        assert check_messages(data, 10) == [one]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_places_are_written_where_the_codec_reads_them(shape: dict[str, Any]) -> None:
    first, second = encode_message(message()), encode_message(message(**shape))
    view = memoryview(bytearray(first + second))
    _, one = check_messages(view, 10)
    write_place(view, one, 11, 22, 33, Host.of("9.8.7.6", 5).encode())
    host = "::ffff:9.8.7.6" if shape.get("store_host") is SIX else "9.8.7.6"
    expected = replace(decode_message(second), queue_offset=11, store_host=Host.of(host, 5))
    expected = replace(expected, physical_offset=22, store_timestamp=33)
    assert decode_message(view, len(first)) == expected
    assert decode_message(view) == decode_message(first)


@given(st.text(alphabet=st.characters(), max_size=700))
def test_the_hash_is_javas(text: str) -> None:
    data, value = text.encode("utf-16-be", "surrogatepass"), 0
    for at in range(0, len(data), 2):
        value = (31 * value + (data[at] << 8 | data[at + 1])) & 0xFFFF_FFFF
    assert java_hash(text) == (value - (1 << 32) if value >> 31 else value)
