"""The known state of each node: of its present life, and the state that it must remember over all
of its lives."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dledger.protocol.messages.membership import Membership
from dledger.raft.member_state import Machine
from dledger.raft.state.log import RaftLog
from dledger.types import NO_INDEX, NO_TERM, NodeId, Role
from verification.invariants.truth import Terms

if TYPE_CHECKING:
    from dledger.node.node import NodeServer


class Memory:
    """The acts and answers of a node in all of its lives on one disk."""

    def __init__(self) -> None:
        self.others: tuple[Memory, ...] = ()
        """Of the member's other disks: those that were lost, and those that are away. Empty: it
        never had another."""
        self.incarnation = 0
        """Under which its last life answered."""
        self.since: int = NO_INDEX
        """The entry of the newest committed list when the disk was new."""
        self.saved_term: int = NO_TERM
        """The highest term that it ever saved, and so may have sent."""
        self.votes: dict[int, NodeId] = {}
        """Term -> the candidate that it promised its vote."""
        self.ever_committed: int = NO_INDEX
        """The highest index that it knew to be committed, without those lost with a life that ended
        before they were on the disk."""
        self.durable: int = NO_INDEX
        """How far its log was on the disk for sure when its last life ended."""
        self.log: Terms = Terms((), 0, NO_INDEX)
        """Its log then; only what is up to ``durable`` must be there again."""
        self.begin = 0


class WatchedNode:
    """One life of a node: its parts, and the values of its fields when they were last looked at."""

    def __init__(self, name: str, life: int, server: NodeServer, memory: Memory) -> None:
        self.name = name
        self.life = life
        self.server = server
        self.memory = memory
        self.machine: Machine = server.raft._machine
        self.log: RaftLog = server.raft.log
        self.store = server.store
        self.catalog = server.catalog
        self.joins = server.node.joins
        """Its settings' list only says whom to ask."""
        self.lazy = server.node.flush == "async"
        self.terms = Terms(self.store.terms, self.store.begin_index, self.log.end_index)
        self.role = Role.CANDIDATE
        self.term: int = self.machine.term
        self.voted_for = self.machine.voted_for
        self.end = self.log.end
        self.generation = self.log.generation
        self.begin: int = self.log.begin_index
        self.committed: int = self.log.committed_index
        self.durable: int = self.log.durable_index
        self.applied: int = self.catalog.applied_index
        self.failed_at: int | None = None
        self.held_from: int | None = None
        """The first entry that a group wanted when this node looked last for what retention may
        take."""
        self.membership = Membership()
        self.told_under_way = False
        """It began with a list of members that was not committed in its log; perhaps it is cut."""

    def synced(self) -> int:
        """How far the log is on the disk for sure, as this node may claim."""
        raft = self.log.durable_index
        return raft if self.lazy else min(raft, self.store.durable.index)

    def __str__(self) -> str:
        return self.name
