"""A store without files, under the same contract as `FileStore`. For tests and simulations."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace

from dledger.errors import CorruptEntry, OffsetOutOfRange, StorageError
from dledger.protocol.messages.entry import Entry, HardState, LogEnd, body_is_sound, chain_is_sound
from dledger.protocol.messages.entry_runs import Entries
from dledger.protocol.messages.membership import Membership
from dledger.storage.api import DiskLevel, Fault, Held, Identity, RecoveryReport, Scrubbed
from dledger.storage.api_rules import check_hard_state, check_truncate
from dledger.storage.log.entry_writer import check_append
from dledger.storage.log.term_index import Pairs, TermTable, find_terms
from dledger.types import NO_INDEX, NO_TERM, Buffer, Index, NodeId, Position


class MemoryStore:
    """See `dledger.storage.api.LogStore`. Whole "files" of ``segment_bytes`` are retained by size
    only.

    Set ``fail_next`` to an error to have the next write or sync raise it; a StorageError stays, as
    on a real disk. Set ``level`` to what `disk_level` shall say.
    """

    def __init__(
        self,
        group: str = "default",
        node_id: NodeId = NodeId("n0"),
        segment_bytes: int = 1 << 30,
        incarnation: int = 1,
        retention_bytes: int = 0,
    ) -> None:
        self._identity = Identity(group, node_id, incarnation)
        self._segment_bytes = segment_bytes
        self._retention_bytes = retention_bytes
        self._entries: list[Entry] = []
        self._begin_end = LogEnd()
        self._durable_end = LogEnd()
        self._commit = NO_INDEX
        self._state = HardState()
        self._membership = Membership(incarnation)
        self._terms = TermTable(())
        self._lock = threading.RLock()
        self._failed: StorageError | None = None
        self._closed = False
        self._recovery = RecoveryReport()
        self.fail_next: Exception | None = None
        self.level = DiskLevel.OK

    def crashed(self) -> MemoryStore:
        """The store as the next process finds it: its synced entries, and the hard state."""
        other = MemoryStore(
            self._identity.group,
            self._identity.node_id,
            self._segment_bytes,
            self._identity.incarnation,
            self._retention_bytes,
        )
        with self._lock:
            count = max(self._durable_end.position.index + 1 - self.begin_index, 0)
            other._entries = self._entries[:count]
            other._begin_end, other._durable_end = self._begin_end, self._durable_end
            other._commit = Index(min(self._commit, self._durable_end.position.index))
            other._membership = self._membership
            other._state = replace(self._state, commit_hint=other._commit)
        last = other.end.position.index
        entries, begin = other._entries, other.begin_index
        other._terms = TermTable(find_terms(begin, last, lambda index: entries[index - begin].term))
        other._recovery = RecoveryReport(kept=f"entries up to {last}")
        return other

    @property
    def begin_index(self) -> Index:
        return Index(self._begin_end.position.index + 1)

    @property
    def begin(self) -> LogEnd:
        return replace(self._begin_end, position=Position(NO_TERM, self._begin_end.position.index))

    @property
    def installed_index(self) -> Index:
        return NO_INDEX

    @property
    def end(self) -> LogEnd:
        with self._lock:
            return LogEnd.after(self._entries[-1]) if self._entries else self._begin_end

    @property
    def durable(self) -> Position:
        return self._durable_end.position

    @property
    def terms(self) -> Pairs:
        return self._terms.pairs

    @property
    def hard_state(self) -> HardState:
        return self._state

    @property
    def identity(self) -> Identity:
        return self._identity

    @property
    def recovery(self) -> RecoveryReport:
        return self._recovery

    @property
    def bytes_used(self) -> int:
        return sum(entry.size for entry in self._entries)

    def _check(self, writes: bool = False) -> None:
        if self._failed is not None:
            raise self._failed
        if self._closed:
            raise StorageError("the store is closed")
        if writes and self.fail_next is not None:
            error, self.fail_next = self.fail_next, None
            if isinstance(error, StorageError):
                self._failed = error
            raise error

    def append(self, entries: Sequence[Entry]) -> None:
        self._check(writes=bool(entries))
        if entries:
            with self._lock:
                added = Entries.of(entries)
                check_append(self.end, added, self._segment_bytes, self._state.term)
                self._entries += [owned(entry) for entry in entries]
                self._terms.append(added)

    def truncate(self, after: Index) -> None:
        self._check(writes=True)
        with self._lock:
            if after >= self.end.position.index:
                return
            check_truncate(after, self._commit, self.begin_index, "the log")
            if after >= self.begin_index:
                self.read(after, 0)
            del self._entries[after + 1 - self.begin_index :]
            self._terms.truncate(after)
            if self._durable_end.position.index > after:
                self._durable_end = self.end

    def sync(self) -> Position:
        self._check(writes=True)
        with self._lock:
            self._durable_end = self.end
            return self._durable_end.position

    def save_hard_state(self, state: HardState) -> None:
        self._check(writes=True)
        check_hard_state(self._state, state)
        self.note_commit(state.commit_hint)
        self._state = state

    def save_group_version(self, version: int, release: str) -> None:
        self._check(writes=True)

    @property
    def membership(self) -> Membership:
        return self._membership

    def save_membership(self, membership: Membership) -> None:
        self._check(writes=True)
        self._membership = membership

    def note_commit(self, index: Index) -> None:
        self._commit = Index(max(self._commit, min(index, self.end.position.index)))

    def read(self, begin: Index, max_bytes: int, end: Index | None = None) -> list[Entry]:
        self._check()
        with self._lock:
            self._check_range(begin)
            stop = None if end is None else max(end - self.begin_index, 0)
            found: list[Entry] = []
            taken = 0
            chain = self._chain_before(begin)
            for entry in self._entries[begin - self.begin_index : stop]:
                if found and taken + entry.size > max_bytes:
                    break
                if not body_is_sound(entry) or not chain_is_sound(entry, chain):
                    if found:
                        break
                    raise CorruptEntry(
                        f"entry {entry.index} does not match its checksum", entry.index
                    )
                found.append(entry)
                taken += entry.size
                chain = entry.chain_crc
            return found

    def _chain_before(self, index: int) -> int:
        at = index - self.begin_index
        return (
            self._entries[at - 1].chain_crc
            if 0 < at <= len(self._entries)
            else self._begin_end.chain_crc
        )

    def read_bodies(self, refs: Sequence[tuple[int, int, int]]) -> list[Buffer]:
        self._check()
        bodies: list[Buffer] = []
        with self._lock:
            for index, pos, size in refs:
                self._check_range(index)
                at = index - self.begin_index
                entry = self._entries[at] if at < len(self._entries) else None
                if (
                    entry is None
                    or (entry.pos, entry.size) != (pos, size)
                    or not body_is_sound(entry)
                ):
                    raise CorruptEntry(
                        f"entry {index} of {size} bytes is not at pos {pos}, or damaged", index
                    )
                bodies.append(entry.body)
        return bodies

    def index_at(self, pos: int) -> Index | None:
        self._check()
        with self._lock:
            at = bisect_left(self._entries, pos, key=lambda entry: entry.pos)
            return (
                self._entries[at].index
                if at < len(self._entries) and self._entries[at].pos == pos
                else None
            )

    def _check_range(self, index: int) -> None:
        if index < self.begin_index:
            raise OffsetOutOfRange(
                f"entry {index} is not kept any more: this log begins at entry {self.begin_index}",
                self.begin_index,
                self.end.position.index + 1,
            )

    def damage(self, index: Index) -> None:
        """Rot: from now on the entry's body does not match its checksum."""
        entry = self._entries[index - self.begin_index]
        body = bytes(byte ^ 0xFF for byte in bytes(entry.body[:1])) + bytes(entry.body[1:])
        self._entries[index - self.begin_index] = replace(entry, body=body)

    def repair(self, *entries: Entry, last_stays: bool = False) -> None:
        self._check(writes=True)
        with self._lock:
            for entry in entries:
                at = entry.index - self.begin_index
                known = self._entries[at] if 0 <= at < len(self._entries) else None
                if (
                    known is None
                    or bytes(known.header) != bytes(entry.header)
                    or not body_is_sound(entry)
                ):
                    raise CorruptEntry(
                        f"entry {entry.index}: not the one that belongs there", entry.index
                    )
            for entry in entries:
                self._entries[entry.index - self.begin_index] = owned(entry)

    def scrub(self, max_bytes: int, committed: Index) -> Scrubbed:
        """The whole log at once."""
        self._check()
        with self._lock:
            faults, chain = [], self._begin_end.chain_crc
            for entry in self._entries[: max(committed + 1 - self.begin_index, 0)]:
                if not body_is_sound(entry) or not chain_is_sound(entry, chain):
                    why = "does not match its checksum"
                    faults.append(Fault(entry.index, entry.index, entry.pos, "memory", why))
                chain = entry.chain_crc
            return Scrubbed(self.bytes_used, tuple(faults), self.end.end_pos)

    def examine(self, first: Index, last: Index) -> tuple[Fault, ...]:
        return tuple(
            fault for fault in self.scrub(0, Index(last + 1)).faults if fault.first >= first - 1
        )

    def retain(
        self, limit: Index, now_ms: int, hour: int | None = None, held: Sequence[Held] = ()
    ) -> Index:
        self._check(writes=True)
        limit = min(limit, *(Index(each.first - 1) for each in held), limit)
        with self._lock:
            while 0 < self._retention_bytes < self._files() * self._segment_bytes:
                first = self._entries[0].pos // self._segment_bytes
                count = sum(entry.pos // self._segment_bytes == first for entry in self._entries)
                last = self._entries[count - 1]
                if count == len(self._entries) or last.index > limit:
                    break
                del self._entries[:count]
                end_pos = (first + 1) * self._segment_bytes
                self._begin_end = LogEnd(last.position, end_pos, last.chain_crc)
                self._terms.drop_front(self.begin_index)
            return self.begin_index

    def _files(self) -> int:
        if not self._entries:
            return 0
        return (
            self._entries[-1].pos // self._segment_bytes
            - self._entries[0].pos // self._segment_bytes
            + 1
        )

    def disk_level(self) -> DiskLevel:
        self._check()
        return self.level

    def abandon(self) -> None:
        """See `LogStore.abandon`."""
        self._failed = self._failed or StorageError("given up, because this node stops")

    def close(self) -> None:
        if not self._closed and self._failed is None:
            self.sync()
        self._closed = True


def owned(entry: Entry) -> Entry:
    """The entry over bytes of its own: a caller may use a receive buffer again."""
    return replace(entry, header=bytes(entry.header), body=bytes(entry.body))
