"""``config/topics.json``: the topics that a broker knows. It serves no queue of a topic that is not
there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dledger.errors import FormatError
from dledger.rocketmq.format.config_json import decode_config, encode_config
from dledger.rocketmq.store.consume_queues import checked_topic
from dledger.rocketmq.store.files import make_directory, storing, write_whole
from dledger.rocketmq.store.index_service import now_ms

READ_WRITE: Final = 6
FILE: Final = "topics.json"


def load_config(path: Path) -> Any:
    """A file of the ``config`` folder, or the copy of the one before it where it cannot be read;
    None for neither.

    Raises:
        FormatError: both are damaged.
        StorageError: the disk failed.
    """
    wrong = None
    for one in (path, path.with_name(path.name + ".bak")):
        with storing("read", one):
            data = one.read_bytes() if one.exists() else b""
        if data:
            try:
                return decode_config(data)
            except FormatError as error:
                wrong = wrong or FormatError(f"{one}: {error}")
    if wrong:
        raise wrong
    return None


def save_config(path: Path, value: Any) -> None:
    """Write a file of the ``config`` folder, and keep the one before it as ``.bak``.

    Raises:
        DiskFull, StorageError: it was not written, or perhaps not.
    """
    make_directory(path.parent)
    write_whole(path, encode_config(value), backup=True)


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

    def __init__(self, folder: Path, clock: Callable[[], int] = now_ms) -> None:
        """Read the file, if there is one.

        Raises:
            FormatError: it is damaged, and the copy of it too.
        """
        self._path = folder / FILE
        self._clock = clock
        found = load_config(self._path) or {}
        table = found.get("topicConfigTable", {}) if isinstance(found, dict) else None
        if not isinstance(table, dict):
            raise FormatError(f"{self._path} has no topicConfigTable")
        self._table: dict[str, Any] = table
        version = found.get("dataVersion")
        counter = version.get("counter") if isinstance(version, dict) else 0
        self._counter = counter if isinstance(counter, int) else 0

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
        save_config(self._path, {"dataVersion": version, "topicConfigTable": table})
        self._table, self._counter = table, self._counter + 1
