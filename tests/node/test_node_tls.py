"""Nodes under TLS ask one another as clients do: retention needs to know what the leader has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


async def test_a_node_hears_the_status_of_another(
    play: Callable[..., Any], issue: Callable[..., dict[str, str]]
) -> None:
    async with play(**issue()) as group:
        leader = await group.leader()
        follower = await group.follower()
        status = await follower.parts.peers.status_of(leader.node.node_id)
        assert (status["node_id"], status["role"]) == (leader.node.node_id, "LEADER")
