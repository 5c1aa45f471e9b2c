"""The mark while the store is open; see `dledger.storage.meta.hard_state.Mark`.

Written after each sync without waiting (a record that can be read is true), made durable by the
background tasks, and lowered durably in both slots before an entry that it covers is cut.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

from dledger.protocol.messages.entry import LogEnd
from dledger.storage.disk.disk import Witness
from dledger.storage.disk.lock_checks import is_held
from dledger.storage.log.index import UNIT_SIZE
from dledger.storage.meta.hard_state import RecoveryPoint
from dledger.storage.meta.slots import SlotFile
from dledger.storage.recovery.open_files import Parts
from dledger.types import Index


class RecoveryPoints:
    """Thread-safe."""

    def __init__(
        self,
        slots: SlotFile,
        mark: RecoveryPoint,
        *,
        vouch: Callable[[RecoveryPoint, RecoveryPoint], None] | None = None,
    ) -> None:
        """``vouch`` is told of a mark that says more, and of the one before; raises when it is not
        true."""
        self.mark = mark
        self.stale = False
        """The record written last is not durable yet."""
        self.cuts = 0
        self._slots = slots
        self._writing = threading.Lock()
        self._changing = threading.Lock()
        self._vouch = vouch
        if vouch is not None:
            vouch(mark, mark)
        slots.write_both(mark.pack())

    def raise_to(self, durable: LogEnd, commit: Index) -> None:
        """The log is durable up to there."""
        with self._changing:
            if durable == self.mark.durable and commit == self.mark.commit:
                return
            before, mark = self.mark, self.mark.raised(durable, commit)
            if self._vouch is not None:
                self._vouch(mark, before)
            self._change(mark)
            self.stale = True
        # else the thread that settles the mark writes it, or the next sync
        if self._writing.acquire(blocking=False):
            try:
                self._write(mark)
            finally:
                self._writing.release()

    def settle(self, indexed: LogEnd | None = None, cuts: int = 0) -> None:
        """Make the mark durable; ``indexed``: the index is synced up to there, unless more cuts
        came since."""
        with self._writing:
            with self._changing:
                if indexed is not None and cuts == self.cuts:
                    before, mark = self.mark, replace(self.mark, indexed=indexed)
                    if self._vouch is not None:
                        self._vouch(mark, before)
                    self._change(mark)
                mark, self.stale = self.mark, False
            self._write(mark)
            self._slots.settle()

    def lower_to(self, end: LogEnd) -> None:
        """Everything behind ``end`` is about to go. Durable on return."""
        with self._writing:
            with self._changing:
                durable, indexed = (
                    end if end.position.index < known.position.index else known
                    for known in (self.mark.durable, self.mark.indexed)
                )
                mark = self._change(replace(self.mark, durable=durable, indexed=indexed))
                self.cuts += 1
            self._write(mark, both=True)

    def move_begin(self, index: Index, pos: int, chain: int) -> None:
        """The log begins there now. Durable on return."""
        with self._writing:
            with self._changing:
                mark = self._change(
                    replace(self.mark, begin_index=index, begin_pos=pos, begin_chain=chain)
                )
            self._write(mark, both=True)

    def _change(self, mark: RecoveryPoint) -> RecoveryPoint:
        assert is_held(self._changing), "the mark is changed under RecoveryPoints._changing"
        self.mark = mark
        return mark

    def _write(self, mark: RecoveryPoint, *, both: bool = False) -> None:
        assert is_held(self._writing), "the mark is written under RecoveryPoints._writing"
        if both:
            self._slots.write_both(mark.pack())
        else:
            self._slots.write(mark.pack())


def vouch_for(parts: Parts, witness: Witness, mark: RecoveryPoint, before: RecoveryPoint) -> None:
    """Have a disk of a test check whether a mark is true: a sync covers all that it calls durable,
    and the units that it calls indexed and the one before did not. Units before that may have been
    written again, as they were."""
    indexed = ((end.position.index + 1) * UNIT_SIZE for end in (before.indexed, mark.indexed))
    witness(parts.data.directory, mark.begin_pos, mark.durable.end_pos)
    witness(parts.index.files.directory, *indexed)
