"""Room for the next entries: files of the log, and their blocks, that are there before anything is
written to them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from dledger.errors import DiskFull, StorageError
from dledger.protocol.messages.entry import LogEnd
from dledger.protocol.messages.entry_runs import Entries
from dledger.storage.disk.disk import is_full
from dledger.storage.log.index import UNIT_SIZE
from dledger.storage.log.segments import SegmentFiles


class Room:
    """The space of data and index ahead of the log's end. Entries that are about to be written get
    theirs in any case; the background tasks take the next step before that."""

    def __init__(
        self,
        data: SegmentFiles,
        index: SegmentFiles,
        *,
        fail: Callable[[str, Path, OSError], StorageError],
    ) -> None:
        """``fail`` ends the store: the disk has failed."""
        self._data = data
        self._index = index
        self._fail = fail
        self.is_out = False
        """The disk had no room for the last step that was asked for."""

    def make(self, end_pos: int, entries: Entries) -> None:
        """Have room for the entries, and for the padding that may come between them and the log's
        end at ``end_pos``, before anything is written.

        Raises:
            DiskFull: there is none.
            StorageError: the disk failed.
        """
        spans = (
            (self._data, end_pos, entries.runs[-1].end_pos),
            (self._index, entries.first_index * UNIT_SIZE, (entries.last_index + 1) * UNIT_SIZE),
        )
        for files, low, high in spans:
            start = low - low % files.file_size
            step = files.steps.get(start)
            if step is not None and start + step.end >= high:  # there are blocks for it already
                continue
            if not self._take(files, partial(files.reserve, low, high)):
                raise DiskFull(
                    f"{files.directory}: no room for {high - low} bytes behind "
                    f"{files.path(low).name}, byte "
                    f"{low % files.file_size}; nothing was written. Free space on that disk"
                )

    def make_ahead(self, end: LogEnd) -> None:
        """Take the steps that a log which ends there needs next, unless it is cut meanwhile.

        Raises:
            StorageError: the disk failed.
        """
        data, index = self._data, self._index
        if self.is_out:  # only a new step tells whether there is room again
            self._take(data, partial(data.grow_ahead, data.end - 1))
        elif is_short(data, end.end_pos):
            self._take(data, partial(data.grow_ahead, end.end_pos))
        unit = (end.position.index + 1) * UNIT_SIZE
        if is_short(index, unit):
            self._take(index, partial(index.grow_ahead, unit))

    def _take(self, files: SegmentFiles, action: Callable[[], None]) -> bool:
        """Make files longer or more; False when the disk is full."""
        try:
            action()
        except OSError as error:
            if not is_full(error):
                raise self._fail("allocate space in", files.directory, error) from error
            self.is_out = True
            return False
        self.is_out = False
        return True


def is_short(files: SegmentFiles, offset: int) -> bool:
    """Whether ``offset`` is in the second half of its file's last step, and the next one is not
    there."""
    inside = offset % files.file_size
    step = files.steps.get(offset - inside)
    if step is None or inside <= step.middle:
        return False
    return step.end < files.file_size or not files.has(offset + files.file_size)
