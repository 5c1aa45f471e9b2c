"""A node's life on a store: its calls, and the promise to it at each moment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from dledger.catalog.state_machine import Catalog
from dledger.errors import DiskFull
from dledger.node.checkpoints import Checkpoints
from dledger.node.snapshot.image import Unpacker
from dledger.protocol.messages.entry import (
    MAGIC_NOOP,
    MAGIC_NORMAL,
    Entry,
    HardState,
    LogEnd,
    stamp,
)
from dledger.protocol.messages.membership import Membership
from dledger.raft.roles.snapshot_install import InstallMode
from dledger.release import FIRST_RELEASES
from dledger.storage.background import BackgroundState
from dledger.storage.disk.file_names import file_name
from dledger.storage.file_store import FileStore
from dledger.storage.opening import open_settings
from dledger.storage.recovery.open_files import StoreSettings
from dledger.storage.recovery.snapshot_install import Staging
from dledger.types import Index, NodeId, Term
from verification.disk.memory_disk import MemoryDisk
from verification.disk_states.checking import check_started
from verification.disk_states.giver import Giver
from verification.disk_states.promise import Promise, apply_entries, damaged_runs, in_common
from verification.disk_states.recording import RecordingDisk

Tell = Callable[[Promise], None]
PIECE: Final = 400
"""Bytes of a fetched state that come at once."""


class StoreLife:
    """One node on one disk, over any number of processes. Every call may end in an error of the
    store's or in the death of the process; `promise` holds all the same."""

    def __init__(
        self,
        settings: StoreSettings,
        disk: MemoryDisk,
        keeping: BackgroundState = BackgroundState.MANUAL,
        tell: Tell | None = None,
    ) -> None:
        """``tell`` is called with each new promise, in front of what it is about and behind it."""
        self.settings = settings
        self.disk = disk
        self.promise = Promise()
        self.catalog: Catalog | None = None
        self.others = False
        """Files that are not the store's are being opened or written: the catalog's, or a state's
        that is fetched."""
        self._keeping = keeping
        self._tell = tell
        self._store: FileStore | None = None
        self._checkpoints: Checkpoints | None = None
        self._committed = Index(-1)
        self._salt = 0

    @property
    def store(self) -> FileStore:
        assert self._store is not None, "the store is open"
        return self._store

    @property
    def opened(self) -> FileStore | None:
        """The store, if a process runs on it."""
        return self._store

    @property
    def log(self) -> tuple[Entry, ...]:
        """From entry 0 on, with the entries that retention took."""
        return self.promise.logs[0]

    def _say(self, promise: Promise) -> None:
        self.promise = promise
        if self._tell is not None:
            self._tell(promise)

    def begin(self, vote: str = "n0", catalog: bool = False) -> None:
        """The first start, and a vote in term 1."""
        self.open()
        if catalog:
            self.open_catalog()
        self.save(1, vote)

    def open(self) -> None:
        """Start; the state that is found then counts from now on.

        Raises:
            BrokenPromise: it is not the promised one.
        """
        self._say(self.promise)
        self._store = None
        self._store = store = open_settings(self.settings, self.disk, self._keeping)
        self._salt += 1
        self._committed = store.hard_state.commit_hint
        self._say(check_started(store, self.promise))

    def open_catalog(self) -> None:
        """Restore the catalog, and apply what is committed."""
        self._say(replace(self.promise, catalog=True))
        self.others = True
        self._checkpoints = Checkpoints(self.settings.directory, self.disk)
        self.catalog = self._checkpoints.restore(self.store)
        self.others = False
        self._catch_up()

    def _catch_up(self) -> None:
        if self.catalog is not None:
            self.others = True
            apply_entries(
                self.catalog, self.log[self.catalog.applied_index + 1 : self._committed + 1]
            )
            self.others = False

    def save(self, term: int, vote: str = "") -> None:
        """Save a term and a vote, and the commit mark as far as it is known."""
        state = HardState(Term(term), NodeId(vote) if vote else None, self._committed)
        new = (state.term, state.voted_for)
        self._say(replace(self.promise, votes=(*self.promise.votes, new)))
        self.store.save_hard_state(state)
        self._say(
            replace(
                self.promise, votes=(new,), commit=Index(min(self._committed, self.promise.durable))
            )
        )

    def count(self, membership: Membership) -> None:
        """Save which incarnations count from now on; the node's own stays."""
        new = replace(membership, incarnation=self.store.identity.incarnation)
        old = self.store.membership
        self._say(replace(self.promise, memberships=(old, new)))
        self.store.save_membership(new)
        self._say(replace(self.promise, memberships=(new,)))

    def upgrade(self, version: int) -> None:
        """Save the group's version."""
        self._say(replace(self.promise, versions=(*self.promise.versions, version)))
        self.store.save_group_version(version, FIRST_RELEASES[version])
        self._say(replace(self.promise, versions=(version,)))

    def append(self, sizes: Sequence[int]) -> None:
        """Write entries with bodies of those sizes; a negative one gives a NOOP."""
        magics = [MAGIC_NOOP if size < 0 else MAGIC_NORMAL for size in sizes]
        self.append_bodies(self.bodies(sizes), magics)

    def bodies(self, sizes: Sequence[int]) -> list[bytes]:
        """Bodies of the next entries; each start and each truncation makes those at one place
        differ from the former ones."""
        return [
            bytes((index * 7 + self._salt * 31 + n) % 251 + 1 for n in range(size))
            for index, size in enumerate(sizes, len(self.log))
        ]

    def append_synced(self, sizes: Sequence[int]) -> None:
        """Append entries, and sync."""
        self.append(sizes)
        self.sync()

    def append_bodies(self, bodies: Sequence[bytes], magics: Sequence[int] = ()) -> None:
        """Write entries of the current term behind the end."""
        end, term, entries = self.store.end, self.store.hard_state.term, list[Entry]()
        for body, magic in zip(bodies, magics or [MAGIC_NORMAL] * len(bodies), strict=True):
            entries.append(stamp(end, term, magic, body, self.settings.segment_bytes))
            end = LogEnd.after(entries[-1])
        self.write(entries)

    def write(self, entries: Sequence[Entry]) -> None:
        """Write these entries behind the end."""
        self._say(replace(self.promise, logs=((*self.log, *entries),)))
        self.store.append(entries)

    def sync(self) -> None:
        """Everything written becomes durable."""
        self._say(replace(self.promise, durable=self.store.sync().index))

    def commit(self, index: int) -> None:
        """The group says that entries up to there are committed."""
        self._committed = Index(max(self._committed, index))
        self.store.note_commit(self._committed)
        self._catch_up()

    def keep(self) -> None:
        """A round of housekeeping."""
        self.store.keep()

    def truncate(self, after: int) -> None:
        """Cut; the bodies that are written next differ from those that were there."""
        log = self.log
        durable = Index(min(self.promise.durable, after))
        self._say(replace(self.promise, logs=(log[: after + 1], log), durable=durable))
        self.store.truncate(Index(after))
        self._salt += 1
        self._say(replace(self.promise, logs=(log[: after + 1],)))

    def retain(self, limit: int) -> None:
        """Let expired files go."""
        size, old = self.settings.segment_bytes, self.store.begin_index
        firsts = [
            entry.index
            for before, entry in zip(self.log, self.log[1:], strict=False)
            if before.pos // size != entry.pos // size and old < entry.index <= limit + 1
        ]
        self._say(replace(self.promise, begins=(old, *firsts)))
        begin = self.store.retain(Index(limit), 0, 0)
        self._forget(begin)
        self._say(replace(self.promise, begins=(begin,)))

    def _forget(self, begin: Index) -> None:
        """The catalog needs nothing in front of this entry any more."""
        if self.catalog is not None:
            self.catalog.drop_before(begin)

    def checkpoint(self) -> None:
        """Save the catalog."""
        assert self.catalog is not None, "the catalog is open"
        assert self._checkpoints is not None, "and so are its checkpoints"
        index = self.catalog.applied_index
        self.others = True
        data = self.catalog.snapshot()
        self.store.note_commit(index)
        self._checkpoints.save(data, index, self.store)
        self.catalog.saved(self._checkpoints.oldest_index)
        self.others = False
        self._say(replace(self.promise, checkpoint=index))

    def sum_up(self, in_doubt: int) -> None:
        """Make everything durable, commit all but the last ``in_doubt`` entries, and save their
        catalog."""
        self.sync()
        self.commit(len(self.log) - 1 - in_doubt)
        self.checkpoint()

    def take_over(
        self, giver: Giver, first: Entry, mode: InstallMode, catalog: bool = True
    ) -> None:
        """Fetch a state and become it, as a node does."""
        self.fetch(giver, first, mode, catalog)
        store, self._store = self.store, None
        store.close()
        self.catalog = None
        self.open()
        self.open_catalog()

    def fetch(self, giver: Giver, first: Entry, mode: InstallMode, catalog: bool = True) -> None:
        """Fetch a state and commit to it, in the order of `dledger.node.snapshot.snapshots`;
        ``catalog`` False: only the front of the log goes."""
        self.others = True
        fetched = self.stage(giver.image(first), catalog)
        head = fetched.head
        assert head is not None, "the image was given whole"
        new = self._taken_over(giver, first, mode, catalog)
        self._say(replace(self.promise, other=new))
        anew = first if mode is InstallMode.REPLACE else None
        fetched.staging.commit(head.index, head.begin, anew, catalog=catalog)
        self._say(new)

    def stage(self, image: bytes, whole: bool) -> Unpacker:
        """Write a state that was fetched beside the one that is here; ``whole`` False: its head is
        enough."""
        unpacker = Unpacker(
            Staging(self.settings.directory, self.disk, segment_bytes=self.settings.segment_bytes)
        )
        try:
            for at in range(0, len(image), PIECE):
                unpacker.feed(image[at : at + PIECE])
                if unpacker.head is not None and not whole:
                    return unpacker
        except DiskFull:
            unpacker.staging.drop()
            raise
        unpacker.check()
        return unpacker

    def _taken_over(self, giver: Giver, first: Entry, mode: InstallMode, catalog: bool) -> Promise:
        new, begin = self.promise, first.index
        damaged = frozenset(index for index in new.damaged if index >= begin)
        new = replace(new, begins=(begin,), commit=Index(max(new.commit, begin)), damaged=damaged)
        if mode is InstallMode.REPLACE:
            new = replace(new, logs=(giver.log[: begin + 1],), durable=begin, damaged=frozenset())
        if catalog:
            new = replace(new, checkpoint=giver.log[-1].index, origin=giver.log)
        return new

    def follow(self, count: int | None = None) -> None:
        """Take in so many of the entries that the catalog sums up already, or all."""
        log, origin = self.log, self.promise.origin
        same = in_common(log, origin)
        if same == len(origin):
            return
        if same < len(log):
            self.truncate(same - 1)
        self.write(origin[same:][:count])

    def repair(self, index: int) -> None:
        """Put the sound entry back, and the damaged ones beside it."""
        run = next(
            run for run in damaged_runs(self.promise) if run[0].index <= index <= run[-1].index
        )
        self.store.repair(*run)
        self._say(
            replace(self.promise, damaged=self.promise.damaged - {entry.index for entry in run})
        )

    def die(self) -> None:
        """The process is gone, from one moment to the next."""
        self.disk.reboot(power=False)
        self._store = self._checkpoints = self.catalog = None

    def rot(self, index: int, offset: int) -> None:
        """A byte of an entry, counted from the start of its header, changes on the disk; no read
        finds it yet."""
        assert isinstance(self.disk, RecordingDisk), "rot is noted like other changes"
        pos = self.log[index].pos + min(offset, self.log[index].size - 1)
        size = self.settings.segment_bytes
        self._say(replace(self.promise, damaged=self.promise.damaged | {Index(index)}))
        self.disk.rot(
            self.settings.directory / "data" / file_name(pos - pos % size), pos % size, 0x40
        )

    def close(self) -> None:
        """Stop as one should."""
        store, self._store = self.store, None
        store.close()
        self._checkpoints = self.catalog = None
        self._say(replace(self.promise, durable=Index(len(self.log) - 1)))
