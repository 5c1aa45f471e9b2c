"""A node of release 0.1.0, which takes a hello of three fields and ends the connection at any
other."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress

import msgpack
import pytest

from dledger.client import Client
from dledger.errors import Unavailable
from dledger.net import PeerLink, run
from dledger.net.connections.handshake import Greeting
from dledger.net.connections.rpc import Rpc
from dledger.protocol.messages.hello import HelloRequest
from dledger.protocol.wire import FrameLimits, FrameReader, encode
from dledger.release import RELEASE
from tests.net.net_fakes import dial
from tests.net.tls_port import open_blocking

FIELDS = ["str", "str", "int"]
"""Of its HelloRequest: group, node id, version. A list of values that does not fit breaks the
protocol."""


class OlderNode:
    """Its port. What it hears that is a hello of its own it counts."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listening.getsockname()[1]}"
        self.connections = 0
        self.understood = 0
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        with suppress(OSError):
            while True:
                with self._listening.accept()[0] as sock, suppress(ConnectionError):
                    self.connections += 1
                    self._hear(sock)

    def _hear(self, sock: socket.socket) -> None:
        reader = FrameReader(FrameLimits())
        while data := sock.recv(65536):
            for frame in reader.feed(data):
                values = msgpack.unpackb(bytes(frame.header), use_list=False)
                if [type(value).__name__ for value in values] != FIELDS:
                    return
                self.understood += 1

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join(20)


@pytest.fixture
def older() -> Iterator[OlderNode]:
    node = OlderNode()
    yield node
    node.close()


def check(text: str, address: str) -> None:
    assert address in text
    assert "before its first answer" in text
    assert f"a node of release 0.1.0, which does not know what dledger {RELEASE} says first" in text
    assert "upgrade all nodes of the group, and then its clients" in text
    assert "is it a dledger node?" in text


def test_the_older_node_understands_a_hello_of_its_own_release(older: OlderNode) -> None:
    for hello, understood in (
        (HelloRequest(group="g", version=1), 1),
        (HelloRequest(group="g", release=RELEASE), 1),
    ):
        with dial(older.address) as sock:
            sock.sendall(b"".join(encode(hello, 1)))
            sock.shutdown(socket.SHUT_WR)
            assert sock.recv(1) == b""
        assert older.understood == understood


def test_a_client_is_told_what_a_node_is_that_ends_each_connection(older: OlderNode) -> None:
    with pytest.raises(Unavailable) as waiting:
        open_blocking(older.address)
    check(str(waiting.value), older.address)

    with pytest.raises(Unavailable) as running:
        run(Rpc.open(older.address, Greeting(), FrameLimits(), 20))
    check(str(running.value), older.address)
    with (
        Client(older.address, request_timeout_ms=200) as client,
        pytest.raises(Unavailable) as caught,
    ):
        client.topics()
    check(str(caught.value), older.address)
    assert not older.understood


async def test_a_node_is_told_of_a_member_of_an_older_release(
    older: OlderNode, caplog: pytest.LogCaptureFixture
) -> None:
    """Once, and not at a connection or two that a node ends because it stops."""
    caplog.set_level(logging.WARNING, "dledger")
    link = PeerLink(lambda: older.address, lambda: Greeting(HelloRequest(group="g", node_id="n1")))
    link.start()
    async with asyncio.timeout(20):
        while older.connections < 5:
            assert older.connections > 2 or not caplog.text
            await asyncio.sleep(0)
    await link.close()
    assert len(caplog.records) == 1
    check(caplog.text, older.address)
