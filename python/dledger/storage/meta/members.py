"""The record of which incarnations count (``members``), beside the log: two slots like the hard
state.

It is made when there is something to say: before that, the incarnation of the hard state's record
is this node's, and no member is known to count.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from dledger.protocol.messages.membership import Change, Membership, pack_list, unpack_list
from dledger.storage.disk.disk import Disk
from dledger.storage.meta.slots import SlotFile, create_slots
from dledger.types import NO_TERM, Index, NodeId, Position, Term

MEMBERS_FILE: Final = "members"
MEMBERS_MAGIC: Final = b"DLmb"


def pack_membership(membership: Membership) -> bytes:
    """JSON: incarnations by name, the entry of the membership, the changes by later entries of the
    log, and the group. Records of before have fewer of these."""
    bound = {str(member): incarnation for member, incarnation in membership.bound}
    value: dict[str, Any] = {
        "incarnation": membership.incarnation,
        "index": membership.index,
        "bound": bound,
    }
    if membership.term != NO_TERM:
        value["term"] = membership.term
    for name in ("group_id", "ancestors", "members"):
        if getattr(membership, name):
            value[name] = getattr(membership, name)
    if membership.changes:
        value["changes"] = [
            [
                *(change.position.term, change.index, change.after),
                *(change.node, change.incarnation),
                *([pack_list(change.members)] if change.members else ()),
            ]
            for change in membership.changes
        ]
    if membership.listed:
        value["listed"], value["former"] = pack_list(membership.listed), membership.former
        del value["bound"]
    if membership.removed:
        value["removed"] = True
    return json.dumps(value, separators=(",", ":"), sort_keys=True).encode()


def unpack_membership(payload: bytes) -> Membership:
    """The inverse of `pack_membership`."""
    value = json.loads(payload)
    listed = unpack_list(value.get("listed", ()))
    bound = tuple(
        (NodeId(member), incarnation)
        for member, incarnation in sorted(value.get("bound", {}).items())
    )
    changes = tuple(
        Change(
            Position(Term(term), Index(index)),
            Index(after),
            NodeId(node),
            incarnation,
            *map(unpack_list, members),
        )
        for term, index, after, node, incarnation, *members in value.get("changes", ())
    )
    return Membership(
        incarnation=value["incarnation"],
        index=Index(value["index"]),
        bound=bound or tuple(sorted((member.id, member.incarnation) for member in listed)),
        changes=changes,
        term=Term(value.get("term", NO_TERM)),
        group_id=value.get("group_id", ""),
        ancestors=tuple(
            (str(group_id), int(shared)) for group_id, shared in value.get("ancestors", ())
        ),
        members=tuple(NodeId(member) for member in value.get("members", ())),
        listed=listed,
        former=tuple(value.get("former", ())),
        removed=value.get("removed", False),
    )


class MemberFile:
    """The record of one store."""

    def __init__(
        self, disk: Disk, root: Path, *, incarnation: int, notes: list[str], draw: Callable[[], int]
    ) -> None:
        """``incarnation``: the one that was drawn for the directory; ``draw`` gives another one.
        Raises OSError."""
        self._disk = disk
        self._path = root / MEMBERS_FILE
        self._slots: SlotFile | None = None
        self.membership = Membership(incarnation)
        if not disk.exists(self._path):
            return
        self._slots = SlotFile(disk.open(self._path), MEMBERS_MAGIC)
        if self._slots.payload is None:
            # The counted incarnations are forgotten, and with them whether this node counts: it
            # must be admitted as another one.
            notes.append(
                f"{MEMBERS_FILE}: neither copy can be read; this node is another incarnation from "
                f"now on"
            )
            self.save(Membership(draw()))
            return
        self._slots.note_damage(notes)
        self.membership = unpack_membership(self._slots.payload)
        self._slots.write_both(self._slots.payload)  # it may be a page that was never synced (D15)

    def save(self, membership: Membership) -> None:
        """Durable on return. Raises OSError."""
        payload = pack_membership(membership)
        if self._slots is None:
            create_slots(self._disk, self._path, MEMBERS_MAGIC, payload)
            self._slots = SlotFile(self._disk.open(self._path), MEMBERS_MAGIC)
        else:
            self._slots.write_both(payload)
        self.membership = membership
