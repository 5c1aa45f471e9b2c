"""One member takes the place of another, dead or alive, as ``members replace`` does it: each step
is what the command says next, with other changes, faults and breaks in between, and now and then
nobody goes on with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from dledger.cli.group.replacing import Replacement, ReplaceStep, next_step
from dledger.client.aio.client import AsyncClient
from dledger.client.catching_up import leader_of
from dledger.errors import ConfigError
from dledger.net.address import join_address
from dledger.protocol.messages.membership import MemberRole
from dledger.types import NodeId
from verification.sim.cluster import Group, Node, World
from verification.sim.rng import Rng

REPLACED: Final = "member replaced"
OF_DEAD: Final = "dead member replaced"


class Replacing:
    """The replacements of one operator, one after the other."""

    def __init__(self, world: World, group: Group, rng: Rng, empty: Callable[[Node], None]) -> None:
        """``empty``: empties a node's directory, and starts it with ``--join``."""
        self._world = world
        self._group = group
        self._rng = rng
        self._empty = empty
        self._wanted: tuple[Node, Node] | None = None
        """Who goes, and who comes."""
        self._dead: Node | None = None
        """The one that goes, where its machine is gone; it is back if it is given up."""

    @property
    def is_under_way(self) -> bool:
        return self._wanted is not None

    def begin(self, leaving: Sequence[Node], roles: Mapping[NodeId, MemberRole]) -> bool:
        """Draw who is replaced by whom; False where there is nobody."""
        old = [node for node in leaving if node.name in roles]
        new = [node for node in leaving if node.name not in roles]
        if not old or not new:
            return False
        gone, comes = self._wanted = self._rng.pick(old), self._rng.pick(new)
        self._tell(f"{gone.name} is to be replaced by {comes.name}")
        if self._rng.chance(400_000):
            self._tell(f"the machine of {gone.name} is gone")
            self._dead = gone
            gone.disk.is_out = True
            gone.kill(power=False)
        return True

    def end(self) -> None:
        """Nobody goes on with it. A machine that was away is back, a member or not."""
        dead, self._wanted, self._dead = self._dead, None, None
        if dead is not None:
            dead.disk.is_out = False
            self._group.restart_soon(dead)

    async def go_on(self, client: AsyncClient, is_another: Callable[[Node], bool]) -> None:
        """The next step, if there is a leader to say which. ``is_another``: whether another machine
        answers in a node's place.

        Raises:
            DLedgerError: it is refused, or comes to nothing; it may be said again.
        """
        if self._wanted is None or self._rng.chance(50_000):
            self.end()
            return
        old, new = self._wanted
        place = join_address(*self._world.places[new.name])
        leader = leader_of({str(node): said for node, said in (await client.status()).items()})
        if leader is None:
            return
        try:
            step = next_step(leader, Replacement(old.name, new.name, place))
        except ConfigError:
            self.end()
            raise
        if step is ReplaceStep.ADD:
            await client.remove_member(new.name)  # what a leader of before said may be another list
            if is_another(new):
                return
            self._empty(new)
            await client.add_member(new.name, place, replaces=old.name)
            self._tell(f"{new.name} gets the log, to replace {old.name}")
        elif step is ReplaceStep.PROMOTE:
            await client.promote_member(new.name)
            self._tell(f"{new.name} is a voter")
        elif step is ReplaceStep.REMOVE:
            await client.remove_member(old.name)
            self._tell(f"{old.name} is no member")
        elif step is ReplaceStep.DONE:
            self._tell(f"{old.name} is replaced by {new.name}")
            self._world.counts.bite(OF_DEAD if self._dead is not None else REPLACED)
            self.end()

    def _tell(self, text: str) -> None:
        self._world.story.tell("members", text)
