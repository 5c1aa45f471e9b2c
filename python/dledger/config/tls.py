"""The files of TLS."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from dledger.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Tls:
    """PEM files by which both ends of a connection prove their identity; absolute paths."""

    ca: str
    """The trusted authority: certificates that it signed are those of all nodes and clients."""
    certificate: str
    """Empty, like ``key``, for a client that shows none."""
    key: str
    crl: str = ""
    """Lists of certificates that the authority has revoked; empty: there are none."""

    @property
    def paths(self) -> tuple[str, ...]:
        """Those that are given."""
        return tuple(filter(None, (self.ca, self.certificate, self.key, self.crl)))


def tls_files(
    ca: str, certificate: str, key: str, crl: str = "", *, ca_suffices: bool = False
) -> Tls | None:
    """The three, or None where none is given; ``crl`` may come with them. ``ca_suffices``: of a
    client that proves otherwise who it is.

    Raises:
        ConfigError: some are missing, or a path is relative.
    """
    files = {"tls_ca": ca, "tls_certificate": certificate, "tls_key": key}
    given = [name for name, path in files.items() if path]
    if not given and crl:
        raise ConfigError(f"tls_crl {crl!r} without {', '.join(files)}: TLS here needs all of them")
    if not given:
        return None
    missing = [name for name in files if name not in given]
    if missing and not (ca_suffices and given == ["tls_ca"]):
        raise ConfigError(
            f"{' and '.join(given)} without {' and '.join(missing)}: TLS here needs all three, and "
            "of a client with credentials tls_ca alone"
        )
    for name, path in {**files, "tls_crl": crl}.items():
        if path and not Path(path).is_absolute():
            raise ConfigError(
                f"{name} {path!r}: give an absolute path; other processes read it from other "
                f"directories"
            )
    return Tls(ca, certificate, key, crl)
