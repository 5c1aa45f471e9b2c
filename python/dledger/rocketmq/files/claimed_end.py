"""The log's end by the queues and index of a store, from the few bytes that say it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dledger.rocketmq.files.layout import is_log_name
from dledger.rocketmq.files.storage import Storage
from dledger.rocketmq.format.consume_queue_unit import UNIT, UNIT_SIZE
from dledger.rocketmq.format.index_file import HEADER, is_index_name

QUEUES: Final = "consumequeue"
INDEX: Final = "index"


@dataclass(frozen=True, slots=True)
class NamedMessage:
    """A file that names a message."""

    path: str
    """Below the store's root."""
    place: int
    """The message's physical offset."""


def last_claim(storage: Storage) -> NamedMessage | None:
    """The file that names the last message of all. At a URL, where each question takes time, only
    the index is asked.

    Raises:
        PathError: a file cannot be read.
    """
    claims = [
        claim for path in _index_files(storage) if (claim := _of_index(storage, path)) is not None
    ]
    if storage.is_local:
        for topic in _folders(storage, QUEUES):
            for number in _folders(storage, f"{QUEUES}/{topic}"):
                claim = _of_queue(storage, f"{QUEUES}/{topic}/{number}")
                claims += [] if claim is None else [claim]
    return max(claims, key=lambda claim: claim.place, default=None)


def _folders(storage: Storage, path: str) -> tuple[str, ...]:
    listing = storage.list(path)
    return () if listing is None else listing.folders


def _index_files(storage: Storage) -> list[str]:
    listing = storage.list(INDEX)
    names = {} if listing is None else listing.files
    return [f"{INDEX}/{name}" for name in sorted(filter(is_index_name, names))]


def _of_index(storage: Storage, path: str) -> NamedMessage | None:
    head = storage.read(path, 0, HEADER.size)
    if len(head) < HEADER.size:
        return None
    *_, end, _, count = HEADER.unpack(head)
    return NamedMessage(path, end) if count > 1 else None


def _of_queue(storage: Storage, folder: str) -> NamedMessage | None:
    """The last unit of a queue: behind it there are zeros."""
    listing = storage.list(folder)
    sizes = {
        name: size for name, size in (listing.files if listing else {}).items() if is_log_name(name)
    }
    for name in sorted(sizes, reverse=True):
        path, low, high = f"{folder}/{name}", 0, sizes[name] // UNIT_SIZE
        while low < high:
            middle = (low + high) // 2
            _, size, _ = UNIT.unpack(storage.read(path, middle * UNIT_SIZE, UNIT_SIZE))
            low, high = (middle + 1, high) if size > 0 else (low, middle)
        if low:
            place, _, _ = UNIT.unpack(storage.read(path, (low - 1) * UNIT_SIZE, UNIT_SIZE))
            return NamedMessage(path, place)
    return None
