"""The interface of a store of one node's log, independent of the place of the log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

from dledger.config import NodeConfig
from dledger.protocol.messages.entry import Entry, HardState, LogEnd
from dledger.protocol.messages.membership import Membership
from dledger.types import NO_INDEX, Buffer, Index, NodeId, Position, Term


@dataclass(frozen=True, slots=True)
class Identity:
    """The node that a store belongs to. ``incarnation`` is drawn when the store is created, so that
    a node that lost its disk and comes back under the same name is not taken for the one that
    voted."""

    group: str
    node_id: NodeId
    incarnation: int


class DiskLevel(IntEnum):
    """How full the disk is (D12)."""

    OK = 0
    WARN = 1
    """Expired files go now, regardless of ``delete_when``."""
    FULL = 2
    """Writes must be refused; nothing unexpired is deleted to make room."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Entries ``first`` to ``last`` that are there but cannot be believed. Kept as found, never
    served."""

    first: Index
    last: Index
    pos: int
    file: str
    reason: str


@dataclass(frozen=True, slots=True)
class RecoveryReport:
    """The findings of opening a store, each with its reason.

    ``faulty`` is the part that needs action: the log's length is right and none of it was cut, but
    these entries have to be repaired from a peer (`LogStore.repair`) before this node may lead or
    serve them.
    """

    kept: str = ""
    cut: tuple[str, ...] = ()
    rebuilt: tuple[str, ...] = ()
    rewritten: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    faulty: tuple[Fault, ...] = ()
    lost: str = ""
    """The entries committed here that are gone (`dledger.storage.recovery.lost_entries`)."""


@dataclass(frozen=True, slots=True)
class Scrubbed:
    """One step of a scrub: bytes passed, the damage in them, and how far the pass has come."""

    size: int = 0
    faults: tuple[Fault, ...] = ()
    at: int = 0
    """Log position, in bytes, up to which this pass has come."""
    done: bool = True
    """The pass is over; the next step begins another one."""


@dataclass(slots=True)
class Held:
    """Expired files with entries from ``first`` on are held back, each until it is expired for
    ``max_ms``, while all of them are no larger than ``max_bytes`` (0: no limit) together. After a
    `LogStore.retain`, ``bytes`` of them were, with entries up to ``last``."""

    first: Index
    max_ms: int
    max_bytes: int = 0
    bytes: int = 0
    last: Index = NO_INDEX


class LogStore(Protocol):
    """One node's log and hard state.

    ``append``, ``truncate``, ``save_hard_state`` and ``retain`` belong to one thread; ``sync``,
    ``read``, ``read_bodies`` and the properties may be called from others. After any StorageError
    each later call raises it again (D2): the caller must end the process.
    """

    @property
    def begin_index(self) -> Index:
        """The first entry that is kept; for an empty log the one that will be first."""

    @property
    def begin(self) -> LogEnd:
        """The place before the first kept entry; its term is not known any more. chain_crc -1:
        unknown."""

    @property
    def installed_index(self) -> Index:
        """As of which entry the last catalog is that was taken over from another node, -1: none
        was. The log may still end before it."""

    @property
    def end(self) -> LogEnd:
        """The place before the next entry."""

    @property
    def durable(self) -> Position:
        """How far the log is known to be on the disk."""

    @property
    def terms(self) -> tuple[tuple[Term, Index], ...]:
        """Each term of the kept log with its first index, ascending."""

    @property
    def hard_state(self) -> HardState: ...
    @property
    def identity(self) -> Identity: ...
    @property
    def recovery(self) -> RecoveryReport: ...
    @property
    def bytes_used(self) -> int: ...

    def append(self, entries: Sequence[Entry]) -> None:
        """Write stamped entries right behind the end; readable at once, durable after `sync`.

        Raises:
            DiskFull: no room for the next file; nothing was written and the store stays usable.
            CorruptStore: the entries do not continue the log (index, term, pos or chain), or are of
                a term that no saved hard state has; nothing was written.
            StorageError: the disk failed; the store is unusable from now on.
        """

    def truncate(self, after: Index) -> None:
        """Cut everything behind ``after``; durable on return.

        Raises:
            CorruptEntry: ``after`` itself is damaged, so the end of the cut log would be unknown;
                nothing was cut. Repair it first: it may have been acknowledged.
            CorruptStore: that would cut a committed entry (D4, D7), or ``after`` is not kept here.
        """

    def sync(self) -> Position:
        """Make all that was appended durable; returns how far the log is durable now."""

    def save_hard_state(self, state: HardState) -> None:
        """Durable on return.

        Raises:
            CorruptStore: the term would go back, or a second vote would be given in one term.
        """

    def save_group_version(self, version: int, release: str) -> None:
        """The active group version; durable on return, and nothing where the files say so already.
        From then on no release before ``release`` opens them. Belongs to the thread of
        ``append``."""

    @property
    def membership(self) -> Membership:
        """This node's incarnation, and those of the members that it counts."""

    def save_membership(self, membership: Membership) -> None:
        """Durable on return. Belongs to the thread of ``append``."""

    def note_commit(self, index: Index) -> None:
        """Entries up to ``index`` are committed: never cut them. Written down with the next
        sync."""

    def read(self, begin: Index, max_bytes: int, end: Index | None = None) -> Sequence[Entry]:
        """Consecutive entries from ``begin``, up to ``max_bytes`` or the end of a file but at least
        one, all before ``end`` (exclusive); empty at the end of the log. Checksums are verified;
        stops in front of a corrupt entry.

        Raises:
            CorruptEntry: the entry at ``begin`` does not match its checksums; the message names it.
            OffsetOutOfRange: ``begin`` is not kept any more.
        """

    def read_bodies(self, refs: Sequence[tuple[int, int, int]]) -> list[Buffer]:
        """The bodies of entries given as (index, pos, size), in that order, checked against header
        and checksum.

        Raises:
            CorruptEntry: the bytes there are not that entry, or are damaged.
            OffsetOutOfRange: not kept any more.
        """

    def read_run(self, first: Index, pos: int, size: int) -> Buffer:
        """The bytes of neighbouring entries, unchecked; fewer where the file ends.

        Raises:
            OffsetOutOfRange: the ``first`` one is not kept any more.
        """

    def index_at(self, pos: int) -> Index | None:
        """The entry that begins at this log position, in bytes; None where none does that is
        kept."""

    def repair(self, *entries: Entry, last_stays: bool = False) -> None:
        """Put sound copies of neighbouring damaged entries, fetched from a peer, in their place: in
        a new file, that takes the old one's place when it is durable. All entries that are damaged
        side by side belong together, so that the sound ones around them can vouch for them. May be
        called from any thread.

        ``last_stays``: the log is about to be cut behind the last of them, so entries behind it do
        not vouch; the caller has seen that the last one is of the index and term that is to be
        there, and there is one such entry.

        Raises:
            CorruptEntry: they are not the entries that belong there, or another place of the file
                cannot be read.
            DiskFull: no room for the new file; nothing was changed.
            StorageError: the disk failed; the store is unusable from now on.
        """

    def scrub(self, max_bytes: int, committed: Index) -> Scrubbed:
        """Read and check about ``max_bytes`` more of the log, pass after pass from its first entry
        to ``committed`` (as it was when the pass began). One step at a time, from any thread.

        Raises:
            StorageError: the disk failed otherwise than by not giving back written bytes.
        """

    def examine(self, first: Index, last: Index) -> tuple[Fault, ...]:
        """The damage in and beside entries of which a read failed, or for which their neighbours do
        not vouch: whole runs, so that each can be repaired. From any thread."""

    def retain(
        self, limit: Index, now_ms: int, hour: int | None = None, held: Sequence[Held] = ()
    ) -> Index:
        """Delete whole expired files, oldest first, none with an entry above ``limit``, never the
        last one.

        Args:
            limit: the last entry that may go.
            now_ms: wall clock, in milliseconds since 1970, to compare with the files' modification
                times.
            hour: local hour of the day for ``delete_when``; None asks the clock.
            held: the entries to keep over their time.

        Returns:
            The new begin index.
        """

    def disk_level(self) -> DiskLevel: ...
    def use_limits(self, node: NodeConfig) -> None:
        """Retention and disk levels are those of these settings from now on."""

    def abandon(self) -> None:
        """The node has failed elsewhere on its disk: from here on the store is one that failed
        (D2)."""

    def close(self) -> None:
        """Sync and let go. A store that failed is closed without touching the disk again."""
