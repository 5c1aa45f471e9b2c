"""The state that a core begins with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from dledger.config import MIB
from dledger.protocol.messages.entry import HardState
from dledger.protocol.messages.membership import Member, Membership
from dledger.raft.state.incarnations import ChangeOf, no_change
from dledger.raft.state.log import LogSummary
from dledger.types import Buffer, Index

BodyOf = Callable[[Index, tuple[Member, ...]], Buffer]


@dataclass(frozen=True, slots=True)
class SavedState:
    """The state on the disk when a node starts, all of it durable (D15)."""

    hard_state: HardState
    log: LogSummary
    membership: Membership | None = None
    """None: all incarnations are 0 and count."""


@dataclass(frozen=True, slots=True)
class RaftOptions:
    """Settings of one core."""

    cache_bytes: int = 32 * MIB
    """Entries that are kept in memory."""
    change_of: ChangeOf = no_change
    """Tells from an entry's bytes whether it changes the counted incarnations."""
    change_prefix: bytes = b""
    """The bodies of the entries that ``change_of`` is asked of, when they are written, begin so."""
    body_of: BodyOf | None = None
    """The body of the entry that makes a list the group's, behind the entry of the change before;
    None: this core proposes no such change."""
    joins: bool = False
    """This node was no founding member, and joins a group that has it in its list. The members that
    it was told only say whom to ask."""
    only_asks: bool = False
    """So do those of a founding member that was removed and joins again, once its log has a list:
    they may be any."""


DEFAULT_OPTIONS: Final = RaftOptions()
