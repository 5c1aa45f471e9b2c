"""Which commands carry a time, and which time they get."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from dledger.node.proposals.clocks import Clocks
from dledger.protocol.messages.catalog_commands import Command, Expire, InitProducer, OpenStage
from dledger.protocol.messages.user_commands import IssueToken, SetUser

TIMED: Final = (OpenStage, InitProducer, Expire, SetUser, IssueToken)
"""Commands that begin or end a time-out."""


def has_time(command: Command) -> bool:
    """Whether it has a place for the leader's time."""
    return hasattr(command, "time_ms")


def stamp_time(command: Command, clocks: Clocks) -> Command:
    """The leader's clocks go into every command that has a place for it, so that all nodes apply
    the same."""
    if has_time(command):
        time_ms = clocks.now_ms() if isinstance(command, TIMED) else clocks.label_ms()
        place: dict[str, Any] = {"time_ms": time_ms}
        return replace(command, **place)
    return command
