"""Consume queues and index that are made of a group's entries: the same bytes as of each message by itself."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from dledger.broker.consume_queues import ConsumeQueues
from dledger.broker.index_service import IndexService
from dledger.errors import FormatError
from dledger.messages.command import DeleteTopic
from dledger.messages.entry import HEADER_SIZE, MAGIC_NOOP, MAGIC_NORMAL, Entry, LogEnd, place, stamp
from dledger.rocketmq.hosts import Host
from dledger.rocketmq.message import Message, Transaction, decode_message, encode_message, message_size
from dledger.rocketmq.properties import keys_of, parse_properties, tags_code
from dledger.server.appends import COMMAND_HEADER
from dledger.server.dispatched import Dispatched
from dledger.store.memory import MemoryStore
from dledger.testing.sim.rng import Rng
from dledger.types import Index, Term
from dledger.wire import encode_command

SEGMENT = 1 << 16
LEVEL_3_MS = 10_000
small_index = partial(IndexService, slots=64, units=300)
V4, V6 = Host.of("10.0.0.7", 40001), Host.of("fd00::7", 40001)
WORDS = ("k1", "größe", "日本", "x" * 300, "7F00000100002A139A5518B4AAC20001", "", " ", "a  b ")
DAMAGES = ("place", "size", "topic", "properties", "text", "magic", "more")


def some_message(dice: Rng, nexts: dict[tuple[str, int], int], number: int) -> Message:
    topic, queue_id = dice.pick(("orders", "payments", "größe")), dice.below(3)
    properties = []
    if dice.below(3):
        properties.append("KEYS\x01" + " ".join(dice.pick(WORDS) for _ in range(dice.below(4))))
    if dice.below(4):
        properties.append(f"UNIQ_KEY\x017F00000100002A139A5518B4AA{number:06X}")
    if dice.below(3):
        properties.append(f"TAGS\x01t{dice.below(4)}")
    if dice.below(4) == 0:
        properties += ["", "TAGS\x01", "odd", "TAGS\x01last"]
    flag = dice.pick((0, 0, 0, 4, 8, 12))
    if dice.below(20) == 0:
        topic = "SCHEDULE_TOPIC_XXXX"
        properties.append("DELAY\x013")
    offset = nexts.get((topic, queue_id), 0)
    if flag in (0, 8):
        nexts[topic, queue_id] = offset + 1
    version = 2 if dice.below(6) == 0 else 1
    born, stored = dice.pick((V4, V4, V6)), dice.pick((V4, V4, V6))
    return Message(
        topic, b"b" * dice.below(900), "\x02".join(properties), queue_id=queue_id, queue_offset=offset, sys_flag=flag,
        store_timestamp=1_790_000_000_000 + 700 * number, born_host=born, store_host=stored, version=version,
    )  # fmt: skip


def damaged(dice: Rng, body: bytes) -> bytes:
    """A body that is no message any more, or says that it lies elsewhere; nobody puts such."""
    data, kind = bytearray(body), dice.pick(DAMAGES)
    if kind == "place":
        data[35] ^= 1
    elif kind == "size":
        data[3] ^= 1
    elif kind == "topic":
        data[84:88] = (len(body)).to_bytes(4, "big")
    elif kind == "properties":
        data = data[:88]
    elif kind == "text":
        data[-1] = 0xFF
    elif kind == "magic":
        data[7] ^= 0x55
    else:
        data += b"\0\0\0"
    return bytes(data)


def some_entries(seed: int, count: int) -> list[Entry]:
    """Messages of all kinds, and between them a leader's first entries, commands, and what is no message."""
    dice, nexts, entries, end = Rng(seed), dict[tuple[str, int], int](), list[Entry](), LogEnd()
    for number in range(count):
        magic, what = MAGIC_NORMAL, dice.below(12)
        if what == 0:
            magic, body = MAGIC_NOOP, b""
        elif what == 1:
            body = COMMAND_HEADER + encode_command(DeleteTopic(name="t" * (1 + dice.below(60))))
        elif what == 2:
            body = b"somebody else's" * dice.below(20)
        else:
            message = some_message(dice, nexts if what != 3 else dict(nexts), number)
            size = message_size(message)
            body = encode_message(message.moved(place(end.end_pos, HEADER_SIZE + size, SEGMENT) + HEADER_SIZE))
            body = damaged(dice, body) if what == 3 else body
        entry = stamp(end, Term(1), magic, memoryview(body) if dice.below(2) else body, SEGMENT)
        entries.append(entry)
        end = LogEnd.after(entry)
    return entries


def expected(root: Path, entries: list[Entry]) -> dict[str, bytes]:
    """By the message's own decoder, and each key and unit by itself."""
    queues, index = ConsumeQueues(root / "consumequeue"), small_index(root / "index", clock=lambda: 1000)
    for entry in entries:
        at = entry.pos + HEADER_SIZE
        try:
            message = decode_message(entry.body)
            if entry.magic != MAGIC_NORMAL or message.physical_offset != at:
                continue
        except FormatError:
            continue
        properties, state = parse_properties(message.properties), message.sys_flag & Transaction.ROLLBACK
        code = tags_code(properties.get("TAGS"))
        if message.topic == "SCHEDULE_TOPIC_XXXX":
            code = message.store_timestamp + LEVEL_3_MS
        if state in (Transaction.NONE, Transaction.COMMIT):
            queues.put(message.topic, message.queue_id, message.queue_offset, at, message_size(message), code)
        if state != Transaction.ROLLBACK:
            index.put(message.topic, keys_of(properties), at, message.store_timestamp)
    queues.flush()
    index.flush()
    index.close()
    return files(root)


def files(root: Path) -> dict[str, bytes]:
    found = {}
    for folder in ("consumequeue", "index"):
        for path in sorted((root / folder).rglob("*")):
            if path.is_file():
                found[path.relative_to(root).as_posix()] = path.read_bytes()
    return found


def dispatched(directory: Path, entries: list[Entry], dice: Rng) -> dict[str, bytes]:
    store: Any = MemoryStore(segment_bytes=SEGMENT)
    made = Dispatched(directory, lambda: 1000)
    made.open(store)
    at = 0
    while at < len(entries):
        count = 1 + dice.below(40)
        made.put(entries[at : at + count])
        at += count
    assert made.next_index == len(entries)
    made.close(Index(len(entries)), clean=True)
    return files(directory / "rocketmq")


@pytest.mark.parametrize("seed", range(6))
def test_entries_of_all_kinds_come_to_the_queues_and_the_index_of_one_message_after_the_other(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dledger.server.dispatched.IndexService", small_index)
    entries = some_entries(seed, 400)
    one_by_one = expected(tmp_path / "a", entries)
    at_once = dispatched(tmp_path / "b", entries, Rng(seed))
    assert len(one_by_one) > 9
    assert at_once.keys() == one_by_one.keys()
    assert [name for name in one_by_one if at_once[name] != one_by_one[name]] == []
