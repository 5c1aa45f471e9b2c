"""Another group of the same name, with members of the same ids, at the addresses of this one.

Machines of the other group take the places of some or all members for a while: an address was given
to another machine, a directory was mixed up. The group's own machines are away meanwhile, with
their disks. The other group was founded apart, so it has another id, and its terms are higher than
any that this one comes to: a term or entry of it that crossed would win here, and would show as a
number. A client or a member with an empty disk knows no group id yet. It cannot tell the two groups
apart and asks the addresses that it was given, so these machines refuse it.
"""

from __future__ import annotations

from dledger.node.node import NodeServer
from dledger.protocol.messages.entry import MAGIC_NOOP, HardState
from dledger.protocol.messages.entry_runs import stamp_all
from dledger.protocol.messages.membership import Membership
from dledger.storage.background import BackgroundState
from dledger.storage.opening import open_store
from dledger.types import NO_INDEX, NodeId, Term
from verification.disk.memory_disk import MemoryDisk
from verification.disk.memory_inode import Inode
from verification.invariants.members import OTHER_ID, OTHER_TERM
from verification.sim.cluster import Group, Node, World
from verification.sim.damage import Damage
from verification.sim.disk import Files
from verification.sim.scheduler import MS
from verification.sim.settings import NAMESAKES, SeedPlan


def other_membership(plan: SeedPlan, name: NodeId) -> Membership:
    """The membership that a member of the other group has on its disk."""
    bound = tuple((member, OTHER_TERM + number) for number, member in enumerate(plan.names))
    return Membership(
        dict(bound)[name], NO_INDEX, bound, group_id=OTHER_ID, members=tuple(plan.names)
    )


def other_disk(plan: SeedPlan, name: NodeId, entries: int) -> Files:
    """The disk of a member of the other group, whose log has so many entries."""
    disk = MemoryDisk(plan.disk_bytes)
    config = plan.group_config()
    store = open_store(config, plan.node_config(name), disk, BackgroundState.MANUAL)
    try:
        store.save_hard_state(HardState(Term(OTHER_TERM)))
        store.save_membership(other_membership(plan, name))
        store.append(
            stamp_all(
                store.end, Term(OTHER_TERM), MAGIC_NOOP, [b""] * entries, config.segment_bytes
            )
        )
        store.sync()
    finally:
        store.close()
    names = {
        path: Inode(bytearray(inode.written), bytearray(inode.written), mtime_ms=disk.now_ms)
        for path, inode in disk.names.items()
    }
    return Files(names, dict(names), [], 1, False, {})


class Namesakes:
    """Exchanges machines of the group for those of the other one, and back."""

    def __init__(self, world: World, group: Group, damage: Damage) -> None:
        self._world = world
        self._group = group
        self._damage = damage
        self._rng = world.rng.fork(NAMESAKES)
        self._entries = self._rng.pick((0, 1, 5))
        self._away: dict[NodeId, Files] = {}
        """The other group's disks that are not in use."""
        self._stays: list[Stay] = []

    def strike(self) -> str:
        """Machines of the other group come now; says where, or nothing where no member knows its
        own group yet."""
        rng, plan = self._rng, self._world.plan
        here = [
            node
            for node in self._group.up()
            if _is_founded(node) and node.name in plan.names and node not in self._damage.in_turns
        ]
        if not here or plan.is_rocketmq:
            return ""
        rng.shuffle(here)
        some = here[: rng.between(1, len(here))]
        for node in some:
            if node.name not in self._away:
                self._away[node.name] = other_disk(plan, node.name, self._entries)
            stay = Stay(self._world, self._group, self._damage, node, self._away)
            self._stays.append(stay)
            election_ms = plan.group_config().election_ms
            self._world.scheduler.after(rng.spread(election_ms, 8 * election_ms) * MS, stay.end)
        self._world.counts.bite(NAMESAKES)
        return (
            f"puts machines of another group of this name in the places of "
            f"{', '.join(n.name for n in some)}"
        )

    def stop(self) -> None:
        """The group has its own machines."""
        for stay in self._stays:
            stay.end()


def _is_founded(node: Node) -> bool:
    return node.server is not None and bool(node.server.store.membership.group_id)


class Stay:
    """A machine of the other group in a member's place."""

    def __init__(
        self, world: World, group: Group, damage: Damage, node: Node, away: dict[NodeId, Files]
    ) -> None:
        self._world = world
        self._group = group
        self._damage = damage
        self._node = node
        self._away = away
        self._record = other_membership(world.plan, node.name)
        self._over = False
        damage.in_turns.append(node)
        node.kill(power=False)
        self._own = node.disk.exchange(away.pop(node.name))
        node.namesake = self.look
        group.restart_soon(node)

    def end(self) -> None:
        """The member's own machine is back."""
        node = self._node
        if self._over:
            return
        self._over = True
        node.kill(power=False)
        self._away[node.name] = node.disk.exchange(self._own)
        node.namesake = None
        self._damage.in_turns.remove(node)
        self._world.story.tell(node.name, "is its own machine again")
        self._group.restart_soon(node)

    def look(self, server: NodeServer) -> None:
        """After every event: this machine knows the state of the other group alone."""
        raft, world, name = server.raft, self._world, self._node.name
        last = raft.end.position
        if raft.membership != self._record:
            world.breaks(
                "I17",
                f"{name} of another group has {raft.membership} on record, before: {self._record}",
            )
        if raft.term < OTHER_TERM or (last.index >= 0 and last.term < OTHER_TERM):
            world.breaks("I17", f"{name} of another group is at {last} in term {raft.term}")
