"""Which index a quorum has, and which appends wait for it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from dledger.protocol.messages.codes import Code
from dledger.raft.state.ready import Finished
from dledger.types import NO_INDEX, Index, NodeId

T = TypeVar("T", bound=int)


def quorum_size(members: int) -> int:
    return members // 2 + 1


def quorum_index(watermarks: Iterable[T]) -> T:
    """The highest index that a quorum has reached: the middle one of the sorted watermarks."""
    ordered = sorted(watermarks)
    # A quorum of watermarks (`quorum_size`) stands from this place to the end, and none of them is
    # lower. A member that does not count has NO_INDEX, so it helps no index and shrinks no quorum.
    return ordered[(len(ordered) - 1) // 2]


@dataclass(slots=True)
class PendingAppend:
    """One call of propose that waits for its quorum; indexes are inclusive."""

    first: Index
    last: Index
    size: int
    deadline_ms: int


class QuorumAckChecker:
    """One leadership's watermarks and pending appends. Another term has another checker, so that
    neither mixes."""

    def __init__(self, members: Sequence[NodeId]) -> None:
        self.watermarks: dict[NodeId, Index] = dict.fromkeys(members, NO_INDEX)
        self.pending_bytes = 0
        """Bytes of proposed entries that are not committed, answered or not."""
        self._uncommitted: deque[PendingAppend] = deque()
        self._unanswered: deque[PendingAppend] = deque()

    def acknowledge(self, member: NodeId, index: Index) -> bool:
        """``member`` has everything up to ``index`` on disk. Watermarks never go back: they are
        promises."""
        if index <= self.watermarks[member]:
            return False
        self.watermarks[member] = index
        return True

    def set_voters(self, voters: Sequence[NodeId]) -> None:
        """These count from now on."""
        self.watermarks = {voter: self.watermarks.get(voter, NO_INDEX) for voter in voters}

    def forget(self, member: NodeId) -> None:
        """``member`` has lost its log, or is another incarnation now: its promises are void."""
        self.watermarks[member] = NO_INDEX

    def wait(self, first: Index, last: Index, size: int, deadline_ms: int) -> None:
        pending = PendingAppend(first, last, size, deadline_ms)
        self._uncommitted.append(pending)
        self._unanswered.append(pending)
        self.pending_bytes += size

    def complete(self, committed: Index) -> list[Finished]:
        """Everything up to ``committed`` succeeded; one range, because appends are in order."""
        while self._uncommitted and self._uncommitted[0].last <= committed:
            self.pending_bytes -= self._uncommitted.popleft().size
        waiting = self._unanswered
        if not waiting or waiting[0].first > committed:
            return []
        first = waiting[0].first
        while waiting and waiting[0].last <= committed:
            waiting.popleft()
        # An append that reaches beyond ``committed`` is answered in parts; its rest waits on.
        if waiting and waiting[0].first <= committed:
            waiting[0].first = Index(committed + 1)
        return [Finished(first, committed, Code.SUCCESS)]

    def expire(self, now_ms: int) -> list[Finished]:
        """The appends that no quorum acknowledged in time. They may still commit, without an answer
        then."""
        late = []
        while self._unanswered and self._unanswered[0].deadline_ms <= now_ms:
            pending = self._unanswered.popleft()
            late.append(Finished(pending.first, pending.last, Code.WAIT_QUORUM_ACK_TIMEOUT))
        return late

    def fail(self) -> list[Finished]:
        """The term has moved on: this node will not learn the outcome of the rest."""
        failed = [Finished(p.first, p.last, Code.EXPIRED_TERM) for p in self._unanswered]
        self._unanswered.clear()
        return failed
