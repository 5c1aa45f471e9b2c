"""A RocketMQ commit log from a client's side: messages in, and out again; for groups with
``commit_log="rocketmq"``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from dledger.client.protocol.arguments import TimeMs, milliseconds
from dledger.client.protocol.client_state import SERVER_MS, ClientState, Operation, Request
from dledger.client.protocol.routing import CallPolicy
from dledger.errors import ConfigError, DLedgerError, FormatError, OutcomeUnknown, ProtocolError
from dledger.interrupts import is_interrupt
from dledger.protocol.messages.rocketmq import (
    MAX_PUT_MESSAGES,
    GetMessageRequest,
    GetMessageStatus,
    PutMessageRequest,
    PutMessageStatus,
    QueryMessageRequest,
    ViewMessageRequest,
)
from dledger.rocketmq.format.hosts import LOCALHOST, Host, OffsetId
from dledger.rocketmq.format.message import Message, decode_message, encode_message
from dledger.rocketmq.format.properties import KEYS, TAGS, UNIQUE_KEY, format_properties

PUT: Final = PutMessageRequest(timeout_ms=SERVER_MS)
LATEST: Final = (1 << 63) - 1
MAX_PUT_BYTES: Final = 4 << 20
"""Bytes of one request; more messages go in several."""


@dataclass(frozen=True, slots=True)
class PutMessageResult:
    """A message is stored. ``message_id`` is the broker's offset id; ``queue_offset`` is 0 for a
    message that has no place in a queue, as a prepared one of a transaction."""

    status: PutMessageStatus
    message_id: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    store_timestamp: int
    """Milliseconds since 1970."""


@dataclass(frozen=True, slots=True)
class GetMessageResult:
    """The messages of a queue from an offset on. ``min_offset`` is that of the first message that
    is kept, ``max_offset`` the one that the next message gets; go on at ``next_begin_offset``."""

    status: GetMessageStatus
    messages: list[Message]
    next_begin_offset: int
    min_offset: int
    max_offset: int


def put_message(
    core: ClientState,
    topic: str,
    body: bytes,
    *,
    queue_id: int = 0,
    tags: str = "",
    keys: str | Sequence[str] = (),
    properties: Mapping[str, str] | None = None,
    flag: int = 0,
) -> Operation[PutMessageResult]:
    """Put one message; returns when a quorum has it on disk. A topic is there as soon as a message
    names it. Puts that overlap are in no order.

    It is asked again only while nothing was written. After an error that leaves the outcome open
    only the caller can repeat it, and then the message may be there twice, as with a broker.

    Args:
        keys: the keys for `query_message`; several as a list.
        properties: more of them; ``tags`` and ``keys`` do not replace one of these.

    Raises:
        ConfigError, RecordTooLarge, DiskFull, Unavailable: nothing was written.
        OutcomeUnknown: it may have been written.
    """
    known = dict(properties or {})
    words = [keys] if isinstance(keys, str) and keys else list(keys)
    if any(" " in word for word in words if not isinstance(keys, str)):
        raise ConfigError(
            f"keys {words}: a key has no blanks in it, which divide one from the next"
        )
    own = {KEYS: " ".join(words), TAGS: tags, UNIQUE_KEY: core.environment.unique()}
    known.update((name, value) for name, value in own.items() if value and name not in known)
    try:
        text = format_properties(known)
    except ValueError as error:
        if is_interrupt(error):
            raise
        raise ConfigError(f"message for {topic!r}: {error}") from None
    now = core.environment.wall_us() // 1000
    message = Message(
        topic, bytes(body), text, queue_id, flag=flag, born_timestamp=now, born_host=LOCALHOST
    )
    return (yield from put_messages(core, [message]))[0]


def put_messages(
    core: ClientState, messages: Sequence[Message]
) -> Operation[list[PutMessageResult]]:
    """Put messages, in this order, and side by side as far as one request holds them (4,096; 4
    MiB); raises as `put_message`, and OutcomeUnknown also where a request failed behind others that
    are stored. Queue offset, physical offset, store time and store host are replaced."""
    results: list[PutMessageResult] = []
    for parts in _requests(messages):
        begin = len(results)
        try:
            results += yield from _put(messages[begin : begin + len(parts)], parts)
        except DLedgerError as error:
            if not begin or not error.definite:
                raise
            text = (
                f"put {len(messages)} messages: the first {begin} of them are stored, and "
                f"then {error}"
            )
            raise OutcomeUnknown(text) from error
    return results


def _requests(messages: Sequence[Message]) -> list[list[bytes]]:
    """The requests of messages sent at once; all are made before one is sent.

    Raises:
        ConfigError: a message cannot be.
    """
    requests: list[list[bytes]] = []
    size = 0
    for at, message in enumerate(messages):
        try:
            data = encode_message(message)
        except ValueError as error:
            if is_interrupt(error):
                raise
            raise ConfigError(f"message {at} for {message.topic!r}: {error}") from None
        size += len(data)
        if not requests or size > MAX_PUT_BYTES or len(requests[-1]) == MAX_PUT_MESSAGES:
            requests.append([])
            size = len(data)
        requests[-1].append(data)
    return requests


def _put(messages: Sequence[Message], parts: list[bytes]) -> Operation[list[PutMessageResult]]:
    what = f"put {len(parts)} message{'s' if len(parts) > 1 else ''}"
    answer, _ = yield Request(PUT, CallPolicy(what=what, writes=True, repeatable=False), parts)
    if len(answer.physical_offsets) != len(parts) or len(answer.queue_offsets) != len(parts):
        raise ProtocolError(f"{what}: the answer has {len(answer.physical_offsets)} places")
    ip, _, port = answer.store_host.rpartition(":")
    host = Host.of(ip, int(port))
    return [
        PutMessageResult(
            answer.status,
            str(OffsetId(host, physical)),
            message.queue_id,
            queue_offset,
            physical,
            answer.store_timestamp,
        )
        for message, physical, queue_offset in zip(
            messages, answer.physical_offsets, answer.queue_offsets, strict=True
        )
    ]


def view_message(_: ClientState, place: int | str, *, stale: bool = False) -> Operation[Message]:
    """The message at a physical offset, or of a broker's message id; body and properties as stored.

    Args:
        stale: from any node, as far as that one has come.

    Raises:
        OffsetOutOfRange: no committed message begins there, or it is not kept any more.
    """
    physical_offset = offset_of(place) if isinstance(place, str) else place
    request = ViewMessageRequest(physical_offset=physical_offset, stale=stale)
    terms = CallPolicy(what=f"message at physical offset {physical_offset}", anybody=stale)
    _answer, payload = yield Request(request, terms)
    return decoded(payload)[0]


def get_message(
    _: ClientState,
    topic: str,
    queue_id: int,
    queue_offset: int,
    *,
    max_messages: int = 32,
    max_bytes: int = 4 << 20,
    stale: bool = False,
) -> Operation[GetMessageResult]:
    """Messages of a queue from an offset on, in order, at least one where there is one.

    Args:
        stale: from any node, as far as that one has come.
    """
    request = GetMessageRequest(
        topic=topic,
        queue_id=queue_id,
        queue_offset=queue_offset,
        max_messages=max_messages,
        max_bytes=max_bytes,
        stale=stale,
    )
    what = f"messages of queue {queue_id} of {topic!r} from {queue_offset} on"
    answer, payload = yield Request(request, CallPolicy(what=what, anybody=stale))
    return GetMessageResult(
        answer.status,
        decoded(payload),
        answer.next_begin_offset,
        answer.min_offset,
        answer.max_offset,
    )


def query_message(
    _: ClientState,
    topic: str,
    key: str,
    *,
    max_messages: int = 32,
    begin: TimeMs = 0,
    end: TimeMs = LATEST,
    stale: bool = False,
) -> Operation[list[Message]]:
    """Messages with this unique key, or with this word among their keys, the newest first.

    Args:
        begin: first store time, a datetime or milliseconds since 1970 UTC.
        end: last one, likewise, included.
        stale: from any node, as far as that one has come.
    """
    request = QueryMessageRequest(
        topic=topic,
        key=key,
        max_messages=max_messages,
        begin_ms=milliseconds("begin", begin),
        end_ms=milliseconds("end", end),
        stale=stale,
    )
    _answer, payload = yield Request(
        request, CallPolicy(what=f"messages of {topic!r} with key {key!r}", anybody=stale)
    )
    return decoded(payload)


def decoded(payload: memoryview) -> list[Message]:
    """The messages of an answer."""
    found: list[Message] = []
    at = 0
    try:
        while at < len(payload):
            found.append(decode_message(payload, at))
            at += int.from_bytes(payload[at : at + 4], "big")
    except FormatError as error:
        raise ProtocolError(f"the answer's messages are damaged: {error}") from None
    return found


def offset_of(message_id: str) -> int:
    """The physical offset in a broker's message id.

    Raises:
        ConfigError: it is none.
    """
    try:
        return OffsetId.parse(message_id).physical_offset
    except FormatError as error:
        raise ConfigError(str(error)) from None
