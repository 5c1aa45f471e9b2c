"""Whether a leader should go on leading."""

from __future__ import annotations

from dledger.raft.roles.entry_dispatcher import EntryDispatcher
from dledger.raft.roles.leadership_transfer import TransferWatch
from dledger.raft.state.raft_state import RaftState
from dledger.types import NO_INDEX, NodeId


def is_heard(core: RaftState, follower: EntryDispatcher, now_ms: int) -> bool:
    """Whether a follower answered within an election time."""
    return now_ms - follower.heard_ms < core.config.election_ms


class Fitness:
    """Of one leadership."""

    def __init__(
        self,
        core: RaftState,
        dispatchers: dict[NodeId, EntryDispatcher],
        *,
        transfers: TransferWatch,
        now_ms: int,
    ) -> None:
        self._core = core
        self._dispatchers = dispatchers
        self._transfers = transfers
        self._held_up_since_ms = now_ms
        self._lagging_since_ms: int | None = None
        self._lagging_at = core.log.end_index

    def flaw(self, now_ms: int) -> str | None:
        """Why this node has to step down now, as the name of a fact; None: it has not."""
        for why, is_so in (
            ("quorum_lost", self.lost_quorum),
            ("held_up", self.is_held_up),
            ("no_voter", self._has_left),
        ):
            if is_so(now_ms):
                return why
        return None

    @property
    def is_leaving(self) -> bool:
        """Whether a committed list has this node as no voter: it has to hand over. Up to that
        commit it leads on, and does not count itself (Raft dissertation, 4.2.2)."""
        return self._core.me not in self._core.voters and self._core.admission.pending is None

    def _has_left(self, now_ms: int) -> bool:
        """Whether this node is no voter, and nobody is to take over from it."""
        return self.is_leaving and self._transfers.ongoing is None

    def _heard_lately(self, now_ms: int) -> list[EntryDispatcher]:
        """The followers that count and answered within an election time."""
        followers = self._dispatchers.values()
        return [one for one in followers if one.counts and is_heard(self._core, one, now_ms)]

    def lost_quorum(self, now_ms: int) -> bool:
        """Check-quorum: whether fewer than a quorum were heard within the shortest patience of a
        follower."""
        own = self._core.me in self._core.voters
        return own + len(self._heard_lately(now_ms)) < self._core.quorum

    def is_held_up(self, now_ms: int) -> bool:
        """Whether for an election time a quorum of others has been there that acknowledged no
        damaged entry of this log. While that lasts the entry is not repaired, and this node can
        send nothing behind it. The others can do without this node: the next leader among them
        sends the entry, or has it cut."""
        core = self._core
        damaged = core.log.faulty[-1][1] if core.log.faulty else NO_INDEX
        behind = sum(d.watermark < damaged for d in self._heard_lately(now_ms))
        if behind < core.quorum:
            self._held_up_since_ms = now_ms
        return now_ms - self._held_up_since_ms > core.config.election_ms

    def disk_stalls(self, now_ms: int) -> bool:
        """Whether this disk has not written anything for an election time although there was
        something to write, while a quorum of others has: then another leads better."""
        log = self._core.log
        if log.durable_index >= log.committed_index:
            self._lagging_since_ms = None
        elif self._lagging_since_ms is None or log.durable_index > self._lagging_at:
            self._lagging_since_ms, self._lagging_at = now_ms, log.durable_index
        return (
            self._lagging_since_ms is not None
            and now_ms - self._lagging_since_ms > self._core.config.election_ms
        )
