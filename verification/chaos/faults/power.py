"""The power fails: processes are gone at once, and changes that no sync covered are undone or
torn."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Final

from dledger.storage.offline.verify import verify_store
from verification.chaos.faults.fault import fault
from verification.chaos.power.outage import MOODS
from verification.chaos.process import Node
from verification.chaos.scene import Scene

SLOW: Final = 0.6
"""So often the disks are slow for a while before: then much is written that no sync covers yet."""


QUIET: Final = 0.5
"""So often clients begin nothing new for a moment before: then no later sync makes up for one that
left something out.
"""


async def _cut(scene: Scene, nodes: list[Node]) -> int:
    """In the end all come back, first a majority of those that lost most: it must have everything
    by itself."""
    if scene.dice.random() < SLOW:
        await _slow_down(scene, nodes)
    if scene.dice.random() < QUIET:
        scene.hush(True)
        await asyncio.sleep(scene.seconds(0.3, 1.5))
    reported = {node.name: await _reported(node) for node in nodes}
    for node in nodes:
        node.signal(signal.SIGKILL)
    scene.hush(False)
    for node in nodes:
        node.reap()
        node.panel.clear()
    mood = scene.dice.choice(MOODS)
    lost = {node.name: await asyncio.to_thread(node.cut_power, scene.dice, mood) for node in nodes}
    for node in nodes:
        if wrong := await asyncio.to_thread(what_is_missing, node.directory, reported[node.name]):
            scene.problem(
                f"{node.name} had reported entries up to {reported[node.name]} durable: {wrong}"
            )
    await asyncio.sleep(scene.seconds(0.0, 1.5))
    order = sorted(nodes, key=lambda node: lost[node.name], reverse=True)
    first = max(0, scene.nodes.majority - (len(scene.nodes.names) - len(nodes)))
    await scene.restart(*order[:first])
    await asyncio.sleep(scene.seconds(0.0, 3.0) if first else 0.0)
    await scene.restart(*order)
    return sum(lost.values())


async def _reported(node: Node) -> int:
    """The last entry that it reports as durable and committed, so that no truncation may take it;
    -1: it does not answer."""
    status = await node.status()
    return int(min(status.get("durable_index", -1), status.get("committed_index", -1)))


def what_is_missing(directory: Path, index: int) -> str:
    """The entries up to this one that a stopped store lacks, in words; "" when it has them. A torn
    write behind the last entry is of another entry, which was never called durable."""
    if index < 0:
        return ""
    found = verify_store(directory)
    damaged = [
        problem
        for problem in found["problems"]
        if 0 <= problem["index"] <= index
        and problem["pos"] < found["end_pos"]
        and Path(problem["file"]).parent.name == "data"
    ]
    if damaged:
        return f"entry {damaged[0]['index']}: {damaged[0]['reason']}"
    return f"the log ends at {found['end_index']}" if found["end_index"] < index else ""


async def _slow_down(scene: Scene, nodes: list[Node]) -> None:
    """By 3 to 40 ms a write, and a sync by a third to ten times as much: many a sync begins within
    a write."""
    for node in nodes:
        write_us = 1000 * 10 ** scene.dice.uniform(0.5, 1.6)
        node.panel["write_delay_us"] = int(write_us)
        node.panel["sync_delay_us"] = int(write_us * 10 ** scene.dice.uniform(-0.5, 1.0))
    await asyncio.sleep(scene.seconds(0.5, 2.5))


def _with_shim(scene: Scene) -> list[Node]:
    return [node for node in scene.nodes if not node.plain]


@fault("the power of one node fails", "blocks, lengths and names undone")
async def power_cut(scene: Scene) -> int:
    return await _cut(scene, [scene.dice.choice(_with_shim(scene))])


@fault("the power of the leader fails", "blocks, lengths and names undone")
async def power_cut_leader(scene: Scene) -> int:
    leader = await scene.lead(_with_shim(scene))
    return await _cut(scene, [leader]) if leader and not leader.plain else 0


@fault("the power of a minority fails", "blocks, lengths and names undone")
async def power_cut_minority(scene: Scene) -> int:
    names = scene.minority()
    return await _cut(scene, [scene.nodes[name] for name in names])


@fault("the power of all nodes fails at once", "blocks, lengths and names undone")
async def power_cut_all(scene: Scene) -> int:
    return await _cut(scene, list(scene.nodes))


POWER_FAULTS: Final = (power_cut, power_cut_leader, power_cut_minority, power_cut_all)
