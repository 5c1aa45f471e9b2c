"""The settings of a node and its group as a file has them, in sections, with their types and
meanings."""

from __future__ import annotations

import ast
import inspect
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any, Final, get_type_hints

from dledger.config import settings
from dledger.config.settings import GroupConfig, NodeConfig

_DECIDED: Final = frozenset({"members", "node_id", "port", "parent_pid", "accept_loss"})
"""Fields that no file sets: they follow from ``peers`` and ``self_id``, or are for one start."""
_SECTIONS: Final[dict[str, tuple[str, ...]]] = {
    "elections": (
        "heartbeat_ms", "election_ms", "takeover_ms", "vote_interval_ms", "preferred_leaders",
        "max_transfer_lag",
    ),
    "replication": (
        "ack_timeout_ms", "push_timeout_ms", "push_window_bytes", "push_batch_bytes",
        "catch_up_bytes_per_s", "pending_bytes", "max_body_bytes",
    ),
    "limits": (
        "max_topics", "max_partitions", "max_consumer_groups", "max_producers",
        "max_catalog_bytes",
    ),
    "security": (
        "insecure", "secret_file", "clients_prove", "tls_ca", "tls_certificate", "tls_key",
        "tls_crl",
    ),
    "logs": ("log_format", "log_level", "audit_files", "audit_file_bytes", "audit_topic"),
    "metrics": ("metrics_host", "metrics_port"),
    "retention": (
        "retention_ms", "retention_bytes", "hold_retention_ms", "hold_retention_bytes",
        "member_retention_ms", "member_retention_bytes", "delete_when",
    ),
    "disk": (
        "disk_warn_ratio", "disk_full_ratio", "disk_reserve_bytes", "checkpoint_bytes",
        "checkpoint_entries", "scrub_bytes_per_s", "scrub_pause_ms",
    ),
    "connections": (
        "max_connections", "max_connections_per_address", "client_idle_ms", "max_client_bytes",
    ),
}  # fmt: skip
"""Those that belong together; any other field is in ``group`` or ``node``, by its class."""
GROUP: Final = "group"
NODE: Final = "node"
PLACES: Final = {
    "peers": 'All nodes of the group, the same everywhere, as "n0-HOST:PORT;n1-HOST:PORT".',
    "self_id": "Which of the peers this node is.",
    "host": "Where it listens. Empty: the host of its own address among the peers.",
}
"""What `GroupConfig` and `NodeConfig` have in another form, or with another default."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One of them."""

    name: str
    section: str
    kind: Any
    """int, float, bool, str, Path, or tuple: of nodes."""
    default: Any
    """None: it must be given."""
    meaning: str
    is_of_group: bool

    @property
    def variable(self) -> str:
        """The environment's name for it."""
        return VARIABLES + self.name.upper()


VARIABLES: Final = "DLEDGER_SERVE_"
"""What the names in the environment begin with. Not ``DLEDGER_`` alone: that is for clients, and a
container's environment may have DLEDGER_PORT for a service of that name."""


def all_settings() -> dict[str, Setting]:
    """Every setting that a file may have, in the order of a file."""
    sections = {name: section for section, names in _SECTIONS.items() for name in names}
    found = [
        Setting("peers", GROUP, str, None, PLACES["peers"], is_of_group=True),
        Setting("self_id", NODE, str, None, PLACES["self_id"], is_of_group=False),
    ]
    for config, section in ((GroupConfig, GROUP), (NodeConfig, NODE)):
        meanings, kinds = _meanings(config), get_type_hints(config)
        for field in fields(config):
            if field.name not in _DECIDED:
                kind = kinds[field.name]
                default = None if field.default is MISSING else field.default
                found.append(
                    Setting(
                        field.name,
                        sections.get(field.name, section),
                        kind if isinstance(kind, type) else tuple,
                        "" if field.name == "host" else default,
                        PLACES.get(field.name, meanings[field.name]),
                        is_of_group=config is GroupConfig,
                    )
                )
    order = [GROUP, NODE, *_SECTIONS]
    found.sort(key=lambda one: order.index(one.section))
    return {one.name: one for one in found}


def _meanings(config: type[GroupConfig | NodeConfig]) -> dict[str, str]:
    """The text below each field, in one line."""
    module = ast.parse(inspect.getsource(settings))
    body = next(
        node.body
        for node in module.body
        if isinstance(node, ast.ClassDef) and node.name == config.__name__
    )
    found: dict[str, str] = {}
    name = ""
    for node in body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            name = node.target.id
            found[name] = ""
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and name:
            found[name] = " ".join(str(node.value.value).split())
            name = ""
    return found


def as_toml(value: Any) -> str:
    """A setting's value as TOML has it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, tuple | list):
        return "[" + ", ".join(as_toml(one) for one in value) + "]"
    text = str(value) if isinstance(value, Path | str) else repr(value)
    escaped = "".join(
        f"\\U{ord(char):08x}" if char in '"\\' or not char.isprintable() else char for char in text
    )
    return f'"{escaped}"'
