"""Reading the whole log of a running store, piece by piece, to find rot before an entry is needed.

A pass goes from the first kept entry as far as the log is durable and committed: entries behind
that may still be cut. Bytes that the disk does not give back count as damage of the entries that
they belong to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import pairwise
from typing import Final

from dledger.errors import CorruptEntry
from dledger.protocol.messages.entry import Entry, LogEnd
from dledger.protocol.messages.entry_runs import EntryRun
from dledger.storage.api import Fault, Scrubbed
from dledger.storage.log.reader import LogView, Reader
from dledger.storage.log.segments import SegmentFiles
from dledger.storage.log.walker import Bad, Finish, Walker
from dledger.types import Index

BLOCK: Final = 4096
UNREADABLE: Final = b"\xee"
"""Stands for bytes that cannot be read: neither zeros, which end a log, nor anything that an entry
begins with."""


class TolerantReader(SegmentFiles):
    """The same files, of which a bad sector is not the end: it reads as `UNREADABLE`."""

    def __init__(self, data: SegmentFiles) -> None:
        self._data = data
        self.directory = data.directory
        self.file_size = data.file_size
        self.has = data.has  # type: ignore[method-assign]
        self.next_data = data.next_data  # type: ignore[method-assign]

    def pread(self, offset: int, size: int) -> bytes:
        """As `SegmentFiles.pread`."""
        size = min(size, self.file_size - offset % self.file_size)
        try:
            return self._data.pread(offset, size)
        except FileNotFoundError:
            raise
        except OSError:
            if size <= BLOCK:
                return UNREADABLE * size
        first = BLOCK - offset % BLOCK
        cuts = [0, *range(first, size, BLOCK), size]
        return b"".join(self.pread(offset + low, high - low) for low, high in pairwise(cuts))


def examine(
    data: SegmentFiles, reader: Reader, view: LogView, known: LogEnd, first: Index, last: Index
) -> tuple[Fault, ...]:
    """The damage in and beside a run: walk from a sound entry in front of it to a sound one behind
    it.

    Raises:
        CorruptEntry: a truncation or retention took away some of these entries.
    """
    try:
        faults = _examine(data, reader, view, known, first, last)
    except FileNotFoundError as error:
        if reader.unchanged(view):
            raise
        raise _changed(first) from error
    if faults and not reader.unchanged(view):
        raise _changed(first)
    return faults


def _changed(first: Index) -> CorruptEntry:
    return CorruptEntry(f"entry {first}: the log changed while it was looked at", first)


def _examine(
    data: SegmentFiles, reader: Reader, view: LogView, known: LogEnd, first: Index, last: Index
) -> tuple[Fault, ...]:
    start = view.begin
    # The walk needs a sound entry to begin behind. A near one costs less, and the begin of the log
    # always serves.
    for back in (2, 16, 128, 1024):
        if first - back >= view.begin_index:
            with suppress(CorruptEntry):
                start = LogEnd.after(reader.read(Index(first - back), 1)[0])
                break
    walker, faults = Walker(TolerantReader(data), start, known=known), list[Fault]()
    for event in walker.walk():
        if isinstance(event, Finish) or (isinstance(event, Entry) and event.index > last):
            break
        if isinstance(event, Bad) and (fault := fault_of(data, event)) is not None:
            faults.append(fault)
    return tuple(faults)


def fault_of(data: SegmentFiles, event: Bad) -> Fault | None:
    """Damage that hits entries, as it is reported; None where none is hit."""
    if event.last < event.first:
        return None
    return Fault(event.first, event.last, event.pos, str(data.path(event.pos)), event.reason)


class Scrub:
    """Passes over one store's log, one `step` at a time; steps come one after the other, from any
    thread."""

    def __init__(
        self, data: SegmentFiles, view: Callable[[], LogView], *, sure: Callable[[], LogEnd]
    ) -> None:
        """``sure()``: the durable end."""
        self._data = data
        self._view = view
        self._sure = sure
        self._events: Iterator[tuple[int, Fault | None]] | None = None
        self._at = 0

    def step(self, max_bytes: int, committed: Index) -> Scrubbed:
        """Read about ``max_bytes`` more; a pass goes up to ``committed`` as it is when it begins.

        Raises:
            OSError: the disk failed otherwise than by not giving back written bytes.
        """
        if self._events is None:
            self._events, self._at = self._walk(committed), self._view().begin_pos
        start, faults = self._at, list[Fault]()
        try:
            while self._at - start < max_bytes:
                at, fault = next(self._events)
                if fault is not None and fault.first < self._view().begin_index:
                    self._events = None  # retention took the entries missing there
                    break
                self._at = max(at, self._at)
                if fault is not None:
                    faults.append(fault)
        except (StopIteration, FileNotFoundError):  # the end, or retention was faster
            self._events = None
        return Scrubbed(self._at - start, tuple(faults), self._at, self._events is None)

    def _walk(self, committed: Index) -> Iterator[tuple[int, Fault | None]]:
        """Where the log goes on, and the damage before it, again and again."""
        view, known = self._view(), self._sure()
        limit = min(committed, known.position.index)
        walker = Walker(TolerantReader(self._data), view.begin, known=known)
        events = walker.passes()
        while walker.end.position.index < limit:
            event = next(events)
            if isinstance(event, EntryRun):
                for end in event.starts[1 : limit - event.index + 2]:
                    yield event.pos + end, None
            elif isinstance(event, Entry):
                yield event.end_pos, None
            elif isinstance(event, Bad):
                yield event.resume, fault_of(self._data, event)
            elif isinstance(event, Finish):
                return
