"""Faults of the network: links cut, one way or both, slow, narrow, lossy."""

from __future__ import annotations

from typing import Final

from verification.chaos.faults.fault import fault
from verification.chaos.proxy import CLIENT, Link, Rules
from verification.chaos.scene import Scene

TURN_S: Final = 0.4
"""One stall of a lossy link."""


async def _hold(scene: Scene, links: list[Link], shortest: float = 1.5) -> int:
    """Packets come late, or never."""
    rules = Rules(hold=True, lose=scene.dice.random() < 0.5)
    return await scene.hurt(links, rules, scene.seconds(shortest), "held")


async def _leader_name(scene: Scene) -> str:
    leader = await scene.leader()
    return leader.name if leader else scene.any_node().name


@fault("a minority is cut off from all others and from clients", "bytes held", on_links=True)
async def isolate(scene: Scene) -> int:
    return await _hold(scene, scene.around(scene.minority()))


@fault("the leader is cut off from its peers, not from clients", "bytes held", on_links=True)
async def isolate_leader(scene: Scene) -> int:
    """Clients still reach it: it must not acknowledge, nor answer a fresh read."""
    name = await _leader_name(scene)
    links = scene.proxy.links([name], scene.nodes.names, both_ways=True)
    return await _hold(scene, links, shortest=2.0)


@fault(
    "the leader's connections with its peers are reset, and new ones at once",
    "connections refused",
    on_links=True,
)
async def shut_out_leader(scene: Scene) -> int:
    """Its peers see their connections end and soon elect another, while it still believes that it
    leads: the longest time in which two nodes do, and clients reach both."""
    name = await _leader_name(scene)
    links = scene.proxy.links([name], scene.nodes.names, both_ways=True)
    return await scene.hurt(links, Rules(refuse=True), scene.seconds(1.5, 3.0), "refused")


@fault("two nodes are cut off from each other only", "bytes held", on_links=True)
async def cut_pair(scene: Scene) -> int:
    """The two nodes lose each other; all other nodes and the clients still reach both."""
    first, second = scene.dice.sample(scene.nodes.names, 2)
    return await _hold(scene, scene.proxy.links([first], [second], both_ways=True))


@fault("what one node sends to its peers is cut, one way", "bytes held", on_links=True)
async def mute(scene: Scene) -> int:
    """The node hears, and is not heard."""
    return await _hold(scene, scene.proxy.links([scene.any_node().name], scene.nodes.names))


@fault("what its peers send to one node is cut, one way", "bytes held", on_links=True)
async def deaf(scene: Scene) -> int:
    """The node is heard, and hears nothing."""
    return await _hold(scene, scene.proxy.links(scene.nodes.names, [scene.any_node().name]))


@fault("all links of one node are 20 to 400 ms late", "bytes delayed", on_links=True)
async def delay(scene: Scene) -> int:
    late = scene.dice.uniform(0.02, 0.4)
    links = scene.around([scene.any_node().name])
    return await scene.hurt(links, Rules(delay_s=late), scene.seconds(), "delayed")


async def lossy(scene: Scene, links: list[Link], seconds: float) -> int:
    """Stall, lose, reset, and again."""
    bites = 0
    while seconds > 0:
        bites += await scene.hurt(links, Rules(hold=True, lose=True), TURN_S, "lost")
        bites += await scene.hurt(links, Rules(), TURN_S, "lost")
        seconds -= 2 * TURN_S
    return bites


@fault(
    "all links of one node stall, lose what they had, and are reset", "bytes lost", on_links=True
)
async def loss(scene: Scene) -> int:
    return await lossy(scene, scene.around([scene.any_node().name]), scene.seconds())


@fault("answers to clients are lost", "bytes lost", on_links=True)
async def lost_answers(scene: Scene) -> int:
    """Requests are done, and clients do not learn it."""
    return await lossy(scene, scene.proxy.links(scene.nodes.names, [CLIENT]), scene.seconds())


@fault("all links of the leader pass 10 to 100 kB/s", "bytes throttled", on_links=True)
async def throttle(scene: Scene) -> int:
    rate = scene.dice.randrange(10_000, 100_000)
    links = scene.around([await _leader_name(scene)])
    return await scene.hurt(links, Rules(bytes_per_s=rate), scene.seconds(), "throttled")


@fault(
    "all connections are reset in mid-frame, again and again", "connections reset", on_links=True
)
async def resets(scene: Scene) -> int:
    after = scene.dice.randrange(2_000, 60_000)
    names = [*scene.nodes.names, CLIENT]
    links = scene.proxy.links(names, names)
    return await scene.hurt(links, Rules(reset_after=after), scene.seconds(), "reset")


@fault(
    "one node's connections are reset, and new ones at once", "connections refused", on_links=True
)
async def refuse(scene: Scene) -> int:
    """One node gets no new connections, and loses those that it has."""
    name = scene.any_node().name
    links = scene.proxy.links([*scene.nodes.names, CLIENT], [name])
    return await scene.hurt(links, Rules(refuse=True), scene.seconds(), "refused")


LINK_FAULTS: Final = (
    isolate,
    isolate_leader,
    shut_out_leader,
    cut_pair,
    mute,
    deaf,
    delay,
    loss,
    lost_answers,
    throttle,
    resets,
    refuse,
)
