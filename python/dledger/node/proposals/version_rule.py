"""The rule of group versions: no command reaches the log that a member would not know, and no
version becomes active that a member does not support."""

from __future__ import annotations

from dledger.catalog.results import CommandResult
from dledger.catalog.versions import SINCE, too_new
from dledger.node.context import NodeContext
from dledger.protocol.messages.catalog_commands import Command, UpgradeGroup
from dledger.protocol.messages.codes import Code
from dledger.release import FIRST_RELEASES, GROUP_VERSION, RELEASE


def refused_by_version(
    command: Command, context: NodeContext, *, caught_up: bool
) -> CommandResult | None:
    """Why a leader does not write a command, or None. ``caught_up``: whether its catalog, which has
    the group's version, has all that earlier leaders committed."""
    if type(command) not in SINCE:
        return None
    active = context.catalog.version.active
    if isinstance(command, UpgradeGroup):
        return None if 0 < command.version <= active else _not_possible(command, context)
    text = too_new(command, active)
    if not text:
        return None
    return CommandResult(Code.UNSUPPORTED if caught_up else Code.LEADER_NOT_READY, text)


def _not_possible(command: UpgradeGroup, context: NodeContext) -> CommandResult | None:
    version = command.version
    if not 0 < version <= GROUP_VERSION:
        return CommandResult(
            Code.UNEXPECTED_ARGUMENT,
            f"there is no group version {version} to upgrade to: {context.node_id}, which leads, "
            f"runs dledger {RELEASE}, whose newest is {GROUP_VERSION}",
        )
    if command.release != FIRST_RELEASES[version]:  # each node writes it down as it stands
        return CommandResult(
            Code.UNEXPECTED_ARGUMENT,
            f"group version {version} comes with dledger {FIRST_RELEASES[version]}, not "
            f"{command.release[:40]!r}",
        )
    text = context.peers.not_supporting(version)
    return CommandResult(Code.ILLEGAL_MEMBER_STATE, text) if text else None
