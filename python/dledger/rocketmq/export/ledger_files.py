"""A new directory of a DLedger node, as Java's DLedger 0.1 to 0.3 writes it: ``data``, ``index``,
``checkpoint``, ``currterm``.

Entries have DLedger's 48-byte header with both checksums zero, and an index unit of 32 bytes each.
An entry goes into a data file only if 8 bytes stay behind it; otherwise the rest of the file is
padding (magic -1, size) and zeros.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Final

from dledger.errors import PathError, RecordTooLarge
from dledger.protocol.messages.entry import HEADER, HEADER_SIZE, MAGIC_NORMAL, MIN_BLANK_SIZE
from dledger.rocketmq.format.message import encode_dledger_blank
from dledger.rocketmq.store.files import HOST, FileHandles, make_directory, write_whole
from dledger.rocketmq.store.mapped_file_queue import MappedFileQueue
from dledger.storage.disk.disk import Disk
from dledger.types import Buffer

DATA_FILE: Final = 1 << 30
"""Bytes of a data file (mappedFileSizeForEntryData)."""
INDEX_UNIT: Final = struct.Struct(">iqiqq")
INDEX_FILE: Final = 5 * 1024 * 1024 * INDEX_UNIT.size
"""Bytes of an index file (mappedFileSizeForEntryIndex)."""
MAX_ENTRY: Final = 4 << 20
"""Java's DLedger encodes an entry, head and body, in a buffer of so many bytes: larger ones can be
read, but neither appended nor replicated."""
GATHERED: Final = 4 << 20

AppendHook = Callable[[bytearray, int], None]
"""``hook(body, position)``: changes a body when it is known where in the log it will lie."""


class LedgerFiles:
    """Writes the directory; no other process may use it meanwhile."""

    def __init__(
        self,
        directory: Path,
        *,
        data_file_size: int = DATA_FILE,
        index_file_size: int = INDEX_FILE,
        first_index: int = 0,
        first_pos: int = 0,
        disk: Disk = HOST,
    ) -> None:
        """Begin a log.

        Args:
            directory: the node's (``<storeBaseDir>/dledger-<id>``); it is made.
            first_index, first_pos: of the first entry. It begins the file that has this place in
                the log.

        Raises:
            PathError: there is a log already, or the directory cannot be made.
            ValueError: sizes or places cannot be.
        """
        if (
            index_file_size % INDEX_UNIT.size
            or not 0 < data_file_size < 1 << 31
            or index_file_size < 1
        ):
            raise ValueError(
                f"data files of {data_file_size:,} bytes, index files of {index_file_size:,}"
            )
        make_directory(directory, disk)
        self.directory = directory
        handles = FileHandles(disk=disk)
        self.data = MappedFileQueue(directory / "data", data_file_size, handles=handles)
        self._index = MappedFileQueue(directory / "index", index_file_size, handles=handles)
        if not self.data.is_empty or not self._index.is_empty:
            raise PathError(f"{directory} has a log already; name a directory that is not there")
        self._handles = handles
        self._pos = first_pos - first_pos % data_file_size
        self.data.start_at(self._pos)
        self._index.start_at(first_index * INDEX_UNIT.size)
        self.next_index = first_index
        """Index of the next entry."""
        self.term = 0
        """Of the last entry."""
        self.oversize = 0
        """Entries over `MAX_ENTRY`."""
        self._data_parts: list[Buffer] = []
        self._units: list[bytes] = []
        self._gathered = 0

    def append(self, term: int, body: Buffer, hook: AppendHook | None = None) -> int:
        """Add an entry; the position of its body.

        Args:
            term: not lower than the entry's before it.
            hook: changes the body, which is then copied, for its position.

        Raises:
            RecordTooLarge: it has no room in a file. DLedger itself would leave a log that it
                cannot read to the end.
            ValueError: the term is lower.
            DiskFull, StorageError: the disk failed.
        """
        size = HEADER_SIZE + len(body)
        if size + MIN_BLANK_SIZE > self.data.file_size:
            raise RecordTooLarge(
                f"entry {self.next_index} has {size:,} bytes, too many for data files of "
                f"{self.data.file_size:,}"
            )
        if term < self.term:
            raise ValueError(f"term {term} behind term {self.term}")
        room = self.data.file_size - self._pos % self.data.file_size
        if size + MIN_BLANK_SIZE > room:
            self.write()
            self.data.close_file(encode_dledger_blank(room))
            self._pos += room
        pos = self._pos
        if hook is not None:
            body = bytearray(body)
            hook(body, pos + HEADER_SIZE)
        index = self.next_index
        self._data_parts += (
            HEADER.pack(MAGIC_NORMAL, size, index, term, pos, 0, 0, 0, len(body)),
            body,
        )
        self._units.append(INDEX_UNIT.pack(MAGIC_NORMAL, pos, size, index, term))
        self._pos += size
        self._gathered += size
        self.next_index, self.term = index + 1, term
        self.oversize += size > MAX_ENTRY
        if self._gathered >= GATHERED:
            self.write()
        return pos + HEADER_SIZE

    def write(self) -> None:
        """Hand the appended bytes to the file system: data, then index."""
        if self._data_parts:
            self.data.append(b"".join(self._data_parts))
            self._index.append(b"".join(self._units))
        self._data_parts, self._units, self._gathered = [], [], 0

    def close(self, committed_index: int | None = None, term: int = 0) -> None:
        """Everything to the disk, and the files that a node reads when it starts.

        Args:
            committed_index: entries up to here are known to be committed; all, by default.
            term: the node's term, where that is above the last entry's.
        """
        self.write()
        self.data.flush()
        self._index.flush()
        end = self.next_index - 1
        committed = end if committed_index is None else min(committed_index, end)
        texts = {
            "checkpoint": f"committedIndex={committed}\nendIndex={end}\n",
            "currterm": f"voteLeader=\ncurrTerm={max(term, self.term)}\n",
        }
        for name, text in texts.items():
            write_whole(self.directory / name, text.encode(), disk=self._handles.disk)
        self.abandon()

    def abandon(self) -> None:
        """Let go of the files without a word."""
        self._handles.close()
