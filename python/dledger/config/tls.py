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
    key: str
    crl: str = ""
    """Certificates that the authority has revoked; empty: none is asked for."""

    @property
    def paths(self) -> tuple[str, ...]:
        """Those that are given."""
        return tuple(filter(None, (self.ca, self.certificate, self.key, self.crl)))


def tls_files(ca: str, certificate: str, key: str, crl: str = "") -> Tls | None:
    """The three, or None where none is given; ``crl`` may come with them.

    Raises:
        ConfigError: some are missing, or a path is relative.
    """
    files = {"tls_ca": ca, "tls_certificate": certificate, "tls_key": key}
    if crl and not all(files.values()):
        raise ConfigError(f"tls_crl without {', '.join(files)}: they come with it")
    given = [name for name, path in files.items() if path]
    if not given:
        return None
    if missing := [name for name in files if name not in given]:
        raise ConfigError(
            f"{' and '.join(given)} without {' and '.join(missing)}: TLS here needs all three"
        )
    for name, path in {**files, "tls_crl": crl}.items():
        if path and not Path(path).is_absolute():
            raise ConfigError(
                f"{name} {path!r}: give an absolute path; other processes read it from other "
                f"directories"
            )
    return Tls(ca, certificate, key, crl)
