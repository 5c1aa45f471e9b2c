"""The group version: which forms of entries, frames and snapshots the group uses. It is replicated
state, raised by `UpgradeGroup`; docs/decisions/0009-a-group-version-in-the-log.md says why.

A new command gets a row in `SINCE`: it is refused before the group has that version, so that it
reaches no log that an older node replicates.
"""

from __future__ import annotations

from typing import Any, Final

from dledger.catalog.results import CommandResult
from dledger.protocol.messages.catalog_commands import (
    AlterSettings,
    ChangeMembers,
    UpgradeGroup,
)
from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.group_version import check_supported

FIRST_TAG: Final = 30
"""Commands with lower numbers are older than group versions: each group takes them."""
SINCE: Final[dict[type[Any], int]] = {
    # what raises the version: the leader proposes it only where every member supports the new one
    UpgradeGroup: 0,
    AlterSettings: 1,
    ChangeMembers: 1,
}
"""The group version that allows a command; 0 for those that have no row."""
BRINGS: Final[dict[int, tuple[str, ...]]] = {
    1: (
        "nodes of releases without versions are refused, so that no new command reaches one",
        "settings that the group keeps, and that change while it runs",
        "a list of members that may change",
    ),
}
"""What each group version brings, in words; docs/compatibility.md has the same."""


class VersionState:
    """The active group version."""

    def __init__(self, active: int = 0, release: str = "") -> None:
        self.active = active
        self.release = release
        """The first one that supports it; empty for version 0."""

    def __bool__(self) -> bool:
        return self.active > 0

    def apply(self, command: UpgradeGroup) -> CommandResult:
        """Raise the version, which never falls: an older command changes nothing. The result has
        the active one."""
        if command.version > self.active:
            self.active, self.release = command.version, command.release
        return CommandResult(Code.SUCCESS, result={"version": self.active})

    def image(self) -> list[Any]:
        """The state in a snapshot."""
        return [self.active, self.release]

    @classmethod
    def of_image(cls, image: list[Any]) -> VersionState:
        """The inverse of `image`.

        Raises:
            UnsupportedVersion: this release does not support it.
        """
        if not image:
            return cls()
        check_supported(*image)
        return cls(*image)


def too_new(command: object, active: int) -> str:
    """Why a group with this version does not take a command yet; empty where it does."""
    needed = SINCE.get(type(command), 0)
    if needed <= active:
        return ""
    return f"{type(command).__name__} needs group version {needed}; run 'dledger upgrade'"
