"""The log's end by the queues and index of a store, from the few bytes that say it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dledger.rocketmq.files.index_cover import index_files
from dledger.rocketmq.files.layout import is_log_name
from dledger.rocketmq.files.storage import NOTHING, Storage
from dledger.rocketmq.format.consume_queue_unit import UNIT, UNIT_SIZE
from dledger.rocketmq.format.index_file import HEADER

QUEUES: Final = "consumequeue"


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
    claims = [_of_index(storage, path) for path in index_files(storage)]
    if storage.is_local:
        for topic in _folders(storage, QUEUES):
            claims += [_of_queue(storage, queue) for queue in _folders(storage, topic)]
    return max(filter(None, claims), key=lambda claim: claim.place, default=None)


def _folders(storage: Storage, path: str) -> list[str]:
    return [f"{path}/{name}" for name in (storage.list(path) or NOTHING).folders]


def _of_index(storage: Storage, path: str) -> NamedMessage | None:
    head = storage.read(path, 0, HEADER.size)
    if len(head) < HEADER.size:
        return None
    *_, end, _, count = HEADER.unpack(head)
    return NamedMessage(path, end) if count > 1 else None


def _of_queue(storage: Storage, folder: str) -> NamedMessage | None:
    """The last unit of a queue: behind it there are zeros."""
    sizes = (storage.list(folder) or NOTHING).files
    for name in sorted(filter(is_log_name, sizes), reverse=True):
        path, low, high = f"{folder}/{name}", 0, sizes[name] // UNIT_SIZE
        while low < high:
            middle = (low + high) // 2
            _, size, _ = UNIT.unpack(storage.read(path, middle * UNIT_SIZE, UNIT_SIZE))
            low, high = (middle + 1, high) if size > 0 else (low, middle)
        if low:
            place, _, _ = UNIT.unpack(storage.read(path, (low - 1) * UNIT_SIZE, UNIT_SIZE))
            return NamedMessage(path, place)
    return None
