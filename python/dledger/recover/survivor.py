"""What the stopped disk of one member has of its group, read without changing anything."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from dledger.catalog.snapshot import topic_ids_of
from dledger.errors import ConfigError, CorruptStore, PathError, ProtocolError
from dledger.node.handlers.replaced_disks import change_of
from dledger.protocol.messages.catalog_commands import CreateTopic, DeleteTopic
from dledger.protocol.messages.entry import MAGIC_NOOP, Entry, LogEnd
from dledger.protocol.messages.group_version import check_supported
from dledger.protocol.messages.membership import Change, Member, MemberRole, Membership
from dledger.protocol.wire import decode_command
from dledger.raft.state.group import drawn_name
from dledger.records.body.header import (
    BODY_HEADER_SIZE,
    BodyHeader,
    BodyKind,
    Flag,
    decode_header,
)
from dledger.storage.disk.disk import Disk
from dledger.storage.log.walker import Bad, Finish, Walker
from dledger.storage.meta.members import MEMBERS_FILE, MEMBERS_MAGIC, unpack_membership
from dledger.storage.meta.slots import SlotFile
from dledger.storage.meta.snapshots import SNAPSHOTS, SnapshotFiles
from dledger.storage.offline.inspect import Inspection, inspect_store
from dledger.types import NO_INDEX, NO_TERM, Index, NodeId, Position, Term

START_FIRST: Final = "start the node, which mends its files by itself, stop it, and say this again"


@dataclass(slots=True)
class OnlyHere:
    """The entries that are not known to be committed: as far as this disk knows, no other one has
    them."""

    entries: int = 0
    bytes: int = 0
    records: dict[str, int] = field(default_factory=dict)
    """By ``topic/partition``."""
    staged: int = 0
    """Of these records, those in transactions, which count only once these are committed."""

    def count(self, entry: Entry, header: BodyHeader | None, topic: str) -> None:
        self.entries += 1
        self.bytes += entry.size
        if header is not None and header.kind is BodyKind.DATA:
            place = f"{topic}/{header.partition}"
            self.records[place] = self.records.get(place, 0) + header.count
            if header.flags & Flag.STAGED:
                self.staged += header.count


@dataclass(frozen=True, slots=True)
class Survivor:
    """What the disk has."""

    directory: Path
    node_id: NodeId
    group: str
    """The group's name."""
    segment_bytes: int
    index_file_bytes: int
    membership: Membership
    members: tuple[Member, ...]
    """The newest list in the log; empty: that of the founding."""
    voters: tuple[NodeId, ...]
    """By that list."""
    committed: Index
    """The last entry that this disk knows to be committed."""
    end: Position
    """The last entry; all up to it are kept."""
    only_here: OnlyHere
    changed: Position
    """The entry by which the members are those of the list once all entries are applied."""
    newest_us: int
    """The newest record's time, microseconds since 1970 UTC, as far as the log was read; 0: no
    record was."""
    cut: str
    """What a start cuts behind the last entry, "" for nothing: no sync covered it."""

    @property
    def group_id(self) -> str:
        return self.membership.group_id or drawn_name(self.group)

    @property
    def role(self) -> MemberRole | None:
        """By the newest list; None: it has this node not."""
        for member in self.members:
            if member.id == self.node_id:
                return member.role
        return MemberRole.VOTER if self.node_id in self.voters else None

    @property
    def is_admitted(self) -> bool:
        """Whether this disk is the one that the group knew."""
        membership = self.membership
        return membership.of(self.node_id) == membership.incarnation or any(
            one.id == self.node_id and one.incarnation == membership.incarnation
            for one in self.members
        )

    @property
    def is_alone(self) -> bool:
        """Whether it goes on by itself: no other member votes."""
        return self.voters == (self.node_id,)


def look_at(directory: Path, disk: Disk, *, is_locked: bool = False) -> Survivor:
    """Read a stopped node's files. ``is_locked``: the caller holds the store's lock.

    Raises:
        PathError: there is no store, a node runs on it, or its start has something to do first.
        ConfigError: it belongs to no group.
        CorruptStore: it is damaged where this must rely on it.
        UnsupportedVersion: a newer release wrote it.
    """
    look = inspect_store(directory, disk, is_locked=is_locked)
    if look.waiting is not None:
        raise PathError(f"{directory} is taking over another node's state: {START_FIRST}")
    state = look.state
    if state is None:
        raise CorruptStore(
            f"{directory}: there is no hard state that can be read, so nobody knows what this node "
            "has promised: restore a backup ('dledger restore')"
        )
    check_supported(state.group_version, state.release)
    membership = _membership(directory, disk)
    mark = NO_INDEX if look.mark is None else look.mark.commit
    saved = SnapshotFiles(directory / SNAPSHOTS, disk, make=False).load()
    known = (state.hard_state.commit_hint, mark, membership.index, saved[0] if saved else NO_INDEX)
    committed = Index(max(known))
    found = _Reading(look, membership=membership, committed=committed, saved=saved)
    found.read()
    if found.end.index < committed:
        raise CorruptStore(
            f"{directory}: its log ends with entry {found.end.index}, and entry {committed} was "
            "known to be committed here: the disk has lost entries, or an older copy was put back. "
            "Take the directory as it was, or restore a backup ('dledger restore')"
        )
    members, changed = found.members()
    return Survivor(
        directory=directory,
        node_id=state.identity.node_id,
        group=state.identity.group,
        segment_bytes=state.segment_bytes,
        index_file_bytes=state.index_file_bytes,
        membership=membership,
        members=members,
        voters=_voters(members, membership),
        committed=committed,
        end=found.end,
        only_here=found.only_here,
        changed=changed,
        newest_us=found.newest_us,
        cut=found.cut,
    )


def _membership(directory: Path, disk: Disk) -> Membership:
    path = directory / MEMBERS_FILE
    payload = b""
    if disk.exists(path):
        payload = SlotFile(disk.open_read_only(path), MEMBERS_MAGIC).payload or b""
        if not payload:
            raise CorruptStore(
                f"{path}: neither copy can be read, so nobody knows which group this is: restore a "
                "backup ('dledger restore')"
            )
    membership = unpack_membership(payload) if payload else Membership()
    if not membership.founded:
        raise ConfigError(
            f"{directory} belongs to no group: its node has not heard of a founding, so there is "
            "nothing to recover"
        )
    return membership


def _voters(members: Sequence[Member], membership: Membership) -> tuple[NodeId, ...]:
    if members:
        return tuple(sorted(one.id for one in members if one.role is MemberRole.VOTER))
    return membership.members or tuple(node for node, _ in membership.bound)


class _Reading:
    """One reading of the log's end: from the newest saved catalog on, which names the topics."""

    def __init__(
        self,
        look: Inspection,
        *,
        membership: Membership,
        committed: Index,
        saved: tuple[Index, bytes] | None,
    ) -> None:
        """``saved``: the newest catalog, which is of committed entries."""
        self.only_here = OnlyHere()
        self.end = Position(NO_TERM, NO_INDEX)
        self.newest_us = 0
        self.cut = ""
        self._look = look
        self._membership = membership
        self._committed = committed
        self._changes = list(membership.changes)
        self._terms: dict[Index, Term] = {}
        """Of the entries in the log that may change the members."""
        self._applied, snapshot = saved if saved is not None else (NO_INDEX, b"")
        self._topics, self._next_topic = topic_ids_of(snapshot) if snapshot else ({}, 1)
        self._names: dict[int, str] = {number: name for name, number in self._topics.items()}

    def read(self) -> None:
        walker = self._walker()
        for event in walker.walk():
            if isinstance(event, Entry):
                self._take(event)
            elif isinstance(event, Bad) and event.last > self._committed:
                raise CorruptStore(
                    f"{self._look.directory}: entries {event.first} to {event.last} are damaged "
                    f"({event.reason}), and none of them is known to be committed: {START_FIRST}; "
                    "where that leaves them damaged, restore a backup ('dledger restore')"
                )
            elif isinstance(event, Finish):
                self.cut = event.reason
        self.end = walker.end.position

    def _walker(self) -> Walker:
        """From the entry behind the saved catalog's on, or from the first one."""
        look, mark = self._look, self._look.mark
        first = min(self._applied, self._committed) + 1
        if mark is None or look.index is None or not self._membership.group_id:
            # a store of a release that kept no record of changes is read as a whole, too
            return look.walker()
        start = mark.indexed
        if first <= start.position.index:
            unit = look.index.get(first)
            if unit is None or not look.data.has(unit.pos):
                return look.walker()
            start = LogEnd(Position(NO_TERM, Index(first - 1)), unit.pos, -1)
        elif start.position.index < mark.begin_index:
            return look.walker()
        known = mark.durable
        is_ahead = known.position.index > start.position.index and look.data.has(known.end_pos - 1)
        return Walker(look.data, start, known=known if is_ahead else None)

    def _take(self, entry: Entry) -> None:
        header: BodyHeader | None = None
        if entry.magic != MAGIC_NOOP:
            try:
                header = decode_header(entry.body)
            except ValueError:
                header = None  # another program's
        if header is not None and header.kind is BodyKind.COMMAND:
            self._take_command(entry)
        elif header is not None:
            self.newest_us = max(self.newest_us, header.last_time_us)
        if entry.index > self._committed:
            topic = "" if header is None else self._name(header.topic_id)
            self.only_here.count(entry, header, topic)

    def _name(self, topic_id: int) -> str:
        return self._names.get(topic_id, f"topic {topic_id}")

    def _take_command(self, entry: Entry) -> None:
        change = change_of(entry)
        if change is not None:
            if change not in self._changes:
                self._changes.append(change)
            self._terms[entry.index] = entry.term
            return
        if entry.index <= self._applied:
            return
        try:
            command = decode_command(entry.body[BODY_HEADER_SIZE:])
        except (ValueError, ProtocolError):
            return
        # as the catalog does: a topic gets the next number
        if isinstance(command, CreateTopic) and command.name not in self._topics:
            number = self._next_topic
            self._topics[command.name], self._names[number] = number, command.name
            self._next_topic += 1
        elif isinstance(command, DeleteTopic):
            self._topics.pop(command.name, None)

    def members(self) -> tuple[tuple[Member, ...], Position]:
        """The newest list in the log, and the entry that it is by, as the catalog will have it when
        all entries are applied: a change that names another one before it is void."""
        known = self._membership
        members, at = known.listed, known.position
        for change in sorted(self._changes, key=lambda one: (one.index, one.position.term)):
            if change.after == at.index and self._has(change):
                members, at = _after(members, change), change.position
        return members, at

    def _has(self, change: Change) -> bool:
        """Whether the change is in the log: a recorded one may have been cut."""
        term = self._terms.get(change.index)
        if term is None:
            unit = None if self._look.index is None else self._look.index.get(change.index)
            term = None if unit is None or change.index > self.end.index else unit.term
        return term == change.position.term


def _after(members: tuple[Member, ...], change: Change) -> tuple[Member, ...]:
    if change.members:
        return change.members
    return Membership(listed=members).with_incarnation(change.node, change.incarnation).listed
