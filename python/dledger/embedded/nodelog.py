"""A node's log: its stderr and its log records in one file, which never grows past a bound."""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from dledger.logs.formats import TextFormatter
from dledger.logs.output import Output

LOG_BYTES: Final = 8 << 20
"""The file is set aside (``node.log.1``, replacing the one before) at this size."""
_FORM: Final = "%(asctime)s.%(msecs)03dZ %(levelname)s %(message)s"
_CHECK_EVERY: Final = 64 << 10


class BoundedLog(logging.Handler):
    """Writes records to descriptor 2, which is the log file, and starts a new file when it has
    become large.

    A handler of the standard library would leave descriptor 2, and so the last words of a crash, in
    the old file.
    """

    def __init__(self, path: Path, max_bytes: int = LOG_BYTES, *, descriptor: int = 2) -> None:
        super().__init__()
        self._path = path
        self._max_bytes = max_bytes
        self._descriptor = descriptor
        self._unchecked = _CHECK_EVERY
        self.setFormatter(TextFormatter(_FORM))

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record; a full disk loses log lines, never the node."""
        line = (self.format(record) + "\n").encode(errors="replace")
        with suppress(OSError):
            self._unchecked += len(line)
            if self._unchecked >= min(_CHECK_EVERY, self._max_bytes):
                self._unchecked = 0
                self.bound()
            os.write(self._descriptor, line)

    def bound(self) -> None:
        """Set the file aside when it is over the bound."""
        if os.fstat(self._descriptor).st_size < self._max_bytes:
            return
        self._path.replace(self._path.with_name(self._path.name + ".1"))
        write_to(self._path, self._descriptor)


def write_to(log: Path, descriptor: int) -> None:
    """What is written to the descriptor from now on goes to the log."""
    fresh = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(fresh, descriptor)
    os.close(fresh)


def log_to_stderr(path: Path) -> Output:
    """Send all log records of this process to its bounded log."""
    return Output(BoundedLog(path), TextFormatter(_FORM))
