"""A node whose state another one takes over: its log and catalog, without any disk of its own."""

from __future__ import annotations

from collections.abc import Sequence

from dledger.catalog.state_machine import Catalog
from dledger.catalog.topics.table import MemoryTables
from dledger.node.snapshot.image import Image
from dledger.protocol.messages.entry import MAGIC_NORMAL, Entry, LogEnd
from dledger.protocol.messages.entry_runs import stamp_all
from dledger.types import NO_TERM, Position, Term
from verification.disk_states.promise import apply_entries


class Giver:
    """A leader's log from entry 0 on, all of it committed and applied."""

    def __init__(self, segment_bytes: int, log: Sequence[Entry] = ()) -> None:
        """``log``: the entries that it shares with the node that takes its state over."""
        self._segment_bytes = segment_bytes
        self.log = tuple(log)

    def append(self, term: int, bodies: Sequence[bytes]) -> None:
        """More entries."""
        end = LogEnd.after(self.log[-1]) if self.log else LogEnd()
        self.log += tuple(stamp_all(end, Term(term), MAGIC_NORMAL, bodies, self._segment_bytes))

    def first_after(self, index: int) -> Entry:
        """The first entry above ``index`` that begins a data file, as the first one behind
        retention does."""
        size = self._segment_bytes
        return next(entry for entry in self.log if entry.index > index and entry.pos % size == 0)

    def image(self, first: Entry) -> bytes:
        """Its state, when its retention has left entries from ``first`` on."""
        catalog = Catalog(MemoryTables())
        apply_entries(catalog, self.log)
        catalog.drop_before(first.index)
        before = self.log[first.index - 1]
        begin = LogEnd(Position(NO_TERM, before.index), first.pos, before.chain_crc)
        image = Image(catalog, begin, first=first)
        return image.read(0, image.size)
