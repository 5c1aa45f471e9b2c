"""A node's life on a store that several threads touch at once, and the promise to it at each
moment."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from dledger.catalog.state_machine import Catalog
from dledger.errors import CorruptEntry, OffsetOutOfRange
from dledger.node.checkpoints import Checkpoints
from dledger.protocol.messages.entry import Entry, HardState
from dledger.storage.api import Fault
from dledger.storage.background import BackgroundState
from dledger.storage.disk.file_names import file_name
from dledger.storage.file_store import FileStore
from dledger.storage.log.index import UNIT_SIZE
from dledger.storage.recovery.open_files import StoreSettings
from dledger.types import Index, NodeId, Term
from verification.disk_states.life import StoreLife
from verification.disk_states.promise import BrokenPromise, Promise, entry_bytes, require
from verification.interleave.disk import SwitchingDisk


class SharedLife(StoreLife):
    """As `StoreLife`, of which one thread at a time writes the log and saves the hard state, and
    others do all the rest."""

    def __init__(
        self, settings: StoreSettings, disk: SwitchingDisk, promise: Promise, committed: Index
    ) -> None:
        super().__init__(settings, disk, BackgroundState.MANUAL)
        self.promise = promise
        self.cuts = 0
        """Truncations that were begun."""
        self.syncs = 0
        """Syncs whose result was told."""
        self._disk = disk
        self._committed = committed
        self._covered = -1
        """Entries up to here were seen to be on the disk since the last truncation."""
        self._cut: dict[bytes, int] = {}
        """Header of an entry that a truncation took away -> how many had ended by then."""
        self._ended = 0
        self._damaged_once: frozenset[Index] = frozenset()
        self._damaged: frozenset[Index] = frozenset()
        """Damaged entries of the log as it will be when all cuts that were asked for are carried
        out."""
        self.was_damaged = False
        """An entry rotted on the disk."""

    def start(self, store: FileStore) -> None:
        """A process runs on the store."""
        self._store = store
        self._salt += 1
        self._covered = store.durable.index

    @property
    def committed(self) -> Index:
        return self._committed

    def restore(self) -> tuple[Catalog, Checkpoints]:
        """Restore the catalog as `open_catalog` does. It belongs to the thread that applies
        entries; another one saves what that has to be saved."""
        self.open_catalog()
        assert self.catalog is not None
        assert self._checkpoints is not None
        return self.catalog, self._checkpoints

    # --- what is told -----------------------------------------------------------------------------

    def sync(self) -> None:
        """Sync and tell, unless there was a truncation meanwhile: then the result says nothing
        (`Flusher._durable`)."""
        ended = self._ended
        found = self.store.sync().index
        if ended == self.cuts:  # none was under way when it began, and none has begun since
            self.told(found)

    def told(self, durable: Index) -> None:
        """Entries up to there are said to be durable.

        Raises:
            BrokenPromise: the disk has not got one of them yet.
        """
        self.syncs += 1
        log = self.log
        require(
            durable < len(log),
            f"entry {durable} is said to be durable, the log ends at {len(log) - 1}",
        )
        for entry in log[max(self._covered, self.store.begin_index - 1) + 1 : durable + 1]:
            self._require_on_disk(entry)
        self._covered = max(self._covered, durable)
        self._say(replace(self.promise, durable=Index(max(self.promise.durable, durable))))

    def _require_on_disk(self, entry: Entry) -> None:
        size = self.settings.segment_bytes
        start, inside = entry.pos - entry.pos % size, entry.pos % size
        path = self.settings.directory / "data" / file_name(start)
        if entry.index not in self.promise.damaged and not self._disk.holds(
            path, inside, inside + entry.size
        ):
            raise BrokenPromise(
                f"entry {entry.index} is told durable before a sync that began after its write "
                f"ended"
            )

    # --- the thread that writes -------------------------------------------------------------------

    def save(self, term: int, vote: str = "") -> None:
        """As `StoreLife.save`, beside syncs: the commit mark that it saves is at least what was
        durable before."""
        state = HardState(Term(term), NodeId(vote) if vote else None, self._committed)
        new = (state.term, state.voted_for)
        commit = Index(min(self._committed, self.promise.durable))
        self._say(replace(self.promise, votes=(*self.promise.votes, new)))
        self.store.save_hard_state(state)
        self._say(replace(self.promise, votes=(new,), commit=max(commit, self.promise.commit)))

    def truncate(self, after: int) -> None:
        """As `StoreLife.truncate`; damage that is cut is gone."""
        self.begin_cut(after)
        self.store.truncate(Index(after))
        self.all_cut()

    def begin_cut(self, after: int) -> None:
        """A truncation was asked for: a start finds the log from before it or the log from after
        it."""
        log = self.log
        self.cuts += 1
        self._salt += 1
        self._covered = min(self._covered, after)
        durable = Index(min(self.promise.durable, after))
        damaged = frozenset(index for index in self._damaged if index <= after)
        self._damaged = damaged
        self._say(
            replace(
                self.promise, logs=(log[: after + 1], log, *self.promise.logs[1:]), durable=durable
            )
        )

    def all_cut(self) -> None:
        """All that were asked for were carried out."""
        promise = self.promise
        self._ended = self.cuts
        left = {bytes(entry.header) for entry in promise.logs[0]}
        for log in promise.logs[1:]:
            for entry in log:
                if bytes(entry.header) not in left:
                    self._cut[bytes(entry.header)] = self._ended
        self._say(replace(promise, logs=promise.logs[:1], damaged=self._damaged))

    def _forget(self, begin: Index) -> None:
        """The catalog belongs to another thread."""

    # --- readers ----------------------------------------------------------------------------------

    def read(self, begin: int, size: int) -> int:
        """Read as a follower's sender does; returns how many entries.

        Raises:
            BrokenPromise: an entry is served that was not in the log, or one that is sound is
                called damaged.
        """
        ended = self._ended
        try:
            found = self.store.read(Index(begin), size)
        except OffsetOutOfRange:
            self._require_deleted(begin)
            return 0
        except CorruptEntry as error:
            require(begin in self.promise.damaged, f"entry {begin} is called damaged: {error}")
            return 0
        self._judge(found, begin, ended)
        return len(found)

    def _require_deleted(self, index: int) -> None:
        deleted = index < max(self.promise.begins)
        require(deleted, f"entry {index} is said to be deleted, which it is not")

    @property
    def _ever_damaged(self) -> frozenset[Index]:
        return self._damaged_once | self.promise.damaged

    def _judge(self, found: Sequence[Entry], begin: int, ended: int) -> None:
        known = {bytes(entry.header): entry for log in self.promise.logs for entry in log[begin:]}
        for at, entry in enumerate(found):
            require(
                entry.index == begin + at, f"entry {entry.index} is served as entry {begin + at}"
            )
            header = bytes(entry.header)
            written = known.get(header)
            if written is None:
                require(
                    self._cut.get(header, -1) > ended,
                    f"entry {entry} is served, which the log has not got",
                )
            else:
                require(
                    entry_bytes(entry) == entry_bytes(written),
                    f"entry {entry} is served with wrong bytes",
                )

    def read_committed(self) -> None:
        """Read bodies by their places, as a FETCH does: committed ones, which no truncation takes.

        Raises:
            BrokenPromise: one of them cannot be read, or is another one.
        """
        low, high = self.store.begin_index, min(self._committed, len(self.log) - 1)
        wanted = [
            entry for entry in self.log[low : high + 1] if entry.index not in self.promise.damaged
        ]
        try:
            bodies = self.store.read_bodies(
                [(entry.index, entry.pos, entry.size) for entry in wanted]
            )
        except OffsetOutOfRange:
            self._require_deleted(low)
            return
        except CorruptEntry as error:
            raise BrokenPromise(
                f"committed entries {low} to {high} cannot be read: {error}"
            ) from error
        require(
            [bytes(body) for body in bodies] == [bytes(entry.body) for entry in wanted],
            "bodies differ",
        )

    def scrub(self, max_bytes: int) -> None:
        """A step of the scrub, up to what is committed.

        Raises:
            BrokenPromise: sound entries are called damaged.
        """
        damaged = self._ever_damaged
        found = self.store.scrub(max_bytes, self._committed)
        require(
            _indexes(found.faults) <= damaged,
            f"the scrub calls sound entries damaged: {found.faults}",
        )

    # --- damage -----------------------------------------------------------------------------------

    def damage(self, index: int, offset: int = 60) -> None:
        """A byte of an entry changes on the disk, at rest."""
        entry, size = self.log[index], self.settings.segment_bytes
        pos = entry.pos + min(offset, entry.size - 1)
        self._disk.flip(self.settings.directory / "data" / file_name(pos - pos % size), pos % size)
        self.was_damaged = True
        self._damaged_once |= {Index(index)}
        self._damaged |= {Index(index)}
        self._say(replace(self.promise, damaged=self.promise.damaged | {Index(index)}))

    def damage_index(self, index: int) -> None:
        """A byte of an entry's unit in the index changes, which is made again from the data."""
        size, at = self.settings.index_file_bytes, index * UNIT_SIZE
        self.was_damaged = True
        self._disk.flip(
            self.settings.directory / "index" / file_name(at - at % size), at % size + 12
        )

    def examine(self, index: int) -> None:
        """Look around a damaged entry.

        Raises:
            BrokenPromise: sound entries are called damaged.
        """
        damaged = self._ever_damaged
        try:
            found = self.store.examine(Index(index), Index(index))
        except (CorruptEntry, OffsetOutOfRange):
            return
        gone = range(max(self.promise.begins))
        require(
            _indexes(found) <= damaged | set(gone),
            f"a look around entry {index} calls sound entries damaged: {found}",
        )

    def put_back(self, index: int, last_stays: bool = False) -> bool:
        """Repair one entry; False when the log changed meanwhile."""
        entry = self.log[index]
        try:
            self.store.repair(entry, last_stays=last_stays)
        except (CorruptEntry, OffsetOutOfRange):
            return False
        self._damaged -= {Index(index)}
        self._say(replace(self.promise, damaged=self.promise.damaged - {Index(index)}))
        return True


def _indexes(faults: Iterable[Fault]) -> set[int]:
    return {index for fault in faults for index in range(fault.first, fault.last + 1)}
