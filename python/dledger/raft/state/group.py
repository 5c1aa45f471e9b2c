"""Which group a node belongs to, and whose messages it therefore refuses.

A group's name is chosen by people, and two groups may have the same; its members are told to each
node when it is started, and lists may differ. So what makes a group is durable (`Membership`): the
ids of its members, and an id that is drawn at its founding. The rules, with their reasons:

- A node that knows of a founding hears messages of that group alone: of the same name, members and
  id. Nodes with another list have other quorums, and a leader of another group is none here, at any
  term.
- A node that knows of none hears questions and answers about foundings, and nothing else: no
  heartbeat, push or vote. Its questions go to the addresses that it was given; a node that calls it
  may take its address for another node's.
- Once it is told by such an answer that its group exists, it hears that group, also where it does
  not count in it.
- A list of members is recorded only when all members that had a part in a founding, or told of it,
  have the same one. So a first start with a wrong list leaves no record that would refuse the right
  one.
- A group that was founded before there were ids gets one as it got its founding: its first member
  draws it when all others have said, since it began to ask, that they know of none
  (`dledger.raft.roles.founding`). A group whose name was drawn has it for its id.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Protocol

from dledger.config import GroupConfig
from dledger.protocol.messages.peer import MemberRequest, MemberResponse, PeerMessage, group_tag
from dledger.raft.state.incarnations import Admission
from dledger.raft.state.ready import Outbox
from dledger.types import NodeId

TELL_MS: Final = 10_000
"""Between two facts about the same sender."""
_DRAWN: Final = re.compile("[0-9a-f]{32}")


def drawn_name(name: str) -> str:
    """The id that is known before a founding, because the group's name was drawn; else empty."""
    return name if _DRAWN.fullmatch(name) else ""


def id_in(tag: str) -> str | None:
    """The group id in a message's tag, perhaps none yet; None where the sender knows of no
    founding."""
    parts = tag.split("/")
    return parts[2] if len(parts) == 3 else None


@dataclass(slots=True)
class Stranger:
    """A node that says that it is a member and speaks for another group."""

    tag: str
    """Its last tag; see `group_tag`."""
    messages: int
    told_ms: int


class Core(Protocol):
    """The parts of a core that the check reads, and where it reports."""

    config: GroupConfig
    admission: Admission
    out: Outbox
    tag: str
    joins: bool


class GroupWatch:
    """One node's opinion, and the messages it refuses by it."""

    def __init__(self, core: Core, *, alone: bool) -> None:
        """``alone``: a core without a store; its group has a name and nothing else."""
        self.core = core
        self.strangers: dict[NodeId, Stranger] = {}
        """By the member that each says it is, of this life."""
        self.told_without_id = False
        """Another member has said that the group was founded, before there were ids."""
        self._alone = alone
        self.is_known = alone
        """Whether this node knows which group it belongs to, so that the tag of a message tells."""
        self.look()
        core.admission.on_change = self.look

    @property
    def wants_id(self) -> bool:
        """Whether the group was founded, and has no id as far as this node knows."""
        membership = self.core.admission.membership
        return membership.founded and not membership.group_id and not self._alone

    @property
    def is_nameless(self) -> bool:
        """Whether nothing tells this group from others of its name."""
        return not self._alone and not self.core.admission.membership.group_id

    def join_without_id(self) -> None:
        """The group was founded before there were ids."""
        self.told_without_id = True
        self.look()

    def may_hear(self, message: PeerMessage, now_ms: int) -> bool:
        """Whether ``message``, whose tag does not tell, may be of this node's group; else a trace
        is left, not too often. That of a sender that this node has only not been told of yet is
        told of when it lasts."""
        tag, may_be = self.core.tag, self._may_be_one(message.group)
        if may_be and isinstance(message, MemberRequest | MemberResponse):
            return True
        told_ms = now_ms if may_be and not self.is_known else now_ms - TELL_MS
        stranger = self.strangers.setdefault(message.local_id, Stranger(message.group, 0, told_ms))
        stranger.tag = message.group
        stranger.messages += 1
        if now_ms - stranger.told_ms >= TELL_MS:
            stranger.told_ms = now_ms
            kind = type(message).__name__
            self.core.out.fact(
                "other_group", node=message.local_id, message=kind, theirs=message.group, own=tag
            )
        return False

    def look(self) -> None:
        """The node's knowledge of its group has changed, and so has the tag of its messages."""
        if self._alone:
            return
        core, membership = self.core, self.core.admission.membership
        self.is_known = membership.founded or bool(membership.group_id) or self.told_without_id
        name = core.config.group
        members = membership.members or (() if core.joins else core.config.members)
        core.tag = group_tag(name, members, membership.group_id if self.is_known else None)
        for sender in [one for one, said in self.strangers.items() if said.tag == core.tag]:
            del self.strangers[sender]

    def _may_be_one(self, tag: str) -> bool:
        """Whether the sender, by what it knows, may be of this group: a part that either side does
        not know yet is no contradiction."""
        own, theirs = self.core.tag.split("/"), tag.split("/")
        return own[0] == theirs[0] and all(
            not one or not other or one == other
            for one, other in zip(own[1:], theirs[1:], strict=False)
        )
