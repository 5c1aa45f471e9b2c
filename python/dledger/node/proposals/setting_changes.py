"""A change of settings on its way into the log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dledger.config import nearest
from dledger.config.dynamic import texts_of
from dledger.node.context import CurrentSettings
from dledger.protocol.messages.catalog_commands import AlterSettings
from dledger.types import Principal


def stamp_change(
    command: AlterSettings, principal: Principal, *, current: CurrentSettings
) -> AlterSettings:
    """What the leader knows goes into the command, whatever the client has said there: who asks,
    and before the first change, the leader's own settings, which are the group's from then on."""
    founding = {} if current.kept else texts_of(current.own_group)
    return replace(command, principal=principal, founding=founding)


def wrong_change(command: AlterSettings, *, members: Sequence[str]) -> str:
    """Why a group with these members cannot have these settings; empty where it can."""
    text = command.values.get("preferred_leaders", "")
    for node in filter(None, text.split(",")):
        if node not in members:
            return (
                f"preferred_leaders: {node[:40]!r} is no member{nearest(node, [*members])}; there "
                f"are {', '.join(members)}"
            )
    return ""
