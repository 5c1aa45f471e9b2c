"""Faults of processes: killed, stopped for a while, ended; and leadership handed over."""

from __future__ import annotations

import asyncio
import signal
from typing import Final

from dledger.client import AsyncClient
from dledger.errors import DLedgerError
from verification.chaos.faults.fault import Fault
from verification.chaos.nodes import Node
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


async def kill(scene: Scene) -> int:
    return await _kill(scene, [await scene.follower()])


async def kill_leader(scene: Scene) -> int:
    leader = await scene.leader()
    return await _kill(scene, [leader]) if leader else 0


async def kill_majority(scene: Scene) -> int:
    names = scene.dice.sample(scene.nodes.names, scene.nodes.majority)
    return await _kill(scene, [scene.nodes[name] for name in names])


async def kill_all(scene: Scene) -> int:
    return await _kill(scene, list(scene.nodes))


async def _pause(scene: Scene, node: Node, seconds: float) -> int:
    node.signal(signal.SIGSTOP)
    try:
        await asyncio.sleep(seconds)
        return int(node.paused)
    finally:
        node.signal(signal.SIGCONT)


async def pause(scene: Scene) -> int:
    return await _pause(scene, await scene.follower(), scene.seconds(0.5, 6.0))


async def pause_leader(scene: Scene) -> int:
    """For longer than an election takes: it wakes up and believes that it leads."""
    leader = await scene.leader()
    return await _pause(scene, leader, scene.seconds(2.5, 6.0)) if leader else 0


async def pause_all(scene: Scene) -> int:
    """As a machine that sleeps."""
    found = await asyncio.gather(*(_pause(scene, node, 2.0) for node in scene.nodes))
    return int(all(found))


async def rolling_restart(scene: Scene) -> int:
    """Each hands over, drains and ends; the leader last, so that it leads until then."""
    leader = await scene.leader()
    ended = 0
    for node in sorted(scene.nodes, key=lambda node: node is leader):
        node.signal(signal.SIGTERM)
        code = await node.ended()
        if code != 0:
            scene.problem(
                f"{node.name} did not end properly on SIGTERM: code {code}\n{node.last_words()}"
            )
            node.kill()
        ended += code == 0
        await scene.restart(node)
    return ended


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
    Fault("kill", "SIGKILL of a follower", "processes killed", kill),
    Fault("kill_leader", "SIGKILL of the leader", "processes killed", kill_leader),
    Fault("kill_majority", "SIGKILL of a majority at once", "processes killed", kill_majority),
    Fault("kill_all", "SIGKILL of all nodes at once", "processes killed", kill_all),
    Fault("pause", "SIGSTOP of a follower, SIGCONT later", "processes seen stopped", pause),
    Fault(
        "pause_leader",
        "SIGSTOP of the leader for longer than an election",
        "processes seen stopped",
        pause_leader,
    ),
    Fault(
        "pause_all",
        "SIGSTOP of all nodes for two seconds",
        "times that all were seen stopped",
        pause_all,
    ),
    Fault(
        "rolling_restart",
        "SIGTERM and a new start, one node after the other",
        "graceful ends",
        rolling_restart,
    ),
    Fault("hand_over", "leadership transferred under load", "transfers done", hand_over),
)
