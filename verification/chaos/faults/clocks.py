"""Faults of clocks. Timers follow the monotonic clock and the wall clock only labels things, so
nothing may change."""

from __future__ import annotations

import asyncio
from typing import Final

from verification.chaos.faults.fault import fault
from verification.chaos.process import Node
from verification.chaos.scene import Scene

SECOND_MS: Final = 1000
YEAR_MS: Final = 365 * 24 * 3600 * SECOND_MS


async def _jump(scene: Scene, nodes: list[Node], shifts_ms: list[int]) -> int:
    """Only a leader looks at its wall clock."""
    await scene.lead(nodes)
    before = sum(node.panel["wall_shifted"] for node in nodes)
    for node, shift in zip(nodes, shifts_ms, strict=True):
        node.panel["wall_shift_ms"] = shift
    await asyncio.sleep(scene.seconds(2.0, 5.0))
    for node in nodes:
        node.panel["wall_shift_ms"] = 0
    return sum(node.panel["wall_shifted"] for node in nodes) - before


def _movable(scene: Scene) -> list[Node]:
    return [node for node in scene.nodes if not node.plain]


@fault("wall clocks jump by up to ten years, each its own way", "times that a wrong one was read")
async def clock_jump(scene: Scene) -> int:
    """Every node's own way, up to ten years."""
    nodes = _movable(scene)
    return await _jump(
        scene, nodes, [scene.dice.randint(-10 * YEAR_MS, 10 * YEAR_MS) for _ in nodes]
    )


@fault("wall clocks are set by up to an hour, all the same", "times that a wrong one was read")
async def clock_step(scene: Scene) -> int:
    """As a clock that is set, by up to an hour."""
    nodes = _movable(scene)
    shift = scene.dice.randint(-3600 * SECOND_MS, 3600 * SECOND_MS)
    return await _jump(scene, nodes, [shift for _ in nodes])


CLOCK_FAULTS: Final = (clock_jump, clock_step)
