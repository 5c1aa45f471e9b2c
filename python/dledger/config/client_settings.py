"""The settings of clients: each with its unit, its default and the reason for it, as
`dledger.config.settings` has those of groups and nodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dledger.config.credentials import Credentials
from dledger.config.names import check_absolute
from dledger.config.settings import MIB
from dledger.config.tls import Tls, tls_files
from dledger.errors import ConfigError

RACK_VARIABLE: Final = "DLEDGER_RACK"
"""Says where the process of a command, of Spark's driver or of an executor stands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """How a client talks to a group."""

    connect_timeout_ms: int = 2000
    """For one address; then the next one is tried."""
    request_timeout_ms: int = 30_000
    """For one call with all its retries; then Unavailable (nothing sent) or OutcomeUnknown."""
    retry_min_ms: int = 20
    """First pause before asking again; doubled up to retry_max_ms."""
    retry_max_ms: int = 80
    """Longest pause, short against an election so that a new leader is found at once."""
    max_in_flight: int = 1024
    """Requests of one producer that wait for their answers."""
    max_in_flight_bytes: int = 32 * MIB
    """Bytes of one producer that wait for their answers."""
    batch_bytes: int = 2 * MIB
    """Size at which a producer closes a batch."""
    linger_ms: float = 2
    """Longest wait of a producer for more records."""
    compression: str = "none"
    """``none``, ``lz4`` or ``zstd``, of the Arrow buffers."""
    idempotent: bool = True
    """Retries carry (producer id, epoch, sequence), so that none doubles."""
    rack: str = ""
    """Where it stands, by the name of a rack, room or zone: readers ask replicas of the same rack
    first. Commands, and Spark's driver and executors, have it from ``DLEDGER_RACK`` too."""
    secret_file: str = ""
    """File with the secret of a group whose nodes ask clients for it, as those of a path do;
    absolute path. Programs of the Unix user and machine that the group of a path belongs to find it
    without this; others, Spark's tasks on other hosts among them, read it from the same path on
    every host."""
    credentials: str | Credentials = ""
    """File with a user's name and password, or a token, as two lines ``user=alice`` and
    ``password=...`` or as one with the token; absolute path, readable for this user alone. It is
    read again for each connection. Only under TLS, which then needs ``tls_ca`` alone. Spark's tasks
    get what the driver reads there."""
    tls_ca: str = ""
    """PEM file with the authority's certificates, for a group that wants TLS. Given with the other
    two, or with ``credentials``; Spark's tasks read them too, so they are at the same path on every
    host."""
    tls_certificate: str = ""
    """PEM file with the client's own certificate."""
    tls_key: str = ""
    """PEM file with its private key, without a passphrase."""
    tls_crl: str = ""
    """PEM file with the authority's lists of certificates that it has revoked (CRL): no node that
    shows one of these is taken, and none once a list is out of date."""

    def __post_init__(self) -> None:
        check_absolute("secret_file", self.secret_file)
        if self.tls is None and self.credentials:
            raise ConfigError(
                "credentials without tls_ca: a password or token goes over TLS alone; name the PEM "
                "file of the authority that signed the nodes' certificates as tls_ca"
            )
        if isinstance(self.credentials, str):
            check_absolute("credentials", self.credentials)
        if self.compression not in {"none", "lz4", "zstd"}:
            raise ConfigError(f"compression {self.compression!r}: write 'none', 'lz4' or 'zstd'")

    @property
    def tls(self) -> Tls | None:
        return tls_files(
            self.tls_ca,
            self.tls_certificate,
            self.tls_key,
            self.tls_crl,
            ca_suffices=bool(self.credentials),
        )
