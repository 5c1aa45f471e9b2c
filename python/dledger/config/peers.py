"""The addresses of a group's members, as DLedger writes them."""

from __future__ import annotations

from dledger.config.names import check_name
from dledger.errors import ConfigError
from dledger.types import NodeId


def parse_peers(text: str) -> dict[NodeId, str]:
    """``n0-host:port;n1-host:port`` as node -> ``host:port``, DLedger's way to name a group.

    Raises:
        ConfigError: a part is not of that form, or a name stands twice.
    """
    peers: dict[NodeId, str] = {}
    for part in filter(None, (p.strip() for p in text.split(";"))):
        node, dash, address = part.partition("-")
        host, colon, port = address.rpartition(":")
        if not (dash and colon and host and port.isdecimal() and 0 < int(port) < 65536):
            raise ConfigError(f"peer {part!r}: write n0-host:port;n1-host:port")
        if node in peers:
            raise ConfigError(f"peers: node {node!r} stands twice in {text!r}")
        peers[NodeId(check_name("node id", node))] = address
    if not peers:
        raise ConfigError("peers: no node is named; write n0-host:port;n1-host:port")
    return peers


def format_peers(peers: dict[NodeId, str]) -> str:
    """The inverse of `parse_peers`."""
    return ";".join(f"{node}-{address}" for node, address in peers.items())
