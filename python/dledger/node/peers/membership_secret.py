"""Whether a node's settings are safe for where it listens, and the secret that it shares with the
others when they name none."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from ipaddress import ip_address
from typing import Final

from dledger.config import NodeConfig
from dledger.errors import ConfigError
from dledger.net.address import split_address
from dledger.net.user_directory import user_secret
from dledger.node.peers.secret_enforcement import is_enforced
from dledger.storage.disk.disk import RealDisk
from dledger.storage.meta.hard_state import STATE_FILE
from dledger.types import NodeId

logger = logging.getLogger(__name__)

_WAY_OUT: Final = (
    "make a secret with 'dledger secret create FILE', copy it to each machine, and start every "
    "node with --secret-file "
    "FILE; or give the nodes certificates (tls_ca, tls_certificate, tls_key)"
)


_KNOW_CLIENTS: Final = (
    "give the nodes certificates (tls_ca, tls_certificate, tls_key), or let clients prove the "
    "secret (clients_prove=true with --secret-file), or say insecure=true"
)


def is_exposed(node: NodeConfig) -> bool:
    """Whether it listens beyond this machine, and nothing tells its clients from strangers."""
    return node.tls is None and not node.clients_prove and not on_loopback(f"{node.host}:1")


def shows_metrics(node: NodeConfig) -> bool:
    """Whether other machines reach its port of metrics, and that has no TLS."""
    served = node.metrics_port >= 0 and node.tls is None
    return served and not on_loopback(f"{node.metrics_host}:1")


def check_metrics(node: NodeConfig) -> None:
    """Raises `ConfigError` for a node that `shows_metrics` and is not told to."""
    if shows_metrics(node) and not node.insecure:
        raise ConfigError(
            f"metrics_host {node.metrics_host} is reached from other machines, and nothing tells "
            "who asks: give the node TLS (tls_ca, tls_certificate, tls_key), leave metrics_host on "
            "loopback, or say insecure=true"
        )


def check_exposure(node: NodeConfig) -> None:
    """Raises `ConfigError` for a new node that `is_exposed` and is not told to be. An older one
    goes on, with the warning of `dledger.node.maintenance.exposure`."""
    if is_exposed(node) and not node.insecure and _is_new(node):
        raise ConfigError(
            f"{node.host} is reached from other machines, and nothing tells clients from "
            f"strangers: {_KNOW_CLIENTS}"
        )


def _is_new(node: NodeConfig) -> bool:
    return not (node.directory / STATE_FILE).exists()


def with_secret(node: NodeConfig, addresses: Mapping[NodeId, str]) -> NodeConfig:
    """The node's settings with a secret, if it needs one and has none: on loopback that of this
    Unix user.

    Raises:
        ConfigError: a new member needs one and its settings name none, or `check_exposure` says so.
            An older one goes on, with a warning.
    """
    secured = _with_secret(node, addresses)
    check_exposure(secured)
    return secured


def _with_secret(node: NodeConfig, addresses: Mapping[NodeId, str]) -> NodeConfig:
    if node.secret_file or node.tls is not None:
        return node
    # One that is alone needs none, unless it had others that were to prove it, as before dledger
    # recover.
    if len(addresses) == 1 and not is_enforced(RealDisk(), node.directory):
        return node
    try:
        outside = [
            address
            for address in (f"{node.host}:1", *addresses.values())
            if not on_loopback(address)
        ]
        if outside:
            raise ConfigError(
                f"{outside[0].removesuffix(':1')} is reached from other machines, and nothing "
                f"tells members from strangers: {_WAY_OUT}"
            )
        return replace(node, secret_file=str(user_secret()))
    except ConfigError as error:
        if _is_new(node):
            raise
        logger.warning("%s goes on without a secret, as it did before: %s", node.node_id, error)
        return node


def on_loopback(address: str) -> bool:
    """Whether only this machine can reach it; a name other than localhost is taken for one that
    others know."""
    host = split_address(address)[0]
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"
