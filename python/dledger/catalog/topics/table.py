"""Where the catalog keeps its topic index: rows of one size, packed, appended at the end and never
changed.

The catalog touches no files, so it is given a `TableFactory`. `MemoryTables` keeps rows in memory;
the store has a file-backed twin. Rows keep their numbers for ever: dropping the oldest moves
`begin`, not the numbers.
"""

from __future__ import annotations

from typing import Protocol

from dledger.errors import CorruptStore
from dledger.types import Buffer


class Table(Protocol):
    """Packed rows numbered from 0; the rows in [begin, end) are there."""

    @property
    def begin(self) -> int:
        """Number of the first row that is kept."""

    @property
    def end(self) -> int:
        """Number that the next row gets."""

    def append(self, row: bytes) -> None:
        """Add one row of exactly the table's row size (or several, back to back)."""

    def read(self, start: int, stop: int) -> Buffer:
        """The rows [start, stop), back to back. Valid until the next change of the table.

        Raises:
            CorruptStore: not all of these rows are there.
        """

    def truncate(self, end: int) -> None:
        """Take away the rows from ``end`` on. Below `begin` the table is empty and begins at
        ``end``.

        Raises:
            CorruptStore: the table has fewer rows than that.
        """

    def drop_front(self, begin: int) -> None:
        """The rows below ``begin`` are not needed any more; `begin` moves to it, or at least not
        above it (a file may give space back in larger steps)."""


class TableFactory(Protocol):
    """Opens tables by name. An appended row may be lost in a crash until the owner of the factory
    syncs it, which it does before it saves a snapshot of the catalog."""

    def open(self, name: str, row_size: int) -> Table:
        """The table of that name, empty when there was none. Names are plain ``[a-z0-9-]+``.

        Raises:
            CorruptStore: it exists with another row size.
        """

    def remove(self, name: str) -> None:
        """Delete a table for good; one that is not there is no error."""

    def names(self) -> list[str]:
        """All tables there are."""


class MemoryTable:
    """A table in one growing buffer."""

    def __init__(self, row_size: int) -> None:
        self.row_size = row_size
        self.begin = 0
        self._data = bytearray()

    @property
    def end(self) -> int:
        return self.begin + len(self._data) // self.row_size

    def append(self, row: bytes) -> None:
        self._data += row

    def read(self, start: int, stop: int) -> Buffer:
        size = self.row_size
        first, last = (start - self.begin) * size, (stop - self.begin) * size
        if first < 0 or last > len(self._data):
            raise CorruptStore(
                f"rows {start} to {stop} are not all in the table, which has {self.begin} to "
                f"{self.end}"
            )
        return self._data[first:last]

    def truncate(self, end: int) -> None:
        if end > self.end:
            raise CorruptStore(
                f"the table has {self.end} rows, fewer than the {end} it should keep"
            )
        del self._data[max(0, end - self.begin) * self.row_size :]
        self.begin = min(self.begin, end)

    def drop_front(self, begin: int) -> None:
        if begin > self.begin:
            del self._data[: (begin - self.begin) * self.row_size]
            self.begin = begin


class MemoryTables:
    """Tables that live as long as this object; a catalog restored over the same object finds them
    again."""

    def __init__(self) -> None:
        self.tables: dict[str, MemoryTable] = {}

    def open(self, name: str, row_size: int) -> Table:
        table = self.tables.setdefault(name, MemoryTable(row_size))
        if table.row_size != row_size:
            raise CorruptStore(f"table {name} has rows of {table.row_size} bytes, not {row_size}")
        return table

    def remove(self, name: str) -> None:
        self.tables.pop(name, None)

    def names(self) -> list[str]:
        return sorted(self.tables)
