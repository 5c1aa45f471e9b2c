"""What a node counts and times while it works. There are meters only where the node serves metrics;
otherwise nothing is counted.

Plain numbers, without a lock: each is changed by one thread, and read by that of the metrics.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Final

from dledger.protocol.messages.codes import Code

BOUNDS_S: Final = (
    0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0,
    2.5, 5.0, 10.0,
)  # fmt: skip
"""Upper ends of the buckets, in seconds; one more takes the rest. From a small append in memory to
the time-out of one."""


class Histogram:
    """Durations by bucket."""

    __slots__ = ("counts", "sum_s")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_S) + 1)
        """By bucket, the last one for those above all bounds."""
        self.sum_s = 0.0

    def observe(self, seconds: float, count: int = 1) -> None:
        """``count`` times took ``seconds`` each."""
        self.counts[bisect_left(BOUNDS_S, seconds)] += count
        self.sum_s += seconds * count


@dataclass(slots=True)
class Served:
    """The records of one topic that were sent to readers, whole batches of them."""

    records: int = 0
    bytes: int = 0


@dataclass(slots=True, eq=False)
class Meters:
    """All that one node counts, from its start on."""

    append: Histogram = field(default_factory=Histogram)
    """Appends of clients at the leader, from the request to the answer."""
    fsync: Histogram = field(default_factory=Histogram)
    commit: Histogram = field(default_factory=Histogram)
    """What a leader proposed at once, from there until a quorum has it on disk."""
    apply: Histogram = field(default_factory=Histogram)
    """Committed entries that came together, into the catalog."""
    served: defaultdict[int, Served] = field(default_factory=lambda: defaultdict(Served))
    """By topic id."""
    refused: defaultdict[Code, int] = field(default_factory=lambda: defaultdict(int))
    """Answers to clients that are no success."""
    throttled: int = 0
    """Requests behind which a connection was read no further for a while."""
    elections: int = 0
    """Terms in which this node asked for votes."""
    leader_changes: int = 0
    """How often another member led than before, as this node saw it."""
