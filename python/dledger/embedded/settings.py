"""Settings of an embedded group: keyword names are those of GroupConfig and NodeConfig."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any, Final

from dledger.config import (
    EMBEDDED_DEFAULTS,
    GroupConfig,
    NodeConfig,
    Tls,
    from_settings,
    nearest,
    tls_files,
)
from dledger.embedded.groupfile import GroupFile
from dledger.errors import ConfigError, UnknownOption
from dledger.net.connections.tls import client_context
from dledger.types import NodeId

REPLICAS_DEFAULT: Final = 3
REPLICAS: Final = (1, 3, 5, 7)
"""An even number costs one more copy and survives no more failures; more than seven makes every
append slower."""
IDLE_TIMEOUT_MS: Final = 60_000
"""How long nodes stay when they are not used and no program that asked for them lives."""

_OWN: Final = {
    "idle_timeout_ms": "how long unused nodes stay after the program that asked for them; default "
    "60,000 ms",
    "advertise_host": "name or address by which executors on other hosts reach the nodes; default "
    "loopback",
}
_DECIDED: Final = {
    "group": "the group itself (an identity, kept in group.json)",
    "members": "replicas",
    "node_id": "replicas",
    "directory": "the path",
    "port": "the group itself (a free port, kept in group.json)",
    "parent_pid": "the group itself (the calling program)",
    "accept_loss": "an operator, by 'dledger serve --accept-loss'",
    "clients_prove": "the group itself (they do)",
}
_GROUP_FIELDS: Final = tuple(f.name for f in fields(GroupConfig))
_NODE_FIELDS: Final = tuple(f.name for f in fields(NodeConfig))
_FIXED: Final = frozenset({"commit_log", "group", "segment_bytes", "index_file_bytes"})
"""Settings with which the files were made; they never change."""
_LIVE: Final = frozenset({"idle_timeout_ms"})
"""Settings that running nodes take up at once."""


def known_settings() -> list[str]:
    """All names that `EmbeddedGroup` and `connect_path` take."""
    return sorted({*_GROUP_FIELDS, *_NODE_FIELDS, *_OWN} - set(_DECIDED))


def check_settings(settings: dict[str, Any]) -> None:
    """Check names, and values as far as they can be without a path.

    Raises:
        UnknownOption: no such setting; the message has the nearest one.
        ConfigError: a value cannot be, or the setting is not the caller's to choose.
    """
    known = known_settings()
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


def check_group_settings(settings: dict[str, Any]) -> None:
    """`check_settings` of a whole group, which makes its secret itself."""
    if "secret_file" in settings:
        raise ConfigError(
            "setting 'secret_file' is decided by the group itself (its directory has one); leave "
            "it out"
        )
    check_settings(settings)


def check_replicas(replicas: int) -> int:
    """Raises `ConfigError` for anything but 1, 3, 5 or 7."""
    if isinstance(replicas, bool) or replicas not in REPLICAS:
        raise ConfigError(
            f"replicas {replicas!r}: use 1, 3, 5 or 7; an even number survives no more failures "
            f"than the odd one below"
        )
    return replicas


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
    if replicas is not None and replicas != len(file.members):
        raise ConfigError(
            f"{where} holds a group of {len(file.members)} replicas, not {replicas}: leave "
            "replicas out to use it, or name another directory"
        )
    for name, wanted in settings.items():
        present = file.settings.get(name, default_of(name))
        if name in _LIVE or normal(wanted) == normal(present):
            continue
        if name in _FIXED:
            raise ConfigError(
                f"{where}: {name} is {present!r} since the group was made and cannot become "
                f"{wanted!r}: leave it out, or name another directory"
            )
        if running:
            raise ConfigError(
                f"{where}: the group is running with {name}={present!r}, not {wanted!r}: leave it "
                "out, or end the group first (it ends by itself when nobody uses it)"
            )


def default_of(name: str) -> Any:
    """The value of a setting that was not given."""
    if name == "idle_timeout_ms":
        return IDLE_TIMEOUT_MS
    if name in _OWN:
        return None
    if name in EMBEDDED_DEFAULTS:
        return EMBEDDED_DEFAULTS[name]
    for cls in (GroupConfig, NodeConfig):
        for f in fields(cls):
            if f.name == name:
                return f.default
    raise AssertionError(name)


def normal(value: Any) -> Any:
    """As it comes back from JSON."""
    return list(value) if isinstance(value, tuple) else value


def group_config(group: str, members: tuple[NodeId, ...], settings: dict[str, Any]) -> GroupConfig:
    """The settings that all nodes share."""
    chosen = {**_defaults(_GROUP_FIELDS), **_only(settings, _GROUP_FIELDS)}
    chosen.update(group=group, members=tuple(members))
    if "preferred_leaders" in chosen:
        chosen["preferred_leaders"] = tuple(chosen["preferred_leaders"])
    return from_settings(GroupConfig, _typed(GroupConfig, chosen))


def node_config(
    node_id: NodeId, directory: Path, address: str, settings: dict[str, Any]
) -> NodeConfig:
    """The settings of one node; it listens on the address's host unless ``host`` says otherwise."""
    host, _, port = address.rpartition(":")
    chosen = {**_defaults(_NODE_FIELDS), "host": host, **_only(settings, _NODE_FIELDS)}
    # The process itself watches over use (see `child`), for all nodes of the group together.
    chosen.update(
        node_id=node_id, directory=directory, port=int(port), idle_timeout_ms=0, parent_pid=0
    )
    return from_settings(NodeConfig, _typed(NodeConfig, chosen))


def tls_of(settings: dict[str, Any]) -> Tls | None:
    """How to talk to nodes that have these settings."""
    return tls_files(*(settings.get(name, "") for name in ("tls_ca", "tls_certificate", "tls_key")))


def _only(settings: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if name in names}


def _defaults(names: tuple[str, ...]) -> dict[str, Any]:
    return _only(EMBEDDED_DEFAULTS, names)


def _typed(cls: type[Any], settings: dict[str, Any]) -> dict[str, Any]:
    """Refuse a value of another type than the field's, e.g. a string where a number of bytes
    belongs."""
    for f in fields(cls):
        if f.name in settings and isinstance(f.default, int | float | str):
            value = settings[f.name]
            wanted: tuple[type, ...] = (
                (int, float) if isinstance(f.default, float) else (type(f.default),)
            )
            if not isinstance(value, wanted) or isinstance(value, bool):
                raise ConfigError(
                    f"setting {f.name}={value!r}: give a value of type {wanted[-1].__name__}"
                )
    return settings
