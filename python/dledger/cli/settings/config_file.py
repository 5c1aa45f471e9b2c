"""The command's file of settings: contexts, and defaults of options, as TOML in the platform's
directory.

::

    context = "prod"                 # where commands go that name no group

    [contexts.prod]
    bootstrap = "a:7001,b:7001"      # or a directory
    secret_file = "/etc/dledger/secret"
    tls_ca = "/etc/dledger/ca.pem"   # also tls_certificate, tls_key, tls_crl, or credentials
    rack = "east"                    # where this machine stands

    [options]
    timeout = 30                     # of each command that has --timeout

    [options.tail]
    from = "-100"

A change keeps the comments of the file.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from dledger.config import check_rack, nearest
from dledger.config.toml_lines import Lines, duplicates, key_lines, line_of
from dledger.errors import ConfigError, PathError, UnknownOption

if TYPE_CHECKING:
    from tomlkit import TOMLDocument

VARIABLE: Final = "DLEDGER_CONFIG"
"""Names another file."""
FILES: Final = (
    "secret_file", "credentials", "tls_ca", "tls_certificate", "tls_key", "tls_crl",
)  # fmt: skip
"""Files by which a command proves its identity: fields of a context, settings of a client."""
SETTINGS: Final = (*FILES, "rack")
"""What a context may have beside the group."""
TABLES: Final = ("context", "contexts", "options")


@dataclass(frozen=True, slots=True)
class Context:
    """A group by a name of the user's."""

    name: str
    bootstrap: str
    files: Mapping[str, str] = field(default_factory=dict)
    """Those of `FILES` that it has."""
    rack: str = ""
    """Where the user's machine stands; empty: nothing is known."""


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """The content of the file."""

    path: Path
    contexts: Mapping[str, Context]
    current: str = ""
    """The context in use; empty: none."""
    options: Mapping[str, Any] = field(default_factory=dict)

    def context(self, name: str) -> Context:
        """Raises `ConfigError` for a name that no context has, with the nearest one."""
        if name not in self.contexts:
            there = ", ".join(self.contexts) or "none"
            raise ConfigError(
                f"there is no context {name!r}{nearest(name, list(self.contexts))} in {self.path}; "
                f"there are: {there}; make one: dledger context add {name} -b HOST:PORT,..."
            )
        return self.contexts[name]


def config_path() -> Path:
    """Where the file is, or would be."""
    named = os.environ.get(VARIABLE)
    return Path(named) if named else Path(click.get_app_dir("dledger")) / "config.toml"


def read_config() -> ConfigFile:
    """The file; an empty one where there is none.

    Raises:
        ConfigError, UnknownOption: it is no TOML, or has what it cannot have.
        PathError: it cannot be read.
    """
    path = config_path()
    try:
        text = path.read_text("utf-8")
        data = tomllib.loads(text)
    except FileNotFoundError:
        return ConfigFile(path, {})
    except OSError as error:
        raise PathError(f"{path}: {error.strerror}; {VARIABLE} names another file") from None
    except ValueError as error:  # also of bytes that are no text
        found = "; ".join(duplicates(text)) if not isinstance(error, UnicodeDecodeError) else ""
        raise ConfigError(f"{path} is no TOML: {found or error}; mend it, or remove it") from None
    lines = key_lines(text)
    _check_names(path, (), data, TABLES, lines)
    tables = _table(path, "contexts", data.get("contexts", {}))
    contexts = {name: _context(path, name, given, lines) for name, given in tables.items()}
    current = data.get("context", "")
    if not isinstance(current, str):
        raise ConfigError(f"{path}: context is the name of one, as in context = 'prod'")
    return ConfigFile(path, contexts, current, _table(path, "options", data.get("options", {})))


def _context(path: Path, name: str, given: Any, lines: Lines) -> Context:
    where = f"contexts.{name}"
    values = _table(path, where, given)
    _check_names(path, ("contexts", name), values, ("bootstrap", *SETTINGS), lines)
    for key, value in values.items():
        if not isinstance(value, str):
            raise ConfigError(f"{path}: {where}.{key} is text, not {value!r}")
    if not values.get("bootstrap"):
        raise ConfigError(f"{path}: {where} has no bootstrap: HOST:PORT,... or a directory")
    files = {key: value for key, value in values.items() if key in FILES}
    if "rack" in values:
        try:
            check_rack(values["rack"])
        except ConfigError as error:
            raise ConfigError(f"{path}: {where}: {error}") from None
    return Context(name, values["bootstrap"], files, values.get("rack", ""))


def _table(path: Path, where: str, given: Any) -> dict[str, Any]:
    if not isinstance(given, dict):
        raise ConfigError(f"{path}: {where} is a table, as in [{where}]")
    return given


def _check_names(
    path: Path,
    table: tuple[str, ...],
    given: Mapping[str, Any],
    known: tuple[str, ...],
    lines: Lines,
) -> None:
    for name in given:
        if name not in known:
            key = (*table, name)
            raise UnknownOption(
                f"{path}, line {line_of(lines, key)}: unknown {'.'.join(key)}"
                f"{nearest(name, [*known])}; known: {', '.join(known)}"
            )


def defaults_of(group: click.Group, config: ConfigFile) -> dict[str, Any]:
    """The table ``options`` as click's ``default_map`` of a group of commands.

    Raises:
        UnknownOption: no command has such an option; the message has the nearest one.
    """
    found, unused = _defaults(group, config.options, {}, config.path, "options")
    if unused:
        known = sorted(_names(group))
        raise UnknownOption(
            f"{config.path}: options.{unused[0]}: no command has --{unused[0]}"
            f"{nearest(unused[0], known)}"
        )
    return found


def _defaults(
    group: click.Group, table: Mapping[str, Any], above: Mapping[str, Any], path: Path, where: str
) -> tuple[dict[str, Any], list[str]]:
    """The defaults by command, and the options of this table that none has."""
    own = {name: value for name, value in table.items() if name not in group.commands}
    given = {**above, **own}
    found: dict[str, Any] = {}
    used: set[str] = set()
    for name, command in group.commands.items():
        inner = _table(path, f"{where}.{name}", table.get(name, {}))
        if isinstance(command, click.Group):
            found[name], unused = _defaults(command, inner, given, path, f"{where}.{name}")
            used |= given.keys() - set(unused)
            wrong = [one for one in unused if one in inner]
        else:
            known = _options(command)
            found[name] = {known[one]: v for one, v in {**given, **inner}.items() if one in known}
            used |= given.keys() & known.keys()
            wrong = [one for one in inner if one not in known]
        if wrong:
            hint = nearest(wrong[0], sorted(_names(command)))
            raise UnknownOption(f"{path}: {where}.{name} has no option {wrong[0]!r}{hint}")
    return found, [one for one in given if one not in used]


def _options(command: click.Command) -> dict[str, str]:
    """The long names of a command's options, without dashes, and the names of their arguments."""
    return {
        long.removeprefix("--"): one.name or ""
        for one in command.params
        if isinstance(one, click.Option) and one.expose_value
        for long in one.opts
        if long.startswith("--")
    }


def _names(command: click.Command) -> set[str]:
    if not isinstance(command, click.Group):
        return set(_options(command))
    return set(command.commands).union(*map(_names, command.commands.values()))


def edit_config() -> tuple[Path, TOMLDocument]:
    """The file as a document that is changed and given to `write_config`. Call `read_config`
    first, which says what is wrong with it."""
    import tomlkit

    path = config_path()
    text = path.read_text("utf-8") if path.exists() else ""
    return path, tomlkit.parse(text)


def write_config(path: Path, document: TOMLDocument) -> None:
    """Put the document in the place of the file; a crash leaves one or the other.

    Raises:
        PathError: it cannot be written.
    """
    target = path.resolve()  # a link to a file of the user's stays one
    place = target.with_name(target.name + ".new")
    try:
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        place.unlink(missing_ok=True)
        with open(place, "x", encoding="utf-8", opener=partial(os.open, mode=0o600)) as out:
            out.write(document.as_string())
        place.replace(target)
    except OSError as error:
        place.unlink(missing_ok=True)
        raise PathError(
            f"{path} cannot be written: {error.strerror}; {VARIABLE} names another file"
        ) from None
