"""The file of the audit log in a node's directory, and those before it."""

from __future__ import annotations

import logging
from collections import deque
from pathlib import Path
from typing import Any, Final

from dledger.environment import Environment, Worker
from dledger.storage.disk.disk import Disk, DiskFile

logger = logging.getLogger(__name__)

AUDIT_FILE: Final = "audit.log"
MOST_WAITING: Final = 10_000
"""Lines that wait for a slow disk; further ones are lost, and counted."""
CHUNK_BYTES: Final = 64 << 10
"""Bytes of lines that are written at once."""
PAUSE_S: Final = 0.02
"""Between two writes: lines of one burst leave together."""
WARN_MS: Final = 60_000
"""Between two warnings about lines that were lost."""


class AuditFile:
    """Appends lines to ``audit.log``; at ``max_bytes`` that becomes ``audit.log.1``, the former one
    ``audit.log.2``, and so on: ``files`` of them in all. Nothing is synced.

    A thread writes, from the first line on, so that a slow disk holds nobody up. Where lines cannot
    be written they are lost with a warning: a node does not stop for them.
    """

    def __init__(
        self, disk: Disk, directory: Path, *, environment: Environment, max_bytes: int, files: int
    ) -> None:
        self._disk = disk
        self._environment = environment
        self._path = directory / AUDIT_FILE
        self._max_bytes = max_bytes
        self._files = files
        self._file: DiskFile | None = None
        self._size = 0
        self._waiting: deque[bytes] = deque()
        self._lost = 0
        self._warned_ms: int | None = None
        self._worker: Worker | None = None

    def write(self, line: bytes) -> None:
        """Append a line soon. Called by the loop's thread."""
        if len(self._waiting) >= MOST_WAITING:
            self._lost += 1
            return
        self._waiting.append(line)
        if self._worker is None:
            self._worker = self._environment.worker("audit log", self._turn, PAUSE_S)
            self._worker.start()
        self._worker.put(None)

    def close(self) -> None:
        """Write what waits. Waits for that."""
        if self._worker is not None:
            self._worker.join()

    def _turn(self, jobs: list[Any], last: bool) -> None:
        lines = [self._waiting.popleft() for _ in range(len(self._waiting))]
        try:
            while lines:
                taken, room = 0, min(self._open(), CHUNK_BYTES)
                while taken < len(lines) and room > 0:
                    room -= len(lines[taken])
                    taken += 1
                self._append(b"".join(lines[:taken]))
                del lines[:taken]
        except OSError as error:
            self._file = None
            self._lost += len(lines)
            self._warn(error)
        else:
            self._tell_lost()

    def _open(self) -> int:
        """The file that lines go to, with room for one; how many bytes are left in it."""
        if self._file is None:
            self._file = self._disk.open(self._path, create=True)
            self._size = self._file.size()
            if self._size and self._file.pread(1, self._size - 1) != b"\n":
                self._append(b"\n")  # behind a line of which the disk took a part only
        if self._size >= self._max_bytes:
            self._file = None
            self._rotate()
            self._file, self._size = self._disk.open(self._path, create=True), 0
        return self._max_bytes - self._size

    def _append(self, lines: bytes) -> None:
        assert self._file is not None
        self._file.pwritev([lines], self._size)
        self._size += len(lines)

    def _rotate(self) -> None:
        """Each file takes the next older name, up to the first that is free: where this failed or
        was killed before, that is in the middle, and the files behind it have theirs already."""
        names = [self._path, *(self._numbered(n) for n in range(1, self._files))]
        free = next((at for at, name in enumerate(names) if not self._disk.exists(name)), None)
        if free is None:
            free = len(names) - 1
            self._disk.unlink(names[free])
        for at in range(free, 0, -1):
            self._disk.rename(names[at - 1], names[at])

    def _numbered(self, number: int) -> Path:
        return self._path.with_name(f"{AUDIT_FILE}.{number}")

    def _warn(self, error: OSError) -> None:
        now_ms = self._environment.now_ms()
        if self._warned_ms is None or now_ms - self._warned_ms >= WARN_MS:
            self._warned_ms = now_ms
            logger.warning(
                "%s: %s; the lines of the audit log are in this log alone meanwhile, %d so far",
                self._path,
                error.strerror or error,
                self._lost,
            )

    def _tell_lost(self) -> None:
        """The disk takes lines again."""
        if self._lost and self._file is not None:
            logger.warning("%s lacks %d lines, which are in this log alone", self._path, self._lost)
            self._lost = 0
            self._warned_ms = None
