"""Elections that nobody asked for, what they are kept away with, and how they come about."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.node.holding import between

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


def cut_off(node: Any, group: Any) -> Callable[[], None]:
    """No message of a peer gets in or out of ``node`` any more; clients still reach it. Returns the
    way back."""
    name, step = node.node.node_id, node.parts.ready_loop.step
    node.parts.ready_loop.step = lambda message: None

    def to_others(message: Any, send: Callable[[Any], None]) -> None:
        if message.remote_id != name:
            send(message)

    ways_back = [
        between(other, to_others if other is not node else lambda message, send: None)
        for other in group.nodes.values()
    ]

    def heal() -> None:
        node.parts.ready_loop.step = step
        for way_back in ways_back:
            way_back()

    return heal
