"""Settings, in two kinds: those that must be equal on every node of a group, and those of each
node."""

from dledger.config.client_settings import RACK_VARIABLE, ClientConfig
from dledger.config.credentials import Credentials
from dledger.config.names import (
    AUDIT_TOPIC,
    check_absolute,
    check_name,
    check_rack,
    from_settings,
    nearest,
    split_setting,
    split_settings,
)
from dledger.config.peers import format_peers, parse_peers
from dledger.config.settings import (
    BODY_ROOM,
    EMBEDDED_DEFAULTS,
    LIVE,
    MIB,
    NOTHING_ACCEPTED,
    GroupConfig,
    NodeConfig,
)
from dledger.config.tls import Tls, tls_files

__all__ = [
    "AUDIT_TOPIC",
    "BODY_ROOM",
    "EMBEDDED_DEFAULTS",
    "LIVE",
    "MIB",
    "NOTHING_ACCEPTED",
    "RACK_VARIABLE",
    "ClientConfig",
    "Credentials",
    "GroupConfig",
    "NodeConfig",
    "Tls",
    "check_absolute",
    "check_name",
    "check_rack",
    "format_peers",
    "from_settings",
    "nearest",
    "parse_peers",
    "split_setting",
    "split_settings",
    "tls_files",
]
