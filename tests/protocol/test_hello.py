"""The first frames of a connection are understood by releases that do not know one another."""

from __future__ import annotations

from typing import Any

import pytest

from dledger.errors import ProtocolError
from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.hello import (
    PROTOCOL_VERSION,
    HelloProof,
    HelloRequest,
    HelloResponse,
)
from dledger.protocol.wire import decode, encode
from dledger.protocol.wire.framing import PREFIX_SIZE
from dledger.protocol.wire.msgpack import pack, unpack
from dledger.types import NodeId

OLD_HELLO = b"\x93\xa1g\xa2n1\x01"
"""What protocol 1 says: group, node id, version."""


def header(message: Any) -> bytes:
    return bytes(encode(message)[0])[PREFIX_SIZE:]


def test_a_hello_of_protocol_1_is_read() -> None:
    assert decode(1, OLD_HELLO) == HelloRequest(group="g", node_id="n1", version=1)


def test_answer_without_fields_unknown_to_protocol_1_has_four_fields() -> None:
    answer = HelloResponse(code=Code.UNSUPPORTED, message="m", group="g", node_id=NodeId("n0"))
    assert header(answer) == b"\x94\xcd\x01\x2f\xa1m\xa1g\xa2n0"


@pytest.mark.parametrize(
    "message",
    [
        HelloRequest(),
        HelloRequest(
            group="g",
            node_id="n1",
            release="0.2.0",
            group_id="id",
            members=("n0", "n1"),
            ancestors=(("a", 5), ("b", -1)),
            nonce=b"12",
        ),
        HelloRequest(nonce=b"x", versions=(0, 1)),
        HelloResponse(code=Code.SUCCESS, versions=(1, 3), group_version=2),
        HelloResponse(code=Code.SUCCESS, members=("n0",)),
        HelloResponse(code=Code.SUCCESS, release="1", nonce=b"n", proof=b"p", proof_wanted=True),
        HelloProof(proof=b"x"),
    ],
    ids=str,
)
def test_what_is_said_is_heard(message: Any) -> None:
    kind = {HelloRequest: 1, HelloResponse: 2, HelloProof: 3}[type(message)]
    assert decode(kind, header(message)) == message


def test_fields_of_a_later_release_are_left_out() -> None:
    known = HelloRequest(group="g", group_version=1)
    assert decode(1, pack((*unpack(header(known)), ["news"], 7))) == known


@pytest.mark.parametrize(
    ("kind", "values", "said"),
    [
        (1, ("g", "n1"), "2 fields where 13 belong"),
        (1, ("g", "n1", "2"), "version: str where int belongs"),
        (1, ("g", "n1", 2, "r", "id", ("n0", 5)), "members: int where str belongs"),
        (1, ("g", "n1", 2, "r", "id", (), (("a", 1, 2),)), "ancestors: 3 values where 2 belong"),
        (2, (200, "m", "g"), "3 fields where 15 belong"),
        (3, (), "0 fields where 1 belong"),
    ],
)
def test_what_is_no_hello_is_refused(kind: int, values: tuple[Any, ...], said: str) -> None:
    with pytest.raises(ProtocolError, match=said):
        decode(kind, pack(values))


def test_this_release_speaks_another_protocol_than_the_one_before() -> None:
    assert PROTOCOL_VERSION == 2
