"""Random requests of clients: of each kind, about things that there are, and about others."""

from __future__ import annotations

import random
import types
import typing
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any, Final

from dledger.catalog.access.acls import OPERATIONS
from dledger.node.access.operations import COMMANDS, PAYLOADS, REQUESTS
from dledger.protocol.messages.acl_rules import AclRule
from dledger.protocol.messages.client import AppendRequest, ExecuteRequest
from dledger.protocol.messages.splits import SplitRequest
from dledger.protocol.wire import encode
from dledger.protocol.wire.framing import PREFIX, PREFIX_SIZE, pack_frame
from dledger.records.body.header import BodyHeader, BodyKind, Flag, encode_header
from dledger.rocketmq.format.message import Message, encode_message
from dledger.types import Index, OfPartitions, Term

NAMES: Final = ("t", "other", "g", "w1", "p", "new", "", "*", "t*", "..", "\x00", "x" * 300)
NUMBERS: Final = (0, 1, 2, 3, 4, 5, 7, -1, 1 << 31, 1 << 32, (1 << 63) - 1, -(1 << 63))
REQUEST_KINDS: Final = (*REQUESTS, *PAYLOADS)
WAITS: Final = ("wait_ms", "timeout_ms", "session_timeout_ms")
"""Fields that would let a request wait for long."""


class Requests:
    """Draws requests; rules in them are for ``self``'s principal, whom they would let do more."""

    def __init__(self, dice: random.Random, principal: str) -> None:
        self._dice = dice
        self._principal = principal

    def request(self) -> tuple[Any, bytes]:
        """A request and its payload."""
        dice = self._dice
        kind = dice.choice((*REQUEST_KINDS, AppendRequest, ExecuteRequest, ExecuteRequest))
        if kind is SplitRequest:
            spans = [tuple(self._number() for _ in range(6)) for _ in range(dice.randrange(3))]
            return SplitRequest.of(spans), b""
        payload = b""
        if kind is AppendRequest:
            payload = self._body()
        elif kind in PAYLOADS:
            topic = dice.choice(("t", "other", "orders"))
            payload = encode_message(Message(topic, b"x", "", 0))
        if kind is ExecuteRequest:
            command = self._made(dice.choice((*COMMANDS,)))
            return ExecuteRequest(command=command, timeout_ms=2000), b""
        return self._made(kind), payload

    def damaged(self, request_id: int) -> bytes:
        """Bytes that need not be a frame of any message; a node may end their connection."""
        dice = self._dice
        request, payload = self.request()
        whole = b"".join(encode(request, request_id, [payload] if payload else []))
        if dice.random() < 0.2:
            return dice.randbytes(dice.randrange(1, 60))
        # another header under a right checksum
        fields_of = PREFIX.unpack_from(whole)
        kind, (header_len, payload_len) = fields_of[3], fields_of[6:8]
        header = bytearray(whole[PREFIX_SIZE : PREFIX_SIZE + header_len])
        for _ in range(dice.randint(1, 3)):
            header[dice.randrange(len(header))] = dice.randrange(256)
        return pack_frame(kind, request_id, bytes(header), payload_len) + payload

    def _body(self) -> bytes:
        dice = self._dice
        number = dice.choice((0, 0, 1, 2, 3, 4, 5, 7, 1 << 40))
        flags = Flag.STAGED if dice.random() < 0.3 else Flag(0)
        header = BodyHeader(
            BodyKind.COMMAND if dice.random() < 0.05 else BodyKind.DATA,
            topic_id=dice.choice((0, 1, 2, 3, 1 << 31)),
            partition=dice.choice((0, 0, 0, 1)),
            count=dice.choice((1, 1, 1, 0, 1 << 31)),
            producer_id=number,
            producer_epoch=dice.choice((0, 1)),
            sequence=dice.choice((0, 1)),
            flags=flags,
        )
        return encode_header(header) + dice.randbytes(8)

    def _made(self, kind: Any) -> Any:
        if kind is AclRule:
            return self._rule()
        hints = _hints(kind)
        return kind(**{one.name: self._field(one.name, hints[one.name]) for one in fields(kind)})

    def _rule(self) -> AclRule:
        dice = self._dice
        resource_type = dice.choice((*OPERATIONS,))
        return AclRule(
            effect=dice.choice(("allow", "allow", "deny", "x")),
            principal=self._principal,
            operation=dice.choice((*OPERATIONS[resource_type], "all")),
            resource_type=resource_type,
            resource="" if resource_type == "cluster" else dice.choice(NAMES),
        )

    def _field(self, name: str, kind: Any) -> Any:
        if name in WAITS:
            return self._dice.choice((1, 1000))
        if name == "partitions" and kind is int:
            return self._dice.choice((1, 2, 0, -1))
        return self._value(kind)

    def _value(self, kind: Any) -> Any:
        origin, inside = typing.get_origin(kind), typing.get_args(kind)
        count = self._dice.randrange(3)
        if isinstance(kind, typing.NewType):
            value = self._value(kind.__supertype__)
            return max(value, -1) if kind in (Index, Term) else value
        if kind == OfPartitions:
            return self._value(inside[0])
        if origin in (typing.Union, types.UnionType):
            return self._made(self._dice.choice(inside))
        if origin is tuple:
            return tuple(self._value(inside[0]) for _ in range(count))
        if origin is dict:
            return {self._value(inside[0]): self._value(inside[1]) for _ in range(count)}
        if is_dataclass(kind):
            return self._made(kind)
        return self._plain(kind)

    def _plain(self, kind: Any) -> Any:
        if isinstance(kind, type) and issubclass(kind, Enum):
            return self._dice.choice(list(kind))
        if kind is bool:
            return self._dice.random() < 0.5
        if kind is int:
            return self._number()
        return self._dice.choice(NAMES) if kind is str else self._dice.randbytes(8)

    def _number(self) -> int:
        return self._dice.choice(NUMBERS)


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return typing.get_type_hints(kind, include_extras=True)
