"""The files of a log, looked at past its store: I20 what was cut is gone, and no sound entry is
called damaged.

They can be looked at on a simulated disk (`verification.sim.disk`). One that was told to rot
(``rotten``), to fail (``harmed``) or to lose writes (``strays``) is left out where that explains
what is found.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dledger.errors import CorruptEntry
from dledger.protocol.messages.entry import MIN_BLANK_SIZE, body_is_sound, chain_is_sound, parse
from dledger.storage.disk.file_names import file_name
from dledger.storage.log.walker import blank
from verification.invariants.broken import Broken
from verification.invariants.truth import Truth, Written
from verification.invariants.view import WatchedNode


class AtRest:
    """Checks of the files of all nodes: the bytes that they must hold, and those that they may
    not."""

    def __init__(self, truth: Truth) -> None:
        self._truth = truth

    def ends(self, view: WatchedNode) -> None:
        """I20: the files of a log are empty behind its end, or the next start would find an entry
        there. The padding of a file may stand there: a node that is killed between the padding and
        the next entry leaves it."""
        disk, end = _disk(view), view.store.end.end_pos
        if disk is None or disk.rotten:
            return
        for start, data in _files(disk, view):
            behind = data[max(end - start, 0) :]
            if start < end and behind[:MIN_BLANK_SIZE] == blank(len(behind)):
                del behind[:MIN_BLANK_SIZE]
            if behind.count(0) != len(behind):
                raise Broken(
                    "I20",
                    f"{view} has a log up to {end}, and something behind it in {file_name(start)}",
                )

    def called_damaged(self, view: WatchedNode, error: CorruptEntry) -> None:
        """I20: an entry that its disk gives back as it was written is served, even where other
        bytes are damaged."""
        disk, index = _disk(view), error.index
        if disk is None or disk.harmed or disk.strays or index < view.store.begin_index:
            return
        before = self._written(view, index - 1)
        written = self._written(view, index)
        first = index == view.store.begin_index
        if written is None or not (
            first or (before is not None and self._is_sound(disk, view, index - 1, before))
        ):
            return
        if self._is_sound(disk, view, index, written):
            raise Broken(
                "I20", f"{view} calls entry {index} damaged, which is sound on its disk: {error}"
            )

    def _written(self, view: WatchedNode, index: int) -> Written | None:
        term = (
            view.terms.at(index) if index >= view.store.begin_index else self._truth.term_of(index)
        )
        return None if term is None else self._truth.written.get((index, term))

    def _is_sound(self, disk: Any, view: WatchedNode, index: int, written: Written) -> bool:
        """Whether the entry's bytes on the disk are those that were written."""
        files = _log_files(view)
        start = written.pos - written.pos % files.file_size
        inode = disk.names.get(files.directory / file_name(start))
        if inode is None:
            return False
        try:
            entry = parse(
                memoryview(bytes(inode.written[written.pos - start : written.end_pos - start]))
            )
        except ValueError:
            return False
        same = (entry.index, entry.pos, entry.chain_crc) == (index, written.pos, written.chain_crc)
        before = self._written(view, index - 1)
        if index and before is None:
            return False  # the right header is not known
        return (
            same
            and body_is_sound(entry)
            and chain_is_sound(entry, before.chain_crc if before else 0)
        )


def _disk(view: WatchedNode) -> Any:
    """The node's disk, if it is one of the simulator."""
    disk: Any = view.server._disk
    return disk if hasattr(disk, "strays") else None


def _log_files(view: WatchedNode) -> Any:
    store: Any = view.store
    return store._data


def _files(disk: Any, view: WatchedNode) -> Iterator[tuple[int, bytearray]]:
    """Each file of the log: its first byte's place in it, and its bytes."""
    directory = _log_files(view).directory
    for path, inode in disk.names.items():
        if path.parent == directory and path.name.isdecimal():
            yield int(path.name), inode.written
