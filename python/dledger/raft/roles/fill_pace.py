"""How fast a leader fills followers that are far behind.

While appends wait for their quorum, a follower is filled in turns, with rests between, so that its
bytes do not take all of the machine from theirs. And the group may have a limit
(``catch_up_bytes_per_s``). Both are there for the others; so neither holds back what a commit may
need.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import Final, Protocol

from dledger.raft.roles.catch_up import CatchUp
from dledger.raft.state.raft_state import RaftState
from dledger.token_bucket import TokenBucket
from dledger.types import Index, NodeId

PUSHES_A_SECOND: Final = 10
"""Under a limit, a push is no larger than this part of a second's bytes, so that they flow evenly.
One entry goes whole, whatever its size."""
BURST_S: Final = 0.25
"""So many seconds' worth may go at once after a rest: a loop that is late makes up for it."""
TURN_BYTES: Final = 8 << 20
"""Pushed in one turn: enough to keep disk and network busy."""
REST: Final = 2
"""A rest is so many times as long as the turn before it took: a third of the time is its share."""
MOST_REST_MS: Final = 200
PATIENT_ROUNDS: Final = 5
"""A follower that is not near after so many rounds gets no more rests: it might else never be."""


class Turn:
    """The turns of one follower, with a rest after each."""

    __slots__ = ("_began_ms", "_rest_until_ms", "_size")

    def __init__(self) -> None:
        self._began_ms = self._rest_until_ms = self._size = 0

    def sent(self, size: int, now_ms: int) -> None:
        """So many bytes more."""
        if not self._size:
            self._began_ms = now_ms
        self._size += size

    def drained(self, now_ms: int) -> None:
        """Nothing is under way any more, answered or lost."""
        if self._size >= TURN_BYTES:
            self._rest_until_ms = now_ms + min(MOST_REST_MS, REST * (now_ms - self._began_ms))
            self._size = 0

    def end(self) -> None:
        """There is no reason for a rest."""
        self._size = self._rest_until_ms = 0

    def wait_ms(self, now_ms: int) -> int | None:
        """How long the rest still is; 0: none is due; None: until all is answered."""
        return None if self._size >= TURN_BYTES else max(0, self._rest_until_ms - now_ms)


class Filled(Protocol):
    """What is to be known of a follower."""

    counts: bool
    watermark: Index
    heard_ms: int
    catch_up: CatchUp
    turn: Turn


class FillPace:
    """Of one leadership: one limit for all followers together that it holds for."""

    def __init__(self, core: RaftState, followers: Mapping[NodeId, Filled]) -> None:
        self._core = core
        self._followers = followers
        self._bucket: TokenBucket | None = None

    def is_far(self, follower: Filled, now_ms: int) -> bool:
        """Whether it may be held back: it is not near the end of the log, as for a promotion, and
        there is a quorum without it."""
        core = self._core
        end, election_ms = core.log.end_index, core.config.election_ms
        if follower.catch_up.is_near(follower.watermark, end, now_ms, election_ms):
            return False
        return not self._is_needed(follower, now_ms)

    def limit(self, follower: Filled, now_ms: int) -> int:
        """Bytes a second that hold for this follower now; 0: none do."""
        limit = self._core.config.catch_up_bytes_per_s
        return limit if limit and self.is_far(follower, now_ms) else 0

    def limit_of(self, peer: NodeId, now_ms: int) -> int:
        """The same of a follower by its name; 0 where there is none of that name."""
        follower = self._followers.get(peer)
        return 0 if follower is None else self.limit(follower, now_ms)

    def _is_needed(self, follower: Filled, now_ms: int) -> bool:
        """Whether nothing can be committed without it: too few others are here and near. Were two
        that are far, with a quorum in either alone, both held back, so would be all appends."""
        core, end, election_ms = self._core, self._core.log.end_index, self._core.config.election_ms
        others = sum(
            one.counts
            and now_ms - one.heard_ms < election_ms
            and one.catch_up.is_near(one.watermark, end, now_ms, election_ms)
            for one in self._followers.values()
            if one is not follower
        )
        return follower.counts and (core.me in core.voters) + others < core.quorum

    def wait_ms(self, follower: Filled, limit: int, now_ms: int) -> int | None:
        """How long nothing more may go to a far follower under this limit, or for the sake of
        appends; 0: something may go now; None: not before all that is under way to it is
        answered."""
        log, turn = self._core.log, follower.turn
        if log.end_index == log.committed_index or follower.catch_up.rounds >= PATIENT_ROUNDS:
            turn.end()
        rest_ms = turn.wait_ms(now_ms)
        if not limit or rest_ms is None:
            return rest_ms
        if self._bucket is None:
            self._bucket = TokenBucket(limit, now_ms / 1000, burst_s=BURST_S)
        elif self._bucket.rate != limit:
            self._bucket.change(limit, now_ms / 1000)
        return max(rest_ms, ceil(self._bucket.wait_s(now_ms / 1000) * 1000))

    def most(self, limit: int) -> int:
        """Most bytes of one push."""
        largest = self._core.config.push_batch_bytes
        return min(largest, limit // PUSHES_A_SECOND) if limit else largest

    def sent(self, follower: Filled, size: int, now_ms: int) -> None:
        """So many bytes of entries go to this follower now."""
        if self._bucket is not None and self.limit(follower, now_ms):
            self._bucket.take(size, now_ms / 1000)
