"""The list of the group's members by the entries that were applied."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dledger.protocol.messages.membership import Member, Membership, pack_list, unpack_list
from dledger.types import NodeId


@dataclass(slots=True)
class GroupList:
    """Empty before the first `ChangeMembers`."""

    members: tuple[Member, ...] = ()
    former: tuple[int, ...] = ()
    """As `Membership.former`."""

    def __bool__(self) -> bool:
        return bool(self.members)

    def change(self, members: tuple[Member, ...]) -> None:
        listed = Membership(former=self.former).with_list(members)
        self.members, self.former = listed.listed, listed.former

    def admit(self, node: str, counted: Mapping[str, int]) -> None:
        """Another incarnation of a member counts, now one of these. Where others count than those
        of the list, it is that of the group from whose backup this one was made."""
        others = [member for member in self.members if member.id != node and member.incarnation]
        if any(counted.get(member.id) != member.incarnation for member in others):
            self.members = ()
        elif any(member.id == node for member in self.members):
            listed = Membership(listed=self.members).with_incarnation(
                NodeId(node), counted.get(node, 0)
            )
            self.members = listed.listed

    def image(self) -> list[Any]:
        """For a snapshot."""
        return [pack_list(self.members), list(self.former)]

    @classmethod
    def of_image(cls, image: list[Any]) -> GroupList:
        return cls(unpack_list(image[0]), tuple(image[1])) if image else cls()
