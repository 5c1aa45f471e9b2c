"""``config/topics.json``: the topics that a broker knows. It serves no queue of a topic that is not
there."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dledger.errors import FormatError
from dledger.rocketmq.format.config_json import decode_config, encode_config
from dledger.rocketmq.store.consume_queues import checked_topic
from dledger.rocketmq.store.files import (
    HOST,
    make_directory,
    read_whole,
    sync_directory,
    write_whole,
)
from dledger.rocketmq.store.index_service import now_ms
from dledger.storage.disk.disk import Disk

logger = logging.getLogger(__name__)

READ_WRITE: Final = 6
FILE: Final = "topics.json"


def load_config(path: Path, disk: Disk = HOST) -> Any:
    """A file of the ``config`` folder, or the copy of the one before it where it cannot be read,
    which the log is told; None for neither.

    Raises:
        FormatError: both are damaged.
        StorageError: the disk failed.
    """
    wrong = None
    for one in (path, path.with_name(path.name + ".bak")):
        data = read_whole(one, disk)
        if data:
            try:
                value = decode_config(data)
            except FormatError as error:
                wrong = wrong or FormatError(f"{one}: {error}")
                continue
            if wrong:
                logger.warning("%s; %s is taken, which was there before", wrong, one)
            return value
    if wrong:
        raise wrong
    return None


def save_config(path: Path, value: Any, disk: Disk = HOST) -> None:
    """Write a file of the ``config`` folder, and keep the one before it as ``.bak``.

    Raises:
        DiskFull, StorageError: it was not written, or perhaps not.
    """
    make_directory(path.parent, disk)
    write_whole(path, encode_config(value), backup=True, disk=disk)


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """One topic."""

    name: str
    queues: int = 4
    """readQueueNums and writeQueueNums."""
    perm: int = READ_WRITE
    """4 read, 2 write, 1 inherit."""
    order: bool = False

    def as_json(self) -> dict[str, Any]:
        """As the broker writes it."""
        return {
            "order": self.order,
            "perm": self.perm,
            "readQueueNums": self.queues,
            "topicFilterType": "SINGLE_TAG",
            "topicName": self.name,
            "topicSysFlag": 0,
            "writeQueueNums": self.queues,
        }


class TopicConfigs:
    """The topics of a store. Other fields of the file are kept as they are."""

    def __init__(
        self, folder: Path, clock: Callable[[], int] = now_ms, *, disk: Disk = HOST
    ) -> None:
        """Read the file, if there is one.

        Raises:
            FormatError: it is damaged, and the copy of it too.
        """
        self._path = folder / FILE
        self._clock, self._disk = clock, disk
        found = load_config(self._path, disk) or {}
        table = found.get("topicConfigTable", {}) if isinstance(found, dict) else None
        if not isinstance(table, dict):
            raise FormatError(f"{self._path} has no topicConfigTable")
        self._table: dict[str, Any] = table
        version = found.get("dataVersion")
        counter = version.get("counter") if isinstance(version, dict) else 0
        self._counter = counter if isinstance(counter, int) else 0

    def settle(self) -> None:
        """Make the names in the folder durable: a process that was killed, or whose disk failed,
        did not come to it, and what was read must not be gone later.

        Raises:
            StorageError: the disk failed.
        """
        if self._disk.is_dir(self._path.parent):
            sync_directory(self._path.parent, self._disk)

    def __contains__(self, topic: object) -> bool:
        return topic in self._table

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._table))

    def queues(self, topic: str) -> int:
        """How many queues a topic has to read from; 0 for one that is not there."""
        found = self._table.get(topic)
        count = found.get("readQueueNums", 0) if isinstance(found, dict) else 0
        return count if isinstance(count, int) else 0

    def put(self, config: TopicConfig) -> None:
        """Add a topic, or change it, and write the file.

        Raises:
            FormatError: the name cannot be a topic's.
            DiskFull, StorageError: it was not written, or perhaps not.
        """
        table = {**self._table, checked_topic(config.name): config.as_json()}
        version = {"counter": self._counter + 1, "timestamp": self._clock()}
        save_config(self._path, {"dataVersion": version, "topicConfigTable": table}, self._disk)
        self._table, self._counter = table, self._counter + 1
