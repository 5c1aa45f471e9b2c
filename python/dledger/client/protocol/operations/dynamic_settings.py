"""Operations on the settings that a group may change while it runs, as generators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from dledger.client.protocol.client_state import ClientState, Operation
from dledger.client.protocol.operations.group_state import list_rows
from dledger.client.protocol.operations.requests import execute
from dledger.protocol.messages.catalog_commands import AlterSettings
from dledger.protocol.messages.client import Listing
from dledger.times import datetime_of


@dataclass(frozen=True, slots=True)
class DynamicSetting:
    """One setting of a group that may change while it runs."""

    name: str
    value: str
    """As text, such as ``604800000`` or ``n0,n1``."""
    source: str
    """``set``: at run time; ``founding``: by the node that led when settings were first changed;
    ``node``: each node's own counts, and this is the answering node's."""
    version: int
    """Of the group's settings: how often they were changed. `set_settings` can expect it."""


@dataclass(frozen=True, slots=True)
class SettingsChange:
    """One change of settings."""

    version: int
    time_ms: int
    """By the leader's clock, in ms since 1970 UTC."""
    principal: str
    changes: dict[str, tuple[str | None, str | None]]
    """The value of each setting before and after; None: each node's own counts."""

    @property
    def time(self) -> datetime:
        """`time_ms` as a datetime in UTC."""
        return datetime_of(1000 * self.time_ms)


def settings(_: ClientState) -> Operation[list[DynamicSetting]]:
    """The dynamic settings of the group."""
    rows = yield from list_rows(Listing.SETTINGS, "settings")
    return [DynamicSetting(**row) for row in rows]


def set_settings(
    _: ClientState, values: Mapping[str, int | str], *, expect: int | None = None
) -> Operation[int]:
    """Change settings of the group, at every node, all or none; the others stay. Returns the
    version that its settings have then.

    Args:
        values: by name, those of `settings`; node ids with commas, as ``n0,n1``.
        expect: change nothing unless the group's settings have this version.

    Raises:
        ConfigError: no such dynamic setting, a value that cannot be, or another version.
    """
    texts = {name: str(value) for name, value in values.items()}
    return (yield from _alter(AlterSettings(values=texts), expect, "set settings"))


def reset_settings(
    _: ClientState, names: Sequence[str], *, expect: int | None = None
) -> Operation[int]:
    """Take settings back to what they were before they were ever set; of one that was not set that
    is no error. Returns as `set_settings` does, and raises the same."""
    return (yield from _alter(AlterSettings(reset=tuple(names)), expect, "reset settings"))


def _alter(command: AlterSettings, expect: int | None, what: str) -> Operation[int]:
    expected = -1 if expect is None else expect
    result = yield from execute(
        AlterSettings(values=command.values, reset=command.reset, expected_version=expected), what
    )
    version: int = result["version"]
    return version


def settings_history(_: ClientState) -> Operation[list[SettingsChange]]:
    """The newest hundred changes of settings, oldest first."""
    rows = yield from list_rows(Listing.SETTING_CHANGES, "settings_history")
    return [
        SettingsChange(
            row["version"],
            row["time_ms"],
            row["principal"],
            {name: (before, after) for name, (before, after) in row["changes"].items()},
        )
        for row in rows
    ]
