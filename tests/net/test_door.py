"""Under TLS: who is half way in has a place like one that has not said hello, and a handshake that
fails is told to both ends."""

from __future__ import annotations

import logging
import os
import socket
import ssl
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from dledger.config import Tls
from dledger.net.address import split_address
from dledger.net.connections.tls import CertificateRefused, client_context
from dledger.protocol.messages.hello import HelloRequest
from dledger.protocol.wire import encode
from tests.net.net_fakes import dial
from tests.net.tls_port import Issue, OpenPort, ask_rpc, open_blocking, refused, tls_of

BEGINNING = bytes.fromhex("16030100c8010000c40303")
"""Of a first message of TLS that would have 200 bytes."""


def come(address: str, stack: ExitStack, said: bytes = b"") -> socket.socket:
    sock = stack.enter_context(dial(address))
    sock.sendall(said)
    return sock


def first_message(tls: Tls) -> bytes:
    """Of a handshake, whole."""
    context, sent = client_context(tls), ssl.MemoryBIO()
    assert context is not None
    with suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), sent, server_hostname="127.0.0.1").do_handshake()
    return sent.read()


def read_on(sock: socket.socket) -> None:
    """To its end."""
    while not is_ended(sock):
        pass


def is_ended(sock: socket.socket) -> bool:
    with suppress(ConnectionError):
        return sock.recv(1) == b""
    return True


def is_open(sock: socket.socket) -> bool:
    sock.setblocking(False)
    try:
        sock.recv(1)
    except BlockingIOError:
        return True
    return False


def ask(address: str, tls: Tls) -> None:
    """Come in, as a client that may."""
    open_blocking(address, tls).close()


def stranger(trusted: dict[str, str], foreign: dict[str, str]) -> Tls:
    """With a certificate of an authority that the node does not know."""
    return tls_of({**foreign, "tls_ca": trusted["tls_ca"]})


@pytest.mark.parametrize("said", [b"", BEGINNING], ids=["silent", "begun"])
def test_half_open_handshakes_have_few_places_and_the_oldest_goes(
    port: OpenPort, tls: Tls, caplog: pytest.LogCaptureFixture, said: bytes
) -> None:
    node = port(tls, max_unknown=5, hello_s=600.0)
    with ExitStack() as stack:
        half_open = [come(node.address, stack, said) for _ in range(12)]
        assert [is_ended(sock) for sock in half_open[:7]] == [True] * 7
        ask(node.address, tls)
        assert is_ended(half_open[7]), "who came in took a place until it had said hello"
        assert all(is_open(sock) for sock in half_open[8:])
        words = "over 5 connections that have not said hello"
        [warned] = [line for line in caplog.messages if words in line]
        assert warned.startswith("connection from 127.0.0.1:")


def test_half_open_handshakes_are_given_up_when_a_hello_would_be_due(
    port: OpenPort, tls: Tls, caplog: pytest.LogCaptureFixture
) -> None:
    node = port(tls, hello_s=0.1, sweep_s=0.05)
    with ExitStack() as stack:
        assert is_ended(come(node.address, stack, BEGINNING))
    assert any("no hello within 0.1 s" in line for line in caplog.messages)


def test_the_time_for_a_hello_begins_before_the_handshake(port: OpenPort, tls: Tls) -> None:
    context = client_context(tls)
    assert context is not None
    opened_at: list[float] = []
    node = port(
        tls, on_open=lambda connection: opened_at.append(connection.opened_at), hello_s=600.0
    )
    with ExitStack() as stack:
        sock = come(node.address, stack)
        ask(node.address, tls)  # came later, and is through before
        with context.wrap_socket(sock, server_hostname="127.0.0.1") as first:
            first.sendall(b"".join(encode(HelloRequest(), 1)))
            assert first.recv(1)
    assert opened_at[1] <= opened_at[0]


def test_failed_handshake_is_logged_rarely_with_address_and_reason(
    port: OpenPort, issue: Issue, new_loop: Any, caplog: pytest.LogCaptureFixture
) -> None:
    trusted = issue()
    node = port(tls_of(trusted))
    for _ in range(5):
        refused(node.address, stranger(trusted, issue()), new_loop)
    [line] = [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]
    assert line.startswith("connection from 127.0.0.1:")
    assert "TLS handshake failed: this node does not take its certificate: " in line
    assert f"tls_ca {trusted['tls_ca']!r}" in line
    assert not node.heard


def test_who_has_a_certificate_of_an_unknown_authority_is_told_so_at_once(
    port: OpenPort, issue: Issue, new_loop: Any
) -> None:
    trusted, foreign = issue(), issue()
    node = port(tls_of(trusted))
    tls = stranger(trusted, foreign)
    with pytest.raises(CertificateRefused) as waiting:
        ask(node.address, tls)
    with pytest.raises(CertificateRefused) as running:
        ask_rpc(new_loop, node.address, tls, [b"a"])
    own = repr(foreign["tls_certificate"])
    for told in (waiting, running):
        assert f"the node refuses this side's tls_certificate {own}" in str(told.value)
        assert "its tls_ca does not know the authority that signed it" in str(told.value)


def test_who_shows_no_certificate_is_told_so(
    port: OpenPort, issue: Issue, caplog: pytest.LogCaptureFixture
) -> None:
    files = issue()
    context = ssl.create_default_context(cafile=files["tls_ca"])
    with ExitStack() as stack:
        sock = come(port(tls_of(files)).address, stack)
        with (
            context.wrap_socket(sock, server_hostname="127.0.0.1") as inside,
            pytest.raises(ssl.SSLError) as told,
        ):
            inside.recv(1)
    assert told.value.reason == "TLSV13_ALERT_CERTIFICATE_REQUIRED"
    assert any("TLS handshake failed: it shows no certificate" in line for line in caplog.messages)


def test_peer_without_node_authority_says_so_and_node_logs_it(
    port: OpenPort, issue: Issue, new_loop: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """The peer's tls_ca does not have the authority of the node's certificate."""
    trusted, foreign = issue(), issue()
    node = port(tls_of(trusted))
    tls = tls_of({**trusted, "tls_ca": foreign["tls_ca"]})
    for text in refused(node.address, tls, new_loop):
        assert "certificate verify failed: this side does not take the node's certificate" in text
        assert f"tls_ca {foreign['tls_ca']!r}" in text
    [line] = [line for line in caplog.messages if "TLS handshake failed" in line]
    own = repr(trusted["tls_certificate"])
    assert f"does not take this node's certificate {own}: its tls_ca does not" in line


def test_who_comes_with_tls_where_there_is_none_is_told_so(
    port: OpenPort, tls: Tls, new_loop: Any
) -> None:
    for text in refused(port(None).address, tls, new_loop):
        assert "the TLS handshake failed (" in text
        assert "if the node has no TLS, leave out tls_ca, tls_certificate and tls_key" in text


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "it speaks no TLS"),
        (bytes(64), "it speaks no TLS"),
        (None, "it ended"),
    ],
    ids=["http", "zeros", "an end"],
)
def test_what_is_no_handshake_is_logged_as_that(
    port: OpenPort, tls: Tls, caplog: pytest.LogCaptureFixture, said: bytes | None, reason: str
) -> None:
    node = port(tls)
    with ExitStack() as stack:
        sock = come(node.address, stack, BEGINNING if said is None else said)
        if said is None:
            sock.shutdown(socket.SHUT_WR)
        read_on(sock)  # an alert may come first
    [line] = [line for line in caplog.messages if "TLS handshake failed" in line]
    assert f"TLS handshake failed: {reason}" in line


def test_nothing_stays_open_behind_handshakes_that_ended(
    port: OpenPort, issue: Issue, new_loop: Any
) -> None:
    trusted = issue()
    tls = tls_of(trusted)
    node = port(tls, hello_s=0.1, sweep_s=0.05)
    with ExitStack() as stack:
        silent = come(node.address, stack)
        refused(node.address, stranger(trusted, issue()), new_loop)
        ask(node.address, tls)
        assert is_ended(silent)
    address = node.address
    node.close()
    port_number = split_address(address)[1]
    assert not [name for name in sockets() if name[1] == port_number]


def test_a_port_closes_while_handshakes_are_half_open(port: OpenPort, tls: Tls) -> None:
    node = port(tls, hello_s=600.0)
    with ExitStack() as stack:
        half_open = [come(node.address, stack, first_message(tls)) for _ in range(3)]
        assert all(sock.recv(1) for sock in half_open), (
            "the node has answered, and waits for the certificate"
        )
        node.close()
        for sock in half_open:
            read_on(sock)


def sockets() -> list[Any]:
    """The local names of this process's sockets."""
    found = []
    for name in Path("/proc/self/fd").iterdir():
        with suppress(OSError), socket.socket(fileno=os.dup(int(name.name))) as sock:
            if sock.family in (socket.AF_INET, socket.AF_INET6):
                found.append(sock.getsockname())
    return found
