"""Certificates, as `ssl` tells of them once they are verified."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

SOON_DAYS: Final = 14
"""From then on a certificate is to be signed anew."""
_DAY_S: Final = 86400


@dataclass(frozen=True, slots=True)
class CertificateRow:
    """One certificate, or why none was seen."""

    whose: str
    names: str = ""
    begins: str = ""
    ends: str = ""
    days: int | None = None
    """Whole days that it is valid for."""
    error: str = ""

    @property
    def soon(self) -> bool:
        return self.days is not None and self.days < SOON_DAYS


def certificate_row(whose: str, certificate: Mapping[str, Any], now_s: float) -> CertificateRow:
    names = [f"{kind}:{value}" for kind, value in certificate.get("subjectAltName", ())]
    ends = str(certificate.get("notAfter", ""))
    left = (ssl.cert_time_to_seconds(ends) - now_s) // _DAY_S if ends else None
    return CertificateRow(
        whose,
        ", ".join(names),
        str(certificate.get("notBefore", "")),
        ends,
        None if left is None else int(left),
    )
