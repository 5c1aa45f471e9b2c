"""Equally long files with 20-digit names that together are one long run of bytes: ``data/`` and
``index/``.

A file gets its final name only when it has its full length, so that one with such a name is never
too short, save where a truncation was interrupted. It gets its blocks in steps
(`dledger.storage.disk.allocation_steps`), each of them before anything is written there. Methods
raise OSError as the disk does.
"""

from __future__ import annotations

import errno
import threading
from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from dledger.errors import ConfigError, CorruptStore
from dledger.storage.disk.allocated_blocks import Blocks, make_room
from dledger.storage.disk.allocation_steps import Step, step_of
from dledger.storage.disk.disk import Disk, DiskFile
from dledger.storage.disk.file_names import NEW_SUFFIX, file_name, is_file_name
from dledger.storage.disk.small_files import make_directory, remove
from dledger.storage.log.zeros import first_nonzero
from dledger.types import Buffer

MAX_HANDLES: Final = 256
"""Files of one directory that are kept open."""


def is_held(lock: Any) -> bool:
    """Whether this thread holds the lock; of a lock that does not know its owner, as
    `threading.Lock`: whether any thread does. None stands for a lock that is not there yet, because
    no other thread knows of the object."""
    if lock is None:
        return True
    is_owned = getattr(lock, "_is_owned", None)
    return bool(is_owned() if is_owned is not None else lock.locked())


class SegmentFiles:
    """The files of one directory. Reading is safe beside one writer."""

    def __init__(
        self, disk: Disk, directory: Path, *, file_size: int, read_only: bool = False
    ) -> None:
        self.disk = disk
        self.directory = directory
        self.file_size = file_size
        self._read_only = read_only
        self._handles: dict[int, DiskFile] = {}
        self._dirty: set[int] = set()
        self.steps = Blocks()
        self.exchanged = 0
        """How often a file was cut, went, or another one took its place."""
        self._lock = threading.Lock()
        """Of handles, marks, steps and `starts`; never held over an operation of the disk."""
        self._filling = threading.Lock()
        """One new file, or step of one, at a time."""
        self._naming = threading.Lock()
        """No file gets its name while others go: the remaining names have no hole."""
        self.writing: Any = None
        """The lock of the thread that writes bytes; None: no other thread knows of these files
        yet."""
        self.changing: Any = None
        """The lock under which files go or are exchanged, besides that one."""
        self.repairing: Any = None
        """The lock of the thread that makes a copy that is to take a file's place."""
        self.syncing: Any = None
        """The lock of the thread that syncs."""
        if not read_only:
            make_directory(disk, directory)
        self.starts: list[int] = []
        for name in disk.listdir(directory):
            if name.endswith(NEW_SUFFIX):
                if not read_only:
                    disk.unlink(directory / name)
            elif is_file_name(name):
                self.starts.append(int(name))

    def path(self, offset: int) -> Path:
        """The file that holds the byte at ``offset`` of the log."""
        return self.directory / file_name(offset - offset % self.file_size)

    def check_layout(self, spare_behind: int | None = None) -> list[str]:
        """See that names and sizes fit one another. A short file, as an interrupted truncation
        leaves it, is filled up with zeros: if entries stood there, they are missed where the log is
        checked.

        Args:
            spare_behind: from here on no write is known, so empty files behind a missing one go;
            None: none does.

        Returns:
            The changes made, to be told.

        Raises:
            ConfigError: the files are of another size than the one asked for.
            CorruptStore: a file in the middle is missing.
        """
        notes = []
        gap = next(
            (a + self.file_size for a, b in pairwise(self.starts) if b != a + self.file_size), None
        )
        if gap is not None and spare_behind is not None and spare_behind <= gap:
            notes = self._drop_spares_behind(gap)
        for start, following in zip(self.starts, [*self.starts, None][1:], strict=True):
            path, size = self.directory / file_name(start), self.file(start).size()
            if start % self.file_size or size > self.file_size:
                raise ConfigError(
                    f"{path} has {size} bytes, but this store is opened with files of "
                    f"{self.file_size} bytes: give the size that the group was created with "
                    "(segment_bytes for data/, index_file_bytes for index/)"
                )
            if following is not None and following != start + self.file_size:
                raise CorruptStore(
                    f"{self.path(start + self.file_size)} is missing between {path.name} and "
                    f"{file_name(following)}: put the file back, or empty the directory and let "
                    "it back in with 'dledger admit'"
                )
        for start in self.starts:
            if self.file(start).size() < self.file_size:
                self.refill(start)
        return notes

    def _drop_spares_behind(self, gap: int) -> list[str]:
        """A file that was made ahead while the ones before it were cut off left a hole: it holds
        nothing."""
        spares = [start for start in self.starts if start > gap]
        if any(start % self.file_size for start in spares):
            return []
        if any(first_nonzero(self, start, start + self.file_size) is not None for start in spares):
            return []
        self.drop_behind(gap)
        names = ", ".join(map(file_name, spares))
        return [
            f"{self.directory.name}/: empty files behind the missing {file_name(gap)} were "
            f"removed: {names}"
        ]

    def file(self, offset: int) -> DiskFile:
        """The open file that holds ``offset``. Raises FileNotFoundError when there is none."""
        start = offset - offset % self.file_size
        while (found := self._handles.get(start)) is None:
            path, exchanged = self.directory / file_name(start), self.exchanged
            handle = self.disk.open_read_only(path) if self._read_only else self.disk.open(path)
            with self._lock:
                # else it may be the file of before, whose bytes no reader finds again
                if self.exchanged == exchanged:
                    self._keep(start, handle)
                    return handle
        return found

    def _keep(self, start: int, handle: DiskFile) -> None:
        assert is_held(self._lock), "handles are kept under SegmentFiles._lock"
        # not an unsynced one: only an open file hears of its errors
        if len(self._handles) >= MAX_HANDLES:
            self._handles.pop(next((s for s in self._handles if s not in self._dirty), -1), None)
        self._handles[start] = handle

    def has(self, offset: int) -> bool:
        """Whether the file that would hold ``offset`` is there."""
        start = offset - offset % self.file_size
        starts = self.starts  # replaced as a whole by the writer
        at = bisect_right(starts, start)
        return at > 0 and starts[at - 1] == start

    @property
    def end(self) -> int:
        """The offset just behind the last file."""
        return self.starts[-1] + self.file_size if self.starts else 0

    def allocate(self, offset: int, ahead: bool = False) -> None:
        """Make the file that will hold ``offset``, in full length and with its first step, unless
        it is there; ``ahead``: only if that is the next one, also when the file is ready, because
        others may drop files meanwhile.
        """
        start = offset - offset % self.file_size
        with self._filling:
            if self.has(start) or (ahead and start != self.end):
                return
            path = self.directory / file_name(start)
            fresh = path.with_name(path.name + NEW_SUFFIX)
            try:
                step = self._fill(fresh)
                with self._naming:
                    if ahead and start != self.end:
                        remove(self.disk, fresh)
                    else:
                        self._name(fresh, path, start)
                        with self._lock:
                            self.steps[start] = step
            except OSError:
                remove(self.disk, fresh)
                raise

    def _name(self, fresh: Path, path: Path, start: int) -> None:
        assert is_held(self._naming), "files get their names under SegmentFiles._naming"
        self.disk.rename(fresh, path)
        try:
            self.disk.fsync_dir(self.directory)
        # not for want of room: a change that a failed sync left out is not tried again (D2)
        except OSError as error:
            raise OSError(
                errno.EIO, f"cannot sync the new name: {error}", str(self.directory)
            ) from error
        with self._lock:
            self.starts = sorted([*self.starts, start])

    def _fill(self, path: Path) -> Step:
        assert is_held(self._filling), "new files are filled under SegmentFiles._filling"
        handle = self.disk.open(path, create=True)
        step = make_room(self.disk, handle, self.file_size, 1)
        handle.fdatasync()
        return step

    def reserve(self, low: int, high: int) -> None:
        """See that there are files, with blocks, for the bytes of the log from ``low`` up to
        ``high``. In front of ``low`` everything was written."""
        while low < high:
            start = low - low % self.file_size
            stop = min(high, start + self.file_size)
            step = self.steps.get(start)
            if step is None or start + step.end < stop:
                self.allocate(start)
                self._grow(start, low - start, stop - start)
            low = stop

    def _grow(self, start: int, low: int, high: int) -> None:
        """Let the file at ``start`` have blocks up to its byte ``high``, and to the end of that
        step. Only where none are yet: some systems write zeros to get them."""
        with self._filling:
            with self._lock:
                exchanged, had = self.exchanged, self.steps.get(start)
            begin = low if had is None else had.end
            step = step_of(high - 1, self.disk.first_step, self.file_size)
            if begin >= high:
                return
            try:
                self.file(start).fallocate(step.end, begin)
            except FileNotFoundError:  # others drop files while one is grown ahead
                if self.has(start):
                    raise
            with self._lock:
                if self.exchanged == exchanged:  # else those blocks may be gone
                    self.steps[start] = step

    def grow_ahead(self, offset: int) -> None:
        """Take the step behind the last one of the file that holds ``offset``, or make the next
        file, unless the files are cut meanwhile."""
        start = offset - offset % self.file_size
        step = self.steps.get(start)
        if step is not None and step.end < self.file_size:
            self._grow(start, step.end, step.end + 1)
        else:
            self.allocate(start + self.file_size, ahead=True)

    def bytes_used(self, end: int) -> int:
        """Bytes that the files of a log which ends at ``end`` take on the disk."""
        return self.steps.used(self.starts, self.file_size, end)

    def pread(self, offset: int, size: int) -> bytes:
        """Up to ``size`` bytes, all out of the file that holds ``offset``."""
        inside = offset % self.file_size
        return self.file(offset).pread(min(size, self.file_size - inside), inside)

    def pwritev(self, offset: int, buffers: Sequence[Buffer]) -> None:
        """Write buffers that fit into the file that holds ``offset``."""
        assert is_held(self.writing), "bytes are written under FileStore._lock"
        inside = offset % self.file_size
        with self._lock:  # before the write: the handle of an unsynced file is kept
            self._dirty.add(offset - inside)
        try:
            self.file(offset).pwritev(buffers, inside)
        finally:  # and behind it: a sync that took the mark meanwhile may not have seen these bytes
            with self._lock:
                self._dirty.add(offset - inside)

    def next_data(self, offset: int) -> int | None:
        """The first place from ``offset`` on, within its file, where there may be something but
        zeros."""
        inside = offset % self.file_size
        found = self.file(offset).next_data(inside)
        return None if found is None else offset - inside + max(found, inside)

    def sync(self) -> None:
        """Make all writes durable that have ended by now, in the order of the log."""
        assert is_held(self.syncing), "data is synced under FileStore._sync_lock"
        with self._lock:
            dirty = sorted(self._dirty)
            self._dirty.clear()
        for start in dirty:
            while self.has(start):  # a file that is dropped meanwhile needs no sync
                exchanged = self.exchanged
                try:
                    self.file(start).fdatasync()
                    break
                except FileNotFoundError:
                    if self.has(start) and self.exchanged == exchanged:
                        raise

    def drop_behind(self, offset: int) -> None:
        """Delete the files behind the one that holds ``offset``, the last one first, so that no
        hole ever shows."""
        start = offset - offset % self.file_size
        with self._naming:
            for victim in [s for s in reversed(self.starts) if s > start]:
                self._drop(victim)

    def drop_front(self, offset: int) -> None:
        """Delete the files in front of the one that holds ``offset``, the first one first."""
        start = offset - offset % self.file_size
        with self._naming:
            for victim in [s for s in self.starts if s < start]:
                self._drop(victim)

    def _drop(self, start: int) -> None:
        assert is_held(self._naming), "files go under SegmentFiles._naming"
        self._check_change()
        with self._lock:
            self.starts = [s for s in self.starts if s != start]
        self.disk.unlink(self.directory / file_name(start))
        self._forget(start)
        self.disk.fsync_dir(self.directory)

    def _check_change(self) -> None:
        assert is_held(self.writing), "files are cut, go and are exchanged under FileStore._lock"
        assert is_held(self.changing), (
            "files are cut, go and are exchanged under FileStore._sync_lock"
        )

    def _forget(self, start: int) -> None:
        """The file of this name is another one from here on, or none: a thread that has opened the
        old one must not keep it."""
        with self._lock:
            self.exchanged += 1
            self.steps.pop(start, None)
            self._handles.pop(start, None)
            self._dirty.discard(start)

    def cut(self, offset: int) -> None:
        """Make everything from ``offset`` to the end of its file read as zero, durably."""
        self._check_change()
        start, inside = offset - offset % self.file_size, offset % self.file_size
        self.file(start).truncate(inside)
        self.refill(start)

    def refill(self, start: int) -> None:
        """Bring a file back to its full length, with zeros. Its blocks behind the old one are
        gone."""
        handle = self.file(start)
        handle.truncate(self.file_size)
        with self._lock:
            self.exchanged += 1
            self.steps.pop(start, None)
        handle.fdatasync()

    def rewrite(self, start: int, keep: int, chunk: int = 4 << 20) -> None:
        """Replace a file by a new one with its first ``keep`` bytes and zeros behind them; durable
        on return.

        The new file's blocks are other ones than those that an earlier, failed sync may have left
        unwritten (D15).
        """
        fresh = self.directory / (file_name(start) + NEW_SUFFIX)
        old, new = self.file(start), self.disk.open(fresh, create=True)
        make_room(self.disk, new, self.file_size, keep)
        for at in range(0, keep, chunk):
            new.pwritev([old.pread(min(chunk, keep - at), at)], at)
        new.fdatasync()
        self.replace(start, fresh)

    def replace(self, start: int, fresh: Path) -> None:
        """Let a complete, synced file take the place of another one; durable on return."""
        assert is_held(self.repairing), (
            "files are copied and exchanged under FileStore._repair_lock"
        )
        self._check_change()
        self.disk.rename(fresh, self.directory / file_name(start))
        self._forget(start)
        self.disk.fsync_dir(self.directory)

    def close(self) -> None:
        """Let go of all files; readers that hold one may finish."""
        with self._lock:
            self._handles.clear()
