"""Faults of disks: full, slow, broken."""

from __future__ import annotations

import asyncio
from typing import Final

from verification.chaos.faults.fault import fault
from verification.chaos.nodes import NODE_SETTINGS
from verification.chaos.process import Node
from verification.chaos.scene import BACK_S, Scene

FULL_S: Final = 5.0
"""A node finds out about its disk within this time."""


def _sick_node(scene: Scene) -> Node:
    """Any node with a disk that obeys."""
    return scene.nodes[scene.dice.choice([node.name for node in scene.nodes if not node.plain])]


async def _level(node: Node, wanted: bool) -> bool:
    return ((await node.status()).get("disk_level") == "FULL") == wanted


@fault("a node's disk is full, and has room again", "times that the node said so")
async def disk_full(scene: Scene) -> int:
    """On a mounted small disk where that is allowed and its node is a member: half of the times to
    the last byte, else up to the reserve. Where it is not, the disk that obeys says so."""
    is_mounted = scene.small.mounted and "n0" in scene.nodes.names
    if is_mounted:
        node = scene.nodes["n0"]
        leave = (
            0
            if scene.dice.random() < 0.5
            else scene.dice.randrange(NODE_SETTINGS["disk_reserve_bytes"])
        )
        scene.small.fill(leave)
    else:
        node = _sick_node(scene)
        node.panel["full"] = 1
    try:
        noticed = await scene.nodes.until(lambda: _level(node, True), FULL_S)
        await asyncio.sleep(scene.seconds(1.0, 3.0))
    finally:
        scene.small.empty()
        node.panel["full"] = 0
    is_well = await scene.nodes.until(lambda: _level(node, False), BACK_S)
    if not is_well and not node.leaving:
        scene.problem(
            f"{node.name} still says that its disk is full, though there is room:\n"
            f"{node.last_words()}"
        )
    return int(noticed)


@fault("each sync of a node takes 20 to 500 ms more", "syncs delayed")
async def slow_disk(scene: Scene) -> int:
    node = _sick_node(scene)
    return await _slow(scene, node, scene.dice.randrange(20_000, 500_000))


@fault("each sync of the leader takes 0.1 to 2 s more", "syncs delayed")
async def slow_leader_disk(scene: Scene) -> int:
    """Slower than an election is long, at times."""
    leader = await scene.lead([node for node in scene.nodes if not node.plain])
    node = leader if leader and not leader.plain else _sick_node(scene)
    return await _slow(scene, node, scene.dice.randrange(100_000, 2_000_000))


async def _slow(scene: Scene, node: Node, delay_us: int) -> int:
    before = node.panel["syncs_delayed"]
    node.panel["sync_delay_us"] = delay_us
    await asyncio.sleep(scene.seconds())
    node.panel["sync_delay_us"] = 0
    return node.panel["syncs_delayed"] - before


@fault("a node's fdatasync fails", "errors given")
async def sync_error(scene: Scene) -> int:
    return await _broken(scene, "sync_error", "sync_errors")


@fault("a node's writes fail", "errors given")
async def write_error(scene: Scene) -> int:
    return await _broken(scene, "write_error", "write_errors")


async def _broken(scene: Scene, switch: str, counter: str) -> int:
    """The node must end, and not of anything else; then its disk is well again."""
    node = _sick_node(scene)
    before = node.panel[counter]
    node.panel[switch] = 1
    code = await node.ended(FULL_S)
    node.panel[switch] = 0
    bites = node.panel[counter] - before
    if bites and code is None:
        scene.problem(
            f"{node.name} goes on after {bites} errors of its disk ({switch}):\n{node.last_words()}"
        )
    elif code is not None and code <= 0:
        scene.problem(
            f"{node.name} ended with code {code} after an error of its disk:\n{node.last_words()}"
        )
    await scene.restart(node)
    return bites


DISK_FAULTS: Final = (disk_full, slow_disk, slow_leader_disk, sync_error, write_error)
