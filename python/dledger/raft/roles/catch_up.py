"""Whether a learner has caught up: replication in rounds (Raft dissertation, 4.2.1).

A round brings the learner what the leader's log had when the round began. As long as the learner
gains on the leader, each round is shorter than the one before. One that is shorter than an election
time shows that a promotion would hold up commits for no longer than that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dledger.types import Index

MOST_ROUNDS: Final = 10
"""A learner that is not near after so many rounds in which it did not gain is too slow for what is
appended."""
GAINS: Final = 0.9
"""A round gains when it takes no longer than this part of the one before. Rounds that gain end with
a quick one, however large the log was at first."""


@dataclass(slots=True)
class CatchUp:
    """The rounds of one learner under one leader."""

    began_ms: int
    target: Index
    """The end of the leader's log when the round began."""
    rounds: int = 0
    """Rounds since the last quick one that took too long and did not gain, the first one too."""
    last_ms: int = 0
    """How long the last round took."""
    was_quick: bool = False
    """The last round took less than an election time."""

    def acknowledged(self, watermark: Index, end: Index, now_ms: int, election_ms: int) -> None:
        """The learner has everything up to ``watermark`` of a log that ends at ``end``."""
        if watermark >= self.target:
            took_ms = now_ms - self.began_ms
            self.was_quick = took_ms < election_ms
            if self.was_quick:
                self.rounds = 0
            elif took_ms > GAINS * self.last_ms:
                self.rounds += 1
            self.began_ms, self.target, self.last_ms = now_ms, end, took_ms

    def is_near(self, watermark: Index, end: Index, now_ms: int, election_ms: int) -> bool:
        """Whether the learner is so near to the end that it may count."""
        return watermark >= end or (self.was_quick and now_ms - self.began_ms < election_ms)

    @property
    def is_too_slow(self) -> bool:
        return self.rounds >= MOST_ROUNDS
