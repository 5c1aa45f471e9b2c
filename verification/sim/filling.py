"""Members that are far behind are filled no faster than the group's limit says, and a seed waits
for them as long as that takes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from dledger.node.node import NodeServer
from dledger.raft.roles.fill_pace import Filled, FillPace
from verification.sim.outcome import SeedCounts
from verification.sim.scheduler import SECOND

REST: Final = "rest while a member is filled"


@contextmanager
def counted_rests(counts: SeedCounts) -> Iterator[None]:
    """Each look of a leader that lets a member wait for the limit bites."""
    wait_ms = FillPace.wait_ms

    def counted(pace: FillPace, follower: Filled, limit: int, now_ms: int) -> int | None:
        wait = wait_ms(pace, follower, limit, now_ms)
        if limit and wait:
            counts.bite(REST)
        return wait

    FillPace.wait_ms = counted  # type: ignore[assignment, method-assign]
    try:
        yield
    finally:
        FillPace.wait_ms = wait_ms  # type: ignore[method-assign]


def longest_fill_ns(servers: Iterable[NodeServer]) -> int:
    """How long all other members' logs take under the limit, if none of them has anything yet."""
    servers = list(servers)
    limits = [one.raft._machine.config.catch_up_bytes_per_s for one in servers]
    limit = min(filter(None, limits), default=0)
    if not limit:
        return 0
    size = max(one.raft.log.end.end_pos - one.store.begin.end_pos for one in servers)
    return len(servers) * size * SECOND // limit
