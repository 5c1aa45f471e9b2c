"""Consume queues and index that are made of a group's entries: the same bytes as of each message by
itself."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pytest

from dledger.checksum import crc32
from dledger.errors import FormatError
from dledger.node.proposals.proposal import COMMAND_HEADER
from dledger.node.rocketmq.dispatch_mark import MARK_FILE, DispatchMark
from dledger.node.rocketmq.dispatched import ROOT, Dispatched
from dledger.protocol.messages.catalog_commands import DeleteTopic
from dledger.protocol.messages.entry import (
    HEADER_SIZE,
    MAGIC_NOOP,
    MAGIC_NORMAL,
    Entry,
    HardState,
    LogEnd,
    place,
    stamp,
)
from dledger.protocol.wire import encode_command
from dledger.rocketmq.format.hosts import Host
from dledger.rocketmq.format.message import (
    Message,
    TransactionType,
    decode_message,
    encode_message,
    message_size,
)
from dledger.rocketmq.format.properties import keys_of, parse_properties, tags_code
from dledger.rocketmq.store.consume_queues import ConsumeQueues
from dledger.rocketmq.store.index_service import IndexService
from dledger.types import Index, Term
from tests.node.spoiling import (
    lose_nothing,
    lose_the_index,
    lose_the_last_index_file,
    lose_the_queues,
)
from verification.disk.memory_store import MemoryStore
from verification.sim.rng import Rng

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
        topic,
        b"b" * dice.below(900),
        "\x02".join(properties),
        queue_id=queue_id,
        queue_offset=offset,
        sys_flag=flag,
        store_timestamp=1_790_000_000_000 + 700 * number,
        born_host=born,
        store_host=stored,
        version=version,
    )


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
    """Messages of all kinds, and between them a leader's first entries, commands, and what is no
    message."""
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
            body = encode_message(
                message.moved(place(end.end_pos, HEADER_SIZE + size, SEGMENT) + HEADER_SIZE)
            )
            body = damaged(dice, body) if what == 3 else body
        entry = stamp(end, Term(1), magic, memoryview(body) if dice.below(2) else body, SEGMENT)
        entries.append(entry)
        end = LogEnd.after(entry)
    return entries


def expected(root: Path, entries: list[Entry]) -> dict[str, bytes]:
    """By the message's own decoder, and each key and unit by itself."""
    queues = ConsumeQueues(root / "consumequeue")
    index = small_index(root / "index", clock=lambda: 1000)
    for entry in entries:
        at = entry.pos + HEADER_SIZE
        try:
            message = decode_message(entry.body)
            if entry.magic != MAGIC_NORMAL or message.physical_offset != at:
                continue
        except FormatError:
            continue
        properties = parse_properties(message.properties)
        state = message.sys_flag & TransactionType.ROLLBACK
        code = tags_code(properties.get("TAGS"))
        if message.topic == "SCHEDULE_TOPIC_XXXX":
            code = message.store_timestamp + LEVEL_3_MS
        if state in (TransactionType.NONE, TransactionType.COMMIT):
            place = message.topic, message.queue_id, message.queue_offset
            queues.put(*place, at, message_size(message), code)
        if state != TransactionType.ROLLBACK:
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


@pytest.fixture(autouse=True)
def small_index_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dledger.node.rocketmq.dispatched.IndexService", small_index)


def dispatched(
    path: Path, entries: list[Entry], *, log: Sequence[Entry] = (), dice: Rng | None = None
) -> tuple[int, dict[str, bytes]]:
    """Open the queues and index of a folder beside this log, and put what of the entries they ask
    for, with ``dice`` a few at a time: from where on, and the files of a node that was stopped well
    then."""
    store = MemoryStore(segment_bytes=SEGMENT)
    store.save_hard_state(HardState(Term(1)))
    store.append(log)
    made = Dispatched(path, lambda: 1000)
    made.open(store)
    at = first = made.next_index
    while at < len(entries):
        count = len(entries) if dice is None else 1 + dice.below(40)
        made.put(entries[at : at + count])
        at += count
    assert made.next_index == len(entries)
    made.close(Index(len(entries)), clean=True)
    return first, files(path / ROOT)


@pytest.mark.parametrize("seed", range(6))
def test_entries_of_all_kinds_dispatch_like_one_message_after_another(
    tmp_path: Path, seed: int
) -> None:
    """Queues and index come out the same."""
    entries = some_entries(seed, 400)
    one_by_one = expected(tmp_path / "a", entries)
    _, at_once = dispatched(tmp_path / "b", entries, dice=Rng(seed))
    assert len(one_by_one) > 9
    check_equal(at_once, one_by_one)


LOSSES = (lose_nothing, lose_the_queues, lose_the_index, lose_the_last_index_file)


def check_equal(found: dict[str, bytes], expected: dict[str, bytes]) -> None:
    assert found.keys() == expected.keys()
    assert [name for name in expected if found[name] != expected[name]] == []


@pytest.mark.parametrize("killed", [False, True], ids=["stopped", "killed"])
@pytest.mark.parametrize("kept", [400, 250], ids=["whole log", "shorter log"])
@pytest.mark.parametrize("lose", LOSSES, ids=lambda lose: lose.__name__)
def test_lost_queues_or_index_are_noticed_for_shorter_and_full_log(
    tmp_path: Path,
    lose: Callable[[Path], None],
    kept: int,
    killed: bool,
) -> None:
    entries = some_entries(1, 400)
    _, whole = dispatched(tmp_path, entries)
    lose(tmp_path / ROOT)
    if killed:
        (tmp_path / ROOT / "abort").touch()
    first, found = dispatched(tmp_path, entries, log=entries[:kept])
    assert first == (kept if lose is lose_nothing else 0)
    check_equal(found, whole)


@pytest.mark.parametrize(
    "lose", [lose_nothing, lose_the_queues, lose_the_index], ids=lambda lose: lose.__name__
)
def test_a_mark_of_release_0_1_is_read_and_written_anew(
    tmp_path: Path, lose: Callable[[Path], None]
) -> None:
    entries = some_entries(1, 100)
    dispatched(tmp_path, entries)
    mark = DispatchMark.unpack((tmp_path / ROOT / MARK_FILE).read_bytes())
    assert mark is not None
    former = struct.pack(
        ">8sqqqqI", b"DLREPUT1", mark.index, mark.end_pos, mark.queues, mark.units, 0
    )
    (tmp_path / ROOT / MARK_FILE).write_bytes(former[:-4] + struct.pack(">I", crc32(former)))
    lose(tmp_path / ROOT)
    first, _ = dispatched(tmp_path, entries, log=entries)
    assert first == (100 if lose is lose_nothing else 0)
    assert DispatchMark.unpack((tmp_path / ROOT / MARK_FILE).read_bytes()) == mark
