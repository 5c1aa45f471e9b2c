"""Harm to bytes on disks: rot, and writes that went to another place.

The atlas of sound copies is a simple one. Only a minority of a group's disks is ever harmed, the
same ones for a whole seed; every committed entry is on a majority, and so on a disk that is sound.
Harmed entries are old enough for the node's mark to cover them. A disk that loses an entry in the
same second in which the node acknowledged it is outside of the promises: see docs/guarantees.md.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from verification.invariants.watch import Watch
from verification.sim.cluster import Group, Node, World
from verification.sim.scheduler import MS
from verification.sim.settings import CHANGES, MOVES

LOSSES: Final = ("bit rot", "misdirected write", "empty disk", "older disk", "machine back")
"""Kinds of faults that take disks, or parts of them."""
SETTLED_MS: Final = 1500
"""By then a node's mark covers what was durable before."""
REPEATABLE: Final = ("index", "snapshot", "tables")
"""Files that can be made again, from the log or with another node's state."""


class Damage:
    """Strikes at the disks of a minority."""

    def __init__(self, world: World, group: Group) -> None:
        self._world = world
        self._rng = world.rng.fork("damage")
        self._nodes = tuple(group.nodes)
        self._spares = group.nodes[world.plan.nodes :]
        unlucky = list(group.founders)
        self._rng.shuffle(unlucky)
        self._unlucky = unlucky[: (len(unlucky) - 1) // 2]
        self.anchor = next(node for node in group.founders if node not in self._unlucky)
        """A founding member that stays where it is; see `verification.sim.moving`."""
        self._images: dict[str, list[dict[Path, bytes]]] = {}
        """Node -> copies of its disk, made now and then."""
        self.replaced: list[Node] = []
        """Nodes that have another disk, and have to be admitted."""
        self.in_turns: list[Node] = []
        """Nodes with two machines, one of which is in the other's place; see
        `verification.sim.replaced`."""
        self._settled: dict[str, int] = {}
        """Node -> an index up to which its log was durable and committed a while ago."""

    def start(self) -> None:
        if self._unlucky:
            self._look()

    def _look(self) -> None:
        """Note now what may be harmed later."""
        after = self._world.scheduler.after
        for node in self._unlucky:
            server = node.server
            if server is not None:
                known = min(server.raft.committed_index, server.store.durable.index)
                if self._world.plan.has("older disk") and self._rng.chance(100_000):
                    self._images.setdefault(node.name, []).append(node.disk.image())
                after(SETTLED_MS * MS, self._settle, node, node.lives, known)
        after(500 * MS, self._look)

    def _settle(self, node: Node, life: int, index: int) -> None:
        if node.lives == life and node.is_up:
            self._settled[node.name] = max(index, self._settled.get(node.name, -1))

    def rot(self) -> str:
        """Change a few bytes of a committed entry, or of a file that can be made again; says
        where."""
        if not self._unlucky:
            return ""
        node, rng = self._rng.pick(self._unlucky), self._rng
        if node.namesake is not None:
            return ""
        if rng.chance(250_000):
            return self._rot_repeatable(node)
        found = self._entry(node)
        if found is None:
            return ""
        path, low, high = found
        places = [rng.between(low, high - 1) for _ in range(rng.pick((1, 1, 3, 20)))]
        for place in places:
            node.disk.flip(path, place, 1 << rng.below(8))
        node.disk.rotten = True
        self._world.counts.bite("bit rot")
        return f"{len(places)} bytes of {path.name} of {node.name} rot, from {low} to {high}"

    def _entry(self, node: Node) -> tuple[Path, int, int] | None:
        """Where a settled entry lies in a file of its node: from byte to byte."""
        watch, settled = self._world.watch, self._settled.get(node.name, -1)
        if watch is None or settled < 0:
            return None
        index, size = self._rng.below(settled + 1), self._world.plan.group["segment_bytes"]
        begin, end = self._end_of(watch, index - 1), self._end_of(watch, index)
        if end is None:
            return None
        start = (end - 1) // size * size
        path = node.directory / "data" / f"{start:020d}"
        inode = node.disk.names.get(path)
        if inode is None or len(inode.durable) < size:
            return None  # retention has taken it
        return path, max(begin or 0, start) - start, end - start

    def _end_of(self, watch: Watch, index: int) -> int | None:
        """The byte of the log behind a committed entry."""
        term = watch.truth.term_of(index)
        entry = None if term is None else watch.truth.written.get((index, term))
        return None if entry is None else entry.end_pos

    def _rot_repeatable(self, node: Node) -> str:
        rng, disk = self._rng, node.disk
        paths = [
            path
            for path in disk.names
            if path.parent.name in REPEATABLE and len(disk.names[path].durable)
        ]
        if not paths:
            return ""
        path = rng.pick(sorted(paths))
        place = rng.below(len(disk.names[path].durable))
        disk.flip(path, place, 1 << rng.below(8))
        disk.rotten = True
        self._world.counts.bite("bit rot")
        return f"byte {place} of {path.parent.name}/{path.name} of {node.name} rots"

    def may_leave(self) -> list[Node]:
        """The nodes that may leave the group's list: where disks are lost, those of the others have
        to be a majority of any list."""
        plan = self._world.plan
        if not plan.has(CHANGES):
            return []
        is_any_lost = self._unlucky and any(map(plan.has, LOSSES))
        if is_any_lost:
            return [*self._unlucky, *self._spares]
        return [one for one in self._nodes if one is not self.anchor or not plan.has(MOVES)]

    def victim(self) -> Node | None:
        """A node whose disk may be lost now, if there is one: a group has to begin with the disks
        that it has."""
        node = self._rng.pick(self._unlucky) if self._unlucky else None
        may_go = (
            node is not None and self._settled.get(node.name, -1) >= 0 and node not in self.in_turns
        )
        return node if may_go else None

    def is_another(self, node: Node) -> None:
        """It has another disk than before, under another incarnation, and an operator has to admit
        that."""
        self._settled.pop(node.name, None)
        if node not in self.replaced:
            self.replaced.append(node)

    def is_new(self, node: Node) -> None:
        """It was removed, and joins with an empty disk: it counts when it is promoted, and needs no
        admission."""
        self.is_former(node)
        self._images.pop(node.name, None)

    def is_former(self, node: Node) -> None:
        """It has a disk again in whose place another one was, or is to be, admitted; no operator
        admits this one."""
        self._settled.pop(node.name, None)
        if node in self.replaced:
            self.replaced.remove(node)

    def replace(self, older: bool) -> str:
        """A node loses power, and comes back with an empty disk or an older copy of its own."""
        node = self.victim()
        images = self._images.get(node.name, []) if node is not None else []
        if node is None or (older and not images):
            return ""
        self.lose(node, self._rng.pick(images) if older else {})
        self._world.counts.bite("older disk" if older else "empty disk")
        return f"gives {node.name} {'an older copy of its disk' if older else 'an empty disk'}"

    def may_lose(self, node: Node) -> bool:
        """Whether the disk of this founding member may be lost, once the group has begun."""
        return node in self._unlucky and node not in self.in_turns and node.namesake is None

    def lose(self, node: Node, image: dict[Path, bytes]) -> None:
        """A node loses power, and comes back with these files."""
        node.kill(power=True)
        node.disk.put_back(image)
        node.disk.rotten = True
        if self._world.watch is not None:
            self._world.watch.lost_disk(node.name)
        self.is_another(node)

    def misdirect(self) -> str:
        """The next write to the log of a node, or some to its index, go to another place of the
        same file."""
        if not self._unlucky:
            return ""
        node = self._rng.pick(self._unlucky)
        rng = self._rng
        if node.namesake is not None:
            return ""
        if rng.chance(500_000):
            part, ways = "data", [rng.pick((-4096, -512, 512, 4096))]
        else:  # what goes to a place behind is soon written over
            part, ways = (
                "index",
                [rng.pick((-4096, -512, -512, 512)) for _ in range(rng.between(1, 12))],
            )
        node.disk.misdirect[part][:] = ways
        return f"the next writes of {node.name} to its {part} go astray, by bytes: {ways[::-1]}"
