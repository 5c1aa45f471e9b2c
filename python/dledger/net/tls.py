"""TLS 1.3 with certificates on both ends: who has none of the group's authority is neither a node nor a client."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any, Final

from dledger.config import Tls
from dledger.errors import ConfigError


def server_context(tls: Tls | None) -> ssl.SSLContext | None:
    """What a port needs, or None for plain connections.

    Raises:
        ConfigError: a file is not there, or is not what it should be.
    """
    if tls is None:
        return None
    context = _context(ssl.PROTOCOL_TLS_SERVER, tls)
    context.verify_mode = ssl.CERT_REQUIRED
    return context


def client_context(tls: Tls | None) -> ssl.SSLContext | None:
    """What a connection to a node needs, or None for a plain one; the node's certificate must name its host.

    Raises:
        ConfigError: as `server_context`.
    """
    return None if tls is None else _context(ssl.PROTOCOL_TLS_CLIENT, tls)


NODE_URI: Final = "dledger://node/"


def nodes_of(certificate: Mapping[str, Any] | None) -> set[str]:
    """The ids of the nodes that a certificate, as `ssl` gives it once it is verified, is for: its URIs
    ``dledger://node/n1``. One without any is a client's."""
    names = certificate.get("subjectAltName", ()) if certificate else ()
    uris = [value for kind, value in names if kind == "URI"]
    return {uri.removeprefix(NODE_URI) for uri in uris if uri.startswith(NODE_URI)}


def check_own_certificate(tls: Tls, node_id: str) -> None:
    """A node's own certificate must be for it.

    Raises:
        ConfigError: it is another's, or a client's; with the command that makes a request for the right one.
    """
    try:
        certificate = ssl._ssl._test_decode_cert(tls.certificate)  # type: ignore[attr-defined]
    except (OSError, ValueError) as error:
        raise ConfigError(f"tls_certificate {tls.certificate!r}: {error}") from None
    found = nodes_of(certificate)
    if node_id not in found:
        whose = f"for node {', '.join(sorted(found))}" if found else "a client's"
        raise ConfigError(
            f"tls_certificate {tls.certificate!r} is {whose}, not for node {node_id}: have one signed with the URI "
            f"{NODE_URI}{node_id}: openssl req -new -key {tls.key} -subj /CN={node_id} -addext "
            f"'subjectAltName=DNS:HOST,URI:{NODE_URI}{node_id}' (IP:ADDRESS where others use an address), which the "
            "authority signs by openssl x509 -req -copy_extensions copy"
        )


def _context(protocol: ssl._SSLMethod, tls: Tls) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    try:
        context.load_verify_locations(tls.ca)
    except OSError as error:
        raise ConfigError(f"tls_ca {tls.ca!r}: {_reason(error, 'no PEM file of certificates')}") from None
    try:
        context.load_cert_chain(tls.certificate, tls.key, _no_passphrase)
    except OSError as error:
        files = f"tls_certificate {tls.certificate!r} with tls_key {tls.key!r}"
        raise ConfigError(f"{files}: {_reason(error, 'no PEM files of a certificate and its key')}") from None
    return context


def _no_passphrase() -> str:
    raise ConfigError("tls_key: the key has a passphrase, which nobody is there to type; give one without")


def _reason(error: OSError, otherwise: str) -> str:
    return otherwise if isinstance(error, ssl.SSLError) else error.strerror or str(error)
