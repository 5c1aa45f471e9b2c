"""``host:port``, and the socket options that every connection has."""

from __future__ import annotations

import contextlib
import socket
from typing import Final

from dledger.errors import ConfigError
from dledger.interrupts import suppressed

_KEEPALIVE: Final = (("TCP_KEEPIDLE", 20), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 4))
"""A host that vanished without a word is noticed after 40 s."""
KERNEL_BYTES: Final = 1 << 20
"""Of answers to one connection, that the kernel takes before it has sent them."""


def split_address(address: str) -> tuple[str, int]:
    """``host:port`` or ``[v6]:port`` as its two parts.

    Raises:
        ConfigError: it is not of that form, or no host can have such a name.
    """
    host, colon, port = address.strip().rpartition(":")
    if not (colon and host and port.isdecimal() and 0 < int(port) < 65536):
        raise ConfigError(f"address {address!r}: write host:port")
    host = host.removeprefix("[").removesuffix("]")
    if not _may_be_host(host):
        raise ConfigError(f"address {address!r}: no host can have the name {host!r}")
    return host, int(port)


def _may_be_host(host: str) -> bool:
    """Of other names a resolver raises errors that are none of the network's."""
    try:
        host.encode("idna")
    except UnicodeError:
        return False
    return host.isprintable()


def join_address(host: str, port: int) -> str:
    """The inverse of `split_address`."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def split_addresses(text: str) -> list[str]:
    """``host:port,host:port`` as a list, each one checked.

    Raises:
        ConfigError: there is none, or one is not of that form.
    """
    addresses = [part.strip() for part in text.split(",") if part.strip()]
    for address in addresses:
        split_address(address)
    if not addresses:
        raise ConfigError("bootstrap servers: no address is named; write host:port,host:port")
    return addresses


def tune(sock: socket.socket, unanswered_ms: int = 0) -> None:
    """No delay for small frames, keep-alive, and with ``unanswered_ms`` an end to waiting for a
    peer's TCP ack."""
    if sock.family not in (socket.AF_INET, socket.AF_INET6):
        return
    with suppressed():  # the other side may have gone already
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _KEEPALIVE:
            if option := getattr(socket, name, None):  # not every system has them
                sock.setsockopt(socket.IPPROTO_TCP, option, value)
        if unanswered_ms and (option := getattr(socket, "TCP_USER_TIMEOUT", None)):
            sock.setsockopt(socket.IPPROTO_TCP, option, unanswered_ms)


def limit_unsent(sock: socket.socket) -> None:
    """Let the kernel take no more than KERNEL_BYTES beyond what is on its way. Bytes that it has
    taken count as sent, though the other side takes none, and it would take 4 MiB. With half as
    much, a reader of large answers lost a fifth of its rate."""
    if sock.family in (socket.AF_INET, socket.AF_INET6) and (
        option := getattr(socket, "TCP_NOTSENT_LOWAT", None)
    ):
        with contextlib.suppress(OSError):  # the other side may have gone already
            sock.setsockopt(socket.IPPROTO_TCP, option, KERNEL_BYTES)
