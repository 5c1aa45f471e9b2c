"""Where the log is: the addresses of a group, or a path."""

from __future__ import annotations

from collections.abc import Mapping

from dledger.config import parse_peers
from dledger.datasource.options.settings import PREFIX, Settings
from dledger.errors import ConfigError


def group_servers(values: dict[str, str]) -> str:
    """The addresses of a group; empty where the log is a path.

    Raises:
        ConfigError: an address is not of the form ``host:port``, or two options differ.
    """
    first, second = values.get("dledger.bootstrap.servers", ""), values.get("bootstrap.servers", "")
    if first and second and first != second:
        raise ConfigError(
            f"'dledger.bootstrap.servers' is {first!r} but 'bootstrap.servers' is {second!r}: "
            f"give one"
        )
    servers = ",".join(filter(None, (part.strip() for part in (first or second).split(","))))
    for server in filter(None, servers.split(",")):
        host, colon, port = server.rpartition(":")
        if not (host and colon and port.isdecimal() and 0 < int(port) < 65536):
            raise ConfigError(
                f"option 'dledger.bootstrap.servers' has {server!r}: write host:port,host:port"
            )
    return servers


def check_group(values: Mapping[str, str], servers: str, settings: Settings) -> None:
    """Refuse ways to a group, and settings for it, that do not go together."""
    peers, self_id = values.get("dledger.peers", ""), values.get("dledger.selfId", "")
    if bool(peers) != bool(self_id):
        raise ConfigError(
            "options 'dledger.peers' and 'dledger.selfId' go together: all nodes, and the one run "
            "here"
        )
    if peers and self_id not in parse_peers(peers):
        raise ConfigError(
            f"option 'dledger.selfId' is {self_id!r}, which is none of the peers {peers!r}"
        )
    of_the_group = [name for name in settings.group if name not in settings.client]
    if of_the_group and servers:
        raise ConfigError(
            f"option {PREFIX + of_the_group[0]!r} is for a group that belongs to a path; "
            f"the group at {servers} has its settings already"
        )
