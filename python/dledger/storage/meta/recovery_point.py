"""The recovery point beside the log (``mark``): how far the disk is known to hold it.

It only ever says too little, never too much. Syncs raise it in memory; the background tasks write
it and make it durable, so that no append waits for it. It is lowered durably in both slots before
an entry that it covers is cut.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from dledger.protocol.messages.entry import LogEnd
from dledger.storage.meta.slots import SlotFile
from dledger.types import NO_INDEX, NO_TERM, Index, Position, Term, slots_dataclass

MARK_FILE: Final = "mark"
MARK_MAGIC: Final = b"DLmk"
EMPTY_LOG: Final = LogEnd()
FIRST: Final = Index(0)
_MARK: Final = struct.Struct(">qqqIqqqIq16sqqqB")


@slots_dataclass()
class RecoveryPoint:
    """How far the disk is known to hold the written log.

    Whenever it can be read it is true, even if it was never synced itself: it is written after the
    sync it tells of, and lowered, durably, before anything below it is cut.
    """

    durable: LogEnd = EMPTY_LOG
    """Data up to here was synced without error."""
    indexed: LogEnd = EMPTY_LOG
    """Data and index up to here were; recovery scans from here."""
    commit: Index = NO_INDEX
    """Committed and durable here."""
    boot_id: bytes = b""
    """The run of the operating system that wrote it: in the same one no written page can have been
    lost."""
    begin_index: Index = FIRST
    begin_pos: int = 0
    begin_chain: int = 0
    """chainCrc of the entry before the first kept one, -1 when unknown."""

    @property
    def begin(self) -> LogEnd:
        """The place before the first kept entry."""
        return before_first(self.begin_index, self.begin_pos, self.begin_chain)

    def pack(self) -> bytes:
        durable, indexed = self.durable, self.indexed
        return _MARK.pack(
            durable.position.term,
            durable.position.index,
            durable.end_pos,
            durable.chain_crc,
            indexed.position.term,
            indexed.position.index,
            indexed.end_pos,
            indexed.chain_crc,
            self.commit,
            self.boot_id,
            self.begin_index,
            self.begin_pos,
            self.begin_chain,
            len(self.boot_id),
        )

    @staticmethod
    def unpack(data: bytes) -> RecoveryPoint:
        f = _MARK.unpack(data)
        return RecoveryPoint(
            LogEnd(Position(Term(f[0]), Index(f[1])), f[2], f[3]),
            LogEnd(Position(Term(f[4]), Index(f[5])), f[6], f[7]),
            Index(f[8]),
            f[9][: f[13]],
            Index(f[10]),
            f[11],
            f[12],
        )


def before_first(index: int, pos: int, chain: int) -> LogEnd:
    """The place before the first kept entry, which is the one at ``index``: the term of the entry
    before it is not known any more. ``chain`` -1: its chainCrc is not either."""
    return LogEnd(Position(NO_TERM, Index(index - 1)), pos, chain)


def empty_log(begin: LogEnd) -> LogEnd:
    """The end of a log that begins there and has no entry yet."""
    return replace(begin, chain_crc=max(begin.chain_crc, 0))


class RecoveryPoints:
    """The recovery point of an open store. Thread-safe."""

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
        """The record on the disk says less."""
        self.cuts = 0
        self._slots = slots
        self._writing = threading.Lock()
        self._changing = threading.Lock()
        self._vouch = vouch
        if vouch is not None:
            vouch(mark, mark)
        slots.write_both(mark.pack())

    def raise_to(self, durable: LogEnd, commit: Index) -> None:
        """The log is durable up to there; `settle` tells the disk."""
        with self._changing:
            if durable == self.mark.durable and commit == self.mark.commit:
                return
            before = self.mark
            # not by `replace`, which takes several times as long, at each sync
            mark = RecoveryPoint(
                durable,
                before.indexed,
                commit,
                before.boot_id,
                before.begin_index,
                before.begin_pos,
                before.begin_chain,
            )
            if self._vouch is not None:
                self._vouch(mark, before)
            self.mark, self.stale = mark, True

    def settle(self, indexed: LogEnd | None = None, cuts: int = 0) -> None:
        """Make the mark durable; ``indexed``: the index is synced up to there, unless more cuts
        came since."""
        with self._writing:
            with self._changing:
                if indexed is not None and cuts == self.cuts:
                    before, mark = self.mark, replace(self.mark, indexed=indexed)
                    if self._vouch is not None:
                        self._vouch(mark, before)
                    self.mark = mark
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
                self.mark = mark = replace(self.mark, durable=durable, indexed=indexed)
                self.cuts += 1
            self._slots.write_both(mark.pack())

    def move_begin(self, index: Index, pos: int, chain: int) -> None:
        """The log begins there now. Durable on return."""
        with self._writing:
            with self._changing:
                self.mark = mark = replace(
                    self.mark, begin_index=index, begin_pos=pos, begin_chain=chain
                )
            self._slots.write_both(mark.pack())
