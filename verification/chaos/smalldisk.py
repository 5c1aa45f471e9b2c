"""A disk for one node that can be filled: a tmpfs of its own where mounting is allowed."""

from __future__ import annotations

import errno
import os
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Final

MIB: Final = 1 << 20


class SmallDisk:
    """A mounted file system of a fixed size at ``path``, or nothing where this process may not
    mount.

    Args:
        path: an existing, empty directory.
        size: bytes.
    """

    def __init__(self, path: Path, size: int) -> None:
        self.path = path
        self._ballast = path / "ballast"
        command = f"mount -t tmpfs -o size={size},mode=0755 dledger-chaos".split()
        self.mounted = False
        if os.geteuid() == 0:
            with suppress(OSError):  # no such command
                done = subprocess.run([*command, str(path)], capture_output=True, check=False)
                self.mounted = done.returncode == 0

    @property
    def free(self) -> int:
        stat = os.statvfs(self.path)
        return stat.f_bavail * stat.f_frsize

    def fill(self, leave: int) -> None:
        """Take all room but ``leave`` bytes, by a file of the same name each time."""
        fd = os.open(self._ballast, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            size = os.fstat(fd).st_size
            while (room := self.free - leave) >= 4096:
                step = min(room, 4 * MIB)
                try:
                    os.posix_fallocate(fd, size, step)
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                    return
                size += step
        finally:
            os.close(fd)

    def empty(self) -> None:
        """Give the room back."""
        self._ballast.unlink(missing_ok=True)

    def close(self) -> None:
        """Unmount; everything on it is gone."""
        if self.mounted:
            with suppress(OSError):
                subprocess.run(
                    ["umount", "--lazy", str(self.path)], capture_output=True, check=False
                )
            self.mounted = False
