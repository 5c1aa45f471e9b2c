"""Chunks: pieces of a backup, named by their content.

One of the log has whole entries, header and body, one behind the other, without the padding between
files::

    | "DLbl" | entries, 4 bytes | size of each entry, 4 bytes | entries |

One of an image, and one of rows, has the plain bytes.
"""

from __future__ import annotations

import hashlib
import struct
from bisect import bisect_left
from collections.abc import Iterator
from typing import Final

from dledger.backup.target import Target
from dledger.errors import CorruptEntry, CorruptStore
from dledger.protocol.messages.entry import LogEnd, body_is_sound
from dledger.protocol.messages.entry_runs import (
    Entries,
    EntryRun,
    bodies_are_sound,
    count_following,
    pack_sizes,
    pieces_of,
    read_entries,
)
from dledger.types import Buffer

CHUNKS: Final = "chunks"
CHUNK_BYTES: Final = 8 << 20
_LOG: Final = struct.Struct(">4sI")
_MAGIC: Final = b"DLbl"


def digest(data: Buffer) -> str:
    """The name of a chunk."""
    return hashlib.sha256(data).hexdigest()


def chunk_path(name: str) -> str:
    """Where it lies."""
    return f"{CHUNKS}/{name[:2]}/{name}"


def read_chunk(target: Target, name: str, size: int) -> bytes:
    """A chunk's bytes.

    Raises:
        CorruptStore: they are not those of its name; the message has the file.
        PathError: it is not there, or cannot be read.
    """
    path = chunk_path(name)
    data = target.read(path)
    if len(data) != size or digest(data) != name:
        raise CorruptStore(
            f"{target.url}/{path} is damaged ({len(data)} bytes, {size} are due): restore an older "
            "backup ('dledger backup list'), or remove that file and run 'dledger backup' anew "
            "while the group still has its entries"
        )
    return data


def pack_entries(entries: Entries) -> bytes:
    """The bytes of a chunk of the log."""
    return b"".join((_LOG.pack(_MAGIC, len(entries)), pack_sizes(entries), *pieces_of(entries)))


def unpack_entries(data: bytes) -> Entries:
    """The inverse of `pack_entries`. Raises CorruptStore."""
    view = memoryview(data)
    try:
        magic, count = _LOG.unpack_from(view)
        begin = _LOG.size + 4 * count
        if magic != _MAGIC:
            raise ValueError("it is none of the log")
        return read_entries(view[begin:], view[_LOG.size : begin])
    except (ValueError, struct.error) as error:
        raise CorruptStore(f"a chunk of the log cannot be read: {error}") from error


def check_following(end: LogEnd, entries: Entries, segment_bytes: int) -> None:
    """That entries go right behind ``end`` and are sound.

    Raises:
        CorruptEntry: one is not.
    """
    rest = entries
    # the first entry of a log whose beginning is gone: nothing vouches for it
    if end.chain_crc < 0:
        first = entries[0]
        if first.index != end.position.index + 1 or not body_is_sound(first):
            raise CorruptEntry(f"entry {first.index} is damaged", first.index)
        end, rest = LogEnd.after(first), entries[1:]
    count = count_following(end, rest, segment_bytes) if len(rest) else 0
    if count < len(rest) or not bodies_are_sound(entries):
        index = end.position.index + 1 + count
        raise CorruptEntry(
            f"entry {index} or one behind it is damaged, or belongs to another log", index
        )


class Cutter:
    """Gathers entries into runs of about `CHUNK_BYTES`: where the log is cut depends on its entries
    alone, so that a repeated backup makes the same chunks."""

    def __init__(self) -> None:
        self._runs: list[EntryRun] = []
        self._bytes = 0

    def add(self, entries: Entries) -> Iterator[Entries]:
        """Take entries; gives what is a whole chunk."""
        for run in entries.runs:
            rest: EntryRun | None = run
            while rest is not None:
                due = CHUNK_BYTES - self._bytes
                at = min(max(1, bisect_left(rest.starts, due)), len(rest))
                part, rest = rest.cut(0, at), rest.cut(at, len(rest)) if at < len(rest) else None
                self._runs.append(part)
                self._bytes += part.starts[-1]
                if self._bytes >= CHUNK_BYTES:
                    yield self.rest()

    def rest(self) -> Entries:
        """What is gathered; maybe nothing."""
        runs, self._runs, self._bytes = tuple(self._runs), [], 0
        return Entries(runs)
