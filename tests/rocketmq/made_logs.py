"""Commit logs that tests make, files that a broker wrote, and the content of what is read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from dledger.protocol.messages.entry import HEADER
from dledger.rocketmq.columns.commit_log import ColumnBatch
from dledger.rocketmq.format.checkpoint import StoreCheckpoint
from dledger.rocketmq.format.hosts import Host
from dledger.rocketmq.format.index_file import IndexFile
from dledger.rocketmq.format.message import (
    Message,
    encode_blank,
    encode_dledger_blank,
    encode_message,
)
from dledger.rocketmq.format.scanned_piece import PieceKind, ScannedPiece
from dledger.rocketmq.store.message_store import MessageStore
from dledger.rocketmq.store.store_lock import CheckpointFile
from verification.sim.rng import Rng

FILE = 1 << 20
NOW = 1_790_000_000_000
SMALL = {"file_size": 4096, "units_in_file": 10, "index_slots": 16, "index_units": 50}
"""Sizes with which a few messages fill several files of each kind."""
WORDS = ("k1", "k2", "größe", "日本", "x" * 300, "polygenelubricants", "", " ", "a  b ")
HOST = Host.of("10.1.2.3", 10911)
V4, V6 = Host.of("10.0.0.7", 40001), Host.of("fd00::7", 40001)
GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "rocketmq"
SIZES = {
    "checkpoint.bin": 4096,
    "cq_SCHEDULE_2.bin": 20_000,
    "cq_TopicA_0.bin": 20_000,
    "dledger_data.bin": 65_536,
    "dledger_data_after_migration.bin": 65_536,
    "dledger_index_after_migration.bin": 4096,
    "indexfile.bin": 8440,
    "old_commitlog.bin": 65_536,
}
"""Bytes of the files as they were written; the copies here do without most of the zeros at their
ends."""
FIVE = [
    Message(
        "TopicA",
        b"hello world",
        "KEYS\x01k1 k2\x02UNIQ_KEY\x01C0A8\x02TAGS\x01tagA",
        queue_id=3,
        queue_offset=7,
        born_timestamp=NOW,
        store_timestamp=NOW + 1,
        store_host=HOST,
    ),
    Message("TopicB", b"", "", born_host=V6, store_host=HOST),
    Message(
        "t" * 300, b"x" * 200, "TAGS\x01b\x02", version=2, born_host=V6, store_host=V6, flag=-5
    ),
    Message("größe", bytes(range(256)), "a\x01ü", reconsume_times=2, sys_flag=4, store_host=HOST),
    Message(
        "TopicA",
        b"\0" * 40,
        "TAGS\x01polygenelubricants",
        prepared_transaction_offset=99,
        store_host=HOST,
    ),
]
"""Messages of both versions, with IPv4 and IPv6, with and without a body, properties and a tag."""


def golden(name: str) -> bytes:
    """A file that RocketMQ or DLedger wrote, with the zeros at its end."""
    return (GOLDEN / name).read_bytes().ljust(SIZES.get(name, 0), b"\0")


def make_log(
    messages: Iterable[Message], start: int = 0, size: int = 0, *, entries: bool = False
) -> bytes:
    """A commit log file that begins at ``start`` with these messages, plain or in entries, closed
    by a blank where ``size`` asks for it."""
    log = b""
    for index, message in enumerate(messages):
        at = start + len(log)
        body = encode_message(message.moved(at + 48 if entries else at))
        log += entry(body, index, at) if entries else body
    if size:
        log += (encode_dledger_blank if entries else encode_blank)(size - len(log))
        log = log.ljust(size, b"\0")
    return log


def entry(body: bytes, index: int, pos: int, term: int = 3) -> bytes:
    """An entry of DLedger, which has no checksums."""
    return HEADER.pack(1, 48 + len(body), index, term, pos, 0, 0, 0, len(body)) + body


def overwrite(path: Path, at: int, data: bytes) -> None:
    """Write into the middle of a file."""
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def flip(path: Path, at: int, bits: int = 1) -> None:
    """Change a byte of a file."""
    overwrite(path, at, bytes([path.read_bytes()[at] ^ bits]))


def column(batches: Iterable[ColumnBatch], name: str) -> list[Any]:
    """The values of a column in all rows."""
    return [one for batch in batches if batch.rows for one in batch.rows.column(name).to_pylist()]


def damage_of(batches: Iterable[ColumnBatch]) -> list[ScannedPiece]:
    return [piece for batch in batches for piece in batch.damage]


def of_messages(pieces: Iterable[ScannedPiece]) -> list[ScannedPiece]:
    """The pieces that are messages, plain or in entries."""
    return [one for one in pieces if one.kind in (PieceKind.MESSAGE, PieceKind.ENTRY)]


def files(root: Path) -> dict[str, bytes]:
    """Name below a folder, and bytes, of each file in it."""
    paths = [path for path in sorted(root.rglob("*")) if path.is_file()]
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in paths}


def vouch_for_all(store: MessageStore) -> int:
    """A checkpoint for everything in the store, and where a recovery then begins."""
    last = store.log.store_timestamp
    CheckpointFile(store.root).write(StoreCheckpoint(last + 3000, last + 3000, last))
    return store.log.recovery_start(last)


def index_units(path: Path, slots: int) -> list[tuple[int, int]]:
    """Hash and place of the units of an index file, which must agree with itself."""
    file = IndexFile(path.read_bytes(), slots)
    assert file.check() == []
    return [(unit.key_hash, unit.physical_offset) for unit in file.units()]


def some(count: int, size: int | None = 100, first: int = 0, queues: int = 4) -> list[Message]:
    """Messages that can be told apart, of two topics in turn; of many sizes where none is given."""
    return [
        Message(
            ("orders", "payments")[n % 2],
            f"{n:06d}".encode().ljust(n % 300 if size is None else size, b"."),
            f"KEYS\x01k{n} all\x02UNIQ_KEY\x01U{n:08d}\x02TAGS\x01t{n % 3}",
            queue_id=n // 2 % queues,
            born_timestamp=NOW - 5,
            born_host=HOST,
            store_host=HOST,
        )
        for n in range(first, first + count)
    ]


def some_messages(dice: Rng, count: int, *, odd: bool) -> list[Message]:
    """Messages of a few queues with all kinds of keys; with ``odd`` some that belong into no queue,
    or leave gaps."""
    nexts: dict[tuple[str, int], int] = {}
    found = []
    for n in range(count):
        topic, queue_id = ("orders", "payments", "größe")[dice.below(3)], dice.below(3)
        properties = []
        if dice.below(3):
            properties.append("KEYS\x01" + " ".join(dice.pick(WORDS) for _ in range(dice.below(4))))
        if dice.below(3):
            properties.append(f"UNIQ_KEY\x01U{dice.below(count)}")
        if dice.below(3):
            properties.append(f"TAGS\x01t{dice.below(4)}")
        flag = dice.pick((0, 0, 0, 4, 8, 12)) if odd else 0
        offset = nexts.get((topic, queue_id), 7 if odd else 0) + (odd and dice.below(20) == 0)
        if flag in (0, 8):
            nexts[topic, queue_id] = offset + 1
        if odd and dice.below(40) == 0:
            topic = "SCHEDULE_TOPIC_XXXX"
            properties.append("DELAY\x013")
        stored = 1_790_000_000_000 + 700 * n - dice.below(3000)
        host, body = V6 if dice.below(5) == 0 else V4, b"b" * dice.below(50)
        made = Message(topic, body, "\x02".join(properties), queue_id, offset, sys_flag=flag)
        found.append(replace(made, store_timestamp=stored, born_host=host))
    return found


def log_of(messages: list[Message]) -> bytes:
    return make_log(messages, size=FILE)
