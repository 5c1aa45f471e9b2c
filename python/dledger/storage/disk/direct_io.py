"""Large writes straight to the device (O_DIRECT), past the page cache.

Bytes that are synced before they are acknowledged gain nothing from the page cache: every byte
would be copied into a fresh page, which costs more processor time than all the rest of an append
where memory has to be fetched from a hypervisor. Only whole blocks can go this way; the bytes
before the first and behind the last block are written through the cache. Where a file system does
not support it, all bytes are. A read sees either: the kernel keeps both in step.
"""

from __future__ import annotations

import errno
import mmap
import os
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from dledger.types import Buffer

DIRECT_BYTES: Final = 128 << 10
"""Writes from this size on go to the device: the copy into aligned memory has to pay."""
PIECE_BYTES: Final = 4096
"""Pieces of a write are at least so large on average: gathering many small ones costs more than the
page cache."""
BLOCK: Final = 4096
"""Alignment of place, length and memory: enough for the logical block of any usual device."""
STAGING_BYTES: Final = 2 << 20
"""A huge page of most machines."""

_O_DIRECT: Final[int] = getattr(os, "O_DIRECT", 0)
_REFUSALS: Final = {errno.EINVAL, errno.EOPNOTSUPP, errno.ENOENT}


class _Staging(threading.local):
    """Aligned memory of each writing thread; one huge page where the system has them, so that the
    device is told of one place in place of hundreds of pages."""

    def __init__(self) -> None:
        memory = mmap.mmap(-1, STAGING_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        if hasattr(mmap, "MADV_HUGEPAGE"):
            with suppress(OSError):  # a system without them
                memory.madvise(mmap.MADV_HUGEPAGE)
        self.memory = memoryview(memory)


_staging = _Staging()


class DirectWriter:
    """The second descriptor of one file."""

    __slots__ = ("__weakref__", "_fd", "_path")

    def __init__(self, path: Path, handle: int) -> None:
        """``handle``: the first descriptor, by which to see that the path still leads to the same
        file.

        Raises:
            OSError: one that `is_refusal` knows, where direct writes are not possible.
        """
        if not _O_DIRECT:
            raise OSError(errno.EOPNOTSUPP, "the system knows no O_DIRECT", str(path))
        self._path = path
        self._fd = os.open(path, os.O_WRONLY | _O_DIRECT | os.O_CLOEXEC)
        weakref.finalize(self, os.close, self._fd)
        if not os.path.samestat(os.fstat(self._fd), os.fstat(handle)):
            raise OSError(errno.ENOENT, "the path leads to another file by now", str(path))

    def pwritev(
        self,
        buffers: Sequence[Buffer],
        offset: int,
        cached: Callable[[Sequence[Buffer], int], None],
    ) -> None:
        """Write all buffers back to back; ``cached`` writes parts of a block. Raises OSError."""
        views = [memoryview(buffer).cast("B") for buffer in buffers]
        size = sum(map(len, views))
        first, last = -offset % BLOCK, size - (offset + size) % BLOCK
        if first:
            cached(list(_part(views, 0, first)), offset)
        staging, filled, at = _staging.memory, 0, offset + first
        for view in _part(views, first, last):
            while view:
                taken = min(len(view), STAGING_BYTES - filled)
                staging[filled : filled + taken] = view[:taken]
                view, filled = view[taken:], filled + taken
                if filled == STAGING_BYTES:
                    self._write(staging, at)
                    at, filled = at + filled, 0
        self._write(staging[:filled], at)
        if last < size:
            cached(list(_part(views, last, size)), offset + last)

    def _write(self, data: memoryview, at: int) -> None:
        while data:
            written = os.pwrite(self._fd, data, at)
            written -= written % BLOCK  # the rest of a torn block is written again
            if written <= 0:
                raise OSError(errno.EIO, "a write made no progress", str(self._path))
            data, at = data[written:], at + written


def is_refusal(error: OSError) -> bool:
    """Whether an error says that direct writes are not possible, and nothing about the disk."""
    return error.errno in _REFUSALS


def _part(views: Sequence[memoryview], begin: int, end: int) -> Iterator[memoryview]:
    """The bytes from ``begin`` to ``end`` of all views in a row."""
    for view in views:
        if end <= 0:
            return
        if begin < len(view):
            yield view[max(begin, 0) : end]
        begin, end = begin - len(view), end - len(view)
