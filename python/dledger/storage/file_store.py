"""The log of one node in files that DLedger's own tools can read.

Appends go into the page cache at once; `sync` makes all that has gathered durable with one
fdatasync per data file. Index files are not synced for an acknowledgement: they can be rebuilt from
the data, and recovery does so from the last point at which both were synced. Any error of the disk
is fatal (D2): it is remembered and raised by every later call, and nothing is written or synced
again.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from dledger.config import NodeConfig
from dledger.environment import REAL, Environment
from dledger.errors import CorruptEntry, CorruptStore, StorageError
from dledger.protocol.messages.entry import Entry, HardState, LogEnd
from dledger.protocol.messages.entry_runs import Entries
from dledger.protocol.messages.membership import Membership
from dledger.storage.api import DiskLevel, Fault, Held, Identity, RecoveryReport, Scrubbed
from dledger.storage.api_rules import check_hard_state, check_truncate
from dledger.storage.background import BackgroundState, BackgroundTasks
from dledger.storage.disk.disk import storage_error
from dledger.storage.log.entry_writer import check_append, write_entries
from dledger.storage.log.index import UNIT_SIZE
from dledger.storage.log.preallocation import Room, is_short
from dledger.storage.log.reader import LogView, Reader
from dledger.storage.log.repairs import repair
from dledger.storage.log.term_index import Pairs, TermTable, find_terms
from dledger.storage.log.tolerant_reader import Scrub, examine
from dledger.storage.meta.recovery_point import RecoveryPoints, empty_log
from dledger.storage.recovery.lost_entries import forget_beyond, known_commit, own_up
from dledger.storage.recovery.open_files import Parts, vouch_for
from dledger.storage.recovery.recovery import mark_of, no_commit_beyond, recover
from dledger.storage.retention import drop_front, level_of, without_expired
from dledger.types import Buffer, Index, Position

INDEXED_EVERY: Final = 16 << 20
"""The index is synced after so many bytes of log, so that recovery reads no more than that (and the
unsynced tail)."""


class FileStore:
    """See `dledger.storage.api.LogStore`."""

    def __init__(
        self, parts: Parts, keeping: BackgroundState, *, environment: Environment = REAL
    ) -> None:
        self._settings, self._disk, self._parts = parts.settings, parts.disk, parts
        self._data, self._index = parts.data, parts.index
        self._failed: StorageError | None = None
        self._closed = False
        self._lock = threading.RLock()
        """One writer at a time."""
        self._sync_lock = threading.Lock()
        """One sync at a time, and none during a truncation."""
        self._repair_lock = threading.Lock()
        hint = known_commit(parts)
        recovered = recover(parts, hint)
        lost = own_up(parts, hint, recovered.end.position.index, environment)
        self._recovery = replace(recovered.report, lost=lost)
        self._commit = no_commit_beyond(hint, recovered.end)
        mark = mark_of(recovered, self._commit, parts.disk.boot_id())
        self._view = LogView(mark.begin_index, mark.begin_pos, mark.begin_chain, recovered.end)
        vouch = (
            None if parts.disk.witness is None else partial(vouch_for, parts, parts.disk.witness)
        )
        self._marks = RecoveryPoints(parts.mark_slots, mark, vouch=vouch)
        self._reader = Reader(self._data, self._index, view=lambda: self._view, writing=self._lock)
        self._scrub = Scrub(self._data, lambda: self._view, sure=lambda: self._marks.mark.durable)
        self._room = Room(self._data, self._index.files, fail=self._fail)
        self._terms = self._find_terms()
        self._state = replace(parts.record.hard_state, commit_hint=self._commit)
        self._check_term()
        if lost:  # said and acted on: the next start finds a log that ends where it is known to
            forget_beyond(parts, recovered.end.position.index)
            self.save_hard_state(self._state)
        if not self._data.starts:
            self._data.allocate(self._view.begin_pos)
            self._index.files.allocate(0)
        self._data.syncing, self._data.repairing = self._sync_lock, self._repair_lock
        for files in (self._data, self._index.files):  # from here on other threads may come
            files.writing, files.changing = self._lock, self._sync_lock
        self._keeper = BackgroundTasks(self.keep, keeping, environment=environment)

    def _find_terms(self) -> TermTable:
        faults = list(self._recovery.faulty)
        term_of = lambda index: self._reader.term_of(index, self._view, faults)  # noqa: E731
        pairs = find_terms(self.begin_index, self.end.position.index, term_of)
        faults.sort(key=lambda fault: fault.first)
        self._recovery = replace(self._recovery, faulty=tuple(faults))
        return TermTable(pairs, self._lock)

    def _check_term(self) -> None:
        """A node's term is never below that of its log; DLedger could lose it, we do not."""
        last = self.end.position.term
        if self._state.term >= last:
            return
        if not self._parts.imported:
            raise CorruptStore(
                f"{self._settings.directory}: the log has entries of term {last}, but the hard "
                f"state says term {self._state.term}, so it is an old copy and its vote cannot be "
                "believed: empty the directory and let it back in with 'dledger admit'"
            )
        # its vote is lost: none is left
        self.save_hard_state(HardState(last, self.identity.node_id, self._commit))

    @property
    def begin_index(self) -> Index:
        return self._view.begin_index

    @property
    def begin(self) -> LogEnd:
        return self._view.begin

    @property
    def installed_index(self) -> Index:
        return self._parts.installed

    @property
    def end(self) -> LogEnd:
        return self._view.end

    @property
    def durable(self) -> Position:
        return self._marks.mark.durable.position

    @property
    def terms(self) -> Pairs:
        return self._terms.pairs

    @property
    def hard_state(self) -> HardState:
        return self._state

    @property
    def identity(self) -> Identity:
        return replace(self._parts.record.identity, incarnation=self.membership.incarnation)

    @property
    def recovery(self) -> RecoveryReport:
        return self._recovery

    @property
    def bytes_used(self) -> int:
        """Bytes that the log's files take on the disk, allocated ahead or not."""
        end = self._view.end
        return self._data.bytes_used(end.end_pos) + self._index.files.bytes_used(
            (end.position.index + 1) * UNIT_SIZE
        )

    @contextmanager
    def _fatal(self, what: str, where: Path) -> Iterator[None]:
        """Turn an error of the disk into the end of this store (D2)."""
        self._check_alive()
        try:
            yield
        except OSError as error:
            raise self._fail(what, where, error) from error

    def _fail(self, what: str, where: Path, error: OSError) -> StorageError:
        self._failed = self._failed or storage_error(what, where, error)
        return self._failed

    def _check_alive(self) -> None:
        if self._failed is not None:
            raise self._failed
        if self._closed:
            raise StorageError(f"{self._settings.directory}: the store is closed")

    def append(self, entries: Sequence[Entry]) -> None:
        """See `LogStore.append`."""
        with self._lock:
            self._check_alive()
            view, added = self._view, Entries.of(entries)
            if not added.runs:
                return
            check_append(view.end, added, self._data.file_size, self._state.term)
            self._room.make(view.end.end_pos, added)
            try:
                write_entries(self._data, self._index, view.end.end_pos, added)
            except OSError as error:
                raise self._fail("append to", self._data.path(added.runs[0].pos), error) from error
            if not self._terms.pairs or self._terms.pairs[-1][0] != added.runs[-1].term:
                self._terms.append(added)
            end = added.end
            # not by `replace`, which is slow
            self._view = LogView(view.begin_index, view.begin_pos, view.begin_chain, end, view.cuts)
        if is_short(self._data, end.end_pos):
            self._keeper.wake()

    def truncate(self, after: Index) -> None:
        """See `LogStore.truncate`. A crash on the way leaves the log as it was, as it should be, or
        cut at the end of a whole file between the two."""
        self._check_alive()
        if after >= self._view.end.position.index:
            return
        with self._sync_lock, self._lock:
            check_truncate(after, self._commit, self._view.begin_index, self._settings.directory)
            end = self._end_after(after)
            with self._fatal("truncate", self._data.path(end.end_pos)):
                # The mark first: else a crash would make cut entries look like lost ones. Then the
                # view, so that a reader that fails in the cut sees that the log has changed.
                self._marks.lower_to(end)
                self._view = replace(self._view, end=end, cuts=self._view.cuts + 1)
                self._data.drop_behind(end.end_pos)
                self._data.cut(end.end_pos)
                self._index.cut_behind(after)
            self._terms.truncate(after)

    def _end_after(self, after: Index) -> LogEnd:
        if after < self._view.begin_index:
            return empty_log(self._view.begin)
        return LogEnd.after(self.read(after, 0)[0])

    def sync(self) -> Position:
        """See `LogStore.sync`."""
        with self._sync_lock:
            self._check_alive()
            # Taken before the sync: an entry appended during it may not be covered.
            end = self._view.end
            try:
                self._data.sync()
                self._marks.raise_to(end, min(self._commit, end.position.index))
            except OSError as error:
                raise self._fail("sync", self._data.directory, error) from error
        if self._marks.stale and not self._keeper.is_wanted:
            self._keeper.wake()
        return end.position

    def keep(self) -> None:
        """One round of background tasks: allocate ahead, settle the mark. The next call raises an
        error of this round."""
        if self._failed is not None or self._closed:
            return
        with suppress(StorageError):
            self._room.make_ahead(self._view.end)
            if self._marks.stale:
                with self._fatal("sync", self._settings.directory):
                    self._settle()

    def _settle(self, all_indexed: bool = False) -> None:
        """Write the mark and make it durable, and now and then, or now, the index up to it."""
        cuts, mark = self._marks.cuts, self._marks.mark
        if all_indexed or mark.durable.end_pos - mark.indexed.end_pos >= INDEXED_EVERY:
            with self._lock:
                self._index.write()
            self._index.files.sync()
            self._marks.settle(mark.durable, cuts)
        else:
            self._marks.settle()

    def save_hard_state(self, state: HardState) -> None:
        """See `LogStore.save_hard_state`."""
        with self._lock, self._fatal("save the hard state in", self._settings.directory):
            check_hard_state(self._state, state)
            self.note_commit(state.commit_hint)
            commit = no_commit_beyond(self._commit, self._marks.mark.durable)
            record = replace(self._parts.record, hard_state=replace(state, commit_hint=commit))
            self._parts.state.write_both(record.pack())
            self._parts.record, self._state = record, state

    def save_group_version(self, version: int, release: str) -> None:
        """See `LogStore.save_group_version`."""
        with self._lock, self._fatal("save the group's version in", self._settings.directory):
            record = replace(self._parts.record, group_version=version, release=release)
            if record != self._parts.record:
                self._parts.state.write_both(record.pack())
                self._parts.record = record

    @property
    def membership(self) -> Membership:
        """See `LogStore.membership`."""
        return self._parts.members.membership

    def save_membership(self, membership: Membership) -> None:
        """See `LogStore.save_membership`."""
        with self._lock, self._fatal("save the membership in", self._settings.directory):
            self._parts.members.save(membership)

    def note_commit(self, index: Index) -> None:
        """See `LogStore.note_commit`."""
        index = min(index, self._view.end.position.index)
        if index > self._commit:
            self._commit = index

    def read(self, begin: Index, max_bytes: int, end: Index | None = None) -> Sequence[Entry]:
        """See `LogStore.read`."""
        self._check_alive()
        try:
            return self._reader.read(begin, max_bytes, end)
        except OSError as error:
            raise self._read_failed(begin, begin, error) from error

    def read_bodies(self, refs: Sequence[tuple[int, int, int]]) -> list[Buffer]:
        """See `LogStore.read_bodies`."""
        self._check_alive()
        try:
            return self._reader.read_bodies(refs)
        except OSError as error:
            raise self._read_failed(min(refs)[0], max(refs)[0], error) from error

    def read_run(self, first: Index, pos: int, size: int) -> Buffer:
        """See `LogStore.read_run`."""
        self._check_alive()
        return self._reader.read_run(first, pos, size)

    def index_at(self, pos: int) -> Index | None:
        """See `LogStore.index_at`."""
        self._check_alive()
        return self._reader.index_at(pos)

    def _read_failed(self, first: int, last: int, error: OSError) -> StorageError | CorruptEntry:
        """A durable entry can be fetched from a peer; a disk that cannot give back what it just
        took has failed."""
        if last > self.durable.index:
            return self._fail("read what was just written to", self._data.directory, error)
        return CorruptEntry(
            f"entry {first} or one near it cannot be read from {self._data.directory}: {error}",
            first,
        )

    def repair(self, *entries: Entry, last_stays: bool = False) -> None:
        """See `LogStore.repair`."""
        with self._repair_lock, self._fatal("repair", self._data.path(entries[0].pos)):
            locks = (self._sync_lock, self._lock)
            repair(self._data, self._reader, lambda: self._view, locks, entries, last_stays)
            with self._lock:
                for entry in entries:
                    self._index.put_again(entry)
                    self._reader.forget_damage(entry.index)
                self._terms = self._find_terms()

    def scrub(self, max_bytes: int, committed: Index) -> Scrubbed:
        """See `LogStore.scrub`."""
        with self._fatal("scrub", self._data.directory):
            return self._scrub.step(max_bytes, committed)

    def examine(self, first: Index, last: Index) -> tuple[Fault, ...]:
        """See `LogStore.examine`."""
        with self._fatal("examine", self._data.directory):
            return examine(
                self._data, self._reader, self._view, self._marks.mark.durable, first, last
            )

    def retain(
        self, limit: Index, now_ms: int, hour: int | None = None, held: Sequence[Held] = ()
    ) -> Index:
        """See `LogStore.retain`."""
        with (
            self._sync_lock,
            self._lock,
            self._fatal("delete expired files of", self._data.directory),
        ):
            level = self.disk_level()
            self._view = without_expired(self._parts, self._view, level, limit, now_ms, hour, held)
            if self._view.begin_index > self._marks.mark.begin_index:
                drop_front(self._parts, self._marks, self._view)
                self._terms.drop_front(self._view.begin_index)
        return self._view.begin_index

    def disk_level(self) -> DiskLevel:
        """See `LogStore.disk_level`."""
        with self._fatal("measure", self._settings.directory):
            space = self._disk.statvfs(self._settings.directory)
        if self._room.is_out:
            self._keeper.wake()
        return level_of(space, self._settings, self._room.is_out)

    def use_limits(self, node: NodeConfig) -> None:
        """See `LogStore.use_limits`."""
        self._settings = self._parts.settings = self._settings.with_limits(node)

    def abandon(self) -> None:
        """See `LogStore.abandon`."""
        self._failed = self._failed or StorageError(
            f"{self._settings.directory}: given up, because this node stops"
        )

    def close(self) -> None:
        """See `LogStore.close`."""
        if self._closed:
            return
        self._keeper.stop()
        try:
            if self._failed is None:
                self.sync()
                with self._fatal("sync", self._settings.directory):
                    self._settle(all_indexed=True)
        finally:
            self._closed = True
            self._data.close()
            self._index.files.close()
            self._parts.lock.release()
