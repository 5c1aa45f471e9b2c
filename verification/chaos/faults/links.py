"""Faults of the network: links cut, one way or both, slow, narrow, lossy."""

from __future__ import annotations

from typing import Final

from verification.chaos.faults.fault import Fault
from verification.chaos.proxy import CLIENT, Link, Rules
from verification.chaos.scene import Scene

TURN_S: Final = 0.4
"""One stall of a lossy link."""


def _held(scene: Scene) -> Rules:
    """Packets come late, or never."""
    return Rules(hold=True, lose=scene.dice.random() < 0.5)


async def _leader_name(scene: Scene) -> str:
    leader = await scene.leader()
    return leader.name if leader else scene.any_node().name


async def isolate(scene: Scene) -> int:
    rules = _held(scene)
    return await scene.hurt(scene.around(scene.minority()), lambda: rules, scene.seconds(), "held")


async def isolate_leader(scene: Scene) -> int:
    """Clients still reach it: it must not acknowledge, nor answer a fresh read."""
    name = await _leader_name(scene)
    links = scene.proxy.links([name], scene.nodes.names, both_ways=True)
    rules = _held(scene)
    return await scene.hurt(links, lambda: rules, scene.seconds(2.0, 5.0), "held")


async def shut_out_leader(scene: Scene) -> int:
    """Its peers see their connections end and soon elect another, while it still believes that it
    leads: the longest time in which two nodes do, and clients reach both."""
    name = await _leader_name(scene)
    links = scene.proxy.links([name], scene.nodes.names, both_ways=True)
    return await scene.hurt(links, lambda: Rules(refuse=True), scene.seconds(1.5, 3.0), "refused")


async def cut_pair(scene: Scene) -> int:
    """The two nodes lose each other; all other nodes and the clients still reach both."""
    first, second = scene.dice.sample(scene.nodes.names, 2)
    links = scene.proxy.links([first], [second], both_ways=True)
    rules = _held(scene)
    return await scene.hurt(links, lambda: rules, scene.seconds(), "held")


async def mute(scene: Scene) -> int:
    """The node hears, and is not heard."""
    name = scene.any_node().name
    links = scene.proxy.links([name], scene.nodes.names)
    rules = _held(scene)
    return await scene.hurt(links, lambda: rules, scene.seconds(), "held")


async def deaf(scene: Scene) -> int:
    """The node is heard, and hears nothing."""
    name = scene.any_node().name
    links = scene.proxy.links(scene.nodes.names, [name])
    rules = _held(scene)
    return await scene.hurt(links, lambda: rules, scene.seconds(), "held")


async def delay(scene: Scene) -> int:
    late = scene.dice.uniform(0.02, 0.4)
    links = scene.around([scene.any_node().name])
    return await scene.hurt(links, lambda: Rules(delay_s=late), scene.seconds(), "delayed")


async def lossy(scene: Scene, links: list[Link], seconds: float) -> int:
    """Stall, lose, reset, and again."""
    bites = 0
    while seconds > 0:
        bites += await scene.hurt(links, lambda: Rules(hold=True, lose=True), TURN_S, "lost")
        bites += await scene.hurt(links, Rules, TURN_S, "lost")
        seconds -= 2 * TURN_S
    return bites


async def loss(scene: Scene) -> int:
    return await lossy(scene, scene.around([scene.any_node().name]), scene.seconds())


async def lost_answers(scene: Scene) -> int:
    """Requests are done, and clients do not learn it."""
    return await lossy(scene, scene.proxy.links(scene.nodes.names, [CLIENT]), scene.seconds())


async def throttle(scene: Scene) -> int:
    rate = scene.dice.randrange(10_000, 100_000)
    links = scene.around([await _leader_name(scene)])
    return await scene.hurt(links, lambda: Rules(bytes_per_s=rate), scene.seconds(), "throttled")


async def resets(scene: Scene) -> int:
    after = scene.dice.randrange(2_000, 60_000)
    names = [*scene.nodes.names, CLIENT]
    links = scene.proxy.links(names, names)
    return await scene.hurt(links, lambda: Rules(reset_after=after), scene.seconds(), "reset")


async def refuse(scene: Scene) -> int:
    """One node gets no new connections, and loses those that it has."""
    name = scene.any_node().name
    links = scene.proxy.links([*scene.nodes.names, CLIENT], [name])
    return await scene.hurt(links, lambda: Rules(refuse=True), scene.seconds(), "refused")


LINK_FAULTS: Final = (
    Fault(
        "isolate",
        "a minority is cut off from all others and from clients",
        "bytes held",
        isolate,
        True,
    ),
    Fault(
        "isolate_leader",
        "the leader is cut off from its peers, not from clients",
        "bytes held",
        isolate_leader,
        True,
    ),
    Fault(
        "shut_out_leader",
        "the leader's connections with its peers are reset, and new ones at once",
        "connections refused",
        shut_out_leader,
        True,
    ),
    Fault("cut_pair", "two nodes are cut off from each other only", "bytes held", cut_pair, True),
    Fault("mute", "what one node sends to its peers is cut, one way", "bytes held", mute, True),
    Fault("deaf", "what its peers send to one node is cut, one way", "bytes held", deaf, True),
    Fault("delay", "all links of one node are 20 to 400 ms late", "bytes delayed", delay, True),
    Fault(
        "loss",
        "all links of one node stall, lose what they had, and are reset",
        "bytes lost",
        loss,
        True,
    ),
    Fault("lost_answers", "answers to clients are lost", "bytes lost", lost_answers, True),
    Fault(
        "throttle", "all links of the leader pass 10 to 100 kB/s", "bytes throttled", throttle, True
    ),
    Fault(
        "resets",
        "all connections are reset in mid-frame, again and again",
        "connections reset",
        resets,
        True,
    ),
    Fault(
        "refuse",
        "one node's connections are reset, and new ones at once",
        "connections refused",
        refuse,
        True,
    ),
)
