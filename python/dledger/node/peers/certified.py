"""Whom a connection belongs to by the certificate that its other side has shown."""

from __future__ import annotations

from dledger.config import check_name
from dledger.errors import ConfigError
from dledger.net.connections.tls import CLIENT_URI, Shown
from dledger.protocol.messages.hello import HelloRequest
from dledger.types import ANONYMOUS, Principal


def certified(shown: Shown | None) -> Principal:
    """Who a connection under TLS belongs to by its certificate alone: a user, or a node, on whose
    machine a command may show that."""
    if shown is not None and shown.users:
        return Principal(f"User:{min(shown.users)}")
    if shown is not None and shown.nodes:
        return Principal(f"Node:{min(shown.nodes)}")
    return ANONYMOUS


def not_shown(hello: HelloRequest, shown: Shown | None) -> str:
    """Why the connection that says so cannot be taken with what its other side has shown; empty
    where it can. None: there is no TLS."""
    if hello.authentication and (hello.node_id or hello.as_node):
        return "a node is no user: it proves by its certificate, or the secret, which one it is"
    if shown is None:
        return "users log in under TLS alone" if hello.authentication else ""
    if hello.node_id or hello.as_node or shown.has_certificate:
        return _not_certified(hello, shown)
    if hello.authentication:
        return ""
    return (
        "it shows no certificate and is no user: give it tls_certificate and tls_key, or "
        "credentials"
    )


def _not_certified(hello: HelloRequest, shown: Shown) -> str:
    """Why a certificate is not one for the connection that says so; empty where it is."""
    if node_id := hello.node_id or hello.as_node:
        if node_id in shown.nodes:
            return ""
        whose = f"is for {', '.join(sorted(shown.nodes))}" if shown.nodes else "is a client's"
        if not shown.has_certificate:
            return f"{node_id} needs a certificate with the URI dledger://node/{node_id}"
        return (
            f"{node_id} needs a certificate with the URI dledger://node/{node_id}, and the one "
            f"that it shows {whose}"
        )
    return not_one_user(shown)


def not_one_user(shown: Shown) -> str:
    """Why a client's certificate is not for one user, nor for nobody in particular; empty where it
    is."""
    if len(shown.users) > 1:
        return (
            f"its certificate is for the users {', '.join(map(repr, sorted(shown.users)))}, and a "
            f"client is one user: give it a certificate with one URI {CLIENT_URI}NAME"
        )
    for user in shown.users:
        try:
            check_name("user", user)
        except ConfigError as error:
            return f"its certificate has the URI {CLIENT_URI}NAME of no proper name: {error}"
    return ""
