"""Until when certificates are valid."""

from __future__ import annotations

import ssl

from dledger.config import Tls
from dledger.errors import ConfigError
from dledger.net.connections.tls import authorities_of, own_certificate

LOOK_S = 60.0


class CertificateExpiry:
    """Looks into the files now and then: they may be other ones by now."""

    def __init__(self, tls: Tls | None) -> None:
        self._tls = tls
        self._looked_s = -LOOK_S
        self._found: dict[str, float] = {}

    def times(self, now_s: float) -> dict[str, float]:
        """Seconds since 1970, by certificate; empty without TLS."""
        if self._tls is not None and now_s - self._looked_s >= LOOK_S:
            self._looked_s = now_s
            try:
                ends = [_end(each) for each in authorities_of(self._tls)]
                self._found = {"node": _end(own_certificate(self._tls)), "authority": min(ends)}
            except (ConfigError, ValueError, KeyError):  # being replaced
                self._looked_s = now_s - LOOK_S
        return self._found


def _end(certificate: dict[str, object]) -> float:
    return float(ssl.cert_time_to_seconds(str(certificate["notAfter"])))
