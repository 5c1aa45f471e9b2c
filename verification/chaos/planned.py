"""A planned change of members: nothing else fails, so no append may. The longest time without an
acknowledgement is told beside that of the floor."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

from dledger.client.catching_up import leader_of
from verification.chaos.scene import BACK_S, Scene

ANSWERED_S: Final = 40.0
"""Longer than any client waits for an answer."""
SHOWN: Final = 3
"""Errors."""


@dataclass(frozen=True, slots=True)
class Planned:
    """One change: the longest time without an acknowledgement of the group, and of the floor beside
    it."""

    name: str
    start_s: float
    length_s: float
    gap_s: float
    floor_s: float
    failed: int
    """Appends that began in it and failed."""

    def as_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "start_s": round(self.start_s, 3),
            "length_s": round(self.length_s, 3),
            "gap_s": round(self.gap_s, 3),
            "floor_s": round(self.floor_s, 3),
            "failed": self.failed,
        }


async def planned(scene: Scene, name: str, change: Callable[[], Awaitable[None]]) -> Planned:
    """Carry it out, once all is well."""
    appends, now_s = scene.appends, scene.acks.now_s
    await scene.floor.begin()
    appends.calm = True
    try:
        await _all_is_well(scene)
        start_s = now_s()
        with scene.acks.watching() as ours, scene.floor.acks.watching() as floor:
            await change()
            end_s = now_s()
            await _answered(scene, end_s)
    finally:
        appends.calm = False
    failed = appends.errors(start_s, end_s)
    if failed:
        shown = "\n".join(failed[:SHOWN])
        scene.problem(f"{len(failed)} appends failed in a planned {name}:\n{shown}")
    found = Planned(name, start_s, end_s - start_s, ours.longest_s, floor.longest_s, len(failed))
    scene.say(
        f"{'':11}planned: nothing acknowledged for {1000 * found.gap_s:.0f} ms, and for "
        f"{1000 * found.floor_s:.0f} ms by the floor"
    )
    return found


async def _all_is_well(scene: Scene) -> None:
    """All members are heard by a leader, and no append is under way that met a fault."""

    async def well() -> bool:
        states = await scene.nodes.statuses()
        leader = leader_of(states)
        return leader is not None and all(
            leader["standings"].get(name, {}).get("heard", False)
            for name in states
            if name != leader["node_id"]
        )

    if not await scene.nodes.until(well, BACK_S):
        scene.problem(f"not all members are heard: {await scene.nodes.statuses()}")
    await _answered(scene, scene.acks.now_s())


async def _answered(scene: Scene, until_s: float) -> None:
    """All appends are that began by then."""

    async def answered() -> bool:
        return scene.appends.all_ended(until_s)

    if not await scene.nodes.until(answered, ANSWERED_S):
        scene.problem(f"an append has no answer and no error after {ANSWERED_S:g} s")
