"""The secret that a node shares with the others when its settings name none."""

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
from dledger.storage.meta.hard_state import STATE_FILE
from dledger.types import NodeId

logger = logging.getLogger(__name__)

_WAY_OUT: Final = (
    "make a secret with 'dledger secret create FILE', copy it to each machine, and start every "
    "node with --secret-file "
    "FILE; or give the nodes certificates (tls_ca, tls_certificate, tls_key)"
)


def with_secret(node: NodeConfig, addresses: Mapping[NodeId, str]) -> NodeConfig:
    """The node's settings with a secret, if it needs one and has none: on loopback that of this
    Unix user.

    Raises:
        ConfigError: a new member needs one and its settings name none. An older one goes on
        without,
            with a warning.
    """
    if node.secret_file or node.tls is not None or len(addresses) == 1:
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
        if not (node.directory / STATE_FILE).exists():
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
