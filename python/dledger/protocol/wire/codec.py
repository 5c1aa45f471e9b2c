"""Messages to frames and back.

A frame's header is the msgpack array of its message's fields, in order; nested dataclasses are
arrays again. Every field is checked on the way in. Entries travel as payload, 48 header bytes and
body, one behind the other.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final

from dledger.checksum import crc32
from dledger.compiled import compiled
from dledger.errors import ProtocolError
from dledger.interrupts import is_interrupt
from dledger.protocol.messages import client, fetched, hello, peer
from dledger.protocol.messages.acl_decisions import AclDecisionRequest
from dledger.protocol.messages.audit import AuditLines
from dledger.protocol.messages.backup import (
    OpenBackupRequest,
    ReadBackupImageRequest,
    ReadBackupLogRequest,
    ReadBackupLogResponse,
)
from dledger.protocol.messages.catalog_commands import Command
from dledger.protocol.messages.client import (
    AppendRequest,
    AppendResponse,
    ClientRequest,
    ClientResponse,
)
from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.entry import HEADER_SIZE
from dledger.protocol.messages.entry_runs import pieces_and_size, read_entries
from dledger.protocol.messages.fetched import RUN_ROW, FetchedBatches, FetchedRun, FetchResponse
from dledger.protocol.messages.group_heartbeat import GroupHeartbeatRequest
from dledger.protocol.messages.member_requests import AlterMemberRequest
from dledger.protocol.messages.peer import PeerMessage, PushEntryRequest
from dledger.protocol.messages.repair import RepairMessage, RepairResponse
from dledger.protocol.messages.rocketmq import (
    BrokerRequest,
    GetMessageResponse,
    PutMessageRequest,
    QueryMessageResponse,
    ViewMessageResponse,
)
from dledger.protocol.messages.shared_offsets import SharedOffsetsRequest
from dledger.protocol.messages.snapshot import InstallMessage
from dledger.protocol.messages.throttling import ThrottleNotice
from dledger.protocol.wire.fields import (
    FieldTable,
    OpenTable,
    WrongField,
    build_command,
    command_values,
)
from dledger.protocol.wire.framing import pack_frame
from dledger.protocol.wire.message_numbers import KINDS, MESSAGES
from dledger.protocol.wire.msgpack import pack, unpack
from dledger.types import Buffer

Message = (
    ClientRequest
    | GroupHeartbeatRequest
    | AclDecisionRequest
    | OpenBackupRequest
    | ReadBackupLogRequest
    | ReadBackupImageRequest
    | SharedOffsetsRequest
    | AlterMemberRequest
    | ClientResponse
    | PeerMessage
    | RepairMessage
    | InstallMessage
    | AuditLines
    | BrokerRequest
    | ThrottleNotice
)


FIRST_FIELDS: Final = (
    client.FIRST_FIELDS | hello.FIRST_FIELDS | fetched.FIRST_FIELDS | peer.FIRST_FIELDS
)


class _Tables(dict[int, FieldTable]):
    """The tables of messages by number, each made with the first message of its kind: making all
    of them would cost every process a tenth of its start."""

    def __missing__(self, kind: int) -> FieldTable:
        message = MESSAGES[kind]
        first = FIRST_FIELDS.get(message)
        table = FieldTable(message) if first is None else OpenTable(message, first)
        return self.setdefault(kind, table)


_TABLES: Final = _Tables()
_WITH_ENTRIES: Final = {
    KINDS[message] for message in (PushEntryRequest, RepairResponse, ReadBackupLogResponse)
}
_WITH_BYTES: Final = {
    KINDS[message]
    for message in (
        AppendRequest,
        PutMessageRequest,
        ViewMessageResponse,
        GetMessageResponse,
        QueryMessageResponse,
    )
}
_FETCHED: Final = KINDS[FetchResponse]
APPEND_KIND: Final = KINDS[AppendRequest]
KNOWN_APPENDS: Final = 64
_appends: Final[dict[Buffer, AppendRequest]] = {}
"""By header, which most appends have in common: they differ in their payloads."""
_answer_prefix = struct.Struct(">8sI8s").pack
"""Up to the CRC: what stands in front of the request id, the id, and what stands behind it."""
_crc = struct.Struct(">I").pack
_answer_header = struct.Struct(">5sBqBq").pack
"""An array of code, message and leader, and two 64-bit integers."""
_ANSWER_FIELDS: Final = bytes((0x95, 0xCC, Code.SUCCESS, 0xA0, 0xA0))
_INT64: Final = 0xD3
_ANY_ANSWER: Final = pack_frame(
    KINDS[AppendResponse], 0, _answer_header(_ANSWER_FIELDS, _INT64, 0, _INT64, 0), payload_len=0
)


def encode(message: Message, request_id: int = 0, payload: Sequence[Buffer] = ()) -> list[Buffer]:
    """The frame, as buffers to be sent one behind the other; the payload is not copied.

    Raises:
        ProtocolError: a field's value has no form on the wire.
    """
    try:
        kind = KINDS[type(message)]
        header = pack(_TABLES[kind].values(message))
    except (ValueError, TypeError, OverflowError, KeyError) as error:
        if is_interrupt(error):
            raise
        raise ProtocolError(f"{type(message).__name__} cannot be sent: {error}") from error
    if kind in _WITH_ENTRIES:
        payload, size = pieces_and_size(message.entries)  # type: ignore[union-attr]
    else:
        size = sum(map(len, payload)) if payload else 0
    return [pack_frame(kind, request_id, header, size), *payload]


def pack_append_responses(
    request_ids: Sequence[int], base_offsets: Sequence[int], index: int
) -> bytes:
    """The frames of ``AppendResponse(code=SUCCESS, base_offset=..., index=...)`` for appends whose
    entries are neighbours, from ``index`` on. A leader sends one for each append, so they are
    packed without the general way: their numbers have a fixed width, so that all but three fields
    are always the same."""
    return fill_answers(_ANY_ANSWER, request_ids, base_offsets, index)


@compiled
def fill_answers(
    frame: bytes, request_ids: Sequence[int], base_offsets: Sequence[int], index: int
) -> bytes:
    """``frame``, which answers an append, once for each request: with its id, its offset and the
    index of its entry, which are ``index`` and those behind it."""
    before, behind, fields = frame[:8], frame[12:20], frame[24:29]
    frames: list[bytes] = []
    for request_id, base_offset in zip(request_ids, base_offsets, strict=True):
        prefix = _answer_prefix(before, request_id, behind)
        header = _answer_header(fields, _INT64, base_offset, _INT64, index)
        frames += (prefix, _crc(crc32(header, crc32(prefix))), header)
        index += 1
    return b"".join(frames)


def decode(kind: int, header: Buffer, payload: Buffer = b"") -> Any:
    """The message of a frame. Entries keep ``payload`` alive: their bodies lie in it.

    Raises:
        ProtocolError: unknown kind, or a field of another type; names message and field.
    """
    is_append = kind == APPEND_KIND and type(header) is bytes
    if is_append and (known := _appends.get(header)) is not None:
        return known
    if kind not in MESSAGES:
        raise ProtocolError(f"message kind {kind} is not known: a newer program, or none of ours")
    table = _TABLES[kind]
    try:
        values = unpack(header)
        if type(values) is not tuple:
            raise WrongField(f"{type(values).__name__} where an array belongs")
        message = table.build(values)
        if kind in _WITH_ENTRIES:
            return _with_entries(message, payload)
        if kind == _FETCHED:
            _check_fetched(message, payload)
        elif payload and kind not in _WITH_BYTES:
            raise WrongField(f"a payload of {len(payload)} bytes where none belongs")
    except WrongField as error:
        raise ProtocolError(f"{table.cls.__name__}.{error}") from None
    except ValueError as error:
        if is_interrupt(error):
            raise
        raise ProtocolError(
            f"{table.cls.__name__}: header is not msgpack of its fields: {error}"
        ) from None
    if is_append:
        if len(_appends) == KNOWN_APPENDS:
            _appends.clear()
        _appends[header] = message
    return message


def _with_entries(message: Any, payload: Buffer) -> Any:
    try:
        entries = read_entries(payload, message.entries)
    except ValueError as error:
        raise WrongField(f"entries: {error}") from None
    object.__setattr__(message, "entries", entries)
    return message


def _check_fetched(message: FetchResponse, payload: Buffer) -> None:
    if message.run.rows:
        announced = run_size(message.run)
    else:
        announced = sum([row[2] for row in FetchedBatches.of(message.batches).rows()])
    if announced != len(payload):
        raise WrongField(f"batches: {announced} bytes announced, {len(payload)} came")


def run_size(run: FetchedRun) -> int:
    """Bytes of the entries of a run.

    Raises:
        WrongField: these are no rows.
    """
    if len(run.rows) % RUN_ROW.size:
        raise WrongField(f"run: {len(run.rows)} bytes are no row of {RUN_ROW.size}-byte rows")
    _, _, _, _, _, before, _, _ = RUN_ROW.unpack_from(run.rows)
    _, _, _, _, _, end, size, _ = RUN_ROW.unpack_from(run.rows, len(run.rows) - RUN_ROW.size)
    return int(end + size - before) + len(run.rows) // RUN_ROW.size * HEADER_SIZE


def encode_command(command: Command) -> bytes:
    """A command as it is stored in an entry's body.

    Raises:
        ProtocolError: a field's value has no form on the wire.
    """
    try:
        return pack(command_values(command))
    except (ValueError, TypeError, OverflowError) as error:
        if is_interrupt(error):
            raise
        raise ProtocolError(f"{type(command).__name__} cannot be stored: {error}") from error


def decode_command(data: Buffer) -> Command:
    """The inverse of `encode_command`.

    Raises:
        ProtocolError: these bytes are no command; names command and field.
    """
    try:
        values = unpack(data)
        if type(values) is not tuple:
            raise WrongField(f"{type(values).__name__} where an array belongs")
        command: Command = build_command(values)
    except ValueError as error:
        if is_interrupt(error):
            raise
        raise ProtocolError(f"command: {error}") from None
    return command
