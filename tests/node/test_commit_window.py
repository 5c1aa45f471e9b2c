"""The window of the log goes by the time from a proposal to its commit, in virtual time."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import pytest

from dledger.node.proposals.commit_window import (
    LATELY_S,
    LEAST_BYTES,
    MOST_BYTES,
    PIECE_BYTES,
    CommitWindow,
)
from dledger.types import Index

MB = 1_000_000


@dataclass
class Pipe:
    """A log that commits ``rate`` bytes in a second, one after the other, and no piece before
    ``least_s``; what is to be proposed never ends."""

    rate: float
    least_s: float
    now_s: float = 100.0
    on_its_way: deque[tuple[Index, float, int]] = field(default_factory=deque)
    last: Index = Index(0)
    free_s: float = 0.0
    committed: int = 0

    def propose(self, window: CommitWindow, size: int) -> None:
        self.last = Index(self.last + 1)
        window.proposed(self.last)
        self.free_s = max(self.free_s, self.now_s) + size / self.rate
        self.on_its_way.append((self.last, max(self.free_s, self.now_s + self.least_s), size))

    def run(self, window: CommitWindow, seconds: float, *, most: int = 1 << 40) -> float:
        """At full speed for so long, with at most so many bytes on their way; the rate in bytes a
        second."""
        end_s, before, began_s = self.now_s + seconds, self.committed, self.now_s
        while self.now_s < end_s:
            while (in_flight := sum(size for _, _, size in self.on_its_way)) < most:
                if (room := window.room(in_flight)) <= 0:
                    break
                self.propose(window, room)
            index, self.now_s, size = self.on_its_way.popleft()
            self.committed += size
            window.committed(index)
        return (self.committed - before) / (self.now_s - began_s)


def window_of(pipe: Pipe) -> CommitWindow:
    return CommitWindow(lambda: pipe.now_s)


@pytest.mark.parametrize(("rate", "least_s"), [(200 * MB, 0.005), (60 * MB, 0.01)])
def test_the_window_is_about_twice_what_the_links_and_disks_take(
    rate: float, least_s: float
) -> None:
    pipe = Pipe(rate, least_s)
    window = window_of(pipe)
    assert pipe.run(window, 4) > 0.9 * rate
    assert rate * least_s <= window.size <= 2.5 * rate * least_s


def test_a_fast_disk_has_the_least_window_and_a_far_group_the_largest() -> None:
    near, far = Pipe(60 * MB, 0.001), Pipe(500 * MB, 0.05)
    windows = window_of(near), window_of(far)
    near.run(windows[0], 4)
    far.run(windows[1], 4)
    assert windows[0].size <= LEAST_BYTES + PIECE_BYTES
    assert windows[1].size == MOST_BYTES


def test_the_window_follows_a_disk_that_gets_slower() -> None:
    pipe = Pipe(100 * MB, 0.002)
    window = window_of(pipe)
    pipe.run(window, 4)
    assert window.size < MOST_BYTES // 2
    pipe.least_s = 0.03
    pipe.run(window, 4 * LATELY_S)
    assert window.size > MOST_BYTES // 2, "what was the least no longer counts"


def test_who_asks_for_little_makes_no_window_larger() -> None:
    pipe = Pipe(500 * MB, 0.05)
    window = window_of(pipe)
    before = window.size
    pipe.run(window, 2, most=PIECE_BYTES)
    assert window.size == before


def test_what_another_leader_may_have_cut_is_not_timed() -> None:
    pipe = Pipe(100 * MB, 0.002)
    window = window_of(pipe)
    pipe.run(window, 1)
    size = window.size
    pipe.propose(window, PIECE_BYTES)
    window.clear()
    pipe.now_s += 60
    window.committed(pipe.last)
    assert window.size == size
    assert not window._proposed
