"""A member's machine is replaced, and comes back after another one was admitted in its place.

The former machine has its disk, and takes itself for the member. It answers at the member's address
for a while, when those members are alone with it that knew least of the admission; then the new one
is there again. Quorums that count the one and quorums that count the other must meet
(`dledger.raft.state.incarnations`).
"""

from __future__ import annotations

from typing import Final

from dledger.raft.state.quorum_ack_checker import quorum_size
from verification.invariants.view import Memory, WatchedNode
from verification.sim.cluster import Group, Node, World
from verification.sim.damage import Damage
from verification.sim.disk import Files
from verification.sim.scheduler import MS

FAULT: Final = "machine back"
IN_LOG, COUNTED, LATER = "in the log", "counted", "later"
MOMENTS: Final = (IN_LOG, IN_LOG, COUNTED, COUNTED, LATER)
"""When the members are parted: the leader has the admission in its log, or counts the new machine;
or not at all."""
LATEST_MS: Final = (3000, 12_000)
"""By then the former machine comes, admission or not."""


class Replaced:
    """Replaces machines of the minority whose disks may be lost, one at a time for each member."""

    def __init__(self, world: World, group: Group, damage: Damage) -> None:
        self._world = world
        self._group = group
        self._damage = damage
        self._rng = world.rng.fork(FAULT)
        self._returns: list[Return] = []
        if world.watch is not None:
            world.watch.members.on_change = self._changed

    def strike(self) -> str:
        """Replace a machine now; says whose, or nothing where none may be lost."""
        node = self._damage.victim()
        if node is None:
            return ""
        rng = self._rng
        others = self._group.others(node)
        rng.shuffle(others)
        behind = others[: quorum_size(len(self._group.nodes)) - 1]
        moment = rng.pick(MOMENTS)
        election_ms = self._world.plan.group["election_ms"]
        waits = rng.spread(20, 5000), rng.spread(election_ms, 6 * election_ms)
        one = Return(self._world, self._group, self._damage, node, behind, (moment, waits))
        self._returns.append(one)
        self._world.scheduler.after(rng.between(*LATEST_MS) * MS, one.swap)
        return f"replaces the machine of {node.name}; the former one comes back: {moment}"

    def stop(self) -> None:
        """Each member has its new machine, and all are reached again."""
        for one in self._returns:
            one.end()

    def _changed(self, view: WatchedNode) -> None:
        for one in self._returns:
            one.changed(view)


class Return:
    """One machine's way, from when it is replaced."""

    def __init__(
        self,
        world: World,
        group: Group,
        damage: Damage,
        node: Node,
        behind: list[Node],
        plan: tuple[str, tuple[int, int]],
    ) -> None:
        """``behind``: with the former machine a quorum. ``plan``: the moment, ms from the parting
        up to its return, and how long it stays."""
        self._world = world
        self._group = group
        self._damage = damage
        self._node = node
        self._behind = behind
        self._moment, self._waits = plan
        self._cuts: list[tuple[str, str]] = []
        self._is_parted = self._is_back = self._over = False
        damage.in_turns.append(node)
        self._memory = Memory()
        self._files: Files | None = None
        self._exchange()
        self._former = self._memory.incarnation
        damage.is_another(node)

    def _exchange(self) -> None:
        """The machine that is away takes the place of the one that is there."""
        node, watch = self._node, self._world.watch
        node.kill(power=False)
        self._files = node.disk.exchange(self._files)
        if watch is not None:
            self._memory = watch.exchanged(node.name, self._memory)
        self._group.restart_soon(node)

    def changed(self, view: WatchedNode) -> None:
        """A node counts others than before, or has an admission in its log."""
        leader = self._group.leader
        if self._over or self._is_parted or leader is None or leader.name != view.name:
            return
        admission = view.machine.admission
        pending, counted = admission.pending, admission.membership.of(self._node.name)
        is_in_log = pending is not None and pending.node == self._node.name
        if (self._moment == IN_LOG and is_in_log) or (
            self._moment == COUNTED and counted not in {None, self._former}
        ):
            self._part(self._behind)
            self._world.counts.bite("parted at an admission")
            self._world.scheduler.after(self._waits[0] * MS, self.swap)

    def _part(self, behind: list[Node]) -> None:
        """These and all others reach one another no more."""
        self._join()
        self._is_parted = True
        front = [node for node in self._group.nodes if node not in behind]
        self._cuts = [
            (str(a.name), str(b.name))
            for one in behind
            for to in front
            for a, b in ((one, to), (to, one))
        ]
        self._world.network.cut_all(self._cuts)

    def _join(self) -> None:
        self._world.network.heal_all(self._cuts)
        self._cuts = []

    def swap(self) -> None:
        """The former machine is in the member's place, alone with those that know least where they
        were parted."""
        if self._over or self._is_back:
            return
        self._is_back = True
        self._world.counts.bite(FAULT)
        self._world.story.tell(self._node.name, "is the former machine from now on")
        self._exchange()
        self._damage.is_former(self._node)
        if self._is_parted:
            self._part([*self._behind, self._node])
        self._world.scheduler.after(self._waits[1] * MS, self.end)

    def end(self) -> None:
        """The new machine is there again, and the former one is gone for good."""
        if self._over:
            return
        self._over = True
        self._join()
        self._damage.in_turns.remove(self._node)
        if self._is_back:
            self._world.story.tell(self._node.name, "is the new machine again")
            self._exchange()
            self._damage.is_another(self._node)
