"""The group: nodes that start, run the product's server, die, and start again on the same disk."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from traceback import extract_tb
from typing import Any, Final

from dledger.errors import ConfigError, CorruptStore, StorageError
from dledger.net.connections.tls import Shown
from dledger.node.node import NodeServer
from dledger.node.peers.handshake import Gate
from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.hello import HelloRequest, HelloResponse
from dledger.protocol.messages.membership import fingerprint
from dledger.raft.state.ready import Fact, RoleChange
from dledger.types import NodeId, Role
from verification.disk.memory_disk import ProcessKilled
from verification.invariants.broken import Broken
from verification.invariants.queued import Queued
from verification.invariants.view import Memory
from verification.invariants.watch import Watch
from verification.sim.broker_files import BrokerFiles, HostFiles
from verification.sim.broker_files import attach as attach_broker
from verification.sim.disk import SimDisk
from verification.sim.loop import SimLoop
from verification.sim.machine import Machine
from verification.sim.network import Network
from verification.sim.outcome import SeedCounts
from verification.sim.rng import Rng
from verification.sim.scheduler import MS, US, Clock, Scheduler
from verification.sim.settings import PORT, SeedPlan
from verification.sim.story import Story
from verification.sim.watched_server import WatchedServer

DEFECT: Final = "because of a defect"
"""The words of a node about an error that no disk explains."""


class World:
    """The state that all parts of a run share."""

    def __init__(self, seed: int, plan: SeedPlan, kept: int, watching: bool = True) -> None:
        self.plan = plan
        self.rng = Rng(seed)
        self.scheduler = Scheduler()
        self.watch = (
            Watch(plan.group_config(), lambda: self.scheduler.now_ns // MS) if watching else None
        )
        """Looks at every node after every event."""
        self.watches = [] if self.watch is None else [self.watch]
        """Those of all groups: one that was recovered has its own."""
        if self.watch is not None:
            self.watch.memories |= {name: Memory() for name in plan.all_names[plan.nodes :]}
            self.watch.retention.clocks_are_right = not (
                plan.has("drift") or plan.has("wall clock jump")
            )
        self.counts = SeedCounts()
        self.places = {str(name): (str(name), PORT) for name in plan.all_names}
        """Host and port at which each node's next process listens."""
        self.told_places = dict(self.places)
        """Those that nodes are told at their start, besides their own."""
        self.story = Story(self.scheduler, kept)
        self.network = Network(self.scheduler, self.rng.fork("network"), self.counts)
        self.graveyard: list[SimLoop] = []
        self.broker = BrokerFiles() if plan.is_rocketmq else None
        self.queued = Queued() if plan.is_rocketmq else None
        """The known messages of a RocketMQ commit log."""
        if self.broker is not None:
            self.story.hidden = str(self.broker.folder)
        self._broken: Broken | None = None

    def new_loop(self, name: str, clock: Clock | None = None) -> SimLoop:
        """Of one more process; its clock is right unless given."""
        rng = self.rng.fork(f"loop {name} {len(self.graveyard)}")
        clock = clock or Clock(self.scheduler)
        loop = SimLoop(self.scheduler, self.network, name, clock, rng)  # type: ignore[abstract]
        self.graveyard.append(loop)
        loop.on_defect = self.defect
        return loop

    @property
    def broken(self) -> Broken | None:
        """The first promise that did not hold, also where a task has swallowed it."""
        return self._broken or next((one.broken for one in self.watches if one.broken), None)

    def breaks(self, invariant: str, text: str, cause: BaseException | None = None) -> None:
        """Note it, where raising it would only end a task, unless it comes of what the watch has
        seen."""
        if self.broken is None:
            self._broken = Broken(invariant, text)
            self._broken.__cause__ = cause

    def judged(self, check: Callable[..., None], *told: Any) -> None:
        """Carry out a check where raising what it finds would only end a task or thread."""
        try:
            check(*told)
        except Broken as broken:
            self.breaks(broken.invariant, broken.text, broken)

    def built(self, server: NodeServer, disk: SimDisk) -> None:
        """The parts of a node are made, and none was started."""
        if self.queued is not None and isinstance(disk.beside, HostFiles):
            attach_broker(server, disk.beside, self.queued, self.judged)

    def defect(self, text: str, error: BaseException | None) -> None:
        places = (
            [f"{frame.name}:{frame.lineno}" for frame in extract_tb(error.__traceback__)[-6:]]
            if error
            else []
        )
        raise Broken("defect", f"{text} at {' > '.join(places)}: {error!r}") from error

    def dispose(self) -> None:
        for loop in self.graveyard:
            loop.dispose()
        self.graveyard.clear()
        if self.broker is not None:
            self.broker.end()


class Node:
    """One member's host: its disk, its clocks, and the process that runs on it, if any."""

    def __init__(self, world: World, name: NodeId, on_end: Callable[[Node], None]) -> None:
        self.world = world
        self.name = name
        self.server: NodeServer | None = None
        """Of the running process, once it has started."""
        self.loop: SimLoop | None = None
        self.stopping = False
        self.lives = 0
        self.told: tuple[NodeId, ...] = ()
        """Members that its next process is told in place of the group's."""
        self.namesake: Callable[[NodeServer], None] | None = None
        """A machine of another group is in its place, and no fault is to take that for the group's;
        looks at it after every event."""
        self.on_lead: Callable[[Node], None] = lambda node: None
        """Told when it begins to lead."""
        self.drift = 0
        self.wall_offset_us = 0
        plan, rng = world.plan, world.rng
        self._rng = rng.fork(f"node {name}")
        self.directory = plan.node_config(name).directory
        self.disk = SimDisk(
            name, rng.fork(f"disk {name}"), world.counts, plan.disk_bytes, plan.tear
        )
        self.disk.sync_ns = plan.sync_us * US
        self.disk.on_kill = self._killed_at_disk
        self.disk.on_uncovered = partial(world.breaks, "I29")
        if world.broker is not None:
            self.disk.beside = world.broker.host(
                name, self.disk, rng.fork(f"broker files {name}"), world.counts
            )
        self._on_end = on_end
        self.watch = world.watch
        """That of its group."""
        self.peers = tuple(plan.names)
        """Members that its processes are told."""
        self.joins = False
        """They are started with ``--join``, on a directory that was empty."""
        self.disk.is_out = name not in plan.names

    @property
    def is_up(self) -> bool:
        return self.loop is not None

    @property
    def is_leader(self) -> bool:
        return self.server is not None and self.server.raft.role is Role.LEADER

    def boot(self) -> None:
        """Start a process on what the disk has."""
        world, plan = self.world, self.world.plan
        told, self.told = self.told, ()
        self.lives += 1
        self.stopping = False
        world.network.off.pop(self.name, None)
        loop = self.loop = world.new_loop(
            self.name, Clock(world.scheduler, self.drift, self.wall_offset_us)
        )
        rng = self._rng
        loop.latency_ns = lambda: rng.between(20 * US, 200 * US)
        loop.turns.often, loop.turns.longest_ns = plan.turns_left, plan.turn_left_ns
        self.disk.plug(loop)
        if self.drift:
            world.counts.bite("drift")
        dice = world.rng.fork(f"dice {self.name} {self.lives}")
        machine = Machine(loop, dice, plan.bad_luck, lambda: world.counts.bite("bad luck"))
        members = told or self.peers
        host, port = world.places[self.name]
        addresses = {
            member: "{}:{}".format(*world.told_places.get(member, (member, PORT)))
            for member in members
        }
        server = WatchedServer(
            replace(plan.group_config(), members=members),
            replace(plan.node_config(self.name), joins=self.joins, host=host, port=port),
            addresses=lambda: addresses,
            disk=self.disk,
            environment=machine,
        )
        server.on_built = lambda built: self._built(built, loop)
        if self.namesake is None:
            server.watch, server.counts = self.watch, world.counts
        world.story.tell(self.name, f"starts, life {self.lives}")
        loop.create_task(self._main(server, loop, told))

    def _built(self, server: NodeServer, loop: SimLoop) -> None:
        gate = server.parts.gate
        gate.answer = partial(self._greeted, gate)  # type: ignore[method-assign]
        if self.namesake is not None:
            loop.after_callback = partial(self.namesake, server)
            return
        self.world.built(server, self.disk)
        server.parts.events.role.subscribe(self._role_changed)
        server.parts.events.fact.subscribe(partial(self._fact, loop))
        if self.watch is not None:
            loop.after_callback = self.watch.observer(self.name)

    def _role_changed(self, change: RoleChange) -> None:
        if change.role is Role.LEADER:
            self.on_lead(self)

    def _fact(self, loop: SimLoop, fact: Fact) -> None:
        if fact.event == "removed":  # as `dledger.node.process.serve` has it
            self.world.counts.bite("removed node ends by itself")
            loop.call_soon(self.stop)

    def _greeted(
        self, gate: Gate, hello: HelloRequest, shown: Shown | None = None
    ) -> HelloResponse:
        """The answer to a hello, looked at. Later messages of peers have the group's id too, so
        that a hello that is taken from another group need not have an effect by itself."""
        answer, own = Gate.answer(gate, hello, shown), gate.known().group_id
        if answer.code is not Code.SUCCESS:
            return answer
        # a client that knows an ancestor, and a node that asks as one, see the id and go
        kin = {hello.group_id: gate.known().ancestors, own: hello.ancestors}
        is_kin = not hello.node_id and any(group in dict(kin[group]) for group in kin)
        if own and hello.group_id and own != hello.group_id and not is_kin:
            who = hello.node_id or "a client"
            text = f"{self.name} of group {own} takes the hello of {who} of group {hello.group_id}"
            self.world.breaks("I17", text)
        if self.namesake is not None and not hello.group_id:
            return replace(
                answer, code=Code.LEADER_PENDING_FULL, message="this is another group's machine"
            )
        return answer

    async def _main(self, server: NodeServer, loop: SimLoop, told: tuple[NodeId, ...]) -> None:
        """As `dledger.node.process.serve`: until it fails."""
        try:
            await server.start()
            if told and fingerprint(told) not in server.store.membership.former:
                self.world.breaks("I17", f"{self.name} starts with {told} for the group's members")
            if self.namesake is None:
                self.server = server
            await server.wait_failed()
        except ProcessKilled:
            return
        except ConfigError as error:
            self._refused(error, told)
        except Exception as error:
            self._failed(error, loop)

    def _refused(self, error: ConfigError, told: tuple[NodeId, ...]) -> None:
        """It does not start, because it was removed, or for a wrong list of members; then it names
        that and its own."""
        if self.joins and not told and self.peers != (names := tuple(self.world.plan.names)):
            # the list that an operator gave it to join was none in the end: now it has one
            told, self.peers = self.peers, names
        lists = [", ".join(sorted(members)) for members in (told, self.world.plan.names)]
        is_removed = f"{self.name} was removed from the group" in str(error)
        if not is_removed and (not told or not all(f" {one}" in str(error) for one in lists)):
            self.world.breaks("defect", f"{self.name}, told {told}, does not start: {error}", error)
        self.disk.is_out = is_removed
        self.world.counts.bite("removed node refused" if is_removed else "wrong list of members")
        self.world.story.tell(self.name, f"does not start: {error}")
        self.kill(power=False)

    def _failed(self, error: Exception, loop: SimLoop) -> None:
        """The process ends by itself, which only its disk may make it do."""
        if loop.dead:
            return
        disk = self.disk
        # a full disk makes no files wrong
        is_full = bool(disk.hog) and not isinstance(error, CorruptStore)
        if (
            not isinstance(error, StorageError)
            or not (disk.harmed or is_full or disk.rotten)
            or DEFECT in str(error)
        ):
            self.world.breaks(
                "defect", f"{self.name} ended by itself: {type(error).__name__}: {error}", error
            )
        self.world.story.tell(self.name, f"ends: {error}")
        self.kill(power=False)

    def _killed_at_disk(self) -> None:
        self.kill(power=self.disk.kill_with_power)

    def kill(self, power: bool) -> None:
        """The process is gone, and with ``power`` its host."""
        loop, world = self.loop, self.world
        if loop is None:
            return
        world.story.tell(self.name, "loses power" if power else "is gone")
        self.loop = self.server = None
        if loop.turns.lefts:
            world.counts.bite("turn left at a disk operation", loop.turns.lefts)
        loop.kill()
        self.disk.unplug()
        if power:
            world.network.off[self.name] = True
        world.network.died(self.name, loop, power)
        if power:
            self.disk.cut_power()
        if self.watch is not None:
            self.watch.ended(self.name)
        self._on_end(self)

    def stop(self) -> None:
        """SIGTERM."""
        loop, server = self.loop, self.server
        if loop is None or server is None or self.stopping:
            return
        self.stopping = True
        self.world.story.tell(self.name, "is asked to stop")

        async def ending() -> None:
            try:
                await server.stop()
            except StorageError as error:
                self.world.story.tell(self.name, f"stops badly: {error}")
            if not loop.dead:
                self.kill(power=False)

        loop.call_soon(lambda: loop.create_task(ending()))


class Group:
    """All nodes."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.nodes = [Node(world, name, self._ended) for name in world.plan.all_names]
        self.restart_ms = (100, 4000)
        """How long a node that ended is away."""
        self._rng = world.rng.fork("restarts")
        world.network.nodes = {node.name: True for node in self.nodes}

    @property
    def founders(self) -> list[Node]:
        return self.nodes[: self.world.plan.nodes]

    def boot(self) -> None:
        for node in self.founders:
            self.world.scheduler.after(self._rng.below(300 * MS), self._boot, node)

    def _boot(self, node: Node) -> None:
        if not node.is_up and not (node.disk.is_out and node.namesake is None):
            node.boot()

    def restart_soon(self, node: Node) -> None:
        """Start the node soon, besides any start that was planned for it before."""
        self.world.scheduler.after(self._rng.below(50 * MS), self._boot, node)

    def _ended(self, node: Node) -> None:
        low, high = self.restart_ms
        self.world.scheduler.after(self._rng.between(low, high) * MS, self._boot, node)

    @property
    def leader(self) -> Node | None:
        """The leader of the highest term."""
        leaders = [node for node in self.nodes if node.is_leader]
        return max(leaders, key=_term, default=None)

    def servers(self) -> list[NodeServer]:
        """Those of the nodes that have started."""
        return [node.server for node in self.nodes if node.server is not None]

    def others(self, one: Node) -> list[Node]:
        return [node for node in self.nodes if node is not one]

    def up(self) -> list[Node]:
        """Those of this group."""
        return [node for node in self.nodes if node.is_up and node.namesake is None]


def _term(node: Node) -> int:
    return node.server.raft.term if node.server is not None else -1
