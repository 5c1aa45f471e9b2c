"""Storage: I20 no wrong byte is served, I21 a node does no work after a fatal error, I22 snapshots
sum up the log.

Each answer of the store is compared with the written entries: entries for followers and for the
catalog, bodies for readers. Entries that no reader asks for are compared at the end of the seed,
when every live node's log is read from its first entry to its last (`read_all`).
"""

from __future__ import annotations

from collections.abc import Sequence

from dledger.checksum import crc32
from dledger.errors import CorruptEntry
from dledger.protocol.messages.entry import HEADER_SIZE, Entry
from dledger.types import Buffer, Index
from verification.invariants.broken import Broken
from verification.invariants.truth import Truth
from verification.invariants.view import WatchedNode

READ_BYTES = 1 << 20


class Storage:
    """Checks of the answers of all nodes' stores."""

    def __init__(self, truth: Truth) -> None:
        self._truth = truth
        self.snapshots: dict[int, int] = {}
        """Applied index -> CRC-32 of the catalog's snapshot there."""
        self.faulty = 0
        """Entries that a store called damaged instead of serving them."""

    def entries(self, view: WatchedNode, entries: Sequence[Entry]) -> None:
        """The store read these for a follower or for the catalog."""
        for entry in entries:
            written = self._truth.written.get((entry.index, entry.term))
            if (
                written is None
                or written.chain_crc != entry.chain_crc
                or written.body_crc != entry.body_crc
            ):
                raise Broken(
                    "I20",
                    f"{view} reads an entry {entry.index} of term {entry.term} that nobody wrote",
                )
            if entry.verified and crc32(entry.body) != entry.body_crc:
                raise Broken("I20", f"{view} reads entry {entry.index} with wrong bytes")

    def bodies(
        self, view: WatchedNode, refs: Sequence[tuple[int, int, int]], bodies: Sequence[Buffer]
    ) -> None:
        """I12, I20: the store read these, given as (index, pos, size), for a reader."""
        if len(refs) != len(bodies):
            raise Broken("I20", f"{view} reads {len(bodies)} bodies for {len(refs)}")
        for (index, _, size), body in zip(refs, bodies, strict=True):
            term = self._truth.term_of(index)
            if term is None:
                raise Broken("I12", f"{view} serves entry {index}, which is not committed")
            written = self._truth.written[index, term]
            if len(body) + HEADER_SIZE != size or (
                written.body_crc and crc32(body) != written.body_crc
            ):
                raise Broken("I20", f"{view} serves entry {index} with wrong bytes")

    def saved(self, view: WatchedNode, data: bytes, index: int) -> None:
        """I22: a snapshot of the catalog says the same on every node, and is of committed
        entries."""
        if index > self._truth.committed_index:
            raise Broken(
                "I22",
                f"{view} sums up the log to {index}; {self._truth.committed_index} is committed",
            )
        crc = crc32(data)
        if self.snapshots.setdefault(index, crc) != crc:
            raise Broken(
                "I22", f"{view} has another catalog at {index} than another node had there"
            )

    def started(self, view: WatchedNode) -> None:
        """I22: the catalog that a node restores is the one that the log makes."""
        index = view.catalog.applied_index
        if index < 0:
            return
        if index > self._truth.committed_index or index > max(
            view.end.position.index, view.store.installed_index
        ):
            raise Broken(
                "I22",
                f"{view} restores a catalog at {index}, its log ends at {view.end.position.index}",
            )
        known = self.snapshots.get(index)
        if known is not None and crc32(view.catalog.snapshot()) != known:
            raise Broken("I22", f"{view} restores another catalog at {index} than was saved")

    @staticmethod
    def failed(view: WatchedNode) -> None:
        """I21: a store that failed touches its disk no more."""
        operations: int | None = getattr(view.server._disk, "operations", None)
        if operations is None:
            return
        if view.failed_at is None:
            view.failed_at = operations
        elif operations > view.failed_at:
            raise Broken("I21", f"{view} goes on writing after {view.server._error}")

    def read_all(self, view: WatchedNode) -> int:
        """I20, at the end: the whole log of a node is what was committed, or said to be damaged.
        Returns its last.

        Where the disk was told to lie, entry by entry: each is looked up in the index then.
        """
        store, index = view.store, int(view.store.begin_index)
        last = min(view.log.committed_index, store.end.position.index)
        at_once = READ_BYTES if not getattr(view.server._disk, "rotten", False) else 1
        while index <= last:
            try:
                found = store.read(Index(index), at_once, Index(last + 1))
            except CorruptEntry:
                self.faulty += 1
                index += 1
                continue
            if not found or found[0].index != index:
                raise Broken("I20", f"{view} has no entry {index} in its log up to {last}")
            for entry in found:
                if entry.term != self._truth.term_of(entry.index):
                    raise Broken(
                        "I20", f"{view} has an entry {entry.index} of term {entry.term} on its disk"
                    )
            index += len(found)
        return last
