"""The settings of a node from all places that may have them: the command line before the
environment, that before a file, and that before the defaults."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

from dledger.config.dynamic import check_preferred
from dledger.config.names import nearest
from dledger.config.peers import format_peers, parse_peers
from dledger.config.sections import VARIABLES, Setting, all_settings
from dledger.config.settings import NOTHING_ACCEPTED, GroupConfig, NodeConfig
from dledger.config.toml_lines import duplicates, key_lines, line_of, printable
from dledger.errors import ConfigError
from dledger.types import NodeId

T = TypeVar("T")
FILE_VARIABLE: Final = VARIABLES + "CONFIG"
"""Names the file."""
_KINDS: Final = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    tuple: 'nodes, as ["n0", "n1"]',
}


@dataclass(frozen=True, slots=True)
class SettingValue:
    """A value, and where it comes from."""

    value: Any
    source: str


@dataclass(slots=True)
class Layers:
    """What is known so far; what stands first counts. All errors are kept, so that they are told at
    once."""

    known: Mapping[str, Setting] = field(default_factory=all_settings)
    given: dict[str, SettingValue] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)

    def add_value(self, name: str, value: Any, source: str) -> None:
        """A value that has its type already."""
        self.given.setdefault(name, SettingValue(value, source))

    def add_texts(self, texts: Sequence[str]) -> None:
        """``name=value`` of ``--set``; of one that stands twice the last one counts."""
        for text in reversed(texts):
            name, equals, value = text.partition("=")
            if not equals:
                self.errors.append(f"--set {text!r}: write name=value")
            else:
                self._add_text(name, value, f"--set {name}", f"--set {text}")

    def add_environment(self, environment: Mapping[str, str]) -> None:
        """Variables ``DLEDGER_SERVE_...``."""
        for variable, value in sorted(environment.items()):
            if variable.startswith(VARIABLES) and variable != FILE_VARIABLE:
                name = variable.removeprefix(VARIABLES).lower()
                self._add_text(name, value, variable, f"{variable}={value}")

    def _add_text(self, name: str, text: str, source: str, said: str) -> None:
        setting = self.known.get(name)
        if setting is None:
            self._unknown(f"{source}: unknown setting", name)
            return
        try:
            value = _from_text(setting.kind, text)
        except (KeyError, ValueError):
            self.errors.append(f"{said}: give {_KINDS[setting.kind]}")
            return
        self.given.setdefault(name, SettingValue(value, source.split(" ")[0]))

    def _unknown(self, what: str, name: str) -> None:
        self.errors.append(f"{what}{nearest(name, list(self.known))}")

    def add_file(self, path: Path) -> None:
        """A TOML file, which `dledger.config.sections` describes."""
        try:
            text = path.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            self.errors.append(f"{path}: {getattr(error, 'strerror', None) or 'no UTF-8 text'}")
            return
        try:
            data = tomllib.loads(text)
        except (ValueError, RecursionError) as error:  # also of a number with too many digits
            self.errors += [f"{path}, {what}" for what in duplicates(text) or [str(error)]]
            return
        lines = key_lines(text)
        for section, table in data.items():
            where = f"{path}, line {line_of(lines, (section,))}"
            if not isinstance(table, dict):
                self._add_misplaced(where, section)
            elif section not in {one.section for one in self.known.values()}:
                sections = list(dict.fromkeys(one.section for one in self.known.values()))
                hint = nearest(section, sections)
                self.errors.append(
                    f"{where}: unknown section [{printable(section)}]{hint}; there are "
                    f"{', '.join(sections)}"
                )
            else:
                for name, value in table.items():
                    line = line_of(lines, (section, name))
                    self._add_value(section, name, value, f"{path}, line {line}")

    def _add_misplaced(self, where: str, name: str) -> None:
        if name in self.known:
            self.errors.append(f"{where}: {name} belongs to [{self.known[name].section}]")
        else:
            self._unknown(f"{where}: unknown setting {printable(name)}", name)

    def _add_value(self, section: str, name: str, value: Any, where: str) -> None:
        setting = self.known.get(name)
        if setting is None or setting.section != section:
            self._add_misplaced(where, name)
            return
        try:
            taken = _from_toml(setting, value)
        except (TypeError, ConfigError) as error:
            wanted = str(error) or f"give {_KINDS.get(setting.kind, 'text')}"
            self.errors.append(f"{where}: {name} = {value!r}: {wanted}")
        else:
            self.given.setdefault(name, SettingValue(taken, where))

    def configs(
        self, accept_loss: int = NOTHING_ACCEPTED
    ) -> tuple[GroupConfig, NodeConfig, dict[NodeId, str]]:
        """Everything as configs, and the addresses of the members.

        Raises:
            ConfigError: with all `errors`, to which those of the values are added.
        """
        values = {name: given.value for name, given in self.given.items()}
        if not self.errors:
            self.errors += [
                f"{name} is not given: {option}, {self.known[name].variable} in the environment, "
                f"or {name} in [{self.known[name].section}] of the file"
                for name, option in OPTIONS.items()
                if name not in values
            ]
        addresses = self._addresses(values)
        if self.errors:
            raise ConfigError("; ".join(self.errors))
        self_id = NodeId(values.pop("self_id"))
        host, port = addresses[self_id].rpartition(":")[::2]
        values["host"] = values.get("host") or host.removeprefix("[").removesuffix("]")
        own = {"node_id": self_id, "port": int(port), "accept_loss": accept_loss}
        of_group = {name: values.pop(name) for name in list(values) if self.known[name].is_of_group}
        group = self._made(GroupConfig, of_group | {"members": tuple(addresses)})
        node = self._made(NodeConfig, values | own)
        if group is None or node is None:
            raise ConfigError("; ".join(self.errors))
        return group, node, addresses

    def _addresses(self, values: dict[str, Any]) -> dict[NodeId, str]:
        """Those of the peers, which are taken out; empty where they are wrong."""
        try:
            addresses = parse_peers(values.pop("peers"))
        except KeyError:
            return {}
        except ConfigError as error:
            self.errors.append(str(error))
            return {}
        self_id = values.get("self_id")
        if self_id is not None and self_id not in addresses:
            self.errors.append(f"--self-id {self_id}: not one of the peers {', '.join(addresses)}")
        return addresses

    def _made(self, config: type[T], values: dict[str, Any]) -> T | None:
        try:
            made = config(**values)
            if isinstance(made, GroupConfig):
                check_preferred(made)
            return made
        except ConfigError as error:
            self.errors.append(str(error))
            return None


OPTIONS: Final = {"peers": "--peers", "self_id": "--self-id", "directory": "--dir"}
"""Settings without a default, as options of the command."""


def _from_text(kind: Any, text: str) -> Any:
    """Raises KeyError or ValueError for text that is not of this type."""
    if kind is bool:
        return {"true": True, "false": False}[text.lower()]
    if kind in (int, float):
        return kind(text.replace("_", ""))
    if kind is tuple:
        return tuple(NodeId(part.strip()) for part in text.split(",") if part.strip())
    return kind(text)


def _from_toml(setting: Setting, value: Any) -> Any:
    """Raises TypeError for a value of another type."""
    kind = setting.kind
    if setting.name == "peers" and isinstance(value, dict):
        return format_peers({NodeId(node): str(address) for node, address in value.items()})
    if kind is tuple:
        if not (isinstance(value, list) and all(isinstance(one, str) for one in value)):
            raise TypeError
        return tuple(map(NodeId, value))
    wanted = {Path: (str,), float: (int, float)}.get(kind, (kind,))
    if not isinstance(value, wanted) or (isinstance(value, bool) and kind is not bool):
        raise TypeError
    return kind(value)
