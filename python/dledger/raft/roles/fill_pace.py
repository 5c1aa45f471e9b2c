"""How fast a leader fills followers that are far behind.

While appends are under way, a follower is filled in turns, with rests between, so that its bytes do
not take all of the machine from theirs. It outruns them all the same (``GAIN``). And the group may
have a limit (``catch_up_bytes_per_s``). Both are there for the others; so neither holds back what a
commit may need.
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
TURN_BYTES: Final = 32 << 20
"""Pushed in one turn: so much that reads, network and syncs overlap for most of it. The same bytes
in small turns take more from the appends, because nothing is under way at either end of a turn."""
REST: Final = 1
"""A rest is so many times as long as the turn before it took: half of the time is its share. With
longer ones appends keep hardly more, and the member needs three times as long."""
MOST_REST_MS: Final = 2000
GAIN: Final = 1.5
"""No rest goes on when the log has grown by the turn's bytes through this: so a follower gets that
many times what is appended meanwhile, and comes nearer with each turn, or it gets no rests."""
LULL_MS: Final = 10
"""Appends that are all committed count as under way for this long: the next ones of a client that
waits for its answers are here by then."""
PATIENT_ROUNDS: Final = 5
"""A follower that did not gain in so many rounds gets no more rests: it might else never be
near."""


class Turn:
    """The turns of one follower, with a rest after each."""

    __slots__ = ("_began_ms", "_began_pos", "_rest_until_ms", "_rest_until_pos", "_size")

    def __init__(self) -> None:
        self._began_ms = self._rest_until_ms = self._size = 0
        self._began_pos = self._rest_until_pos = 0

    def sent(self, size: int, end_pos: int, now_ms: int) -> None:
        """So many bytes more, of a log that ends there."""
        if not self._size:
            self._began_ms, self._began_pos = now_ms, end_pos
        self._size += size

    def drained(self, now_ms: int) -> None:
        """Nothing is under way any more, answered or lost."""
        if self._size >= TURN_BYTES:
            self._rest_until_ms = now_ms + min(MOST_REST_MS, REST * (now_ms - self._began_ms))
            self._rest_until_pos = self._began_pos + int(self._size / GAIN)
            self._size = 0

    def end(self) -> None:
        """There is no reason for a rest."""
        self._size = self._rest_until_ms = 0

    def wait_ms(self, end_pos: int, now_ms: int) -> int | None:
        """How long the rest still is, while the log grows no further; 0: none is due; None: until
        all is answered."""
        if self._size >= TURN_BYTES:
            return None
        return 0 if end_pos >= self._rest_until_pos else max(0, self._rest_until_ms - now_ms)


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
        self._appends_ms = -LULL_MS
        """When appends were last seen under way."""

    def appends(self, now_ms: int) -> None:
        """Some are under way: they have just come, or are about to be committed."""
        self._appends_ms = now_ms

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
        rest_ms = self._rest_ms(follower, now_ms)
        if not limit or rest_ms is None:
            return rest_ms
        if self._bucket is None:
            self._bucket = TokenBucket(limit, now_ms / 1000, burst_s=BURST_S)
        elif self._bucket.rate != limit:
            self._bucket.change(limit, now_ms / 1000)
        return max(rest_ms, ceil(self._bucket.wait_s(now_ms / 1000) * 1000))

    def _rest_ms(self, follower: Filled, now_ms: int) -> int | None:
        """The same, for the sake of appends alone."""
        log, turn = self._core.log, follower.turn
        is_idle = log.end_index == log.committed_index
        lull_ms = self._appends_ms + LULL_MS - now_ms
        if (is_idle and lull_ms <= 0) or follower.catch_up.rounds >= PATIENT_ROUNDS:
            turn.end()
        rest_ms = turn.wait_ms(log.end.end_pos, now_ms)
        return min(rest_ms, lull_ms) if is_idle and rest_ms else rest_ms

    def most(self, limit: int) -> int:
        """Most bytes of one push under a limit."""
        return min(self._core.config.push_batch_bytes, limit // PUSHES_A_SECOND)

    def sent(self, follower: Filled, size: int, now_ms: int) -> None:
        """So many bytes of entries go to this follower now."""
        if self._bucket is not None and self.limit(follower, now_ms):
            self._bucket.take(size, now_ms / 1000)
