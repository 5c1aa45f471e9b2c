"""Which log files a store has, and where they lie in its log.

A RocketMQ broker keeps its messages in ``commitlog``, or in DLedger mode in ``dledger-<id>/data``;
one that was upgraded has both, the old files below the first one of DLedger
(dividedCommitlogOffset). A DLedger node has ``data`` and ``index``. Files are named by the offset
of their first byte, in 20 digits.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from dledger.errors import PathError
from dledger.rocketmq.columns.windows import FileReader, LogSpan
from dledger.rocketmq.files.storage import NOTHING, FolderListing, Storage
from dledger.rocketmq.format.message import BLANK_MAGIC, DLEDGER_BLANK_MAGIC, MESSAGE_MAGICS, PAIR
from dledger.rocketmq.format.scanned_piece import PieceKind, ScannedPiece

LAYOUTS: Final = ("rocketmq", "dledger")
COMMITLOG: Final = "commitlog"
DLEDGER: Final = "dledger"
NAME_DIGITS: Final = 20
LAST_OFFSET: Final = (1 << 63) - (1 << 32)


@dataclass(frozen=True, slots=True)
class LogFile:
    """One file of a log."""

    path: str
    """Below the store's root."""
    span: LogSpan

    def reader(self, storage: Storage, **how: Any) -> FileReader:
        """A reader of it; ``how``: fields of `FileReader`."""
        read = partial(storage.read_exactly, self.path, self.span.start)
        return FileReader(read, self.span, **how)


@dataclass(frozen=True, slots=True)
class Form:
    """A log: the plain commit log of a store, or the one of DLedger mode."""

    name: str
    """``commitlog`` or ``dledger``."""
    base: str | None
    """Of DLedger: the folder with ``index`` and ``checkpoint``, below the root (empty: the root
    itself); None where that is not known."""
    files: tuple[LogFile, ...]
    """By offset, from the first one to the last one with anything in it."""
    faults: tuple[ScannedPiece, ...] = ()
    """The faults between files: bytes that no file has, or that two have."""

    @property
    def begin(self) -> int:
        """Offset of the first byte that there is."""
        return self.files[0].span.start

    @property
    def end(self) -> int:
        """Offset behind the last byte of the last file, used or not."""
        return self.files[-1].span.data_end

    def file_at(self, offset: int) -> LogFile | None:
        """The file with this offset in it."""
        return next((f for f in self.files if f.span.start <= offset < f.span.data_end), None)


@dataclass(frozen=True, slots=True)
class Store:
    """A store as it was found."""

    storage: Storage
    layout: str
    forms: tuple[Form, ...]
    """By offset: one, or the two of an upgraded store."""


def open_store(storage: Storage, layout: str) -> Store:
    """Find the logs of a store.

    Raises:
        PathError: there is none, or there are several and the layout does not say which is meant.
    """
    root = storage.list()
    if root is None:
        is_file = storage.is_local and storage.size("") is not None
        what = "is a file" if is_file else "does not exist"
        raise PathError(f"{storage.url} {what}; {hint(layout)}")
    found: dict[str, Place] = {}
    if any(map(is_log_name, root.files)):
        parent, _, folder = storage.url.rpartition("/")
        above = Storage(parent, storage.options) if folder == "data" else storage
        if above is not storage and "index" in (above.list() or NOTHING).folders:
            return open_store(above, layout)
        kind = DLEDGER if layout == DLEDGER else _kind(storage, root)
        found[kind] = Place("", None, listing=root)
    else:
        _look(storage, layout, root, found)
    found = {name: place for name, place in found.items() if place.names}
    if not found:
        raise PathError(f"no log files in {storage.url}; {hint(layout)}")
    return Store(storage, layout, tuple(_laid_out(storage, found)))


def hint(layout: str) -> str:
    """The name to give instead."""
    if layout == DLEDGER:
        return "name the directory of a DLedger node, which has the folders data and index"
    return (
        "name the root of a RocketMQ store, which has the folder commitlog or dledger-<id>, "
        "or one of these"
    )


def is_log_name(name: str) -> bool:
    """Whether this is 20 ASCII digits: the offset of a file's first byte, which has 64 bits."""
    return (
        len(name) == NAME_DIGITS and name.isascii() and name.isdigit() and int(name) <= LAST_OFFSET
    )


class Place:
    """A folder with log files.

    Args:
        base: of DLedger, the folder beside which index and checkpoint lie; None where that is not
            known.
    """

    def __init__(self, folder: str, base: str | None, *, listing: FolderListing) -> None:
        self.base = base
        self.sizes = {int(name): size for name, size in listing.files.items() if is_log_name(name)}
        self.names = {start: f"{folder}/{start:020d}".lstrip("/") for start in sorted(self.sizes)}

    def used(self, storage: Storage) -> list[int]:
        """Where its files begin, without those that have not been begun: brokers make files before
        they need them."""
        starts = list(self.names)
        while len(starts) > 1 and not any(storage.read(self.names[starts[-1]], 0, PAIR.size)):
            del starts[-1]
        return starts


def _look(storage: Storage, layout: str, root: FolderListing, found: dict[str, Place]) -> None:
    data = storage.list("data") if "data" in root.folders else None
    if data is not None and any(map(is_log_name, data.files)):
        found[DLEDGER] = Place("data", "", listing=data)
        return
    if layout == "rocketmq" and COMMITLOG in root.folders:
        found[COMMITLOG] = Place(COMMITLOG, None, listing=storage.list(COMMITLOG) or NOTHING)
    nodes = [name for name in root.folders if name.startswith("dledger-")]
    if len(nodes) > 1:
        raise PathError(
            f"{storage.url} has the logs of several nodes, which hold the same messages: "
            f"{', '.join(nodes)}. Name one of them, as in {storage.join(nodes[0])}"
        )
    for node in nodes:
        data = storage.list(f"{node}/data") or NOTHING
        found[DLEDGER] = Place(f"{node}/data", node, listing=data)


def _kind(storage: Storage, listing: FolderListing) -> str:
    """The kind of the log, by the begin of its first file that is not empty."""
    for name in sorted(filter(is_log_name, listing.files)):
        head = storage.read(name, 0, PAIR.size)
        if len(head) == PAIR.size and head != bytes(PAIR.size):
            first, second = PAIR.unpack(head)
            if second in (*MESSAGE_MAGICS, BLANK_MAGIC):
                return COMMITLOG
            if first in (1, 2, DLEDGER_BLANK_MAGIC):
                return DLEDGER
    return DLEDGER if storage.url.endswith("/data") else COMMITLOG


def _laid_out(storage: Storage, found: Mapping[str, Place]) -> Iterator[Form]:
    used = {name: place.used(storage) for name, place in found.items()}
    divided = used[DLEDGER][0] if DLEDGER in used else None
    last = used[COMMITLOG][-1] if COMMITLOG in used else -1
    if divided is not None and last >= divided:
        raise PathError(
            f"{storage.url} has two logs of which none goes on where the other one ends: that of "
            f"DLedger mode begins at {divided}, and {COMMITLOG} has a file "
            f"{last:0{NAME_DIGITS}d}. Name the folder of the one that is meant, as in "
            f"{storage.join(COMMITLOG)}"
        )
    file_size = _file_size(found)
    for name, after in ((COMMITLOG, divided), (DLEDGER, None)):
        if name in found:
            yield _form(name, found[name], used[name], file_size, after)


def _file_size(found: Mapping[str, Place]) -> int:
    """Bytes that each file should have. Some may be cut, and copies may lack the zeros at their
    ends."""
    starts = sorted({start for place in found.values() for start in place.names})
    sizes = [size for place in found.values() for size in place.sizes.values()]
    most = max(sizes)
    steps = [second - first for first, second in itertools.pairwise(starts)]
    is_usual = bool(most) and 2 * sizes.count(most) >= len(sizes)
    if not steps or (is_usual and not any(start % most for start in starts)):
        return most
    return min(steps)


def _form(
    name: str, place: Place, starts: Sequence[int], file_size: int, after: int | None
) -> Form:
    """One of the two; ``after`` is where the other one goes on."""
    files: list[LogFile] = []
    faults: list[tuple[int, int, str]] = []
    for start, goes_on in zip(starts, [*starts[1:], after], strict=True):
        size, file_end = place.sizes[start], start + file_size
        if size > file_size:
            reason = f"the file has {size:,} bytes, and the others {file_size:,}"
            faults.append((file_end, start + size, reason))
        if not size and goes_on is not None:
            faults.append((start, min(goes_on, file_end), "the file is empty"))
        if goes_on is not None and goes_on > file_end:
            faults.append((file_end, goes_on, "no file has these bytes"))
        next_start = None if goes_on is None else min(goes_on, file_end)
        span = LogSpan(start, start + min(size, file_size), file_end, next_start)
        files.append(LogFile(place.names[start], span))
    pieces = tuple(ScannedPiece(PieceKind.DAMAGE, *fault) for fault in faults)
    return Form(name, place.base, tuple(files), pieces)
