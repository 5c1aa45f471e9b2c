"""Changes of the group's members, by the commands that an operator has for them. By themselves they
are planned: no append may fail. Beside a fault each command is said until it is carried out."""

from __future__ import annotations

import signal
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Final

from verification.chaos.faults.fault import Fault, fault
from verification.chaos.operating import GaveUp, Operator
from verification.chaos.process import HOST, Node
from verification.chaos.scene import Scene

MORE: Final = 2
"""Members that a group grows by, and then shrinks by."""
GONE_S: Final = 60.0
"""So long a node may take to hear that it was removed, and to end."""
LEADER: Final = 0.34
"""So often it is the leader that goes."""
DEAD: Final = 0.4
"""So often a member is dead that is replaced beside a fault."""
Steps = Callable[[Scene, Operator], Awaitable[int]]


def _change(what: str, bite: str) -> Callable[[Steps], Fault]:
    """A function as the change of its name: it is a problem where it cannot be carried out."""

    def made(steps: Steps) -> Fault:
        @wraps(steps)
        async def run(scene: Scene) -> int:
            try:
                return await steps(scene, Operator(scene))
            except GaveUp as error:
                scene.problem(f"a change of members is not carried out: {error}")
                return 0

        return fault(what, bite, is_change=True)(run)

    return made


@_change("the group grows by two voters, or shrinks again", "members that came or went")
async def resize(scene: Scene, operator: Operator) -> int:
    is_small = len(scene.nodes.names) <= scene.nodes.founders
    for _ in range(MORE):
        await (_add if is_small else _take_away)(scene, operator)
    return MORE


async def _add(scene: Scene, operator: Operator) -> None:
    node = scene.nodes.new()
    words = "add", node.name, node.address
    is_added_first = scene.dice.random() < 0.5
    if is_added_first:
        await operator.say(*words)
    await _start(scene, node)
    if not is_added_first:
        await operator.say(*words)
    await operator.say("promote", node.name)


async def _take_away(scene: Scene, operator: Operator) -> None:
    node = await _who_goes(scene)
    node.leaving = True
    if scene.dice.random() < 0.5:
        await operator.say("demote", node.name)
    await operator.say("remove", node.name, "--yes")
    await _gone(scene, node)


@_change("a new node takes the place of a member, dead or alive", "members replaced")
async def replace_member(scene: Scene, operator: Operator) -> int:
    old = await _who_goes(scene)
    old.leaving = True
    new = scene.nodes.new()
    await _start(scene, new)
    is_dead = not scene.appends.calm and scene.dice.random() < DEAD
    if is_dead:
        old.kill()
    await operator.say("replace", old.name, f"{new.name}={new.address}", "--yes")
    await _gone(scene, old, is_dead=is_dead)
    return 1


@_change("a member moves with its disk to another port", "members moved")
async def readdress(scene: Scene, operator: Operator) -> int:
    """No fault beside it chooses this member: its files are the operator's meanwhile."""
    nodes = scene.nodes
    node = scene.any_node()
    at = nodes.names.index(node.name)
    nodes.names.remove(node.name)
    try:
        node.signal(signal.SIGTERM)
        code = await node.ended()
        if code != 0:
            scene.problem(
                f"{node.name} did not end properly on SIGTERM: code {code}\n{node.last_words()}"
            )
            node.kill()
        node.move(nodes.free_port())
        await scene.proxy.listen(node.name, (HOST, node.port))
        await scene.restart(node)
        await operator.say("readdress", node.name, node.address)
    finally:
        nodes.names.insert(at, node.name)
    return 1


async def _who_goes(scene: Scene) -> Node:
    leader = await scene.leader() if scene.dice.random() < LEADER else None
    return leader or scene.any_node()


async def _start(scene: Scene, node: Node) -> None:
    """A new node, which joins; from now on it is among those that a fault may choose."""
    await scene.proxy.listen(node.name, (HOST, node.port))
    await scene.restart(node)
    scene.nodes.names.append(node.name)


async def _gone(scene: Scene, node: Node, *, is_dead: bool = False) -> None:
    """It is no member. It ends by itself; one that is dead does so when it comes back."""

    async def gone() -> bool:
        if not node.running:
            node.reap()
        return node.gone or (is_dead and not node.running)

    if not await scene.nodes.until(gone, GONE_S):
        scene.problem(f"{node.name} was removed, and does not end:\n{node.last_words()}")
    scene.nodes.names.remove(node.name)
    scene.former.append(node)


MEMBER_CHANGES: Final = (resize, replace_member, readdress)
