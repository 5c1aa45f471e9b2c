"""The index by key of a store: files in ``index`` that are named by the time when they were made,
one behind the other.

A put message is known by its place, so that putting it again changes nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from dledger.errors import PathError
from dledger.rocketmq.format.index_file import (
    DEFAULT_SLOTS,
    DEFAULT_UNITS,
    NAME_DIGITS,
    is_index_name,
    key_hash,
)
from dledger.rocketmq.store.files import HOST, make_directory, remove
from dledger.rocketmq.store.index_file import OpenIndex
from dledger.storage.disk.disk import Disk

NAME_FORMAT: Final = "%Y%m%d%H%M%S%f"


def now_ms() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000


class IndexService:
    """All index files of a store. Keys go into the last one; when it is full, a new one is made."""

    def __init__(
        self,
        directory: Path,
        slots: int = DEFAULT_SLOTS,
        *,
        units: int = DEFAULT_UNITS,
        clock: Callable[[], int] = now_ms,
        disk: Disk = HOST,
    ) -> None:
        """Find the files.

        Args:
            directory: the store's folder ``index``; it is made with the first file.
            slots, units: the broker's maxHashSlotNum and maxIndexNum.
            clock: milliseconds since 1970, for the names of files.

        Raises:
            CorruptStore: the last file has another size, or its header cannot be.
            PathError: the folder cannot be read.
        """
        self.directory = directory
        self._slots, self._units, self._clock = slots, units, clock
        self._disk = disk
        self._names = index_names(directory, disk)
        self._last = self._open(self._names[-1]) if self._names else None
        self.end_offset = -1
        """Place of the last message with a key here; -1 for none."""
        self.end_keys = 0
        """How many keys of that message are here."""
        self._find_end()

    def _open(self, name: str) -> OpenIndex:
        return OpenIndex(self.directory / name, self._slots, units=self._units, disk=self._disk)

    @contextmanager
    def _at_hand(self, name: str) -> Iterator[OpenIndex]:
        """A file to be read: the last one is open in any case, another one is closed again."""
        if self._last is not None and name == self._last.path.name:
            yield self._last
            return
        file = self._open(name)
        yield file
        file.close()

    def _find_end(self) -> None:
        """A message's keys may go on in the next file."""
        self.note(-1, 0)
        for name in reversed(self._names):
            with self._at_hand(name) as file:
                if file.is_empty:
                    continue
                self.end_offset = file.end_offset if self.end_offset < 0 else self.end_offset
                mine = file.last_units(self.end_offset)
                self.end_keys += mine
                if not mine or mine < file.count - 1:
                    return

    @property
    def files(self) -> list[Path]:
        """The files, the oldest first."""
        return [self.directory / name for name in self._names]

    def spans(self) -> list[tuple[int, int]]:
        """Places of the first and the last message in each file, the oldest file first.

        Raises:
            CorruptStore: a file has another size, or its header cannot be.
        """
        found = []
        for name in self._names:
            with self._at_hand(name) as file:
                if not file.is_empty:
                    found.append((file.begin_offset, file.end_offset))
        return found

    @property
    def end_timestamp(self) -> int:
        """Store time of that message in milliseconds since 1970; 0 for none."""
        return self._last.end_timestamp if self._last else 0

    def put(
        self, topic: str, keys: Sequence[str], physical_offset: int, store_timestamp: int
    ) -> None:
        """Add a message's keys, in this order; those that are there already are passed over.

        Raises:
            DiskFull, StorageError: a new file cannot be made.
        """
        if physical_offset >= self.end_offset:
            hashes = [key_hash(topic, key) for key in keys]
            self.put_hashes(hashes, physical_offset, store_timestamp)

    def put_hashes(self, hashes: Sequence[int], physical_offset: int, store_timestamp: int) -> None:
        """As `put`, with the hashes of the keys."""
        if physical_offset < self.end_offset:
            return
        if physical_offset == self.end_offset:
            hashes = hashes[self.end_keys :]
        elif hashes:
            self.note(physical_offset, 0)
        for one in hashes:
            self._with_room().put(one, physical_offset, store_timestamp)
            self.end_keys += 1

    def _with_room(self) -> OpenIndex:
        """The file for the next key."""
        return self._next() if self._last is None or self._last.is_full else self._last

    def current(self) -> OpenIndex:
        """The file with room for the next key, with all put keys written to it: for a caller that
        writes many keys at once, and then says so by `note`.

        Raises:
            DiskFull, StorageError: it cannot be made or written.
        """
        file = self._with_room()
        file.write()
        return file

    def note(self, physical_offset: int, count: int) -> None:
        """Place of the last message whose keys were written, and how many it has."""
        self.end_offset, self.end_keys = physical_offset, count

    def _next(self) -> OpenIndex:
        """A new last file. The one before it is on the disk by then: only the last one is ever
        doubted."""
        if self._last:
            self._last.flush()
        if not self._names:
            make_directory(self.directory, self._disk)
        path = self.directory / self._new_name()
        made = OpenIndex.make(path, self._slots, self._units, self._last, self._disk)
        if self._last:
            self._last.close()
        self._last = made
        self._names.append(path.name)
        return made

    def _new_name(self) -> str:
        """The time in the zone of this machine, as a broker has it, and behind the last file's."""
        when = datetime.fromtimestamp(self._clock() / 1000, UTC).astimezone()
        name = when.strftime(NAME_FORMAT)[:NAME_DIGITS]
        if self._names and name <= self._names[-1]:
            last = datetime.strptime(self._names[-1], NAME_FORMAT).replace(tzinfo=UTC)
            name = (last + timedelta(milliseconds=1)).strftime(NAME_FORMAT)[:NAME_DIGITS]
        return name

    def write(self) -> None:
        """Hand the put keys to the file system.

        Raises:
            DiskFull, StorageError: nothing of it counts as written.
        """
        if self._last:
            self._last.write()

    def flush(self) -> None:
        """Return when everything that was put is on the disk.

        Raises:
            DiskFull, StorageError: it is not, or perhaps not.
        """
        if self._last:
            self._last.flush()

    def lookup(
        self, topic: str, key: str, begin: int | None = None, end: int | None = None
    ) -> list[int]:
        """Places of messages that may have this key, the newest first; arguments as for
        `IndexReader.lookup`.

        Raises:
            CorruptStore, FormatError: a file contradicts itself.
        """
        self.write()
        found = []
        for name in reversed(self._names):
            with self._at_hand(name) as file:
                found += file.reader().lookup(topic, key, begin, end)
        return found

    def truncate_dirty(self, physical_offset: int, *, doubted: bool = False) -> int:
        """Forget the keys of messages at or behind this place in the commit log.

        Args:
            doubted: look at the last file whether anything is to be forgotten or not.

        Returns:
            The place from which messages must be put again: this one, or an earlier one where units
            that should have stayed were torn by a power failure.

        Raises:
            StorageError: the disk failed.
        """
        self.write()
        again = physical_offset
        while self._last is not None:
            file = self._last
            if not doubted and not file.is_empty and file.end_offset < physical_offset:
                break
            doubted = False
            if not file.is_empty and file.begin_offset < physical_offset:
                if not file.cut(physical_offset):
                    again = min(again, file.begin_offset if file.is_empty else file.end_offset)
                if not file.is_empty:
                    break
            self._drop_last()
        self._find_end()
        return again

    def _drop_last(self) -> None:
        """Remove the last file."""
        assert self._last is not None
        self._last.close()
        remove(self.directory / self._names.pop(), self._disk)
        self._last = self._open(self._names[-1]) if self._names else None

    def delete_before(self, physical_offset: int) -> int:
        """Remove files of messages that the commit log has no more, but never the last; how
        many."""
        count = 0
        while len(self._names) > 1:
            with self._at_hand(self._names[0]) as file:
                is_old = file.end_offset < physical_offset
            if not is_old:
                break
            remove(self.directory / self._names.pop(0), self._disk)
            count += 1
        return count

    def destroy(self) -> None:
        """Remove all files."""
        while self._last is not None:
            self._drop_last()
        self._find_end()

    def close(self) -> None:
        """Close the files; nothing is written."""
        if self._last:
            self._last.close()
        self._last = None


def index_names(directory: Path, disk: Disk = HOST) -> list[str]:
    """Names of the index files in a folder, the oldest first.

    Raises:
        PathError: it cannot be read.
    """
    try:
        return list(filter(is_index_name, disk.listdir(directory)))
    except OSError as error:
        raise PathError(f"{directory} cannot be read: {error.strerror}") from error
