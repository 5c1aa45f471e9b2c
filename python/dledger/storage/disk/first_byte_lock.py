"""A lock as Java takes it: of the first byte of a file, for the whole process."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path
from typing import ClassVar

from dledger.storage.disk.modes import OWNER, Modes


class FirstByteLock:
    """A record lock. Closing any descriptor of the file sets it free, so that nobody else may open
    the file while it is held."""

    held: ClassVar[set[tuple[int, int]]] = set()
    """Device and inode of the locks of this process, which the system would give to it twice."""

    def __init__(self, path: Path, word: bytes, *, modes: Modes = OWNER) -> None:
        """Take it, and let the file begin with ``word``. Raises as `Disk.lock` does."""
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        self._fd = os.open(path, flags, modes.file)
        status = os.fstat(self._fd)
        self._key = (status.st_dev, status.st_ino)
        if self._key in self.held:
            # closing this one would set the other one free: the system counts by process
            raise BlockingIOError(errno.EWOULDBLOCK, "this process has it locked", str(path))
        try:
            fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
        except OSError as error:
            os.close(self._fd)
            if error.errno in (errno.EACCES, errno.EAGAIN):
                raise BlockingIOError(errno.EWOULDBLOCK, "locked", str(path)) from error
            raise
        self.held.add(self._key)
        try:
            os.pwrite(self._fd, word, 0)
        except OSError:
            self.release()
            raise

    def release(self) -> None:
        """Give it back."""
        if self._key in self.held:
            self.held.discard(self._key)
            os.close(self._fd)
