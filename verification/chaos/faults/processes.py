"""Faults of processes: killed, stopped for a while, ended; and leadership handed over."""

from __future__ import annotations

import asyncio
import signal
from typing import Final

from dledger.client import AsyncClient
from dledger.errors import DLedgerError
from verification.chaos.faults.fault import fault
from verification.chaos.process import Node
from verification.chaos.scene import Scene


async def _kill(scene: Scene, nodes: list[Node]) -> int:
    """SIGKILL all at once; they stay away for a while."""
    for node in nodes:
        node.signal(signal.SIGKILL)
    for node in nodes:
        node.reap()
    killed = sum(node.exits[-1] == -signal.SIGKILL for node in nodes)
    await asyncio.sleep(scene.seconds(0.0, 3.0))
    await scene.restart(*nodes)
    return killed


@fault("SIGKILL of a follower", "processes killed")
async def kill(scene: Scene) -> int:
    return await _kill(scene, [await scene.follower()])


@fault("SIGKILL of the leader", "processes killed")
async def kill_leader(scene: Scene) -> int:
    leader = await scene.leader()
    return await _kill(scene, [leader]) if leader else 0


@fault("SIGKILL of a majority at once", "processes killed")
async def kill_majority(scene: Scene) -> int:
    names = scene.dice.sample(scene.nodes.names, scene.nodes.majority)
    return await _kill(scene, [scene.nodes[name] for name in names])


@fault("SIGKILL of all nodes at once", "processes killed")
async def kill_all(scene: Scene) -> int:
    return await _kill(scene, list(scene.nodes))


async def _pause(scene: Scene, node: Node, seconds: float) -> int:
    node.signal(signal.SIGSTOP)
    try:
        await asyncio.sleep(seconds)
        return int(node.paused)
    finally:
        node.signal(signal.SIGCONT)


@fault("SIGSTOP of a follower, SIGCONT later", "processes seen stopped")
async def pause(scene: Scene) -> int:
    return await _pause(scene, await scene.follower(), scene.seconds(0.5, 6.0))


@fault("SIGSTOP of the leader for longer than an election", "processes seen stopped")
async def pause_leader(scene: Scene) -> int:
    """For longer than an election takes: it wakes up and believes that it leads."""
    leader = await scene.leader()
    return await _pause(scene, leader, scene.seconds(2.5, 6.0)) if leader else 0


@fault("SIGSTOP of all nodes for two seconds", "times that all were seen stopped")
async def pause_all(scene: Scene) -> int:
    """As a machine that sleeps."""
    found = await asyncio.gather(*(_pause(scene, node, 2.0) for node in scene.nodes))
    return int(all(found))


@fault("SIGTERM and a new start, one node after the other", "graceful ends")
async def rolling_restart(scene: Scene) -> int:
    """Each hands over, drains and ends; the leader last, so that it leads until then."""
    leader = await scene.leader()
    ended = 0
    for node in sorted(scene.nodes, key=lambda node: node is leader):
        node.signal(signal.SIGTERM)
        code = await node.ended()
        if code != 0 and not node.leaving:
            scene.problem(
                f"{node.name} did not end properly on SIGTERM: code {code}\n{node.last_words()}"
            )
            node.kill()
        ended += code == 0
        await scene.restart(node)
    return ended


@fault("leadership transferred under load", "transfers done")
async def hand_over(scene: Scene) -> int:
    """Under load, several times."""
    done = 0
    async with AsyncClient(scene.nodes.bootstrap_servers, request_timeout_ms=5000) as client:
        for _ in range(3):
            to = await scene.follower()
            try:
                await client.transfer(to.name)
            except DLedgerError:
                # it may refuse: the follower is behind, or the leader has changed by itself
                continue
            done += 1
    return done


PROCESS_FAULTS: Final = (
    kill,
    kill_leader,
    kill_majority,
    kill_all,
    pause,
    pause_leader,
    pause_all,
    rolling_restart,
    hand_over,
)
