"""Which part of a log the index files of a store cover: the parts between them, or of a damaged
one, are scanned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from dledger.errors import FormatError, PathError
from dledger.protocol.messages.entry import HEADER_SIZE
from dledger.rocketmq.files.storage import NOTHING, Storage
from dledger.rocketmq.format.index_file import IndexReader, is_index_name

INDEX: Final = "index"
Span = tuple[int, int | None]
"""Offsets in the log, from the first to behind the last; None for its end."""


@dataclass(frozen=True, slots=True)
class IndexPart:
    """One index file that can be used."""

    path: str
    """Below the store's root."""
    reader: IndexReader

    @property
    def span(self) -> Span:
        """Where its messages begin, the first and the last one in it, with the headers of their
        entries."""
        return max(0, self.reader.begin_offset - HEADER_SIZE), self.reader.end_offset + 1


@dataclass(frozen=True, slots=True)
class Cover:
    """All index files of a store."""

    parts: tuple[IndexPart, ...]
    """By their places in the log."""
    faults: tuple[str, ...]
    """A sentence for each file that cannot be used."""

    def gaps(self) -> list[Span]:
        """The spans that no file covers. The messages at the borders belong to them: some of their
        keys may have been in a file that is gone."""
        found: list[Span] = []
        at = 0
        for part in self.parts:
            if part.reader.begin_offset >= at:
                found.append((at, part.reader.begin_offset + 1))
            at = max(at, part.reader.end_offset - HEADER_SIZE, 0)
        return joined([*found, (at, None)])


def joined(spans: Sequence[Span]) -> list[Span]:
    """The same offsets as spans that do not touch, in order."""
    found: list[Span] = []
    for begin, stop in sorted(spans, key=lambda span: span[0]):
        last = found[-1] if found else None
        if last is None or (last[1] is not None and begin > last[1]):
            found.append((begin, stop))
        elif last[1] is not None:
            found[-1] = (last[0], None if stop is None else max(last[1], stop))
    return found


def index_files(storage: Storage) -> dict[str, int]:
    """The index files of a store, the oldest first, with their bytes."""
    files = (storage.list(INDEX) or NOTHING).files
    return {f"{INDEX}/{name}": files[name] for name in sorted(filter(is_index_name, files))}


def read_cover(storage: Storage, slots: int) -> Cover:
    """Read the heads of the index files. A file has 420 MB by default; of it only the places are
    read that it takes.

    Args:
        slots: of each file (the broker's maxHashSlotNum).

    Raises:
        FormatError: none of the files can be used with so many slots.
    """
    parts: list[IndexPart] = []
    faults: list[str] = []
    for path, size in index_files(storage).items():
        try:
            reader = IndexReader(partial(storage.read_exactly, path, 0), size, slots=slots)
            reader.check_ends()
        except (FormatError, PathError) as error:
            faults.append(f"{storage.join(path)}: {error}")
            continue
        if reader.count > 1:
            parts.append(IndexPart(path, reader))
    if faults and not parts:
        raise FormatError(
            f"{faults[0]}. The slots are the broker's maxHashSlotNum: give them with "
            "--index-slots. If they are right the file is damaged: move it out of the folder, "
            "and the log is read through in its place"
        )
    return Cover(tuple(sorted(parts, key=lambda part: part.reader.begin_offset)), tuple(faults))
