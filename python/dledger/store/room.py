"""Room for the next entries: files of the log that are made before anything is written to them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from dledger.errors import DiskFull, StorageError
from dledger.messages.entry import Entry, LogEnd
from dledger.store.files import is_full
from dledger.store.logindex import UNIT_SIZE
from dledger.store.segments import SegmentFiles


class Room:
    """The files of data and index ahead of the log's end. Entries that are about to be written get theirs in any case;
    the keeper makes the next ones before that."""

    def __init__(
        self, data: SegmentFiles, index: SegmentFiles, fail: Callable[[str, Path, OSError], StorageError]
    ) -> None:
        """``fail`` ends the store: the disk has failed."""
        self._data = data
        self._index = index
        self._fail = fail
        self.is_out = False
        """The disk had no room for the last file that was asked for."""

    def make(self, entries: Sequence[Entry]) -> None:
        """Have all files that the entries need before anything is written.

        Raises:
            DiskFull: there is no room for one of them.
            StorageError: the disk failed.
        """
        spans = (
            (self._data, entries[0].pos, entries[-1].pos),
            (self._index, entries[0].index * UNIT_SIZE, entries[-1].index * UNIT_SIZE),
        )
        for files, low, high in spans:
            for start in range(low - low % files.file_size, high + 1, files.file_size):
                if not files.has(start) and not self._allocate(files, start):
                    raise DiskFull(
                        f"{files.directory}: no room for another file of {files.file_size} bytes; nothing was "
                        "written. Free space on that disk"
                    )

    def is_short(self, end: LogEnd) -> bool:
        """Whether the file of data that the log ends in is half full and the next one is not there."""
        pos, size = end.end_pos, self._data.file_size
        return pos % size > size // 2 and not self._data.has(pos + size)

    def make_ahead(self, end: LogEnd) -> None:
        """Make the files that a log which ends there needs next, unless it is cut meanwhile.

        Raises:
            StorageError: the disk failed.
        """
        data, index = self._data, self._index
        if self.is_out:  # only a file that is not there yet tells whether there is room again
            self._allocate(data, data.end, ahead=True)
        elif self.is_short(end):
            self._allocate(data, end.end_pos + data.file_size, ahead=True)
        unit = (end.position.index + 1) * UNIT_SIZE
        if unit % index.file_size > index.file_size // 2 and not index.has(unit + index.file_size):
            self._allocate(index, unit + index.file_size, ahead=True)

    def _allocate(self, files: SegmentFiles, offset: int, ahead: bool = False) -> bool:
        """Make a file; False when the disk is full."""
        try:
            files.allocate(offset, ahead=ahead)
        except OSError as error:
            if not is_full(error):
                raise self._fail("allocate a file in", files.directory, error) from error
            self.is_out = True
            return False
        self.is_out = False
        return True
