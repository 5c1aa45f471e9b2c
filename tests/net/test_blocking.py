"""The plain-socket connection, against scripted other sides."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from typing import Any

import pytest

from dledger.errors import Unavailable, WrongGroup
from dledger.net.connections.blocking import WAKE_BYTES, BlockingConnection, Lost
from dledger.net.secret import Secret, Side
from dledger.protocol.messages.client import (
    AppendRequest,
    AppendResponse,
    FetchRequest,
    StatusRequest,
    StatusResponse,
)
from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.fetched import (
    FetchedBatch,
    FetchResponse,
)
from dledger.protocol.messages.hello import HelloProof, HelloRequest, HelloResponse
from dledger.protocol.wire import FrameLimits, FrameReader, decode, encode
from tests.net.tls_port import open_blocking

HELLO = HelloResponse(code=Code.SUCCESS, group="g")
Script = Callable[[socket.socket], None]
Call = Callable[..., BlockingConnection]


def soon() -> float:
    return time.monotonic() + 10


@pytest.fixture
def call() -> Iterator[Call]:
    """Opens a connection to another side that carries out a script, and closes it at the end."""
    with ExitStack() as stack:

        def connected(script: Script, **how: Any) -> BlockingConnection:
            listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))

            def main() -> None:
                with listener.accept()[0] as sock:
                    script(sock)

            thread = threading.Thread(target=main)
            stack.callback(thread.join, 10)
            thread.start()
            address = f"127.0.0.1:{listener.getsockname()[1]}"
            return stack.enter_context(closing(open_blocking(address, **how)))

        yield connected


def answer(sock: socket.socket, *answers: tuple[object, list[bytes]]) -> None:
    """Answer one request after the other."""
    reader, waiting = FrameReader(FrameLimits()), list(answers)
    while waiting:
        for frame in reader.feed(sock.recv(65536)):
            decode(frame.kind, frame.header, frame.payload)
            message, payload = waiting.pop(0)
            sock.sendall(b"".join(encode(message, frame.request_id, payload)))  # type: ignore[arg-type]


def test_answer_with_a_large_payload_comes_whole(call: Call) -> None:
    body = bytes(range(256)) * 20_000
    fetched = FetchResponse(
        code=Code.SUCCESS, batches=(FetchedBatch(base_offset=0, count=1, size=len(body), crc=0),)
    )
    connection = call(lambda sock: answer(sock, (HELLO, []), (fetched, [body])))
    found, payload = connection.ask(
        FetchRequest(topic_id=1, partition=0, start_offset=0), (), soon()
    )
    assert found == fetched
    assert payload == body
    assert connection.welcome.group == "g"


def test_few_bytes_are_not_waited_for_in_vain_behind_a_large_payload(call: Call) -> None:
    """Neither the last ones of the payload, nor a small answer that follows it."""
    body = bytes(3 * WAKE_BYTES + 1)
    fetched = FetchResponse(
        code=Code.SUCCESS, batches=(FetchedBatch(base_offset=0, count=1, size=len(body), crc=0),)
    )
    status = StatusResponse(code=Code.SUCCESS, status={"n": 1})
    whole = b"".join(encode(fetched, 2, [body]))
    taken = threading.Event()

    def script(sock: socket.socket) -> None:
        answer(sock, (HELLO, []))
        sock.recv(65536)
        sock.sendall(whole[:-1])
        taken.wait(10)
        sock.sendall(whole[-1:])
        sock.recv(65536)
        sock.sendall(b"".join(encode(status, 3)))

    connection = call(script)
    connection.send(FetchRequest(topic_id=1, partition=0, start_offset=0))
    assert connection.receive(soon(), lambda _: taken.set())[2] == body
    assert connection.ask(StatusRequest(), (), soon())[0] == status


def test_head_of_a_large_answer_is_told_before_the_rest_has_come(call: Call) -> None:
    body = bytes(range(256)) * 20_000
    fetched = FetchResponse(
        code=Code.SUCCESS, batches=(FetchedBatch(base_offset=0, count=1, size=len(body), crc=0),)
    )
    told = threading.Event()

    def script(sock: socket.socket) -> None:
        answer(sock, (HELLO, []))
        sock.recv(65536)
        whole = b"".join(encode(fetched, 2, [body]))
        sock.sendall(whole[:1000])
        told.wait(10)
        sock.sendall(whole[1000:])

    connection = call(script)
    connection.send(FetchRequest(topic_id=1, partition=0, start_offset=0))
    heads: list[Any] = []

    def on_begin(head: Any) -> None:
        heads.append(head)
        told.set()

    assert connection.receive(soon(), on_begin)[1:] == (fetched, body)
    assert heads == [fetched]


def test_request_with_many_large_pieces_leaves_whole(call: Call) -> None:
    got: list[bytes] = []

    def script(sock: socket.socket) -> None:
        answer(sock, (HELLO, []))
        reader = FrameReader(FrameLimits())
        while not got:
            for frame in reader.feed(sock.recv(1 << 20)):
                got.append(bytes(frame.payload))
                sock.sendall(b"".join(encode(AppendResponse(code=Code.SUCCESS), frame.request_id)))

    connection = call(script)
    pieces = [bytes([n]) * 40_000 for n in range(200)]
    connection.ask(AppendRequest(), pieces, soon())
    assert got == [b"".join(pieces)]


def test_answers_in_one_piece_come_one_by_one(call: Call) -> None:
    def script(sock: socket.socket) -> None:
        answer(sock, (HELLO, []))
        both = [
            b"".join(encode(StatusResponse(code=Code.SUCCESS, status={"n": n}), n)) for n in (2, 3)
        ]
        sock.recv(1)
        sock.sendall(b"".join(both))
        sock.recv(65536)

    connection = call(script)
    assert [connection.send(StatusRequest()) for _ in range(2)] == [2, 3]
    assert [connection.receive(soon())[1].status["n"] for _ in range(2)] == [2, 3]


def test_silence_and_a_closed_connection_are_lost_after_sending(
    call: Call,
) -> None:
    done = threading.Event()

    def script(sock: socket.socket) -> None:
        answer(sock, (HELLO, []))
        done.wait(10)

    connection = call(script)
    assert connection.usable
    with pytest.raises(Lost, match="in time") as caught:
        connection.ask(StatusRequest(), (), time.monotonic() + 0.01)
    assert caught.value.sent
    done.set()
    with pytest.raises(Lost) as caught:
        connection.receive(soon())
    assert caught.value.sent
    assert not connection.usable


def test_answer_to_another_question_is_never_taken(call: Call) -> None:
    def script(sock: socket.socket) -> None:
        answer(sock, (HELLO, []))
        sock.recv(65536)
        sock.sendall(b"".join(encode(StatusResponse(code=Code.SUCCESS), 77)))

    connection = call(script)
    with pytest.raises(Lost, match="answer 77") as caught:
        connection.ask(StatusRequest(), (), soon())
    assert caught.value.sent


def test_garbage_and_nobody_are_unavailable_and_another_group_is_said(
    call: Call,
) -> None:
    with pytest.raises(Unavailable, match="starts with"):
        call(lambda sock: sock.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n"))
    refusal = HelloResponse(code=Code.UNKNOWN_GROUP, message="group is 'other'")
    with pytest.raises(WrongGroup, match="other"):
        call(lambda sock: answer(sock, (refusal, [])))
    with pytest.raises(Unavailable, match="127"):
        open_blocking("127.0.0.1:1")


SECRET = Secret(b"k" * 32)


def gatekeeper(last_word: HelloResponse, said: list[Any]) -> Script:
    """A node that wants the secret, and says its last word only when the request behind the proof
    is there."""

    def script(sock: socket.socket) -> None:
        reader = FrameReader(FrameLimits())
        while len(said) < 3:
            for frame in reader.feed(sock.recv(65536)):
                message = decode(frame.kind, frame.header, frame.payload)
                said.append(message)
                if isinstance(message, HelloRequest):
                    hello = replace(HELLO, nonce=b"n" * 16, proof_wanted=True)
                    hello = replace(hello, proof=SECRET.proof(Side.ACCEPTS, message, hello))
                    sock.sendall(b"".join(encode(hello, frame.request_id)))
                elif isinstance(message, StatusRequest):
                    sock.sendall(b"".join(encode(last_word, frame.request_id - 1)))
                    if last_word.code is Code.SUCCESS:
                        answered = StatusResponse(code=Code.SUCCESS, status={"up": 1})
                        sock.sendall(b"".join(encode(answered, frame.request_id)))

    return script


def test_request_follows_proof_at_once_when_a_refusal_can_be_reported(
    call: Call,
) -> None:
    """The caller has given a callback for a refusal."""
    said: list[Any] = []
    refused: list[bool] = []
    connection = call(
        gatekeeper(HELLO, said), secret=SECRET, on_refusal=lambda: refused.append(True)
    )
    assert connection.welcome.group == "g"
    assert not connection.usable, "the last word is still to come"
    assert connection.ask(StatusRequest(), (), soon())[0].status == {"up": 1}
    assert [type(message) for message in said] == [HelloRequest, HelloProof, StatusRequest]
    assert not refused


def test_refused_proof_loses_the_untaken_request_behind_it(
    call: Call,
) -> None:
    refusal = HelloResponse(code=Code.ACCESS_DENIED, message="another secret", group="g")
    refused: list[bool] = []
    connection = call(
        gatekeeper(refusal, []), secret=SECRET, on_refusal=lambda: refused.append(True)
    )
    with pytest.raises(Lost, match="another secret") as lost:
        connection.ask(StatusRequest(), (), soon())
    assert (lost.value.sent, refused) == (False, [True])
