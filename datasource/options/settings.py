"""``dledger.*`` options: the settings of the client and of a group that belongs to a path, by their
Spark names.

Spark does not keep the case of an option's name, and people write ``request.timeout.ms``,
``requestTimeoutMs`` or ``request_timeout_ms``; all three mean the same setting.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any, Final

from dledger.config import ClientConfig, GroupConfig, NodeConfig, nearest
from dledger.config.durations import milliseconds
from dledger.errors import ConfigError

PREFIX: Final = "dledger."
_NOT_FOR_USERS: Final = {
    "members",
    "node_id",
    "directory",
    "parent_pid",
    "port",
    "compression",
    "idempotent",
}
"""Decided by the group itself, or by an option of its own."""
_GROUP_ONLY: Final = ("advertise_host",)
"""Settings of a local group that are no field of a config."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The values of ``dledger.*`` options, sorted by their receivers; those of TLS are for both."""

    client: dict[str, Any] = field(default_factory=dict)
    group: dict[str, Any] = field(default_factory=dict)


def duration_ms(option: str, text: str) -> int:
    """Milliseconds in ``1500``, ``1500ms``, ``30s``, ``10m``, ``2h`` or ``1d``.

    Raises:
        ConfigError: it is none of these.
    """
    found = milliseconds(text)
    if found is None:
        raise ConfigError(
            f"option {option!r} is {text!r}: write a time such as 500ms, 30s, 10m or 2h"
        )
    return found


def whole_number(option: str, text: str, least: int = 1) -> int:
    """A number of at least ``least``.

    Raises:
        ConfigError: it is none.
    """
    try:
        number = int(text.strip())
    except ValueError:
        number = least - 1
    if number < least:
        raise ConfigError(
            f"option {option!r} is {text!r}: write a whole number of at least {least}"
        )
    return number


def yes_or_no(option: str, text: str) -> bool:
    """``true`` or ``false``, in any case.

    Raises:
        ConfigError: it is neither.
    """
    word = text.strip().lower()
    if word not in {"true", "false"}:
        raise ConfigError(f"option {option!r} is {text!r}: write true or false")
    return word == "true"


def _plain(name: str) -> str:
    return re.sub(r"[._-]", "", name.lower())


@cache
def _known() -> dict[str, tuple[set[str], str, str]]:
    """Plain name -> (the receiver: client, group or both, the config's name, its type)."""
    known: dict[str, tuple[set[str], str, str]] = {}
    for owner, config in (("group", NodeConfig), ("group", GroupConfig), ("client", ClientConfig)):
        for one in fields(config):
            if one.name not in _NOT_FOR_USERS:
                owners, _, _ = known.setdefault(_plain(one.name), (set(), one.name, str(one.type)))
                owners.add(owner)
    known.update({_plain(name): ({"group"}, name, "str") for name in _GROUP_ONLY})
    return known


def _value(option: str, name: str, kind: str, text: str) -> Any:
    if name.endswith("_ms") and kind == "int":
        return duration_ms(option, text)
    if kind == "int":
        return whole_number(option, text, 0)
    if kind == "bool":
        return yes_or_no(option, text)
    if kind == "float":
        try:
            return float(text)
        except ValueError:
            raise ConfigError(f"option {option!r} is {text!r}: write a number") from None
    if kind.startswith("tuple"):
        return tuple(filter(None, (part.strip() for part in text.split(","))))
    return text.strip()


def _setting(option: str) -> tuple[set[str], str, str] | None:
    known, plain = _known(), _plain(option.removeprefix(PREFIX))
    return known.get(plain) or known.get(plain + "ms")


def is_setting(option: str) -> bool:
    """Whether there is a setting of this name in lower case, ``dledger.`` included.

    A name that ends in ``ms`` may leave the ``ms`` away: ``dledger.idle.timeout`` is
    ``idle_timeout_ms``.
    """
    return _setting(option) is not None


def nearest_setting(option: str) -> str:
    """The words of `dledger.config.nearest` for a setting's name in Spark."""
    spelled = {_plain(name): spark_name(name) for _, name, _ in _known().values()}
    return nearest_spelled(_plain(option.removeprefix(PREFIX)), spelled)


def parse_settings(options: dict[str, str]) -> Settings:
    """Check and convert ``dledger.*`` options that no other option table knows; ``options`` holds
    only these, each of which `is_setting`.

    Raises:
        ConfigError: a value cannot be.
    """
    client: dict[str, Any] = {}
    group: dict[str, Any] = {}
    for option, text in options.items():
        found = _setting(option)
        assert found is not None
        owners, name, kind = found
        value = _value(option, name, kind, text)
        if "client" in owners:
            client[name] = value
        if "group" in owners:
            group[name] = value
    return Settings(client, group)


def nearest_spelled(name: str, known: Mapping[str, str]) -> str:
    """The words of `dledger.config.nearest`, with the way that the nearest name is spelled."""
    close = nearest(name, list(known))
    for plain, spelled in known.items():
        close = close.replace(f"'{plain}'", f"'{spelled}'")
    return close


def spark_name(setting: str) -> str:
    """``request_timeout_ms`` -> ``dledger.request.timeout.ms``."""
    return PREFIX + setting.replace("_", ".")
