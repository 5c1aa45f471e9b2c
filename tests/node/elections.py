"""Elections that nobody asked for, and what they are kept away with."""

from __future__ import annotations

SLOW_VOTES = {"vote_interval_ms": 600}
"""For stories in which one hand-over has to be the last word. A voter that has learned the new term
from it, and hears of no leader for a vote interval or two, asks for votes itself, which on a
machine with too much to do is before the new leader is heard of."""

ONE_LEADER = {"election_ms": 30_000}
"""For stories about what only the leader of the day remembers: nobody else leads because the
machine was busy. The first election does not wait for it."""

QUICK = {"election_ms": 1000}
"""For stories that wait until a follower misses its leader. A change of leader that the machine
brings about, and not the story, does no harm to them."""
