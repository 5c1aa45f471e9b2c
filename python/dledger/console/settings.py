"""How the console listens, and what it lets a browser do."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dledger.errors import ConfigError

LOOPBACK_NAMES: Final = ("127.0.0.1", "localhost", "[::1]")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleSettings:
    """Of one console."""

    host: str = "127.0.0.1"
    """Where it listens."""
    port: int = 0
    """0: any that is free."""
    names: tuple[str, ...] = ()
    """Host names by which browsers may call it, beside ``host`` and those of loopback."""
    certificate: Path | None = None
    """PEM file, for HTTPS; with ``key``."""
    key: Path | None = None
    insecure: bool = False
    """Listen beyond loopback without HTTPS."""
    write: bool = False
    """Let a browser change topics, offsets and leadership."""
    messages: bool = True
    """Show records."""

    def __post_init__(self) -> None:
        if (self.certificate is None) != (self.key is None):
            raise ConfigError("--certificate and --key make HTTPS together: give both, or neither")
        if not (self.secure or self.insecure or is_loopback(self.host)):
            raise ConfigError(
                f"--host {self.host} is beyond loopback, where others could read sessions and "
                "records: give --certificate and --key for HTTPS, or --insecure"
            )

    @property
    def secure(self) -> bool:
        return self.certificate is not None

    @property
    def scheme(self) -> str:
        return "https" if self.secure else "http"

    @property
    def shown_host(self) -> str:
        """The host in the link for a browser."""
        if self.names:
            return self.names[0]
        return "127.0.0.1" if self.host in {"0.0.0.0", "::"} else self.host

    def hosts(self, port: int) -> frozenset[str]:
        """What a browser may have in ``Host`` when it means this console, which listens at
        ``port``."""
        names = {name.lower() for name in (*LOOPBACK_NAMES, *self.names, in_url(self.host))}
        whole = {f"{name}:{port}" for name in names}
        is_default = port == (443 if self.secure else 80)
        return frozenset(whole | names if is_default else whole)


def in_url(host: str) -> str:
    """A host as it stands in an URL."""
    return f"[{host}]" if ":" in host else host


def is_loopback(host: str) -> bool:
    """Whether only programs of this machine reach it."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
