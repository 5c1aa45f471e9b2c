"""The mark while the store is open; see `dledger.store.state.Mark`.

Written after each sync without waiting (a record that can be read is true), made durable by the keeper, and lowered
durably in both slots before anything that it speaks of is cut.
"""

from __future__ import annotations

import threading
from dataclasses import replace

from dledger.messages.entry import LogEnd
from dledger.store.slots import SlotFile
from dledger.store.state import Mark
from dledger.types import Index


class MarkBook:
    """Thread-safe."""

    def __init__(self, slots: SlotFile, mark: Mark) -> None:
        self.mark = mark
        self.stale = False
        """What was written last is not durable yet."""
        self.cuts = 0
        self._slots = slots
        self._writing = threading.Lock()
        self._changing = threading.Lock()
        slots.write_both(mark.pack())

    def raise_to(self, durable: LogEnd, commit: Index) -> None:
        """The log is durable up to there."""
        with self._changing:
            if durable == self.mark.durable and commit == self.mark.commit:
                return
            mark = self.mark = replace(self.mark, durable=durable, commit=commit)
            self.stale = True
        if self._writing.acquire(blocking=False):  # else somebody who settles the mark writes it, or the next sync
            try:
                self._slots.write(mark.pack())
            finally:
                self._writing.release()

    def settle(self, indexed: LogEnd | None = None, cuts: int = 0) -> None:
        """Make the mark durable; ``indexed``: the index is synced up to there, unless more cuts came since."""
        with self._writing:
            with self._changing:
                if indexed is not None and cuts == self.cuts:
                    self.mark = replace(self.mark, indexed=indexed)
                mark, self.stale = self.mark, False
            self._slots.write(mark.pack())
            self._slots.settle()

    def lower_to(self, end: LogEnd) -> None:
        """Everything behind ``end`` is about to go. Durable on return."""
        with self._writing:
            with self._changing:
                durable, indexed = (
                    end if end.position.index < known.position.index else known
                    for known in (self.mark.durable, self.mark.indexed)
                )
                mark = self.mark = replace(self.mark, durable=durable, indexed=indexed)
                self.cuts += 1
            self._slots.write_both(mark.pack())

    def move_begin(self, index: Index, pos: int, chain: int) -> None:
        """The log begins there now. Durable on return."""
        with self._writing:
            with self._changing:
                mark = self.mark = replace(self.mark, begin_index=index, begin_pos=pos, begin_chain=chain)
            self._slots.write_both(mark.pack())
