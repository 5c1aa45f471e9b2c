"""ReadIndex: linearizable reads without writing to the log (Raft thesis, 6.4)."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from dledger.protocol.messages.codes import Code
from dledger.raft.state.quorum_ack_checker import quorum_index
from dledger.raft.state.ready import ReadDone
from dledger.types import NO_INDEX, Index, NodeId


@dataclass(slots=True)
class PendingRead:
    token: int
    index: Index
    round: int


class ReadQueue:
    """Reads of one leadership, each waiting for a heartbeat round that began after it was asked.

    When a quorum answered that round, no later leader had been elected when the read was asked, so
    no entry beyond those committed here then had been acknowledged. The NOOP of the term must be
    committed too: before that a new leader does not know how far the log is committed.
    """

    def __init__(self, members: Sequence[NodeId], me: NodeId, *, noop_index: Index) -> None:
        self._me = me
        self._noop_index = noop_index
        self._answered: dict[NodeId, int] = dict.fromkeys(members, 0)
        self.waiting: deque[PendingRead] = deque()
        self.round = 0
        """The newest heartbeat round."""

    def next_round(self) -> int:
        self.round += 1
        if self._me in self._answered:
            self._answered[self._me] = self.round
        return self.round

    def ask(self, token: int, committed: Index) -> bool:
        """Queue a read. True: a round should begin at once; False: one is open, the read goes with
        the next."""
        is_open = bool(self.waiting) and self.waiting[-1].round >= self.round > self.quorum_round
        # An open round was begun before this read. Its answers may be older than the read, so only
        # the next round proves that no later leader was there.
        self.waiting.append(PendingRead(token, max(committed, self._noop_index), self.round + 1))
        return not is_open

    def answered(self, member: NodeId, round_: int) -> None:
        """``member`` still followed this leader when it answered that round."""
        self._answered[member] = max(self._answered[member], min(round_, self.round))

    def set_voters(self, voters: Sequence[NodeId]) -> None:
        """These count from now on."""
        self._answered = {voter: self._answered.get(voter, 0) for voter in voters}

    def forget(self, member: NodeId) -> None:
        """``member`` does not count any more: its answers are void."""
        self._answered[member] = 0

    @property
    def quorum_round(self) -> int:
        return quorum_index(self._answered.values())

    @property
    def wants_round(self) -> bool:
        """Whether reads wait for a round that has not begun although the last one is done."""
        return (
            bool(self.waiting)
            and self.waiting[-1].round > self.round
            and self.quorum_round == self.round
        )

    def done(self, committed: Index) -> list[ReadDone]:
        """The reads that may be served now."""
        if not self.waiting or committed < self._noop_index:
            return []
        quorum, done = self.quorum_round, []
        while self.waiting and self.waiting[0].round <= quorum:
            read = self.waiting.popleft()
            done.append(ReadDone(read.token, Code.SUCCESS, read.index))
        return done

    def fail(self) -> list[ReadDone]:
        """This node leads no more."""
        failed = [ReadDone(read.token, Code.NOT_LEADER, NO_INDEX) for read in self.waiting]
        self.waiting.clear()
        return failed
