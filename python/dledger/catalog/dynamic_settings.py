"""Dynamic settings as replicated state: the values that the group keeps, which count over those of
the nodes' files, and who changed them when."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import starmap
from typing import Any, Final

from dledger.catalog.results import CommandResult
from dledger.config.dynamic import topic_and_name, unknown_setting, wrong_value
from dledger.protocol.messages.catalog_commands import AlterSettings
from dledger.protocol.messages.codes import Code

MAX_CHANGES: Final = 100
"""Changes that are remembered."""


@dataclass(frozen=True, slots=True)
class SettingChange:
    """One change of settings."""

    version: int
    time_ms: int
    """By the leader's clock, ms since 1970."""
    principal: str
    changes: dict[str, tuple[str | None, str | None]]
    """Each setting's value before and after; None: each node's own counts."""


class DynamicSettings:
    """The settings that a group keeps. Before its first change it keeps none, and each node's own
    settings count."""

    def __init__(self) -> None:
        self.version = 0
        """Number of changes so far."""
        self.founding: dict[str, str] = {}
        """Of the leader that took the first change: those of the whole group, so that they are
        equal from then on."""
        self.values: dict[str, str] = {}
        """Those that were set."""
        self.history: list[SettingChange] = []
        """The newest `MAX_CHANGES`, oldest first."""

    def __bool__(self) -> bool:
        return self.version > 0

    @property
    def kept(self) -> dict[str, str]:
        """Every setting that the group keeps."""
        return self.founding | self.values

    def refusal(self, command: AlterSettings) -> CommandResult | None:
        """Why the present state cannot take the command, or None. A repeat of the last change finds
        the version behind the one that it expects, and everything as it wants it."""
        expected = command.expected_version
        if expected in {-1, self.version}:
            return None
        if expected + 1 == self.version and self._after(command) == self.values:
            return None
        return CommandResult(
            Code.UNEXPECTED_ARGUMENT,
            f"the group's settings have version {self.version}{self._last()}, not {expected}: look "
            "at them with 'dledger settings get', then try again",
        )

    def _last(self) -> str:
        return f" (by {self.history[-1].principal})" if self.history else ""

    def _after(self, command: AlterSettings) -> dict[str, str]:
        after = self.values | command.values
        return {name: text for name, text in after.items() if name not in command.reset}

    def alter(self, command: AlterSettings) -> CommandResult:
        """Set and reset settings; the result has the version from now on."""
        if (refused := self.refusal(command)) is not None:
            return refused
        after = self._after(command)
        if after != self.values:
            before = self.kept
            if not self.version:
                self.founding = dict(command.founding)
                before |= self.founding
            self.values, self.version = after, self.version + 1
            kept = self.kept
            touched = sorted({*command.values, *command.reset})
            changes = {name: (before.get(name), kept.get(name)) for name in touched}
            self.history = [
                *self.history[1 - MAX_CHANGES :],
                SettingChange(self.version, command.time_ms, command.principal, changes),
            ]
        return CommandResult(Code.SUCCESS, result={"version": self.version})

    def of_topics(self) -> dict[str, dict[str, int]]:
        """What topics have of their own, by topic and name."""
        found: dict[str, dict[str, int]] = {}
        for full, text in self.values.items():
            topic, name = topic_and_name(full)
            if topic:
                found.setdefault(topic, {})[name] = int(text)
        return found

    def topic_deleted(self, topic: str) -> None:
        """Its settings go with it: a later topic of that name begins without any."""
        gone = [name for name in self.values if topic_and_name(name)[0] == topic]
        if gone:
            self.values = {name: text for name, text in self.values.items() if name not in gone}

    def image(self) -> list[Any]:
        """The state in a snapshot."""
        return [
            self.version,
            sorted(self.founding.items()),
            sorted(self.values.items()),
            [
                [one.version, one.time_ms, one.principal, sorted(one.changes.items())]
                for one in self.history
            ],
        ]

    @classmethod
    def of_image(cls, image: list[Any]) -> DynamicSettings:
        state = cls()
        state.version, founding, values, history = image
        state.founding, state.values = dict(founding), dict(values)
        for version, time_ms, principal, changes in history:
            spans = {name: (before, after) for name, (before, after) in changes}
            state.history.append(SettingChange(version, time_ms, principal, spans))
        return state


def malformed_settings(command: AlterSettings) -> str:
    """Why no state could take this command; empty where one may."""
    if not command.values and not command.reset:
        return "which settings? As in: dledger settings set retention_ms=7d"
    for name in (*command.values, *command.reset):
        if text := unknown_setting(name):
            return text
    if both := sorted(command.values.keys() & set(command.reset)):
        return f"{both[0]} is to be set and to be reset: which of them?"
    return next(filter(None, starmap(wrong_value, command.values.items())), "")
