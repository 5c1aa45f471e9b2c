"""Every message survives the way there and back; nothing else does."""

from __future__ import annotations

import contextlib
import struct
import types
from dataclasses import fields, is_dataclass, replace
from enum import IntEnum
from typing import Any, NewType, Union, get_args, get_origin, get_type_hints

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dledger.errors import ProtocolError
from dledger.protocol.messages.backup import ReadBackupLogResponse
from dledger.protocol.messages.catalog_commands import CommitOffsets, CreateTopic
from dledger.protocol.messages.client import (
    AppendRequest,
    AppendResponse,
    ExecuteRequest,
    FetchRequest,
    MetadataRequest,
    StatusRequest,
    StatusResponse,
)
from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.entry import HEADER_SIZE, Entry, LogEnd, stamp
from dledger.protocol.messages.fetched import (
    FIRST_FIELDS,
    RUN_ROW,
    FetchedBatch,
    FetchedRun,
    FetchResponse,
)
from dledger.protocol.messages.peer import HeartBeatRequest, PushEntryRequest, PushType
from dledger.protocol.messages.repair import RepairResponse
from dledger.protocol.wire import (
    FrameLimits,
    decode,
    decode_command,
    encode,
    encode_command,
    pack_append_responses,
)
from dledger.protocol.wire.codec import KNOWN_APPENDS
from dledger.protocol.wire.framing import FrameReader
from dledger.protocol.wire.message_numbers import COMMANDS, KINDS, MESSAGES
from dledger.protocol.wire.msgpack import unpack
from dledger.types import Index, NodeId, Position, Term

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | INT64
    | st.text(max_size=5)
    | st.binary(max_size=5)
    | st.floats(allow_nan=False),
    lambda inner: (
        st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=5,
)


def entries(bodies: list[bytes]) -> tuple[Entry, ...]:
    end, made = LogEnd(Position(Term(1), Index(4)), 100, 7), []
    for body in bodies:
        made.append(stamp(end, Term(2), 1, body, 1 << 20))
        end = LogEnd.after(made[-1])
    return tuple(made)


def values(annotation: Any) -> st.SearchStrategy[Any]:
    """Any value that a field with this annotation may have."""
    if annotation in (Index, Term):
        return st.integers(-1, (1 << 63) - 1)
    if isinstance(annotation, NewType):
        return values(annotation.__supertype__)
    if annotation is Any:
        return PLAIN
    if annotation is Entry:
        return st.nothing()
    if annotation is FetchedBatch:
        u32 = st.integers(0, 2**32 - 1)
        return st.builds(FetchedBatch, base_offset=INT64, count=u32, size=u32, crc=u32)
    simple = {
        int: INT64,
        str: st.text(max_size=20),
        bool: st.booleans(),
        bytes: st.binary(max_size=40),
    }
    if annotation in simple:
        return simple[annotation]
    if isinstance(annotation, type) and issubclass(annotation, IntEnum):
        return st.sampled_from(list(annotation))
    if is_dataclass(annotation):
        return messages(annotation)  # type: ignore[arg-type]
    origin, args = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        return st.one_of(*map(values, args))
    if origin is dict:
        return st.dictionaries(values(args[0]), values(args[1]), max_size=3)
    if args == (Entry,):
        return st.lists(st.binary(max_size=40), max_size=3).map(entries)
    if len(args) == 2 and args[1] is Ellipsis:
        return st.lists(values(args[0]), max_size=3).map(tuple)
    return st.tuples(*map(values, args))


def messages(cls: type[Any]) -> st.SearchStrategy[Any]:
    hints = get_type_hints(cls)
    return st.builds(cls, **{field.name: values(hints[field.name]) for field in fields(cls)})


@pytest.mark.parametrize("cls", MESSAGES.values(), ids=lambda cls: cls.__name__)
@settings(max_examples=40)
@given(data=st.data())
def test_message_comes_back_as_it_was(cls: type[Any], data: st.DataObject) -> None:
    message = data.draw(messages(cls))
    if isinstance(message, FetchResponse) and (
        message.run.rows or sum(b.size for b in message.batches)
    ):
        return  # its payload is gigabytes; see the test of fetched bodies
    payload = [b"a body", b"in two pieces"] if isinstance(message, AppendRequest) else []
    frame = b"".join(encode(message, 77, payload))
    (found,) = FrameReader(FrameLimits()).feed(frame)
    assert found.request_id == 77
    back = decode(found.kind, found.header, found.payload)
    if isinstance(message, PushEntryRequest | RepairResponse | ReadBackupLogResponse):
        assert [
            replace(entry, header=bytes(entry.header), body=bytes(entry.body))
            for entry in back.entries
        ] == list(message.entries)
        assert type(message) is not PushEntryRequest or str(back) == str(message)
        return
    assert back == message
    assert type(back) is cls
    assert bytes(found.payload) == b"".join(payload)


@pytest.mark.parametrize("cls", COMMANDS.values(), ids=lambda cls: cls.__name__)
@settings(max_examples=30)
@given(data=st.data())
def test_command_comes_back_as_it_was(cls: type[Any], data: st.DataObject) -> None:
    command = data.draw(messages(cls))
    assert decode_command(encode_command(command)) == command


@settings(max_examples=300)
@given(
    kind=st.sampled_from(sorted(MESSAGES)),
    header=st.binary(max_size=200),
    payload=st.binary(max_size=100),
)
def test_garbage_is_a_protocol_error_and_nothing_else(
    kind: int, header: bytes, payload: bytes
) -> None:
    with contextlib.suppress(ProtocolError):
        assert isinstance(decode(kind, header, payload), MESSAGES[kind])
    with contextlib.suppress(ProtocolError):
        assert decode_command(encode_command(decode_command(header))) == decode_command(header)


@settings(max_examples=200)
@given(kind=st.sampled_from(sorted(MESSAGES)), data=st.data())
def test_one_field_of_a_wrong_type_is_named(kind: int, data: st.DataObject) -> None:
    cls = MESSAGES[kind]
    names = [field.name for field in fields(cls)]
    if not names:
        return
    message = data.draw(messages(cls))
    raw = list(msgpack.unpackb(raw_header(message), strict_map_key=False))
    # a hello leaves away the fields at its end that have their defaults
    at = data.draw(st.integers(0, len(raw) - 1))
    raw[at] = None
    with pytest.raises(ProtocolError, match=f"{cls.__name__}.{names[at]}"):
        decode(kind, msgpack.packb(raw), b"")


def raw_header(message: Any) -> bytes:
    """The msgpack bytes behind the prefix."""
    return bytes(encode(message)[0])[24:]


@pytest.mark.parametrize(
    "message",
    [
        AppendResponse(code=Code.SUCCESS, message="text", base_offset=1 << 40),
        ExecuteRequest(command=CommitOffsets(consumer_group="g", offsets={"t": {0: 5, 1: 6}})),
        FetchRequest(topic_id=1, partition=2, start_offset=3),
    ],
    ids=lambda message: type(message).__name__,
)
def test_header_cut_at_any_byte_is_refused(message: Any) -> None:
    header = raw_header(message)
    for size in range(len(header)):
        with pytest.raises(ProtocolError):
            decode(KINDS[type(message)], header[:size])
    with pytest.raises(ProtocolError):
        decode(KINDS[type(message)], header + b"\0")


@pytest.mark.parametrize(
    ("cls", "raw", "says"),
    [
        (AppendRequest, ["1"], "AppendRequest.timeout_ms: str where int"),
        (AppendRequest, [True], "AppendRequest.timeout_ms: bool where int"),
        (AppendRequest, [1.5], "AppendRequest.timeout_ms: float where int"),
        (AppendRequest, [1 << 63], "AppendRequest.timeout_ms: 9223372036854775808 is over 64 bits"),
        (AppendRequest, [], "AppendRequest.0 fields where 1"),
        (AppendRequest, [1, 2], "AppendRequest.2 fields where 1"),
        (AppendRequest, {}, "AppendRequest.dict where an array"),
        (AppendRequest, 5, "AppendRequest.int where an array"),
        (AppendResponse, [200, "", "", -1, -2], "AppendResponse.index: -2 is not -1 or above"),
        (AppendResponse, [12345, "", "", -1, 0], "AppendResponse.code: 12345 is no Code"),
        (MetadataRequest, [["a", 5], False], "MetadataRequest.topics: int where str"),
        (ExecuteRequest, [[99], 1], "ExecuteRequest.command: 99 is no command's number"),
        (ExecuteRequest, [[], 1], "ExecuteRequest.command: None is no command's number"),
        (ExecuteRequest, [[[]], 1], "is no command's number"),
        (ExecuteRequest, [[2, 5], 1], "ExecuteRequest.command: DeleteTopic.name: int where str"),
        (ExecuteRequest, [[8, "g", {"t": {"0": 5}}, 0], 1], "CommitOffsets.offsets: str where int"),
        (StatusResponse, [200, {5: 1}], "StatusResponse.status: int where str"),
        (
            HeartBeatRequest,
            ["g", "n0", "n1", -2, "n0", 0, 0],
            "HeartBeatRequest.term: -2 is not -1 or above",
        ),
    ],
)
def test_wrong_field_is_named(cls: type[Any], raw: Any, says: str) -> None:
    with pytest.raises(ProtocolError, match=says.replace("(", r"\(")):
        decode(KINDS[cls], msgpack.packb(raw))


@pytest.mark.parametrize(
    ("kind", "header", "payload", "says"),
    [
        (KINDS[MetadataRequest], b"\x92\x91\xa2\xff\xfe\xc2", b"", "not msgpack"),
        (9999, b"\x90", b"", "kind 9999"),
        (KINDS[StatusRequest], b"\x90", b"x", "a payload of 1 bytes where none belongs"),
    ],
    ids=["no UTF-8", "unknown kind", "payload"],
)
def test_what_is_no_message_is_refused(kind: int, header: bytes, payload: bytes, says: str) -> None:
    with pytest.raises(ProtocolError, match=says):
        decode(kind, header, payload)


@pytest.mark.parametrize(
    "header",
    [
        b"\x91" * 10_000,  # nested arrays
        b"\x81\x01" * 5_000,  # nested maps
        b"\xdd\x00\x0f\xff\xff" * 1000,  # arrays that each claim a million values
        b"\xdf\x00\x0f\xff\xff" * 1000,
        # each claims no more than the header has bytes, but together 250 MB
        b"\xdd\x00\x00\x80\x00" * 8000,
        b"\x91\xdd\xff\xff\xff\xff" + b"\x01" * 3000,
        b"\xdc\xff\xff" * 400,  # short enough not to be walked over
        b"\xc6\xff\xff\xff\xff",
        b"\xdb\xff\xff\xff\xff",
        b"\x91\xc7\x05\x01hello",  # an extension type
        b"\x91\xd6\xff\x00\x00\x00\x00",  # a timestamp
        b"\x91\x81\x90\x01",  # an unhashable key
        b"\xc1",
    ],
    ids=lambda header: header[:6].hex(),
)
def test_header_that_claims_more_than_it_has_costs_nothing(
    header: bytes, allocates_less_than: Any
) -> None:
    """Known bug class: a few bytes that make a decoder allocate gigabytes or recurse."""
    with allocates_less_than(16 << 20):
        for kind in (KINDS[MetadataRequest], KINDS[StatusResponse]):
            with pytest.raises(ProtocolError):
                decode(kind, header)


def test_large_honest_header_passes_the_walk() -> None:
    names = tuple(f"topic-{n}" for n in range(2000))
    message = MetadataRequest(topics=names)
    assert decode(KINDS[MetadataRequest], raw_header(message)) == message
    plain = {str(n): {"x": (n, -n, 0.5, None, True, b"b")} for n in range(900)}
    status = StatusResponse(code=Code.SUCCESS, status=plain)
    assert decode(KINDS[StatusResponse], raw_header(status)) == status


def test_fetched_bodies_must_add_up_to_the_payload() -> None:
    batch = FetchedBatch(base_offset=5, count=1, size=3, crc=9, index=7, term=2)
    message = FetchResponse(code=Code.SUCCESS, batches=(batch,))
    header = raw_header(message)
    assert decode(KINDS[FetchResponse], header, b"abc") == message
    for payload in (b"", b"ab", b"abcd"):
        with pytest.raises(ProtocolError, match="announced"):
            decode(KINDS[FetchResponse], header, payload)


def test_run_must_add_up_to_the_payload() -> None:
    rows = b"".join(RUN_ROW.pack(at, at, 0, 0, 0, 100 + 3 * at, 3, 9) for at in range(2))
    message = FetchResponse(code=Code.SUCCESS, run=FetchedRun(rows, end_offset=2, term=1))
    header, payload = raw_header(message), bytes(2 * (HEADER_SIZE + 3))
    assert decode(KINDS[FetchResponse], header, payload) == message
    for wrong in (b"", payload[1:], payload + b"x"):
        with pytest.raises(ProtocolError, match="announced"):
            decode(KINDS[FetchResponse], header, wrong)
    odd = replace(message, run=FetchedRun(rows[1:], end_offset=2, term=1))
    with pytest.raises(ProtocolError, match="no row"):
        decode(KINDS[FetchResponse], raw_header(odd), payload)


def test_fields_behind_the_first_are_left_out_where_they_say_nothing() -> None:
    """A program that does not know them reads the message."""
    asked = FetchRequest(topic_id=1, partition=0, start_offset=0)
    assert len(unpack(raw_header(asked))) == FIRST_FIELDS[FetchRequest]
    assert len(unpack(raw_header(replace(asked, takes_run=True)))) == len(fields(FetchRequest))


@given(
    answers=st.lists(st.tuples(st.integers(0, 2**32 - 1), st.integers(-1, 2**63 - 1)), max_size=9),
    index=st.integers(-1, 2**63 - 10),
)
def test_successes_of_appends_are_packed_as_any_messages(
    answers: list[tuple[int, int]], index: int
) -> None:
    request_ids, base_offsets = [one for one, _ in answers], [base for _, base in answers]
    frames = FrameReader(FrameLimits()).feed(
        pack_append_responses(request_ids, base_offsets, index)
    )
    assert [frame.request_id for frame in frames] == request_ids
    assert [decode(frame.kind, frame.header, frame.payload) for frame in frames] == [
        AppendResponse(code=Code.SUCCESS, base_offset=base, index=Index(index + at))
        for at, base in enumerate(base_offsets)
    ]


def test_append_requests_with_any_headers_in_turn_are_decoded() -> None:
    """Those of one header are one message; what is wrong with a header is said each time."""
    kind = KINDS[AppendRequest]
    asked = [AppendRequest(timeout_ms=number) for number in range(2 * KNOWN_APPENDS)]
    for _ in range(2):
        for one in asked:
            found = decode(kind, raw_header(one), b"body")
            assert found == one
            assert decode(kind, raw_header(one), b"other") is found
        for header in (b"", b"\x91\xa0", bytes(raw_header(asked[0])) + b"\x00"):
            with pytest.raises(ProtocolError, match="AppendRequest"):
                decode(kind, header, b"body")


def push(*bodies: bytes) -> PushEntryRequest:
    n0, n1 = NodeId("n0"), NodeId("n1")
    return PushEntryRequest(
        group="g",
        local_id=n0,
        remote_id=n1,
        term=Term(2),
        leader_id=n0,
        type=PushType.APPEND,
        entries=entries(list(bodies)),
    )


def test_pushed_entries_must_agree_with_their_sizes() -> None:
    message = push(b"one", b"two!")
    header, payload = raw_header(message), b"".join(encode(message)[1:])
    kind = KINDS[PushEntryRequest]
    assert len(decode(kind, header, payload).entries) == 2
    with pytest.raises(ProtocolError, match="announced"):
        decode(kind, header, payload[:-1])
    moved = bytearray(payload)
    struct.pack_into(">i", moved, 4, 52)  # the first entry's own size
    with pytest.raises(ProtocolError, match="says size 52"):
        decode(kind, header, bytes(moved))
    small = header.replace(struct.pack(">II", 51, 52), struct.pack(">II", 47, 56))
    with pytest.raises(ProtocolError, match="at least 48"):
        decode(kind, small, payload)
    odd = msgpack.packb([*msgpack.unpackb(header)[:-1], b"abc"])
    with pytest.raises(ProtocolError, match="4-byte sizes"):
        decode(kind, odd, payload)


@pytest.mark.parametrize(
    "message",
    [
        AppendRequest(timeout_ms=1 << 70),
        AppendRequest(timeout_ms={1}),  # type: ignore[arg-type]
        MetadataRequest(topics=("\ud800",)),
        ExecuteRequest(command="nothing"),  # type: ignore[arg-type]
        FetchResponse(
            code=Code.SUCCESS, batches=(FetchedBatch(base_offset=0, count=-1, size=0, crc=0),)
        ),
        "no message",
    ],
    ids=str,
)
def test_what_has_no_form_on_the_wire_is_refused_before_it_is_sent(message: Any) -> None:
    with pytest.raises(ProtocolError, match=type(message).__name__):
        encode(message)
    encode(MetadataRequest())  # the packer is not left with half a value
    assert decode(KINDS[MetadataRequest], raw_header(MetadataRequest())) == MetadataRequest()


def test_command_that_cannot_be_stored_is_refused() -> None:
    with pytest.raises(ProtocolError, match="CreateTopic"):
        encode_command(CreateTopic(name="t", log_id="x", partitions=1 << 70))
    with pytest.raises(ProtocolError):
        decode_command(b"\x05")
