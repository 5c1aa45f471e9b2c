"""Settings of an embedded group: keyword names are those of GroupConfig and NodeConfig."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any, Final, TypeVar

from dledger.config import (
    EMBEDDED_DEFAULTS,
    GroupConfig,
    NodeConfig,
    Tls,
    from_settings,
    nearest,
    tls_files,
)
from dledger.config.dynamic import check_preferred
from dledger.embedded.groupfile import GroupFile
from dledger.errors import ConfigError, UnknownOption
from dledger.net.connections.tls import client_context
from dledger.types import NodeId

C = TypeVar("C", GroupConfig, NodeConfig)
REPLICAS_DEFAULT: Final = 3
REPLICAS: Final = (1, 3, 5, 7)
"""An even number costs one more copy and survives no more failures; more than seven makes every
append slower."""
IDLE_TIMEOUT_MS: Final = 60_000
"""How long nodes stay when they are not used and no program that asked for them lives."""

_DECIDED: Final = {
    "group": "the group itself (an identity, kept in group.json)",
    "members": "replicas",
    "node_id": "replicas",
    "directory": "the path",
    "port": "the group itself (a free port, kept in group.json)",
    "parent_pid": "the group itself (the calling program)",
    "accept_loss": "an operator, by 'dledger serve --accept-loss'",
    "joins": "an operator, by 'dledger serve --join'",
    "unix_group_reads": "the group itself (its files are for its owner alone)",
    "clients_prove": "the group itself (they do)",
}
DEFAULTS: Final[dict[str, Any]] = {
    **{f.name: f.default for config in (NodeConfig, GroupConfig) for f in fields(config)},
    **EMBEDDED_DEFAULTS,
    # by which executors on other hosts reach the nodes; None: loopback
    "advertise_host": None,
    "idle_timeout_ms": IDLE_TIMEOUT_MS,
}
"""The values of settings that were not given."""
_FIXED: Final = frozenset({"commit_log", "group", "segment_bytes", "index_file_bytes"})
"""Settings with which the files were made; they never change."""
_LIVE: Final = frozenset({"idle_timeout_ms"})
"""Settings that running nodes take up at once."""


def check_settings(settings: dict[str, Any]) -> None:
    """Check names, and values as far as they can be without a path.

    Raises:
        UnknownOption: no such setting; the message has the nearest one.
        ConfigError: a value cannot be, or the setting is not the caller's to choose.
    """
    known = sorted(DEFAULTS.keys() - _DECIDED.keys())
    for name in settings:
        if name in _DECIDED:
            raise ConfigError(f"setting {name!r} is decided by {_DECIDED[name]}; leave it out")
        if name not in known:
            raise UnknownOption(
                f"unknown setting {name!r}{nearest(name, known)}; known: {', '.join(known)}"
            )
    idle = settings.get("idle_timeout_ms", IDLE_TIMEOUT_MS)
    if not isinstance(idle, int) or idle < 0:
        raise ConfigError(f"idle_timeout_ms {idle!r}: give milliseconds, 0 for never")
    if "host" in settings and "advertise_host" not in settings:
        raise ConfigError(
            "host says where nodes listen; give advertise_host too, which is what others connect to"
        )
    members = (NodeId("n0"),)
    group_config("check", members, {k: v for k, v in settings.items() if k != "preferred_leaders"})
    # its files are there
    client_context(node_config(NodeId("n0"), Path(), "127.0.0.1:1", settings).tls)


def check_replicas(replicas: int) -> None:
    """Raises `ConfigError` for anything but 1, 3, 5 or 7."""
    if isinstance(replicas, bool) or replicas not in REPLICAS:
        raise ConfigError(
            f"replicas {replicas!r}: use 1, 3, 5 or 7; an even number survives no more failures "
            f"than the odd one below"
        )


def check_join(
    file: GroupFile, replicas: int | None, settings: dict[str, Any], running: bool, where: str
) -> None:
    """Whether a caller that asks for these may use the existing group.

    A setting that is not asked for is taken as it is. One that is asked for and differs is an
    error, unless it can still be had: settings of no lasting effect are taken up when the group is
    not running.

    Raises:
        ConfigError: names the difference and the way out.
    """
    # a program that asks for as many as there were at first goes on when there are others
    if replicas is not None and replicas not in (len(file.members), len(file.founding)):
        raise ConfigError(
            f"{where} holds a group of {len(file.members)} replicas, not {replicas}: leave "
            f"replicas out to use it, change it by 'dledger up {where} --nodes {replicas}', or "
            "name another directory"
        )
    for name, wanted in settings.items():
        present = file.settings.get(name, DEFAULTS[name])
        if (name in _LIVE and not file.has_moved) or normal(wanted) == normal(present):
            continue
        if name in _FIXED:
            raise ConfigError(
                f"{where}: {name} is {present!r} since the group was made and cannot become "
                f"{wanted!r}: leave it out, or name another directory"
            )
        if file.has_moved:
            raise ConfigError(
                f"{where}: the group has moved to {file.bootstrap_servers}, and {name} was "
                f"{present!r} here, not {wanted!r}: leave it out; its nodes have settings of their "
                "own"
            )
        if running:
            raise ConfigError(
                f"{where}: the group is running with {name}={present!r}, not {wanted!r}: leave it "
                "out, or end the group first (it ends by itself when nobody uses it)"
            )


def normal(value: Any) -> Any:
    """As it comes back from JSON."""
    return list(value) if isinstance(value, tuple) else value


def group_config(group: str, members: tuple[NodeId, ...], settings: dict[str, Any]) -> GroupConfig:
    """The settings that all nodes share."""
    chosen = {**EMBEDDED_DEFAULTS, **settings, "group": group, "members": members}
    if "preferred_leaders" in chosen:
        chosen["preferred_leaders"] = tuple(chosen["preferred_leaders"])
    made = _config(GroupConfig, chosen)
    check_preferred(made)
    return made


def node_config(
    node_id: NodeId, directory: Path, address: str, settings: dict[str, Any]
) -> NodeConfig:
    """The settings of one node; it listens on the address's host unless ``host`` says otherwise."""
    host, _, port = address.rpartition(":")
    chosen = {**EMBEDDED_DEFAULTS, "host": host, **settings}
    # The process itself watches over use (see `child`), for all nodes of the group together.
    chosen.update(
        node_id=node_id, directory=directory, port=int(port), idle_timeout_ms=0, parent_pid=0
    )
    return _config(NodeConfig, chosen)


TLS_SETTINGS: Final = ("tls_ca", "tls_certificate", "tls_key", "tls_crl")


def tls_of(settings: dict[str, Any]) -> Tls | None:
    """How to talk to nodes that have these settings."""
    return tls_files(*(settings.get(name, "") for name in TLS_SETTINGS))


def _config(cls: type[C], settings: dict[str, Any]) -> C:
    """A config of those settings that are its fields. A value of another type than the field's is
    refused, e.g. a string where a number of bytes belongs."""
    chosen = {f.name: settings[f.name] for f in fields(cls) if f.name in settings}
    for f in fields(cls):
        if f.name in chosen and isinstance(f.default, int | float | str):
            value = chosen[f.name]
            wanted: tuple[type, ...] = (
                (int, float) if isinstance(f.default, float) else (type(f.default),)
            )
            is_flag = isinstance(f.default, bool)  # which Python takes for a number
            if not isinstance(value, wanted) or isinstance(value, bool) is not is_flag:
                raise ConfigError(
                    f"setting {f.name}={value!r}: give a value of type {wanted[-1].__name__}"
                )
    return from_settings(cls, chosen)
