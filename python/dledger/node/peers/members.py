"""Who belongs to the group now, by this node's knowledge, and where each one is reached."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from dledger.config import GroupConfig
from dledger.net.address import join_address
from dledger.protocol.messages.membership import Member, MemberRole
from dledger.types import NodeId


class RulingAddresses:
    """Addresses of a group that picks them itself: where one is given, the one in the log does not
    count."""

    def __call__(self) -> dict[NodeId, str]:
        raise NotImplementedError


class GroupMembers:
    """The newest list of members in this node's log, or the one that it was told when it lost its
    log; that of its settings while there is none. The parts of a node ask it each time, or follow
    `NodeEvents.members`, which it hears first."""

    def __init__(self, group: GroupConfig, addresses: Callable[[], dict[NodeId, str]]) -> None:
        """``addresses``: those of the settings, ``host:port`` each; read again for each use. Of
        `RulingAddresses` those that are given count, and not those in the log."""
        self.joins = False
        """The settings' list is no founding's: it only says whom to ask."""
        self._founders = group.members
        self._settings = addresses
        self.settings_rule = isinstance(addresses, RulingAddresses)
        """A path's group: its own file has its addresses."""
        self._listed: dict[NodeId, Member] = {}
        self._leaving: dict[NodeId, tuple[str, ...]] = {}
        """Where those are that were removed and may not know it."""

    def begin(self, listed: tuple[Member, ...], *, joins: bool) -> None:
        """What the node's own files say at its start."""
        self.joins = joins
        self._listed = {member.id: member for member in listed}

    def follow(self, listed: tuple[Member, ...]) -> None:
        """The newest list is this one from now on; empty: there is none, the settings count."""
        former = {node: self.addresses_of(node) for node in self.reached}
        self._listed = {member.id: member for member in listed}
        self._leaving = {node: former[node] for node in former.keys() - set(self.ids)}

    def left(self, node: NodeId) -> None:
        """A removed member has had the time to hear of it."""
        self._leaving.pop(node, None)

    @property
    def is_listed(self) -> bool:
        """Whether the list is not the settings': two members may know different ones meanwhile."""
        return bool(self._listed) or self.joins

    @property
    def ids(self) -> tuple[NodeId, ...]:
        return tuple(self._listed) or self._founders

    @property
    def reached(self) -> tuple[NodeId, ...]:
        """The members, and those that were removed lately: a leader tells these that they were."""
        return (*self.ids, *self._leaving)

    @property
    def is_one(self) -> bool:
        """Whether no other member has a copy of anything."""
        return len(self.ids) == 1

    def roles(self) -> dict[NodeId, MemberRole]:
        """The role of each member; empty before a node that joins has learned the list."""
        founders = {} if self.joins else dict.fromkeys(self._founders, MemberRole.VOTER)
        return {member.id: member.role for member in self._listed.values()} or founders

    def racks(self) -> dict[NodeId, str]:
        """Where the members stand that have said so."""
        return {member.id: member.rack for member in self._listed.values() if member.rack}

    def addresses(self) -> dict[NodeId, str]:
        """Where each member is reached, ``host:port``, as clients are told."""
        given = self._settings()
        found = {node: self._places(node, given) for node in self.ids}
        return {node: places[0] for node, places in found.items() if places}

    def addresses_of(self, node: NodeId) -> tuple[str, ...]:
        """Where this node may be reached, the likeliest first: the log's address, then that of the
        settings, by which members find one another that all moved while the group was down; that
        of the settings alone in a path group, which picks ports anew. Each
        is only tried: the hello says who is there. Empty where nobody tells."""
        return self._leaving.get(node) or self._places(node, self._settings())

    def _places(self, node: NodeId, given: Mapping[NodeId, str]) -> tuple[str, ...]:
        listed = self._listed.get(node)
        known = [join_address(listed.host, listed.port)] if listed is not None else []
        if node in given:
            # one list alone: at the other's address the original of a copied directory may listen
            known = [given[node]] if self.settings_rule else [*known, given[node]]
        return tuple(dict.fromkeys(known))
