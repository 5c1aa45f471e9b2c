"""The nemesis: which fault strikes whom, when and for how long, out of the kinds that a seed
has."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Final

from dledger.types import NodeId
from verification.sim.changing import Changing
from verification.sim.cluster import Group, Node, World
from verification.sim.damage import Damage
from verification.sim.deposed import FAULT as DEPOSED
from verification.sim.deposed import Deposed
from verification.sim.moving import Moving
from verification.sim.namesake import Namesakes
from verification.sim.replaced import FAULT as MACHINE_BACK
from verification.sim.replaced import Replaced
from verification.sim.scheduler import MS, US
from verification.sim.settings import CHANGES, NAMESAKES
from verification.sim.stepping import Stepping
from verification.sim.turns import HEALED_NS
from verification.sim.workload import Operator, Workload

YEAR_US: Final = 365 * 24 * 3600 * 1_000_000


class Nemesis:
    """Strikes during the safety phase, and mends everything at its end."""

    def __init__(self, world: World, group: Group, workload: Workload) -> None:
        self.world = world
        self.group = group
        self.workload = workload
        self.active = True
        self._rng = world.rng.fork("nemesis")
        self._counts = world.counts
        self._damage = Damage(world, group)
        self._deposed = Deposed(world, group, workload)
        self._replaced = Replaced(world, group, self._damage)
        self._namesakes = Namesakes(world, group, self._damage)
        self.changing = Changing(world, group, self._damage)
        self.moving = Moving(world, group, self._damage)
        self._stepping = Stepping(world)
        self._operator: Operator | None = None
        """Admits nodes that have another disk, as often as it takes."""
        plan = world.plan
        strikes: dict[str, Callable[[], str | None]] = {
            "cut": self._cut,
            "pause": self._pause,
            "kill": self._kill,
            "kill at a disk operation": self._kill_at_disk,
            "power cut": self._power_cut,
            "group power cut": self._group_power_cut,
            "stop": self._stop,
            "transfer": self._transfer,
            "EIO on write": lambda: self._disk_error("pwritev"),
            "EIO on fsync": lambda: self._disk_error("fdatasync"),
            "EIO on read": lambda: self._disk_error("pread"),
            "ENOSPC": self._no_space,
            "slow disk": self._slow_disk,
            "slow network": self._slow_network,
            "wall clock jump": self._wall_jump,
            "client crash": self._client_crash,
            "bit rot": self._damage.rot,
            "misdirected write": self._misdirect,
            "empty disk": lambda: self._damage.replace(older=False),
            "older disk": lambda: self._damage.replace(older=True),
            DEPOSED: self._deposed.strike,
            MACHINE_BACK: self._replaced.strike,
            "wrong list of members": self._tell_members,
            NAMESAKES: self._namesakes.strike,
        }
        # A strike says what it did, if anything, or has told it before what came of it.
        self._strikes = [(kind, strike) for kind, strike in strikes.items() if plan.has(kind)]

    def start(self) -> None:
        plan, weather, rng = self.world.plan, self.world.network.weather, self._rng
        weather.least_ns, weather.most_ns = plan.network_us[0] * US, plan.network_us[1] * US
        for name, kind, least, most in (
            ("loss", "frame_loss", 1000, 200_000),
            ("duplication", "frame_twice", 1000, 200_000),
            ("replay", "frame_replay", 1000, 300_000),
            ("reorder", "frame_delay", 1000, 200_000),
            ("packet loss", "loss", 500, 30_000),
            ("connection reset", "breaks", 200, 5_000),
            ("split write", "splits", 10_000, 500_000),
        ):
            if plan.has(name):
                self._counts.inject(name)
                setattr(weather, kind, rng.spread(least, most))
        weather.late_ns = rng.pick((5, 50, 500, 3000)) * MS
        if plan.has("drift"):
            for node in self.group.nodes:
                node.drift = rng.between(-100_000, 100_000)
                self._counts.inject("drift")
        if plan.has("bad luck"):
            self._counts.inject("bad luck")
        self._damage.start()
        self._stepping.start()
        self.changing.start()
        self.moving.start()
        if self._strikes:
            self._next()

    def _next(self) -> None:
        wait = self._rng.spread(50, 2 * self.world.plan.fault_every_ms)
        self.world.scheduler.after(wait * MS, self._strike)

    def _strike(self) -> None:
        if not self.active:
            return
        kind, strike = self._rng.pick(self._strikes)
        self._counts.inject(kind)
        if done := strike():
            self._tell(done)
        self._admit()
        self._next()

    def _admit(self) -> None:
        if self._damage.replaced and self._operator is None:
            self._operator = Operator(self.world, self._damage.replaced)

    def stop(self) -> None:
        """End all faults: nodes that are down come up, and slow disks are quick again. Only frames
        still get lost, up to `still`, so that the last leader has lost some, and no other leader
        comes to make up for them."""
        self.active = False
        world, network = self.world, self.world.network
        weather = network.weather
        weather.loss = weather.breaks = weather.splits = 0
        weather.frame_twice = weather.frame_replay = weather.frame_delay = 0
        weather.least_ns, weather.most_ns = 100 * US, 2 * MS
        world.plan.bad_luck = 0
        world.plan.turn_left_ns = HEALED_NS
        self._deposed.stop()
        self._replaced.stop()
        self._namesakes.stop()
        self._stepping.stop()
        self.changing.stop()
        self.moving.stop()
        self._admit()
        network.heal_all()
        self.group.restart_ms = (1, 50)
        for node in self.group.nodes:
            node.drift = 0
            node.disk.hog = node.disk.kill_in = 0
            node.disk.on_growth = None
            node.disk.failures.clear()
            for ways in node.disk.misdirect.values():
                ways.clear()
            node.disk.sync_ns = 500 * US
            if node.loop is not None:
                node.loop.turns.longest_ns = HEALED_NS
                node.loop.resume()
                node.loop.hurry()
            else:
                self.group.restart_soon(node)

    def still(self) -> None:
        """No frame is lost any more."""
        self.world.network.weather.frame_loss = 0

    def _tell(self, text: str) -> None:
        self.world.story.tell("nemesis", text)

    def _victim(self) -> Node | None:
        """A running node, often the leader."""
        up = self.group.up()
        leader = self.group.leader
        if leader is not None and self._rng.chance(400_000):
            return leader
        return self._rng.pick(up) if up else None

    def _later(self, low_ms: int, high_ms: int, action: Callable[[], None]) -> None:
        self.world.scheduler.after(self._rng.spread(low_ms, high_ms) * MS, action)

    # --- network ----------------------------------------------------------------------------------

    def _cut(self) -> None:
        """One of: one direction between two hosts, one host from all, two halves."""
        names = [str(node.name) for node in self.group.nodes]
        everybody = names + [client.name for client in self.workload.clients]
        rng, network = self._rng, self.world.network
        kind = rng.below(4)
        if kind == 0:
            paths = [(rng.pick(everybody), rng.pick(everybody)) for _ in range(rng.between(1, 4))]
        else:
            some = (
                [name for name in everybody if rng.chance(500_000)]
                if kind == 1
                else [rng.pick(names)]
            )
            others = [name for name in everybody if name not in some]
            paths = [(one, other) for one in some for other in others]
            if kind != 3 or rng.chance(500_000):
                paths += [(other, one) for one, other in paths]
        paths = [(one, other) for one, other in paths if one != other]
        network.cut_all(paths)
        self._tell("cuts " + ", ".join(f"{one}>{other}" for one, other in paths))
        self._later(100, 15_000, lambda: network.heal_all(paths))

    def _slow_network(self) -> None:
        weather = self.world.network.weather
        before = weather.most_ns
        weather.most_ns = max(before, self._rng.spread(5, 1000) * MS)
        self._counts.bite("slow network")
        self._tell(f"slows the network down to {weather.most_ns // MS} ms")

        def mend() -> None:
            if self.active:
                weather.most_ns = before

        self._later(200, 5000, mend)

    # --- processes --------------------------------------------------------------------------------

    def _kill(self) -> None:
        if node := self._victim():
            self._counts.bite("kill")
            node.kill(power=False)

    def _kill_at_disk(self) -> None:
        if node := self._victim():
            node.disk.kill_with_power = self.world.plan.has("power cut") and self._rng.chance(
                500_000
            )
            node.disk.kill_part = self._rng.pick(("", "", "/state", "/mark", "/members"))
            node.disk.kill_in = self._rng.spread(1, 3 if node.disk.kill_part else 60)

    def _power_cut(self) -> None:
        if node := self._victim():
            self._counts.bite("power cut")
            node.kill(power=True)

    def _group_power_cut(self) -> None:
        """All hosts at once."""
        self._counts.bite("group power cut")
        for node in self.group.nodes:
            if node.is_up:
                node.kill(power=True)

    def _stop(self) -> None:
        if node := self._victim():
            self._counts.bite("stop")
            node.stop()

    def _tell_members(self) -> None:
        """An operator starts a node of a founded group with a wrong list, a part of the list, or
        one of before."""
        node, rng, names = self._victim(), self._rng, self.world.plan.names
        if node is None or node.server is None or not node.server.store.membership.members:
            return
        if node.joins or node.name not in names:
            return  # it joins, and its list says no more than whom to ask
        others = [name for name in names if name != node.name]
        if others and rng.chance(600_000):
            others.remove(rng.pick(others))
        # a list that the group has had is no wrong one
        has_had_more = self.world.plan.has(CHANGES)
        if has_had_more or len(others) == len(names) - 1 or rng.chance(500_000):
            others.append(NodeId("former"))
        node.told = (node.name, *others)
        self._tell(f"tells {node.name} that the members are {', '.join(node.told)}")
        node.kill(power=False)
        self.group.restart_soon(node)

    def _pause(self) -> None:
        node = self._victim()
        if node is None or node.loop is None:
            return
        loop = node.loop
        loop.pause()
        self._counts.bite("pause")
        self._tell(f"pauses {node.name}")

        def go_on() -> None:
            if loop.paused:
                self._tell(f"lets {node.name} go on")
                loop.resume()

        self._later(50, 10_000, go_on)

    def _transfer(self) -> None:
        """Hand leadership to any node, ready or not."""
        leader = self.group.leader
        if leader is None or leader.server is None or leader.loop is None or leader.stopping:
            return
        to, server = self._rng.pick(self.group.nodes), leader.server
        self._counts.bite("transfer")
        self._tell(f"asks {leader.name} to hand over to {to.name}")
        leader.loop.call_soon(server.parts.ready_loop.transfer, to.name)

    def _client_crash(self) -> None:
        client = self._rng.pick(self.workload.clients)
        if client.is_up and not client.idle:
            self._counts.bite("client crash")
            client.crash()
            self._later(
                10, 3000, lambda: client.boot() if not client.is_up and self.active else None
            )

    # --- disks and clocks -------------------------------------------------------------------------

    def _disk_error(self, operation: str) -> None:
        if node := self._victim():
            part = self._rng.pick(("", "data", "index", "state", "mark", "tables", "snapshot"))
            node.disk.fail(operation, part, errno.EIO, skip=self._rng.below(4), times=1)
            self._tell(f"orders an EIO on {operation} of {node.name} {part}")

    def _no_space(self) -> None:
        """Now, when the node has time to see it before it needs another file, or when it is about
        to make one."""
        node, rng = self._victim(), self._rng
        if node is None:
            return
        disk, left = node.disk, rng.pick((0, 10_000, 300_000))
        is_late = rng.chance(500_000)

        def fill() -> None:
            disk.hog = max(0, disk.total - disk.used - (0 if is_late else left))
            self._counts.bite("ENOSPC")
            self._tell(f"fills the disk of {node.name} up to {disk.free} bytes")
            self._later(500, 8000, free)

        def free() -> None:
            disk.hog = 0

        if is_late:
            disk.on_growth = fill
        else:
            fill()

    def _slow_disk(self) -> None:
        if node := self._victim():
            disk = node.disk
            disk.sync_ns = self._rng.spread(10, 5000) * MS
            self._counts.bite("slow disk")
            self._tell(f"slows syncs of {node.name} down to {disk.sync_ns // MS} ms")

            def mend() -> None:
                disk.sync_ns = self.world.plan.sync_us * US
                if node.loop is not None:
                    node.loop.hurry()

            self._later(500, 10_000, mend)

    def _misdirect(self) -> str:
        """Not where power is cut as well: the node would not know that it had the entry, see
        `damage`."""
        plan = self.world.plan
        has_cuts = plan.has("power cut") or plan.has("group power cut")
        return "" if has_cuts else self._damage.misdirect()

    def _wall_jump(self) -> None:
        if node := self._victim():
            node.wall_offset_us += self._rng.between(-10 * YEAR_US, 10 * YEAR_US)
            if node.loop is not None:
                node.loop.clock.wall_offset_us = node.wall_offset_us
            self._counts.bite("wall clock jump")
            self._tell(
                f"sets the wall clock of {node.name} {node.wall_offset_us // YEAR_US} years off"
            )
