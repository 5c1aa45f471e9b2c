"""Names of groups, nodes, files and settings, and the nearest known one to a wrong one."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, TypeVar

from dledger.errors import ConfigError, UnknownOption

T = TypeVar("T")
NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,127}")
RACK: Final = re.compile(r"[A-Za-z0-9._-]{1,63}")
AUDIT_TOPIC: Final = "__audit"
"""The topic that nodes write their audit logs to, and nobody else writes; programs read it by this
name alone."""


def check_name(what: str, name: str) -> str:
    """Names of topics, groups and nodes go into messages and sometimes file names, so they are
    plain.

    Raises:
        ConfigError: the name is empty, too long, ``.``, ``..``, or has other characters.
    """
    if not NAME.fullmatch(name) or name in {".", ".."}:
        shown = name if len(name) <= 200 else name[:40] + f"... of {len(name)} characters"
        raise ConfigError(f"{what} {shown!r}: use 1 to 127 of the characters A-Z a-z 0-9 . _ -")
    return name


def check_rack(name: str) -> str:
    """The name of a rack, a zone or a room: of a member, where it stands, and of a client, which
    reads from members of the same name first. A name that no member has is allowed.

    Raises:
        ConfigError: it is empty, too long, or has other characters.
    """
    if not RACK.fullmatch(name):
        shown = name if len(name) <= 80 else name[:40] + f"... of {len(name)} characters"
        raise ConfigError(f"rack {shown!r}: use 1 to 63 of the characters A-Z a-z 0-9 . _ -")
    return name


def check_absolute(setting: str, path: str) -> str:
    """Raises `ConfigError` for a relative path of a file: other processes read it, from other
    directories."""
    if path and not Path(path).is_absolute():
        raise ConfigError(
            f"{setting} {path!r}: give an absolute path; programs read it from other directories"
        )
    return path


def nearest(name: str, known: list[str]) -> str:
    """`` (did you mean X?)``, or nothing when no known name is like it."""
    close = get_close_matches(name, known, n=1, cutoff=0.6)
    return f" (did you mean {close[0]!r}?)" if close else ""


def split_setting(text: str) -> tuple[str, str]:
    """Name and value of ``name=value``. Raises `ConfigError` for any other form."""
    name, equals, value = text.partition("=")
    if not equals:
        raise ConfigError(f"--set {text!r}: write name=value")
    return name, value


def split_settings(texts: Iterable[str], known: Collection[str]) -> Iterator[tuple[str, str]]:
    """Names and values of ``name=value`` texts, each name one of those that are known.

    Raises:
        UnknownOption: no such name; the message has the nearest one.
        ConfigError: not of that form.
    """
    for text in texts:
        name, value = split_setting(text)
        if name not in known:
            raise UnknownOption(
                f"--set {name}: unknown setting{nearest(name, [*known])}; known: {', '.join(known)}"
            )
        yield name, value


def from_settings(cls: type[T], settings: dict[str, Any]) -> T:
    """Build a config from keyword settings.

    Raises:
        UnknownOption: a name that the config does not have, with the nearest one that it has.
    """
    known = [f.name for f in fields(cls)]  # type: ignore[arg-type]
    for name in settings:
        if name not in known:
            raise UnknownOption(
                f"unknown setting {name!r}{nearest(name, known)}; known: {', '.join(known)}"
            )
    return cls(**settings)
