"""The new group: one record of the survivor's directory makes it."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from dledger.config import GroupConfig
from dledger.errors import ConfigError
from dledger.net.address import split_address
from dledger.protocol.messages.membership import (
    MOST_FORMER,
    Member,
    MemberRole,
    Membership,
    fingerprint,
    ids_of,
)
from dledger.raft.state.group import drawn_name
from dledger.recover.survivor import Survivor, look_at
from dledger.storage.disk.disk import Disk, fatal
from dledger.storage.meta.hard_state import STATE_FILE, STATE_MAGIC, StateRecord
from dledger.storage.meta.members import MEMBERS_FILE, MEMBERS_MAGIC, pack_membership
from dledger.storage.meta.slots import SlotFile
from dledger.storage.recovery.open_files import take_lock
from dledger.types import NodeId

DEFAULT_NAME: Final = GroupConfig(members=(NodeId("n0"),)).group


@dataclass(frozen=True, slots=True)
class RecoveredGroup:
    """The group that was made."""

    group: str
    group_id: str
    ancestor: str
    """The id of the group before; empty for one from before there were ids."""


def recovered_membership(survivor: Survivor, address: str, group_id: str) -> Membership:
    """The record that makes the disk a group of its own, with one voter.

    - Its id is new, so that no message of an old member is heard, and none of it by them.
    - What both groups surely share ends with the entry that is known to be committed here: behind
      it the others may have had other entries.
    - The members are those of this record, whatever entries behind that one say. They stand in the
      log, and are applied; so that no later member takes them for the new group's, all of the log
      counts as that of an ancestor of its own: this disk, as it was.
    """
    known = survivor.membership
    ancestors = list(known.ancestors)
    if survivor.group_id:
        ancestors.append((survivor.group_id, survivor.committed))
    if survivor.changed.index > survivor.committed:
        ancestors.append((f"{survivor.group_id}-{survivor.node_id}", survivor.end.index))
    lists = (known.members, ids_of(known.listed), ids_of(survivor.members))
    prints = [*known.former, *(fingerprint(ids) for ids in lists if ids)]
    host, port = split_address(address)
    rack = next((one.rack for one in survivor.members if one.id == survivor.node_id), "")
    me = Member(survivor.node_id, host, port, MemberRole.VOTER, known.incarnation, rack)
    return Membership(
        incarnation=known.incarnation,
        index=survivor.changed.index,
        term=survivor.changed.term,
        group_id=group_id,
        ancestors=tuple(ancestors),
        members=(survivor.node_id,),
        former=tuple(dict.fromkeys(prints))[-(MOST_FORMER - 1) :],
    ).with_list((me,))


def is_recovered(survivor: Survivor) -> bool:
    """Whether the directory has been made a group of its own already."""
    return survivor.is_alone and bool(survivor.membership.ancestors)


def group_name(survivor: Survivor, given: str | None) -> str:
    """The new group's name. That of a path group was drawn and passes for its id, so it goes.

    Raises:
        ConfigError: another name is wanted where there is no need.
    """
    is_drawn = drawn_name(survivor.group)
    if not is_drawn or (survivor.is_alone and survivor.group == survivor.group_id):
        if given and given != survivor.group:
            raise ConfigError(
                f"--group {given}: the group is called {survivor.group}, and keeps its name; give "
                "--group only for the node of a path group, whose name was drawn"
            )
        return survivor.group
    if given and drawn_name(given):
        raise ConfigError(f"--group {given}: a name like that passes for a group's id")
    return given or DEFAULT_NAME


def recover(
    survivor: Survivor,
    address: str,
    name: str,
    disk: Disk,
    *,
    dice: Callable[[int], int] = secrets.randbelow,
) -> RecoveredGroup:
    """Make the group; durable on return. ``survivor``: as its files were looked at; ``address``:
    where the node is reached. ``dice(n)``: a number below ``n``, for the group's id.

    After a crash at any point the directory is the old group's or the new one's. Said again it is
    brought to its end, and a group that was made stays as it is.

    Raises:
        PathError: a node runs on the directory.
        ConfigError: a node has run on it meanwhile.
        StorageError: the disk failed.
    """
    directory = survivor.directory
    with fatal("recover", directory):
        lock = take_lock(disk, directory)
        try:
            if look_at(directory, disk, is_locked=True) != survivor:
                raise ConfigError(
                    f"{directory} has changed since it was looked at: a node has run on it. Stop "
                    "it, and say this again"
                )
            known = survivor.membership
            if not is_recovered(survivor):
                known = recovered_membership(survivor, address, f"{dice(1 << 64):016x}")
            # this record alone makes the group; what was read may be a page that was never synced
            members = SlotFile(disk.open(directory / MEMBERS_FILE), MEMBERS_MAGIC)
            members.write_both(pack_membership(known))
            disk.fsync_dir(directory)
            _name(survivor, name, disk)
        finally:
            lock.release()
    before = survivor.membership
    ancestors = known.ancestors
    ancestor = ancestors[len(before.ancestors)] if len(ancestors) > len(before.ancestors) else None
    return RecoveredGroup(name, known.group_id, ancestor[0] if ancestor else "")


def _name(survivor: Survivor, name: str, disk: Disk) -> None:
    """A name that was drawn passes for the group's id at nodes that join, so it must not stay.
    Until it is gone the new group cannot grow, and is sound otherwise. Another one is written as it
    was: what an interrupted run has left may be a page that was never synced."""
    state = SlotFile(disk.open(survivor.directory / STATE_FILE), STATE_MAGIC)
    assert state.payload is not None
    record = StateRecord.unpack(state.payload)
    state.write_both(replace(record, identity=replace(record.identity, group=name)).pack())
