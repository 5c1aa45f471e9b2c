"""A file system of fsspec that fails as it is told: ``faulty:///a/directory``."""

from __future__ import annotations

import errno
import os
import signal
from pathlib import Path
from typing import Any, Final

import fsspec
from fsspec.implementations.local import LocalFileSystem

SCHEME: Final = "faulty"
FULL, READ_ONLY, FAILS = "full", "read-only", "fails"
LOSES, FLIPS, DIES = "loses files", "flips bits", "dies in a write"
MISREADS: Final = "flips bits as it is read"
OF_BACKUPS: Final = (FULL, READ_ONLY, FAILS, LOSES, FLIPS, DIES)
OF_RESTORES: Final = (FAILS, MISREADS)
ERRORS: Final = {FULL: errno.ENOSPC, READ_ONLY: errno.EROFS, FAILS: errno.EIO}


class FaultyFiles(LocalFileSystem):  # type: ignore[misc]
    """Files of a directory, with one fault from a certain call on; see `set_fault`."""

    protocol = SCHEME
    cachable = False
    fault = ""
    left = 0
    """Calls until it bites."""
    bit: Path | None = None
    """Made when it has bitten."""

    @classmethod
    def _strip_protocol(cls, path: str) -> Any:
        return super()._strip_protocol(str(path).removeprefix(f"{SCHEME}://"))

    def _bites(self, *faults: str) -> bool:
        """Whether this call, which is about one of these, fails: errors go on, others come once."""
        cls = type(self)
        if self.fault not in faults:
            return False
        cls.left -= 1
        if self.left > 0 or (self.left < 0 and self.fault not in ERRORS):
            return False
        assert self.bit is not None
        self.bit.touch()
        return True

    def _fail(self) -> None:
        raise OSError(ERRORS[self.fault], os.strerror(ERRORS[self.fault]))

    def pipe_file(self, path: str, value: bytes, **more: Any) -> None:
        """Write a file, in place."""
        if self._bites(FULL, READ_ONLY, FAILS):
            if self.fault == FULL:
                super().pipe_file(path, value[: len(value) // 2], **more)
            self._fail()
        if self._bites(DIES):
            super().pipe_file(path, value[: len(value) // 2], **more)
            os.kill(os.getpid(), signal.SIGKILL)
        if self._bites(LOSES):
            return
        super().pipe_file(path, flipped(value) if self._bites(FLIPS) else value, **more)

    def cat_file(self, path: str, *args: Any, **more: Any) -> bytes:
        """Read a file."""
        if self._bites(FAILS):
            self._fail()
        data: bytes = super().cat_file(path, *args, **more)
        return flipped(data) if self._bites(MISREADS) else data


def flipped(data: bytes) -> bytes:
    """With another bit in the middle."""
    at = len(data) // 2
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :] if data else data


def set_fault(fault: str, calls: int, bit: Path) -> None:
    """From now on URLs of `SCHEME` have it.

    Args:
        calls: it bites at so many calls that it is about; a file is lost, and a bit flipped, once.
        bit: a file that is made then.
    """
    FaultyFiles.fault, FaultyFiles.left, FaultyFiles.bit = fault, calls, bit
    fsspec.register_implementation(SCHEME, FaultyFiles, clobber=True)
