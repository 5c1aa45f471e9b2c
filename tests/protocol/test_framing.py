"""Frames: whole ones come out however the bytes arrive; damaged ones never do."""

from __future__ import annotations

import itertools
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dledger.errors import FrameTooLarge, ProtocolError
from dledger.protocol.messages.client import AppendRequest, StatusRequest
from dledger.protocol.messages.hello import HelloRequest
from dledger.protocol.wire import HELLO_LIMITS, Frame, FrameLimits, FrameReader, decode, encode
from dledger.protocol.wire.framing import PREFIX, PREFIX_SIZE, pack_frame

LARGE = FrameReader.LARGE
SIZES = st.lists(
    st.sampled_from([0, 1, 100, LARGE - 1, LARGE, LARGE + 5, 200_000]), min_size=1, max_size=4
)


def frames(*sizes: int) -> tuple[bytes, list[bytes]]:
    """Append frames with payloads of these sizes, and the payloads."""
    payloads = [bytes([n % 251]) * size for n, size in enumerate(sizes)]
    data = b"".join(b"".join(encode(AppendRequest(), n + 1, [p])) for n, p in enumerate(payloads))
    return data, payloads


@settings(max_examples=60)
@given(
    sizes=SIZES,
    cuts=st.lists(st.integers(0, 900_000), max_size=6),
)
def test_frames_come_out_whole_however_they_are_cut(sizes: list[int], cuts: list[int]) -> None:
    data, payloads = frames(*sizes)
    edges = [0, *sorted(cut % len(data) for cut in cuts), len(data)]
    reader, found = FrameReader(FrameLimits()), []
    for start, stop in itertools.pairwise(edges):
        found += reader.feed(data[start:stop])
    assert [bytes(frame.payload) for frame in found] == payloads
    assert [frame.request_id for frame in found] == list(range(1, len(sizes) + 1))
    assert not reader.in_frame


def receive(data: bytes, edges: list[int]) -> list[Frame]:
    """As a connection does it: into a buffer behind what is left over, or straight into a large
    payload."""
    reader, found = FrameReader(FrameLimits()), list[Frame]()
    buffer = memoryview(bytearray(2 * len(data)))
    for start, stop in itertools.pairwise(edges):
        at = start
        while at < stop:
            if (wanted := reader.wanted) is not None:
                size = min(len(wanted), stop - at)
                wanted[:size] = data[at : at + size]
                frame = reader.received(size)
                found += [frame] if frame is not None else []
            else:
                rest, size = reader.rest, stop - at
                buffer[: len(rest) + size] = rest + data[at:stop]
                reader.parse(buffer[: len(rest) + size], found)
            at += size
    assert not reader.in_frame
    return found


@settings(max_examples=100)
@given(
    sizes=SIZES,
    near=st.lists(st.integers(-2, PREFIX_SIZE + 4), max_size=6),
    cuts=st.lists(st.integers(0, 900_000), max_size=3),
)
def test_frames_are_received_whole_however_they_are_cut(
    sizes: list[int], near: list[int], cuts: list[int]
) -> None:
    """Cuts within and near the heads of frames above all."""
    data, payloads = frames(*sizes)
    begins = [frames(*sizes[:n])[0] for n in range(len(sizes))]
    cuts = [cut % len(data) for cut in cuts] + [
        min(max(0, len(begins[n % len(begins)]) + cut), len(data)) for n, cut in enumerate(near)
    ]
    found = receive(data, [0, *sorted(cuts), len(data)])
    assert [bytes(frame.payload) for frame in found] == payloads


@pytest.mark.parametrize("cut", range(1, PREFIX_SIZE + 3))
def test_data_after_large_frame_with_split_head_is_no_garbage(cut: int) -> None:
    """The first part of the head is not put in front of the next frame again."""
    data, payloads = frames(LARGE, 10, 10)
    found = receive(data, [0, cut, 5000, len(data)])
    assert [bytes(frame.payload) for frame in found] == payloads


@pytest.mark.parametrize("left", [1, 2])
def test_a_large_frame_is_not_handed_on_before_its_last_byte(left: int) -> None:
    data, payloads = frames(LARGE, LARGE + 5)
    first = len(frames(LARGE)[0])
    reader = FrameReader(FrameLimits())
    assert reader.feed(data[: first - left]) == []
    found = receive(data, [0, 1000, first - left, first, len(data) - left, len(data)])
    assert [bytes(frame.payload) for frame in found] == payloads


def test_frames_fed_byte_by_byte() -> None:
    data, payloads = frames(3, 0, 10)
    reader = FrameReader(FrameLimits())
    found = [frame for n in range(len(data)) for frame in reader.feed(data[n : n + 1])]
    assert [bytes(frame.payload) for frame in found] == payloads


def test_large_payload_is_received_into_its_own_buffer() -> None:
    data, (payload,) = frames(LARGE * 3)
    reader = FrameReader(FrameLimits())
    assert reader.feed(data[:1000]) == []
    frame, rest = None, data[1000:]
    for part in (rest[: len(rest) // 2], rest[len(rest) // 2 :]):
        assert frame is None
        wanted = reader.wanted
        assert wanted is not None
        wanted[: len(part)] = part
        frame = reader.received(len(part))
    assert frame is not None
    assert bytes(frame.payload) == payload
    assert frame.payload.readonly
    assert not reader.in_frame


@pytest.mark.parametrize("at", range(PREFIX_SIZE + 2))
def test_any_flipped_bit_of_prefix_or_header_is_noticed(at: int) -> None:
    """Or the frame is never whole, when a length grew within the limits; what is there never comes
    out."""
    data = bytearray(b"".join(encode(HelloRequest(group="g"), 1)))
    for bit in range(8):
        flipped = bytearray(data)
        flipped[at] ^= 1 << bit
        with suppress(ProtocolError):
            assert FrameReader(FrameLimits()).feed(bytes(flipped)) == []


@pytest.mark.parametrize(
    ("header_len", "payload_len"),
    [(1 << 20 | 1, 0), (0xFFFFFFFF, 0), (0, (64 << 20) + 1), (0, 0xFFFFFFFF)],
)
def test_oversized_lengths_are_refused_before_anything_is_allocated(
    header_len: int, payload_len: int, allocates_less_than: Any
) -> None:
    prefix = PREFIX.pack(b"DL", 1, 0, 34, 0, 1, header_len, payload_len, 0)
    with allocates_less_than(1 << 20), pytest.raises(FrameTooLarge, match="over the limit"):
        FrameReader(FrameLimits()).feed(prefix)


def test_payload_is_allocated_only_after_the_crc_of_its_length_is_checked(
    allocates_less_than: Any,
) -> None:
    prefix = PREFIX.pack(b"DL", 1, 0, 34, 0, 1, 2, 60 << 20, 12345) + b"\x91\x05"
    with allocates_less_than(1 << 20), pytest.raises(ProtocolError, match="CRC"):
        FrameReader(FrameLimits()).feed(prefix)


@pytest.mark.parametrize(
    ("prefix", "says"),
    [
        (PREFIX.pack(b"XX", 1, 0, 34, 0, 1, 0, 0, 0), "starts with"),
        (PREFIX.pack(b"DL", 2, 0, 34, 0, 1, 0, 0, 0), "version 2"),
        (PREFIX.pack(b"DL", 1, 1, 34, 0, 1, 0, 0, 0), "flags"),
        (PREFIX.pack(b"DL", 1, 0, 34, 1, 1, 0, 0, 0), "reserved"),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "starts with"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(30), "starts with"),
        (bytes(24), "starts with"),
    ],
)
def test_what_is_no_frame_is_refused(prefix: bytes, says: str) -> None:
    with pytest.raises(ProtocolError, match=says):
        FrameReader(FrameLimits()).feed(prefix)


@settings(max_examples=200)
@given(st.binary(max_size=300))
def test_garbage_gives_an_error_or_nothing(data: bytes) -> None:
    with suppress(ProtocolError):
        assert FrameReader(FrameLimits()).feed(data) == []


def test_first_frame_has_limits_of_its_own() -> None:
    hello, (append, _) = b"".join(encode(HelloRequest(), 1)), frames(100_000)
    assert len(FrameReader(FrameLimits(), HELLO_LIMITS).feed(hello + append)) == 2
    with pytest.raises(FrameTooLarge):
        FrameReader(FrameLimits(), HELLO_LIMITS).feed(append)


def test_payload_over_four_gigabytes_has_no_frame() -> None:
    with pytest.raises(FrameTooLarge):
        pack_frame(34, 1, b"", 1 << 32)


def test_frame_without_fields_is_the_prefix_and_one_byte() -> None:
    (data,) = encode(StatusRequest(), 5)
    assert len(data) == PREFIX_SIZE + 1
    (frame,) = FrameReader(FrameLimits()).feed(data)
    assert decode(frame.kind, frame.header) == StatusRequest()
