"""Every byte of every file of a RocketMQ store changed, one at a time.

The rules. No message is served with another body, in another queue, or for a key that it has not. A
message that is missing in an answer was reported at the start, or is named by ``verify``. Where the
format has no checksum (`FREE`, and a file of ``config`` that still is JSON), a changed field is
served as it is: that is the format's limit, and docs/rocketmq.md says so.
"""

from __future__ import annotations

import logging
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final

from dledger.errors import DLedgerError, FormatError
from dledger.rocketmq.format.config_json import decode_config
from dledger.rocketmq.format.message import Message, encode_message, lay_out
from dledger.rocketmq.format.properties import KEYS, format_properties, parse_properties
from dledger.rocketmq.store.message_store import MessageStore
from dledger.rocketmq.store.topic_configs import TopicConfig
from dledger.rocketmq.verify.store import Audit
from verification.disk.memory_disk import MemoryDisk
from verification.disk.memory_inode import Inode
from verification.disk_states.message_stores import QUEUES, ROOT, SIZES, Sums, places_of
from verification.disk_states.promise import require

LEFT_OUT: Final = ("lock", "abort")
"""Files whose bytes the store does not read."""
CONFIG: Final = ROOT / "config" / "topics.json"
COUNTS: Final = ("flips", "found_at_start", "found_by_read", "found_by_verify", "harmless")
FREE: Final = "message: a field that no checksum covers"


@dataclass(slots=True)
class StoreFlipTally(Sums):
    """The outcomes of the changed bytes, by kind of byte."""

    flips: Counter[str] = field(default_factory=Counter)
    found_at_start: Counter[str] = field(default_factory=Counter)
    """Refused, or told of in the log."""
    found_by_read: Counter[str] = field(default_factory=Counter)
    found_by_verify: Counter[str] = field(default_factory=Counter)
    harmless: Counter[str] = field(default_factory=Counter)
    """Every answer is as it was."""
    free: int = 0
    """Fields that were served as they are now, without a checksum that could tell."""
    findings: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        sums = [f"{sum(getattr(self, name).values())} {name.replace('_', ' ')}" for name in COUNTS]
        return f"{', '.join(sums)}, {self.free} free; {len(self.findings)} broke a rule"


@dataclass(frozen=True, slots=True)
class StoreImage:
    """A sound store's files, and its messages by place."""

    files: dict[Path, bytes]
    directories: frozenset[Path]
    messages: dict[int, Message]
    settings: dict[str, Any]

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(map(len, self.files.values()))

    def disk(self) -> MemoryDisk:
        """A disk with these files."""
        disk = MemoryDisk()
        disk.directories = set(self.directories)
        disk.names = {
            path: Inode(bytearray(data), bytearray(data)) for path, data in self.files.items()
        }
        disk.durable_names = dict(disk.names)
        return disk

    def kind(self, path: Path, offset: int) -> str:
        """The kind of a byte."""
        if path.parent.name != "commitlog":
            return path.parent.name if path.parent.parent != ROOT.parent else path.name
        place = int(path.name) + offset
        for at, message in self.messages.items():
            data = encode_message(message)
            if at <= place < at + len(data):
                parts = lay_out(data, 0, len(data))
                inside = place - at
                if parts.body <= inside < parts.body + len(message.body):
                    return "message: body"
                return FREE
        return "log: blank and free space"


def _image(*, stop: bool) -> StoreImage:
    """The image of a store that was stopped, or of one that a killed process left."""
    disk, times = MemoryDisk(), iter(range(1_700_000_000_000, 1_800_000_000_000))
    settings: dict[str, Any] = {**SIZES, "clock": lambda: next(times), "disk": disk}
    store = MessageStore(ROOT, **settings)
    for topic, queue_id in QUEUES:
        store.topics.put(TopicConfig(topic, queue_id + 2))
    places: list[int] = []
    for number in range(20):
        topic, queue_id = QUEUES[number % len(QUEUES)]
        body = b"%d:" % number + bytes(97 + number for _ in range(40 + 37 * (number % 7)))
        keys = format_properties({KEYS: f"k{number % 4}"})
        places.append(store.put_message(Message(topic, body, keys, queue_id)).physical_offset)
        if number % 6 == 5:
            store.flush()
    messages = {at: store.message_at(at) for at in places}
    if stop:
        store.close()
    else:
        store.abandon()
    files = {path: bytes(inode.written) for path, inode in disk.names.items()}
    return StoreImage(files, frozenset(disk.directories), messages, settings)


@cache
def store_images() -> tuple[StoreImage, StoreImage]:
    """The images of a store that was stopped, and of one that a killed process left. Made once in
    each process."""
    return _image(stop=True), _image(stop=False)


class Ear(logging.Handler):
    """Hears whether a store warns of something while it starts."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())


@contextmanager
def listening() -> Iterator[Ear]:
    """Collect the warnings of stores, even where logging is disabled; no other handler gets
    them."""
    ear, logger = Ear(), logging.getLogger("dledger.rocketmq")
    disabled = logging.root.manager.disable
    logging.disable(logging.NOTSET)
    logger.addHandler(ear)
    logger.propagate = False
    try:
        yield ear
    finally:
        logger.propagate = True
        logger.removeHandler(ear)
        logging.disable(disabled)


def flip(image: StoreImage, path: Path, offset: int, tally: StoreFlipTally) -> None:
    """Change one byte, and see what becomes of it."""
    kind = image.kind(path, offset)
    tally.flips[kind] += 1
    disk = image.disk()
    disk.flip(path, offset, 1 << (offset % 8) if offset % 3 else 0xFF)
    before = {path: bytes(inode.written) for path, inode in disk.names.items()}
    try:
        with listening() as ear:
            _meet(image, kind, disk, before, ear, tally)
    except Exception as error:
        tally.findings.append(
            f"{kind}, byte {offset} of {path.relative_to(ROOT)}: {type(error).__name__}: {error}"
        )


def _meet(
    image: StoreImage,
    kind: str,
    disk: MemoryDisk,
    before: dict[Path, bytes],
    ear: Ear,
    tally: StoreFlipTally,
) -> None:
    try:
        store = MessageStore(ROOT, **{**image.settings, "disk": disk})
    except DLedgerError:
        tally.found_at_start[kind] += 1
        return
    answers = Answers(image, store)
    if answers.refused:
        tally.found_by_read[kind] += 1
    elif ear.said:
        tally.found_at_start[kind] += 1
    elif not answers.missing and not answers.changed:
        tally.harmless[kind] += 1
    elif is_told_by_verify(before):
        tally.found_by_verify[kind] += 1
    else:
        is_free = kind == FREE or (kind == "config" and _is_json(before[CONFIG]))
        require(is_free, f"nobody tells: {answers.missing[:3]} {answers.changed[:3]}")
        tally.free += 1


def _is_json(data: bytes) -> bool:
    try:
        decode_config(data)
    except FormatError:
        return False
    return True


class Answers:
    """The answers of a store to all possible reads.

    Raises:
        BrokenPromise: a message has another body, or is in an answer that it does not belong to.
    """

    def __init__(self, image: StoreImage, store: MessageStore) -> None:
        self.missing: list[str] = []
        self.changed: list[str] = []
        """Messages of which another field than the body is another one."""
        self.refused: list[str] = []
        by_queue, by_key = places_of(image.messages)
        for at in image.messages:
            self._ask(image, f"message {at}", [at], lambda at=at: [store.message_at(at)])  # type: ignore[misc]
        for (topic, queue_id), places in by_queue.items():
            name = f"queue {queue_id} of {topic}"
            self._ask(image, name, places, lambda: store.messages(topic, queue_id, 0, 99))  # noqa: B023
        for (topic, key), places in by_key.items():
            name = f"key {key} of {topic}"
            self._ask(image, name, places, lambda: store.messages_with_key(topic, key), key)  # noqa: B023
        for topic, queue_id in QUEUES:
            if store.topics.queues(topic) < queue_id + 2:
                self.missing.append(f"queues of {topic}")

    def _ask(
        self,
        image: StoreImage,
        name: str,
        places: list[int],
        question: Callable[[], list[Message]],
        key: str = "",
    ) -> None:
        """``key``: a message that has it now, by a change that no checksum can tell, belongs to the
        answer."""
        try:
            found = question()
        except DLedgerError as error:
            self.refused.append(str(error))
            return
        for message in found:
            right = image.messages.get(message.physical_offset)
            belongs = message.physical_offset in places or (
                key and parse_properties(message.properties).get(KEYS) == key
            )
            require(
                right is not None and bool(belongs),
                f"{name} has the message at {message.physical_offset}",
            )
            assert right is not None
            require(message.body == right.body, f"another body in {name}")
            if message != right:
                self.changed.append(f"{name}: {message.physical_offset}")
        if len(found) != len(places):
            self.missing.append(name)


def is_told_by_verify(files: dict[Path, bytes]) -> bool:
    """Whether ``dledger rocketmq verify`` has something to say of a store with these files."""
    shm = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(prefix="dledger-flips-", dir=shm) as folder:
        root = Path(folder)
        for path, data in files.items():
            target = root / path.relative_to(ROOT)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
        logs = sorted((root / "commitlog").iterdir())
        return not Audit(root, logs, index_slots=SIZES["index_slots"]).run()["ok"]


def flip_store(image: StoreImage, every: int = 1, begin: int = 0) -> StoreFlipTally:
    """Change each so many-th byte of all files, one at a time."""
    tally = StoreFlipTally()
    places = [
        (path, offset)
        for path, data in sorted(image.files.items())
        if path.name not in LEFT_OUT
        for offset in range(len(data))
    ]
    for path, offset in places[begin::every]:
        flip(image, path, offset, tally)
    return tally
