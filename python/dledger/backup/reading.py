"""What is in a backup: the entries of its log, and its image, whose rows are in chunks of their
own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from dledger.backup.chunks import check_following, read_chunk, unpack_entries
from dledger.backup.manifest import Manifest, RowsChunk
from dledger.backup.target import Target
from dledger.catalog.topics.batch_rows import ROW_SIZE
from dledger.errors import CorruptStore
from dledger.node.snapshot.image import ImageHead
from dledger.protocol.messages.entry import LogEnd
from dledger.protocol.messages.entry_runs import Entries
from dledger.types import Index

OnBytes = Callable[[int], None]
HELD_BYTES: Final = 256 << 20
"""Chunks of rows that are held in memory."""


@dataclass(slots=True)
class BackupReader:
    """One backup. Methods raise CorruptStore and CorruptEntry where it is damaged, and PathError
    where a chunk is missing."""

    target: Target
    manifest: Manifest
    on_bytes: OnBytes = lambda size: None
    """Told of each chunk that was read."""
    _rows_at: dict[str, list[tuple[RowsChunk, int, int, int]]] | None = None
    _front: bytes = b""
    _held: dict[str, bytes] = field(default_factory=dict)

    def _chunk(self, name: str, size: int) -> bytes:
        data = read_chunk(self.target, name, size)
        self.on_bytes(size)
        return data

    def entries(self, end: LogEnd, last: Index) -> Iterator[Entries]:
        """The entries behind ``end`` up to ``last``, chunk by chunk, each checked to go behind the
        one before."""
        for chunk in self.manifest.log:
            if chunk.last <= end.position.index:
                continue
            if end.position.index >= last:
                return
            entries = unpack_entries(self._chunk(chunk.name, chunk.size))
            if (entries.first_index, entries.last_index) != (chunk.first, chunk.last):
                raise CorruptStore(f"chunk {chunk.name} has other entries than the manifest says")
            skipped = end.position.index + 1 - chunk.first
            entries = entries[max(skipped, 0) : last + 1 - chunk.first]
            check_following(end, entries, self.manifest.segment_bytes)
            yield entries
            end = entries.end
        if end.position.index < last:
            raise CorruptStore(
                f"the log of backup {self.manifest.name} ends with entry {end.position.index}, and "
                f"not with {last}"
            )

    def front(self) -> bytes:
        """The image up to its rows."""
        if not self._front:
            self._front = b"".join(self._chunk(*chunk) for chunk in self.manifest.front)
        return self._front

    def rows(self, name: str, first: int, end: int) -> Iterator[bytes]:
        """Rows of a table, in order.

        Raises:
            CorruptStore: some are in no chunk.
        """
        at = first
        while at < end:
            found = next(self._pieces_with(name, at), None)
            if found is None:
                raise CorruptStore(
                    f"backup {self.manifest.name} has no rows {at} to {end} of table {name}"
                )
            chunk, low, high, begin = found
            stop = min(high, end)
            data = self._rows_of(chunk)
            yield data[begin + (at - low) * ROW_SIZE : begin + (stop - low) * ROW_SIZE]
            at = stop

    def _pieces_with(self, name: str, row: int) -> Iterator[tuple[RowsChunk, int, int, int]]:
        """Chunks with that row: the rows [low, high) of its table begin at a byte of it."""
        for chunk, low, high, begin in self._places().get(name, ()):
            if low <= row < high:
                yield chunk, low, high, begin

    def _places(self) -> dict[str, list[tuple[RowsChunk, int, int, int]]]:
        if self._rows_at is None:
            self._rows_at = {}
            for chunk in self.manifest.rows:
                begin = 0
                for table, low, high in chunk.tables:
                    self._rows_at.setdefault(table, []).append((chunk, low, high, begin))
                    begin += (high - low) * ROW_SIZE
        return self._rows_at

    def _rows_of(self, chunk: RowsChunk) -> bytes:
        """A chunk of rows, which tables have in common."""
        data = self._held.pop(chunk.name, None)
        if data is None:
            data = self._chunk(chunk.name, chunk.size)
            while self._held and sum(map(len, self._held.values())) + len(data) > HELD_BYTES:
                del self._held[next(iter(self._held))]
        self._held[chunk.name] = data
        return data

    def head(self) -> ImageHead:
        """The image's head."""
        front = self.front()
        size = int.from_bytes(front[:4], "big")
        head = ImageHead.unpack(front[4 : 4 + size])
        if len(front) != 4 + size + head.snapshot + head.entry or head.index != self.manifest.index:
            raise CorruptStore(f"the catalog of backup {self.manifest.name} is of another one")
        return head

    def snapshot(self) -> bytes:
        """The catalog."""
        front, head = self.front(), self.head()
        end = len(front) - head.entry
        return front[end - head.snapshot : end]

    def image(self) -> Iterator[bytes]:
        """The image, piece by piece (`dledger.node.snapshot.image`)."""
        yield self.front()
        for name, first, end in self.head().tables:
            yield from self.rows(name, first, end)
