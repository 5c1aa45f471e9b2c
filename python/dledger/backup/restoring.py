"""Making the directories of a new group from a backup."""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from dledger.backup.additions import RestoredNames, behind
from dledger.backup.cut import RestorePlan
from dledger.backup.new_directories import staged
from dledger.backup.reading import BackupReader, OnBytes
from dledger.backup.restore_mark import finish
from dledger.backup.target import HOST, Target
from dledger.catalog.snapshot import version_of
from dledger.config import BODY_ROOM, EMBEDDED_DEFAULTS, GroupConfig
from dledger.embedded.groupfile import GroupFile
from dledger.embedded.home import Home
from dledger.embedded.ports import free_ports
from dledger.embedded.settings import check_replicas
from dledger.errors import PathError
from dledger.node.handlers.replaced_disks import COMMAND_PREFIX, change_of
from dledger.node.snapshot.image import Unpacker
from dledger.protocol.messages.catalog_commands import DeleteTopic
from dledger.protocol.messages.entry import HardState, LogEnd
from dledger.protocol.messages.entry_runs import Entries
from dledger.protocol.messages.group_version import check_supported
from dledger.protocol.messages.membership import Membership
from dledger.raft.state.group import drawn_name
from dledger.storage.disk.small_files import make_directory
from dledger.storage.file_store import FileStore
from dledger.storage.meta.snapshots import SNAPSHOTS
from dledger.storage.meta.tables import TABLES
from dledger.storage.opening import open_settings
from dledger.storage.recovery.open_files import StoreSettings
from dledger.storage.recovery.snapshot_install import Staging
from dledger.types import NO_INDEX, NO_TERM, Index, NodeId, Term

SYNC_BYTES: Final = 64 << 20
USUAL_BODY_BYTES: Final = GroupConfig(members=(NodeId("n0"),)).max_body_bytes
LOOPBACK: Final = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class RestoreReport:
    """What was made."""

    group: str
    group_id: str
    members: tuple[NodeId, ...]
    index: Index
    """All is as of this entry of the backup."""
    segment_bytes: int
    index_file_bytes: int
    left_out: tuple[str, ...]
    """Topics of the backup that are not there."""
    version: int
    """The group's."""

    @classmethod
    def of_told(cls, told: Mapping[str, Any]) -> RestoreReport:
        """From its fields as JSON has them."""
        members = tuple(map(NodeId, told["members"]))
        return cls(**{**told, "members": members, "left_out": tuple(told["left_out"])})

    @property
    def sizes(self) -> dict[str, int]:
        """Settings that the nodes need: the sizes of files that the old group had, and the largest
        body where those of the usual size do not fit into such files."""
        sizes = {"segment_bytes": self.segment_bytes, "index_file_bytes": self.index_file_bytes}
        largest = self.segment_bytes - BODY_ROOM
        return {**sizes, "max_body_bytes": largest} if largest < USUAL_BODY_BYTES else sizes


@dataclass(slots=True)
class _NodeFiles:
    """The files of one node on their way."""

    directory: Path
    settings: StoreSettings
    incarnation: int = 0
    unpacker: Unpacker | None = None
    store: FileStore | None = None
    _unsynced: int = 0

    def create(self, term: Term) -> None:
        """An empty store, in a term that all entries are of at most."""
        store = open_settings(self.settings, HOST)
        self.incarnation = store.identity.incarnation
        store.save_hard_state(HardState(term))
        store.close()
        for name in (TABLES, SNAPSHOTS):
            make_directory(HOST, self.directory / name)

    def stage(self) -> Unpacker:
        """Where the image goes."""
        segment_bytes = self.settings.segment_bytes
        staging = Staging(self.directory, HOST, segment_bytes=segment_bytes)
        self.unpacker = Unpacker(staging)
        return self.unpacker

    def begin(self) -> LogEnd:
        """Take the image, if there is one, and open the log; where that ends."""
        if self.unpacker is not None:
            self.unpacker.check()
            head, first = self.unpacker.head, self.unpacker.first
            assert head is not None
            self.unpacker.staging.commit(head.index, head.begin, first, catalog=True)
        self.store = open_settings(self.settings, HOST)
        return self.store.end

    def append(self, entries: Entries) -> None:
        assert self.store is not None
        self.store.append(entries)
        self._unsynced += entries.span
        if self._unsynced >= SYNC_BYTES:
            self.store.sync()
            self._unsynced = 0

    def finish(self, membership: Membership, names: RestoredNames) -> None:
        """The log ends here, and all of it is committed."""
        store = self.store
        assert store is not None
        last = store.end.position.index
        store.sync()
        store.note_commit(last)
        store.save_hard_state(replace(store.hard_state, commit_hint=last))
        term = NO_TERM
        for one, first in store.terms:
            if first <= membership.index:
                term = one
        if membership.index < store.begin_index:
            term = NO_TERM
        # a release that knows no such version must not open it
        store.save_group_version(names.version, names.release)
        store.save_membership(replace(membership, incarnation=self.incarnation, term=term))
        store.close()

    def close(self) -> None:
        if self.store is not None:
            with suppress(Exception):  # it is thrown away
                self.store.abandon()
                self.store.close()


@dataclass(slots=True)
class RestoreJob:
    """One `dledger restore`.

    Raises:
        PathError: a directory is not empty, or cannot be written; a chunk is missing.
        CorruptStore, CorruptEntry: the backup is damaged.
        DiskFull, StorageError: the disk is full, or failed.
        ConfigError: the backup has not all of ``topics``.
        UnsupportedVersion: the group's version is none of this release's.
    """

    target: Target
    plan: RestorePlan
    on_bytes: OnBytes = field(default=lambda size: None)
    topics: tuple[str, ...] = ()
    """Those that are wanted; empty: all."""

    def to_path(self, directory: Path, nodes: int) -> RestoreReport:
        """A path group, which the first program starts that uses the path. A restore into it that
        was killed when all of it was there is brought to its end.

        Raises:
            PathError: that one was of another backup, index or topics, or for other nodes.
        """
        check_replicas(nodes)
        group = uuid.uuid4().hex
        members = tuple(NodeId(f"n{number}") for number in range(nodes))
        asked = self._asked("", dict.fromkeys(members, directory))  # the group's name is drawn
        if (ended := _ended((directory,), asked)) is not None:
            return ended
        made: list[RestoreReport] = []
        told = partial(_told, asked, made)
        with staged(directory, told=told) as (place,):
            home = Home(place)
            for member in members:
                home.make_node_directory(member)
            report = self._restore(group, {m: home.node_directory(m) for m in members})
            made.append(report)
            home.make_secret()
            settings: dict[str, Any] = {
                name: size
                for name, size in report.sizes.items()
                if size != EMBEDDED_DEFAULTS.get(name)
            }
            ports = free_ports(LOOPBACK, nodes)
            addresses = {m: f"{LOOPBACK}:{port}" for m, port in zip(members, ports, strict=True)}
            home.write(
                GroupFile(
                    group=group,
                    members=members,
                    addresses=addresses,
                    local=members,
                    settings=settings,
                    place=home.place(),
                )
            )
        return report

    def to_directories(self, group: str, directories: Mapping[NodeId, Path]) -> RestoreReport:
        """One directory for each node of a group that `dledger serve` runs. A restore into them
        that was killed when all of them were there is brought to its end.

        Raises:
            PathError: that one was of another backup, index, group or topics, or for other nodes.
        """
        targets, asked = tuple(directories.values()), self._asked(group, directories)
        if (ended := _ended(targets, asked)) is not None:
            return ended
        made: list[RestoreReport] = []
        with staged(*targets, told=partial(_told, asked, made)) as places:
            made.append(self._restore(group, dict(zip(directories, places, strict=True))))
        return made[0]

    def _asked(self, group: str, directories: Mapping[NodeId, Path]) -> dict[str, Any]:
        """The words of a command by which it is known again, as JSON has them."""
        log = self.plan.log
        return {
            "from": [log.group, log.group_id, self.plan.last],
            "group": group,
            "nodes": {node: str(place.absolute()) for node, place in directories.items()},
            "topics": sorted(self.topics),
        }

    def _restore(self, group: str, places: Mapping[NodeId, Path]) -> RestoreReport:
        log = self.plan.log
        version = version_of(BackupReader(self.target, log).snapshot())
        check_supported(*version)
        group_id = drawn_name(group) or secrets.token_hex(8)
        nodes = {
            node: _NodeFiles(
                place,
                StoreSettings(
                    directory=place,
                    node_id=node,
                    group=group,
                    segment_bytes=log.segment_bytes,
                    index_file_bytes=log.index_file_bytes,
                    is_alone=len(places) == 1,
                ),
            )
            for node, place in places.items()
        }
        with ExitStack() as stack:
            for one in nodes.values():
                stack.callback(one.close)
            changed, end, names = self._fill(list(nodes.values()))
            left_out = names.unwanted(self.topics)
            commands = [DeleteTopic(name=topic) for topic in left_out]
            added = behind(
                end,
                [*names.upgrade_to(*version), *commands],
                term=log.term,
                segment_bytes=log.segment_bytes,
            )
            for one in nodes.values():
                if added is not None:
                    one.append(added)
            membership = Membership(
                index=changed,
                bound=tuple(sorted((node, one.incarnation) for node, one in nodes.items())),
                group_id=group_id,
                ancestors=(*log.ancestors, (log.group_id, self.plan.last)),
                members=tuple(sorted(nodes)),
            )
            for one in nodes.values():
                one.finish(membership, names)
        return RestoreReport(
            group,
            group_id,
            tuple(nodes),
            self.plan.last,
            log.segment_bytes,
            log.index_file_bytes,
            left_out,
            names.version,
        )

    def _fill(self, nodes: list[_NodeFiles]) -> tuple[Index, LogEnd, RestoredNames]:
        """Write image and log; the last entry that has changed which incarnations count, the log's
        end, and what there is by then."""
        log, base, last = self.plan.log, self.plan.catalog, self.plan.last
        known = NO_INDEX if base is None else base.index
        snapshot = b"" if base is None else BackupReader(self.target, base).snapshot()
        names = RestoredNames(snapshot, known)
        if last == known:  # told before anything is copied
            names.unwanted(self.topics)
        for node in nodes:
            node.create(log.term)
        changed = NO_INDEX
        sources = [log]
        if base is not None:
            unpackers = [node.stage() for node in nodes]
            for piece in BackupReader(self.target, base, self.on_bytes).image():
                for unpacker in unpackers:
                    unpacker.feed(piece)
            sources = [log] if base is log else [base, log]
        end = next(reversed([node.begin() for node in nodes]))
        if base is not None and nodes[0].unpacker is not None:
            changed = nodes[0].unpacker.members_index
        for source in sources:
            reader = BackupReader(self.target, source, self.on_bytes)
            for entries in reader.entries(end, Index(min(last, source.index))):
                for node in nodes:
                    node.append(entries)
                changed = _changed_by(entries, changed, known)
                names.follow(entries)
                end = entries.end
        return changed, end, names


def _changed_by(entries: Entries, changed: Index, known: Index) -> Index:
    """The last of the entries behind ``known`` that changes which incarnations count, as a catalog
    takes it: one that names another change before it is void."""
    for run in entries.runs:
        if run.last > known and run.has_body_with(COMMAND_PREFIX):
            for at in range(len(run)):
                change = change_of(run.entry(at))
                if change is not None and change.index > known and change.after == changed:
                    changed = change.index
    return changed


def _told(asked: Mapping[str, Any], made: Sequence[RestoreReport]) -> dict[str, Any]:
    """What the last mark says of a restore, which has made one group."""
    return {"asked": asked, "report": asdict(made[0])}


def _ended(targets: Sequence[Path], asked: Mapping[str, Any]) -> RestoreReport | None:
    """Bring a killed restore into these directories to its end, if all of them are there.

    Raises:
        PathError: another restore than the one that is ``asked`` for had made them.
    """
    if (told := finish(targets)) is None:
        return None
    report = RestoreReport.of_told(told["report"])
    if told["asked"] != asked:
        raise PathError(
            f"{', '.join(map(str, targets))}: a restore that was killed had made the group "
            f"{report.group} there, as of entry {report.index}, and it is complete now. "
            "Name other directories for another one"
        )
    return report
