"""At the end of a seed the majority of a group is gone for ever: one node's directory becomes a
group of its own (``dledger recover``), and the group goes on from there.

The survivor is behind, because it was down while others went on, or it has entries that no other
node has. From then on two watches look: the old group's at the old members, which come back with
their disks, and the new one's, which begins with what was committed when the survivor had all of it
for the last time. So an entry that the survivor knew to be committed and that is another one now, a
result that differs, a record that is gone, breaks the same invariants as in any group.

I17 besides: no node of the new group has an entry that an old member wrote without the survivor,
and none is a member there without an empty disk.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from copy import deepcopy
from typing import Any, Final

from dledger.client.aio.client import AsyncClient
from dledger.errors import ConfigError, CorruptStore, DLedgerError, PathError
from dledger.net.address import join_address
from dledger.protocol.messages.entry import HEADER_SIZE
from dledger.recover.new_group import RecoveredGroup, group_name, recover
from dledger.recover.survivor import Survivor, look_at
from verification.disk.memory_disk import ProcessKilled
from verification.invariants.broken import Broken
from verification.invariants.members import Members
from verification.invariants.view import Memory
from verification.invariants.watch import Watch
from verification.sim.cluster import Group, Node, World
from verification.sim.life import ClientLife
from verification.sim.loop import SimLoop
from verification.sim.machine import Machine
from verification.sim.scheduler import MS, SECOND
from verification.sim.settings import DISASTER
from verification.sim.workload import Workload, final_reader

BEHIND: Final = "recovered from a disk that was behind"
AHEAD: Final = "recovered from a disk with entries of its own"
BACK: Final = "old member beside the new group"
KILLED: Final = "kill while a group is recovered"
PATIENCE_NS: Final = 90 * SECOND
REQUEST_MS: Final = 2000
Until = Callable[[int, Callable[[], bool]], bool]
Call = Callable[[], Coroutine[Any, Any, object]]


class Disaster:
    """One group's end, and the one that follows. All nodes are equal, and no client works."""

    def __init__(self, world: World, group: Group, workload: Workload, until: Until) -> None:
        assert world.watch is not None
        self._world = world
        self._group = group
        self._workload = workload
        self._until = until
        self._rng = world.rng.fork(DISASTER)
        self._old = world.watch
        self._new = Watch(world.plan.group_config(), lambda: world.scheduler.now_ns // MS)
        self._members = [node for node in group.nodes if node.server is not None]
        leader = group.leader
        likely = leader if leader is not None and self._rng.chance(600_000) else None
        self._survivor = likely or self._rng.pick(self._members)
        assert self._survivor.server is not None
        self._others = [node for node in self._members if node is not self._survivor]
        self._old_id = self._survivor.server.raft.membership.group_id
        self._end = -1
        """The survivor's last entry."""
        self._loop = world.new_loop("recover")
        self._writing: list[SimLoop] = []
        """Clients of the time when the others are lost."""
        self._dice = self._rng.fork("dice")

    def play(self) -> None:
        """Raises:
        Broken: a promise does not hold.
        """
        if not self._others or not self._old_id or self._survivor.disk.rotten:
            return
        self._world.counts.inject(DISASTER)
        self._lose()
        made = self._recovered()
        self._tell(f"{self._survivor.name} is group {made.group_id} now, after {self._old_id}")
        self._go_on(made)
        for node in self._others[:2]:
            self._let_in(node)
        self._judge()
        self._world.counts.bite(DISASTER)

    # --- the end of the old group -----------------------------------------------------------------

    def _remember(self) -> None:
        """What the new group begins with: all that was committed, and is on the survivor's disk."""
        old, new = self._old, self._new
        new.truth.committed = list(old.truth.committed)
        memo: dict[int, Any] = {id(old.truth): new.truth}
        new.applied_log, new.commands = deepcopy((old.applied_log, old.commands), memo)
        new.writers, new.consumed = deepcopy((old.writers, old.consumed), memo)
        new.retention = deepcopy(old.retention, memo)
        new.members = Members(new.truth, [self._survivor.name])

    def _lose(self) -> None:
        """One node stays; entries that it alone has, or has not, come while they part."""
        if len(self._others) > 1 and self._rng.chance(500_000):
            self._remember()
            self._put_out(self._survivor)
            written = set(self._old.truth.written)
            self._begin(self._others, is_lost=True)
            self._pass(3 * REQUEST_MS)
            if self._old.truth.written.keys() - written:
                self._world.counts.bite(BEHIND)
        else:
            if self._survivor.is_leader:
                for _ in range(3):
                    self._begin([self._survivor], is_lost=False)
            self._pass(self._rng.between(1, 60))
            for node in self._others:
                self._put_out(node)
            self._pass(REQUEST_MS)
            self._remember()
            if self._last() > self._old.truth.committed_index:
                self._world.counts.bite(AHEAD)
        for node in self._members:
            self._put_out(node)
        for loop in self._writing:  # else it might go on with old members that come back
            loop.kill()
            self._world.network.died(loop.name, loop, power=False)

    def _last(self) -> int:
        server = self._survivor.server
        return -1 if server is None else server.raft.end_index

    def _put_out(self, node: Node) -> None:
        node.disk.is_out = True
        node.kill(power=False)

    def _pass(self, ms: int) -> None:
        self._until(self._world.scheduler.now_ns + ms * MS, lambda: False)

    def _begin(self, nodes: list[Node], *, is_lost: bool) -> None:
        """Appends to one of these. ``is_lost``: no reader of the new group may ever see them."""
        life, loop = final_reader(self._workload)
        life.client = self._client_of(nodes)
        self._writing.append(loop)
        topic = self._workload.topics[0]

        async def appending() -> None:
            for _ in range(self._rng.between(1, 4)):
                numbers, values = life.new_values()
                if not is_lost:
                    await life.append(topic, 0, numbers, values)
                    continue
                try:
                    await life.client.append(topic.name, values, partition=0)
                except DLedgerError as error:
                    self._tell(f"append: {error}")

        loop.call_soon(lambda: loop.create_task(appending()))

    def _client_of(self, nodes: list[Node]) -> AsyncClient:
        addresses = ",".join(join_address(*self._world.places[node.name]) for node in nodes)
        machine = Machine(self._loop, self._dice)
        return AsyncClient(addresses, environment=machine, request_timeout_ms=REQUEST_MS)

    def _run(self, call: Call, what: str = "a call of the operator") -> None:
        """In a process of its own, up to its end."""
        tasks: list[Any] = []
        self._loop.call_soon(lambda: tasks.append(self._loop.create_task(call())))
        self._within(lambda: bool(tasks) and tasks[0].done(), what)
        tasks[0].result()

    def _within(self, done: Callable[[], bool], what: str) -> None:
        if not self._until(self._world.scheduler.now_ns + PATIENCE_NS, done):
            raise Broken("liveness", f"{what} does not come within {PATIENCE_NS // SECOND} s")

    def _tell(self, text: str) -> None:
        self._world.story.tell("recover", text)

    # --- the new group ----------------------------------------------------------------------------

    def _recovered(self) -> RecoveredGroup:
        """By `dledger recover`, which may be killed, and is said again."""
        disk, made = self._survivor.disk, None
        kills = self._rng.chance(400_000)
        while made is None:
            loop = self._world.new_loop("recover once")
            disk.plug(loop)
            disk.kill_in = self._rng.between(1, 10) if kills else 0
            kills = False
            try:
                survivor = self._look()
                place = join_address(*self._world.places[self._survivor.name])
                name = group_name(survivor, None)
                made = recover(survivor, place, name, disk, dice=self._rng.below)
                self._end = survivor.end.index
            except ProcessKilled:
                self._world.counts.bite(KILLED)
            finally:
                loop.kill()
                disk.unplug()
            if self._rng.chance(300_000):
                disk.cut_power()
        return made

    def _look(self) -> Survivor:
        node = self._survivor
        try:
            found = look_at(node.directory, node.disk)
        except (ConfigError, CorruptStore, PathError) as error:
            raise Broken("defect", f"{node.name} cannot be recovered: {error}") from error
        if found.committed > self._new.truth.committed_index:
            raise Broken(
                "I6", f"{found.committed} is committed, says the disk of {node.name} alone"
            )
        return found

    def _go_on(self, made: RecoveredGroup) -> None:
        """The survivor starts, and old members do, with their disks."""
        old, new, node = self._old, self._new, self._survivor
        if old.memories[node.name].log.last > self._end:
            raise Broken("I14", f"{node.name} had more than the {self._end} that recover found")
        own = old.truth.written
        terms = old.memories[node.name].log
        new.truth.written = {key: own[key] for key in own if terms.at(key[0]) == key[1]}
        new.memories = {each.name: Memory() for each in self._group.nodes}
        new.memories[node.name] = deepcopy(old.memories[node.name])
        self._world.watch = node.watch = new
        self._world.watches.append(new)
        for each in self._others:
            if self._rng.chance(600_000):
                each.disk.is_out = False
                self._world.counts.bite(BACK)
                self._group.restart_soon(each)
        node.disk.is_out = False
        self._group.restart_soon(node)
        self._within(lambda: node.is_leader, "the recovered node leads")
        assert node.server is not None
        known = node.server.raft.membership
        if known.group_id != made.group_id or self._old_id not in dict(known.ancestors):
            raise Broken("I17", f"{node.name} has {known}, and was made {made}")
        self._client = self._client_of([node])
        self._run(self._upgraded)

    async def _upgraded(self) -> None:
        await self._client.upgrade_group()

    def _let_in(self, node: Node) -> None:
        """An old member's machine joins, emptied; with its disk it is none of this group."""
        place = join_address(*self._world.places[node.name])
        if self._rng.chance(300_000):
            node.disk.is_out = False
            self._group.restart_soon(node)
            self._within(lambda: node.server is not None, f"the old {node.name} starts")
        else:
            self._put_out(node)
        was_up = node.is_up

        async def adding() -> None:
            try:
                await self._client.add_member(node.name, place)
            except DLedgerError as error:
                self._tell(f"{node.name} with its disk: {error}")
                return
            if was_up and node.is_up:
                self._world.breaks("I17", f"{node.name} of the old group is added to the new one")

        self._run(adding)
        node.disk.is_out = False  # with its disk, at the address that the new group has
        self._group.restart_soon(node)
        self._pass(2 * REQUEST_MS)
        node.kill(power=False)
        node.disk.put_back({})
        node.joins, node.peers = True, (self._survivor.name, node.name)
        node.watch = self._new
        self._group.restart_soon(node)
        self._run(lambda: self._joined(node, place), f"{node.name} in the new group")

    async def _joined(self, node: Node, place: str) -> None:
        is_added = False
        while True:
            try:
                if not is_added:
                    await self._client.add_member(node.name, place)
                is_added = True
                await self._client.promote_member(node.name)
                return
            except DLedgerError as error:
                self._tell(f"{node.name}: {error}")

    # --- judgement --------------------------------------------------------------------------------

    def _judge(self) -> None:
        """The new group takes records, is equal, and has nothing of the old one that its survivor
        had not."""
        life, loop = final_reader(self._workload)
        life.client = self._client_of([self._survivor])
        self._spoken(life, loop)
        nodes = [node for node in self._group.nodes if node.watch is self._new]
        self._within(lambda: self._are_equal(nodes), "equality of the new group")
        foreign = self._old.truth.written
        for (index, term), entry in self._new.truth.written.items():
            known = foreign.get((index, term)) if index > self._end else None
            is_noop = entry.end_pos - entry.pos == HEADER_SIZE  # those of one term are alike
            if known is not None and known.chain_crc == entry.chain_crc and not is_noop:
                raise Broken("I17", f"entry {index} of term {term} is one of the old group's")
        self._new.finish()

    def _spoken(self, life: ClientLife, loop: SimLoop) -> None:
        """A record is appended, and everything read once more."""
        done: list[bool] = []

        async def reading() -> None:
            await life.probe()
            for topic in self._workload.topics:
                for partition in range(topic.partitions):
                    await life.read_from_begin(topic, partition)
            done.append(True)

        loop.call_soon(lambda: loop.create_task(reading()))
        self._within(lambda: bool(done), "an append to the new group, and all of its records")

    @staticmethod
    def _are_equal(nodes: list[Node]) -> bool:
        servers = [node.server for node in nodes if node.server is not None]
        places = {
            place
            for one in servers
            for place in (one.raft.committed_index, one.raft.end_index, one.catalog.applied_index)
        }
        return len(servers) == len(nodes) and len(places) == 1
