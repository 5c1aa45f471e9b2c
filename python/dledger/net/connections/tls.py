"""TLS 1.3 with certificates on both ends: a program with none of the group's authority is neither a
node nor a client."""

from __future__ import annotations

import ssl
import time
from asyncio import BaseTransport
from collections.abc import Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from typing import Any, Final, cast

from dledger.config import Tls
from dledger.errors import AccessDenied, ConfigError, Unavailable
from dledger.interrupts import told_as


def server_context(tls: Tls | None) -> ssl.SSLContext | None:
    """The context of a port, or None for plain connections.

    Raises:
        ConfigError: a file is not there, or is malformed.
    """
    if tls is None:
        return None
    context = _context(ssl.PROTOCOL_TLS_SERVER, tls)
    context.verify_mode = ssl.CERT_REQUIRED
    return context


def client_context(tls: Tls | None) -> ssl.SSLContext | None:
    """The context of a connection to a node, or None for a plain one; the node's certificate must
    name its host.

    Raises:
        ConfigError: as `server_context`.
    """
    return None if tls is None else _context(ssl.PROTOCOL_TLS_CLIENT, tls)


NODE_URI: Final = "dledger://node/"
CLIENT_URI: Final = "dledger://client/"


def nodes_of(certificate: Mapping[str, Any] | None) -> set[str]:
    """The ids of the nodes that a certificate, as `ssl` gives it once it is verified, is for: its
    URIs ``dledger://node/n1``. One without any is a client's."""
    return _names_in(certificate, NODE_URI)


@dataclass(frozen=True, slots=True)
class Shown:
    """What the other side of a connection under TLS has shown of itself."""

    has_certificate: bool
    nodes: frozenset[str] = frozenset()
    """Those that the certificate is for."""
    users: frozenset[str] = frozenset()
    """As `nodes`: its URIs ``dledger://client/alice``."""


def shown_on(transport: BaseTransport) -> Shown | None:
    """By the other side of a connection; None without TLS."""
    if transport.get_extra_info("sslcontext") is None:
        return None
    certificate = transport.get_extra_info("peercert")
    return Shown(
        certificate is not None,
        frozenset(nodes_of(certificate)),
        frozenset(_names_in(certificate, CLIENT_URI)),
    )


def _names_in(certificate: Mapping[str, Any] | None, prefix: str) -> set[str]:
    names = certificate.get("subjectAltName", ()) if certificate else ()
    uris = [value for kind, value in names if kind == "URI"]
    return {uri.removeprefix(prefix) for uri in uris if uri.startswith(prefix)}


def check_own_certificate(tls: Tls, node_id: str) -> dict[str, Any]:
    """A node's own certificate, as `own_certificate` gives it, which must be for it.

    Raises:
        ConfigError: it is another's, or a client's; with the command that makes a request for the
            right one.
    """
    own = own_certificate(tls)
    found = nodes_of(own)
    if node_id not in found:
        whose = f"for node {', '.join(sorted(found))}" if found else "a client's"
        raise ConfigError(
            f"tls_certificate {tls.certificate!r} is {whose}, not for node {node_id}: have one "
            f"signed with the URI {NODE_URI}{node_id}: openssl req -new -key {tls.key} -subj "
            f"/CN={node_id} -addext 'subjectAltName=DNS:HOST,URI:{NODE_URI}{node_id}' (IP:ADDRESS "
            "where others use an address), which the authority signs by openssl x509 -req "
            "-copy_extensions copy"
        )
    return own


def own_certificate(tls: Tls) -> dict[str, Any]:
    """This side's certificate in the form of ``getpeercert``, of any signer and any time: as the
    other end of a handshake within this process gets it, since `ssl` reads no certificate that it
    has not verified.

    Raises:
        ConfigError: as `server_context`, or it is fit for nothing.
    """
    shows, sees = _context(ssl.PROTOCOL_TLS_SERVER, tls), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    sees.check_hostname = False
    sees.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN | _NO_CHECK_TIME
    to_shows, to_sees = ssl.MemoryBIO(), ssl.MemoryBIO()
    with told_as(
        lambda error: ConfigError(f"tls_certificate {tls.certificate!r}: {error}"),
        OSError,
        ValueError,
    ):
        sees.load_verify_locations(tls.certificate)
        client = sees.wrap_bio(to_sees, to_shows)
        server = shows.wrap_bio(to_shows, to_sees, server_side=True)
        for end in (client, server, client):
            with suppress(ssl.SSLWantReadError):
                end.do_handshake()
        return cast(dict[str, Any], client.getpeercert() or {})


class CertificateRefused(AccessDenied):
    """One side does not take the other's certificate; the message names it, and the way out."""


def certificate_refused(
    address: str, error: BaseException | None, context: ssl.SSLContext
) -> CertificateRefused | None:
    """The meaning of ``error`` for the certificates of a connection to ``address``; None when it is
    about something else."""
    tls = _files_of(context)
    if isinstance(error, ssl.SSLCertVerificationError):
        return CertificateRefused(
            f"{address}: certificate verify failed: this side does not take the node's "
            f"certificate: {error.verify_message} ({_authorities(context)}). "
            + _REMEDIES.get(
                error.verify_code,
                "Give the node one that this authority signed for the host in its address, or "
                "this side the authority that did",
            )
        )
    name = getattr(error, "reason", None)
    if not isinstance(error, ssl.SSLError) or name not in _REFUSALS:
        return None
    if not tls.certificate:
        return CertificateRefused(
            f"{address}: the node wants a certificate, since its group has no users: give this "
            "side tls_certificate and tls_key"
        )
    return CertificateRefused(
        f"{address}: the node refuses this side's tls_certificate {tls.certificate!r}, "
        f"{_own_validity(tls)}, since {_REFUSALS[name]}. Have it signed anew by the authority in "
        "the node's tls_ca"
    )


def not_opened(
    address: str, error: OSError, context: ssl.SSLContext | None
) -> CertificateRefused | Unavailable:
    """The error for a connection to ``address`` that could not be opened; ``context``: it was to be
    under TLS."""
    if context is not None:
        if denied := certificate_refused(address, error, context):
            return denied
        if isinstance(error, ssl.SSLError | ConnectionResetError):
            return Unavailable(
                f"{address}: the TLS handshake failed "
                f"({error.strerror or 'the other side ended it'}): if the node has no TLS, leave "
                "out tls_ca, tls_certificate and tls_key, or give them to all nodes; else, is it "
                "a dledger node?"
            )
    return Unavailable(f"{address}: {error.strerror or error}")


def expired_certificate(address: str, context: ssl.SSLContext) -> CertificateRefused | None:
    """For a node that ends a connection without a word, as it does when it refuses a certificate:
    whether this side's is expired."""
    tls = _files_of(context)
    if not tls.certificate:
        return None
    try:
        own = own_certificate(tls)
    # its file is gone or another one by now, which says nothing of the one that was shown
    except ConfigError:
        return None
    if "notAfter" not in own or ssl.cert_time_to_seconds(own["notAfter"]) >= time.time():
        return None
    return CertificateRefused(
        f"{address}: the node ended the connection, and this side's tls_certificate "
        f"{tls.certificate!r} is expired: {validity(own)}. Have it signed anew"
    )


_REFUSALS: Final = {
    "TLSV1_ALERT_UNKNOWN_CA": "its tls_ca does not know the authority that signed it",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "none was shown",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "it, or its authority's, is not valid at this time",
    "SSLV3_ALERT_BAD_CERTIFICATE": "it is not yet valid, or broken",
    "SSLV3_ALERT_CERTIFICATE_REVOKED": "it was revoked",
    "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE": "it is for another purpose",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "something is wrong with it",
}
"""By the alerts of TLS, as OpenSSL calls them."""
_REMEDIES: Final = {
    3: "tls_crl lacks the list of the authority that signed it: add that",
    9: "Compare the clocks of both machines, and the times of the certificate and its authority",
    10: "Have it signed anew, and compare the clocks of both machines",
    11: "tls_crl has a list that is not yet valid: compare the clocks",
    12: "tls_crl has a list past the time of its next update: fetch the present one",
    23: "It is on the list in tls_crl: have another one signed, with another key",
}
"""By OpenSSL's X509_V_ERR codes."""
_NO_CHECK_TIME: Final = 0x200000
"""X509_V_FLAG_NO_CHECK_TIME of OpenSSL, for which `ssl` has no name."""


def validity(certificate: Mapping[str, Any]) -> str:
    """From when to when it is valid, for people."""
    return f"valid from {certificate.get('notBefore', '?')} to {certificate.get('notAfter', '?')}"


def _own_validity(tls: Tls) -> str:
    try:
        return validity(own_certificate(tls))
    # the file is gone or another one by now; the refusal is told all the same
    except ConfigError as error:
        return f"which cannot be read any more ({error})"


def _authorities(context: ssl.SSLContext) -> str:
    known = "; ".join(validity(each) for each in context.get_ca_certs()[:3])
    found = known or "no authority's certificate"
    return f"tls_ca {_files_of(context).ca!r}, {found}"


class _Context(ssl.SSLContext):
    """With the files that it was made of, for messages."""

    files: Tls


def _files_of(context: ssl.SSLContext) -> Tls:
    """Of a context of this module's."""
    return cast(_Context, context).files


class HandshakeFailed(ssl.SSLError):
    """The handshake of a connection that was accepted; ``alert`` is TLS's alert to the other
    side."""

    def __init__(self, reason: str, alert: bytes) -> None:
        super().__init__(ssl.SSL_ERROR_SSL, reason)
        self.alert = alert


class _Handshake(ssl.SSLObject):
    """Of a connection that was accepted. No loop sends the alert of one that fails, so the error
    has it."""

    outgoing: ssl.MemoryBIO

    def do_handshake(self) -> None:
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError as error:
            raise HandshakeFailed(_why(error, self.context), self.outgoing.read()) from None


class _ServerContext(_Context):
    sslobject_class = _Handshake

    def wrap_bio(
        self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, *how: Any, **more: Any
    ) -> ssl.SSLObject:
        handshake = cast(_Handshake, super().wrap_bio(incoming, outgoing, *how, **more))
        handshake.outgoing = outgoing
        return handshake


def handshake_failure(error: OSError) -> tuple[str, bytes]:
    """Why the handshake of a connection that was accepted has failed, and the bytes to send to the
    other side."""
    if isinstance(error, HandshakeFailed):
        return str(error), error.alert
    if isinstance(error, ConnectionError):
        return (
            "it ended the connection; it may have none of tls_ca, or one that does not know this "
            "node's",
            b"",
        )
    return error.strerror or str(error), b""


def _why(error: ssl.SSLError, context: ssl.SSLContext) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"this node does not take its certificate: {error.verify_message} "
            f"({_authorities(context)}). "
            + _REMEDIES.get(
                error.verify_code,
                "Have it signed by this authority, or give the node the one that did",
            )
        )
    if error.reason in _REFUSALS:
        own = _files_of(context).certificate
        return f"it does not take this node's certificate {own!r}: {_REFUSALS[error.reason]}"
    return _NO_HANDSHAKE.get(error.reason, str(error))


_NO_TLS: Final = "it speaks no TLS: give it tls_ca, tls_certificate and tls_key"
_NO_HANDSHAKE: Final = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "it shows no certificate: give it tls_certificate and "
    "tls_key",
    "UNSUPPORTED_PROTOCOL": "it speaks no TLS 1.3",
    "WRONG_VERSION_NUMBER": _NO_TLS,
    "HTTP_REQUEST": _NO_TLS,
    "HTTPS_PROXY_REQUEST": _NO_TLS,
}
"""By the reasons of OpenSSL."""


def _context(protocol: ssl._SSLMethod, tls: Tls) -> ssl.SSLContext:
    context = (
        _ServerContext(protocol) if protocol is ssl.PROTOCOL_TLS_SERVER else _Context(protocol)
    )
    context.files = tls
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    with _files(f"tls_ca {tls.ca!r}", "no PEM file of certificates"):
        context.load_verify_locations(tls.ca)
    if tls.crl:
        with _files(f"tls_crl {tls.crl!r}", "no PEM file of lists of revoked certificates"):
            context.load_verify_locations(tls.crl)
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
    if not tls.certificate:
        return context
    pair = f"tls_certificate {tls.certificate!r} with tls_key {tls.key!r}"
    with _files(pair, "no PEM files of a certificate and its key"):
        context.load_cert_chain(tls.certificate, tls.key, _no_passphrase)
    return context


def _no_passphrase() -> str:
    raise ConfigError(
        "tls_key: the key has a passphrase, which nobody is there to type; give one without"
    )


def _files(which: str, otherwise: str) -> AbstractContextManager[None]:
    """An error in reading them; ``otherwise``: of their content."""

    def told(error: OSError) -> ConfigError:
        reason = otherwise if isinstance(error, ssl.SSLError) else error.strerror or error
        return ConfigError(f"{which}: {reason}")

    return told_as(told, OSError)
