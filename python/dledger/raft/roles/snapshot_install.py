"""Bringing a follower up by state: entries that retention took can no longer be pushed.

The rules, with their reasons:

- A leader offers its state (INSTALL_SNAPSHOT) when a follower needs entries before its own begin
  index; a follower asks for it by itself when it holds damaged entries of which no member has a
  copy.
- State is of committed entries only, so any leader's is true for ever, also when it is late or no
  leader any more. Damage and lag are measured again when all of it is here, because the log may
  have moved on meanwhile.
- A log that holds the leader's first entry keeps all from there on: others may count on its
  acknowledgements of it. One that does not hold it has nothing behind its place that is committed
  (log matching), and its entries before it are in the state. So it is replaced by a log that
  begins, and for now ends, at that entry. Its votes are judged by the term and index of that entry.
- An entry that contradicts a committed entry is never put in its place (D7).
"""

from __future__ import annotations

from enum import Enum

from dledger.raft.state.raft_state import RaftState
from dledger.raft.state.ready import Fact, SafetyViolation
from dledger.types import Position, Role


class InstallMode(Enum):
    """How the log changes when a state is taken over."""

    REPLACE = "it begins anew at the state's first entry"
    KEEP = "it loses what is in front of that entry"


def install_mode(core: RaftState, first: Position) -> InstallMode | None:
    """How a state whose log begins at the committed entry ``first`` may be taken over now; None
    when it may not.

    Raises:
        SafetyViolation: this node knows another entry there to be committed.
    """
    log = core.log
    if core.role is Role.LEADER or first.index <= log.begin_index or first.term > core.term:
        return None  # an entry of a later term than its leader's is none that was ever written
    if log.holds(first):
        return InstallMode.KEEP
    if first.index <= log.committed_index:
        raise SafetyViolation(
            f"a leader's log begins with entry {first.index} of term {first.term}, but another "
            f"one is committed here: "
            f"this node stops and keeps its files; find the node that lost it",
            Fact(
                "committed_entry_contradicted",
                (("index", first.index), ("committed", log.committed_index)),
            ),
        )
    return InstallMode.REPLACE
