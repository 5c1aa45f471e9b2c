"""A side's certificates as they are used now: loaded again when their files change."""

from __future__ import annotations

import ssl
import time
from dataclasses import dataclass
from typing import Any

from dledger.config import Tls
from dledger.errors import ConfigError
from dledger.net.connections.tls import (
    check_own_certificate,
    client_context,
    server_context,
    validity,
)
from dledger.net.reloaded import Reloaded


@dataclass(frozen=True, slots=True)
class NodeCertificates:
    """The contexts of a node, of one state of its files."""

    accepts: ssl.SSLContext
    """For connections to its port."""
    scraped: ssl.SSLContext
    """For those to its port of metrics: each shows a certificate, whoever else may come to the
    other one without."""
    connects: ssl.SSLContext
    """For its own connections."""
    own: dict[str, Any]
    """Its certificate, as `own_certificate` gives it."""

    @property
    def not_after(self) -> int:
        """When its certificate expires, in seconds since 1970."""
        return int(ssl.cert_time_to_seconds(self.own["notAfter"]))

    @property
    def validity(self) -> str:
        """From when to when it is valid, for people."""
        return validity(self.own)


def node_certificates(tls: Tls, node_id: str) -> Reloaded[NodeCertificates]:
    """Those of a node. A certificate that is another node's is not taken, and later on none that is
    not valid now.

    Raises:
        ConfigError: as `server_context` and `check_own_certificate`.
    """
    is_first = True

    def load() -> NodeCertificates:
        nonlocal is_first
        accepts, scraped, connects = server_context(tls), server_context(tls), client_context(tls)
        assert accepts is not None
        assert scraped is not None
        assert connects is not None
        own = check_own_certificate(tls, node_id)
        if not is_first:
            _refuse_not_valid(tls, own)
        is_first = False
        return NodeCertificates(accepts, scraped, connects, own)

    return Reloaded(tls.paths, load)


def client_contexts(tls: Tls | None) -> Reloaded[ssl.SSLContext | None]:
    """The context of a client's connections, or None for plain ones.

    Raises:
        ConfigError: as `client_context`.
    """
    return Reloaded(tls.paths if tls is not None else (), lambda: client_context(tls))


def _refuse_not_valid(tls: Tls, own: dict[str, Any]) -> None:
    begin, end = (ssl.cert_time_to_seconds(own[name]) for name in ("notBefore", "notAfter"))
    if not begin <= time.time() < end:
        raise ConfigError(
            f"tls_certificate {tls.certificate!r} is not valid now: it is {validity(own)}"
        )
