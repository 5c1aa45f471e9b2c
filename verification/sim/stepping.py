"""The group's version is raised, and its settings change, among all other faults, as an operator
does both: by requests.

S1: what an answer said is kept, and at the end every node works with the settings that its catalog
has.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

from dledger.client.aio.client import AsyncClient
from dledger.config.dynamic import text_of
from dledger.errors import DLedgerError
from dledger.node.maintenance.dynamic_settings import OF_GROUP
from dledger.node.node import NodeServer
from dledger.release import GROUP_VERSION
from verification.invariants.broken import Broken
from verification.sim.cluster import World
from verification.sim.late_version import LateVersion
from verification.sim.machine import Machine
from verification.sim.rng import Rng
from verification.sim.scheduler import MS
from verification.sim.settings import (
    CATCH_UP_BYTES,
    NEED_VERSION,
    SETTINGS_CHANGE,
    VERSION_STEP,
    addresses_of,
)

AGAIN_S: Final = 0.5
PATIENCE_MS: Final = 3000
"""For one request of the operator."""


class Stepping:
    """The operator of one group."""

    def __init__(self, world: World) -> None:
        self._world = world
        plan = world.plan
        self._rng = world.rng.fork(VERSION_STEP)
        self._alters = plan.has(SETTINGS_CHANGE)
        is_needed = any(map(plan.has, NEED_VERSION))
        self._upgrades = plan.has(VERSION_STEP) or (plan.is_rocketmq and is_needed)
        self._active = True
        self._version = LateVersion(plan)
        self._is_sure = True
        """No change that was given up may still come."""
        self._client: AsyncClient

    def start(self) -> None:
        plan, rng = self._world.plan, self._rng
        for kind in (VERSION_STEP, SETTINGS_CHANGE):
            if plan.has(kind):
                self._world.counts.inject(kind)
        if self._upgrades or self._alters:
            # late only where it is what the seed is about: others wait for the version
            latest_ms = plan.safety_ms // 2 if plan.has(VERSION_STEP) else 1000
            self._world.scheduler.after(rng.spread(100, latest_ms) * MS, self._begin)

    def stop(self) -> None:
        """No change of settings begins any more; a group that is to have a version gets it."""
        self._active = False

    def _begin(self) -> None:
        world = self._world
        loop = world.new_loop("steps")
        machine = Machine(loop, self._rng.fork("dice"))
        self._client = AsyncClient(
            addresses_of(world.plan.names), environment=machine, request_timeout_ms=PATIENCE_MS
        )
        loop.call_soon(lambda: loop.create_task(self._work()))

    async def _work(self) -> None:
        while self._upgrades:
            self._upgrades = not await self._upgraded()
            await asyncio.sleep(AGAIN_S)
        while self._alters and self._active:
            await self._alter()
            await asyncio.sleep(self._rng.spread(50, 2 * self._world.plan.fault_every_ms) / 1000)

    async def _upgraded(self) -> bool:
        try:
            active = await self._client.upgrade_group()
        except DLedgerError as error:
            self._tell(f"{type(error).__name__}: {error}")
            return False
        if active != GROUP_VERSION:
            self._world.breaks("S1", f"version {GROUP_VERSION} is active, says an answer: {active}")
        self._world.counts.bite(VERSION_STEP)
        self._tell("the group is upgraded")
        return True

    async def _alter(self) -> None:
        """One change, of one setting or some, and a look at what is kept then."""
        values, client = drawn(self._rng, self._world.plan.names), self._client
        try:
            await self._version.upgrade(client)
            if self._rng.chance(200_000):
                await client.reset_settings(sorted(values))
                wanted: dict[str, str] = {}
            else:
                await client.set_settings(values)
                wanted = {name: str(value) for name, value in values.items()}
            self._world.counts.bite(SETTINGS_CHANGE)
            self._tell(f"settings are changed: {wanted or sorted(values)}")
            found = {one.name: one.value for one in await client.settings() if one.name in wanted}
        except DLedgerError as error:
            self._version.refused(error)
            self._is_sure &= error.definite
            self._tell(f"{type(error).__name__}: {error}")
        else:
            # no other operator changes them
            if self._is_sure and {name: str(value) for name, value in found.items()} != wanted:
                self._world.breaks("S1", f"settings were set to {wanted}, and are {found}")

    def _tell(self, text: str) -> None:
        self._world.story.tell("steps", text)


def drawn(rng: Rng, names: Iterable[str]) -> dict[str, int | str]:
    """Settings that bound no promise: limits, time-outs, and who had better lead."""
    choices: dict[str, tuple[int, ...]] = {
        "ack_timeout_ms": (500, 2000, 10_000),
        "push_timeout_ms": (200, 1000),
        "max_transfer_lag": (1, 50, 1000),
        "pending_bytes": (1 << 20, 1 << 22),
        "max_consumer_groups": (1000, 5000),
        "catch_up_bytes_per_s": CATCH_UP_BYTES,
    }
    some = [name for name in choices if rng.chance(300_000)]
    values: dict[str, int | str] = {name: rng.pick(choices[name]) for name in some}
    if not values or rng.chance(300_000):
        values["preferred_leaders"] = ",".join(name for name in names if rng.chance(300_000))
    return values


def check_settings(servers: Iterable[NodeServer]) -> None:
    """S1: every node works with the settings that its catalog has."""
    for server in servers:
        kept = server.catalog.settings.kept
        config = server.raft._machine.config
        works = {name: text_of(getattr(config, name)) for name in OF_GROUP if name in kept}
        wanted = {name: kept[name] for name in works}
        if works != wanted:
            raise Broken("S1", f"{server.node.node_id} works with {works}, its group has {wanted}")
