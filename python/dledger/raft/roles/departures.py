"""The nodes that a leader's list has no more, and that it still tells so."""

from __future__ import annotations

from typing import Final

from dledger.raft.roles.entry_dispatcher import EntryDispatcher
from dledger.raft.state.raft_state import RaftState
from dledger.types import NodeId

SEE_OFF: Final = 4
"""For so many election times a leader goes on telling a removed node of its removal."""


class Departures:
    """Of one leadership. They get the entry that removes them and its commit, count for nothing,
    and are forgotten then. One that was away is told when it comes back and asks for votes."""

    def __init__(self, core: RaftState, dispatchers: dict[NodeId, EntryDispatcher]) -> None:
        self._core = core
        self._dispatchers = dispatchers
        self._until_ms: dict[NodeId, int] = {}

    def look(self, now_ms: int) -> None:
        """The newest list is another one."""
        peers, until_ms = self._core.peers, now_ms + SEE_OFF * self._core.config.election_ms
        self._until_ms = {
            node: self._until_ms.get(node, until_ms)
            for node in self._dispatchers
            if node not in peers
        }

    def see_off(self, now_ms: int) -> None:
        """Forget those that know by now, or do not answer."""
        if not self._until_ms or self._core.admission.pending is not None:
            return
        index = self._core.admission.membership.index
        for node, until_ms in list(self._until_ms.items()):
            if self._dispatchers[node].commit_answered >= index or now_ms >= until_ms:
                del self._until_ms[node], self._dispatchers[node]
