"""The power fails: processes are gone at once, and what no sync covered is undone or torn."""

from __future__ import annotations

import asyncio
import signal
from typing import Final

from dledger.testing.chaos.faults.fault import Fault
from dledger.testing.chaos.nodes import Node
from dledger.testing.chaos.power.outage import MOODS
from dledger.testing.chaos.scene import Scene

SLOW: Final = 0.6
"""So often the disks are slow for a while before: then much is written that no sync covers yet."""


async def _cut(scene: Scene, nodes: list[Node]) -> int:
    """In the end all come back, first a majority of those that lost most: it must have everything by itself."""
    if scene.dice.random() < SLOW:
        await _slow_down(scene, nodes)
    for node in nodes:
        node.signal(signal.SIGKILL)
    for node in nodes:
        node.reap()
        node.panel.clear()
    mood = scene.dice.choice(MOODS)
    lost = {node.name: await asyncio.to_thread(node.cut_power, scene.dice, mood) for node in nodes}
    await asyncio.sleep(scene.seconds(0.0, 1.5))
    order = sorted(nodes, key=lambda node: lost[node.name], reverse=True)
    first = max(0, scene.nodes.majority - (len(scene.nodes.names) - len(nodes)))
    await scene.restart(*order[:first])
    await asyncio.sleep(scene.seconds(0.0, 3.0) if first else 0.0)
    await scene.restart(*order)
    return sum(lost.values())


async def _slow_down(scene: Scene, nodes: list[Node]) -> None:
    """By 0.3 to 40 ms a write and 0.3 to 200 ms a sync: either may take longer than the other."""
    for node in nodes:
        node.panel["write_delay_us"] = int(1000 * 10 ** scene.dice.uniform(-0.5, 1.6))
        node.panel["sync_delay_us"] = int(1000 * 10 ** scene.dice.uniform(-0.5, 2.3))
    await asyncio.sleep(scene.seconds(0.5, 2.5))


def _with_shim(scene: Scene) -> list[Node]:
    return [node for node in scene.nodes if not node.plain]


async def power_cut(scene: Scene) -> int:
    return await _cut(scene, [scene.dice.choice(_with_shim(scene))])


async def power_cut_leader(scene: Scene) -> int:
    leader = await scene.lead(_with_shim(scene))
    return await _cut(scene, [leader]) if leader and not leader.plain else 0


async def power_cut_minority(scene: Scene) -> int:
    names = scene.minority()
    return await _cut(scene, [scene.nodes[name] for name in names])


async def power_cut_all(scene: Scene) -> int:
    return await _cut(scene, list(scene.nodes))


POWER_FAULTS: Final = (
    Fault("power_cut", "the power of one node fails", "blocks, lengths and names undone", power_cut),
    Fault("power_cut_leader", "the power of the leader fails", "blocks, lengths and names undone", power_cut_leader),
    Fault("power_cut_minority", "the power of a minority fails", "blocks, lengths and names undone",
          power_cut_minority),
    Fault("power_cut_all", "the power of all nodes fails at once", "blocks, lengths and names undone", power_cut_all),
)  # fmt: skip

__all__ = ["POWER_FAULTS"]
