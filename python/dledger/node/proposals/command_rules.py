"""Commands that a leader does not write, beside those that the catalog or a limit refuses."""

from __future__ import annotations

from dledger.catalog.results import CommandResult
from dledger.node.context import NodeContext
from dledger.node.proposals.reserved import refused_name
from dledger.node.proposals.setting_changes import wrong_change
from dledger.node.proposals.version_rule import refused_by_version
from dledger.protocol.messages.catalog_commands import AlterSettings, Command, EnforceSecret
from dledger.protocol.messages.codes import Code
from dledger.types import Principal


def refused_command(
    command: Command, context: NodeContext, *, caught_up: bool, principal: Principal | None
) -> CommandResult | None:
    """Why a leader does not write a command, or None. The node's own, of no ``principal``, are
    written, if the group's version has them. ``caught_up``: as `refused_by_version` has it."""
    refusal = refused_by_version(command, context, caught_up=caught_up)
    if refusal is not None or principal is None:
        return refusal
    if (refusal := refused_name(command, principal)) is not None:
        return refusal
    # a repeat shuts nobody out
    if isinstance(command, EnforceSecret) and not context.catalog.secret_enforced:
        lost = context.peers.shut_out()
        return CommandResult(Code.ILLEGAL_MEMBER_STATE, lost) if lost else None
    if isinstance(command, AlterSettings) and (
        wrong := wrong_change(command, members=context.members.ids)
    ):
        return CommandResult(Code.MALFORMED, wrong)
    return None
