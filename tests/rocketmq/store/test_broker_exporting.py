"""Stores that are exported: a reader of brokers' stores finds every message, DLedger's files are
DLedger's bytes."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from dledger.errors import ConfigError, PathError, RecordTooLarge
from dledger.protocol.messages.entry import HEADER, MAGIC_NORMAL
from dledger.rocketmq.export.ledger_files import LedgerFiles
from dledger.rocketmq.export.record_messages import RecordMessages, check_topic_name
from dledger.rocketmq.export.store import LedgerExport, PlainExport
from dledger.rocketmq.files.layout import open_store
from dledger.rocketmq.files.ranges import plan_store, read_range
from dledger.rocketmq.files.storage import Storage
from dledger.rocketmq.format.message import MAX_BODY, Message
from dledger.rocketmq.store.consume_queues import ConsumeQueues
from dledger.rocketmq.store.message_store import MessageStore
from tests.rocketmq.made_logs import damage_of

LEDGER = Path(__file__).resolve().parents[2] / "golden" / "dledger_clean_n0"
DATA = [f"data/{n:020d}" for n in (0, 1024)]
DATA_FILE = 1024
INDEX_FILE = 256


def records(count: int, begins: dict[int, int]) -> list[Message]:
    """Messages of as many queues as have a begin, with a key and two headers."""
    maker = RecordMessages("orders")
    nexts, found = dict(begins), []
    for n in range(count):
        queue = sorted(begins)[n % len(begins)]
        headers = [("TAGS", b"t%d" % (n % 2)), ("source", b"web")]
        found.append(
            maker.message(queue, nexts[queue], 1_790_000_000_000 + n, b"k%d" % n, b"v" * n, headers)
        )
        nexts[queue] += 1
    return found


def read_all(root: Path) -> list[dict[str, object]]:
    """What the reader of foreign stores finds, which shares no code that looks for files with the
    writer."""
    storage = Storage.of(str(root), {})
    plan = plan_store(open_store(storage, "rocketmq"))
    assert not plan.faults
    batches = [batch for one in plan.ranges for batch in read_range(storage, "rocketmq", one)]
    assert not damage_of(batches)
    return [row for batch in batches if batch.rows for row in batch.rows.to_pylist()]


@pytest.mark.parametrize("form", ["rocketmq", "dledger"])
def test_exported_store_has_all_messages_with_offset_key_and_headers(
    tmp_path: Path, form: str
) -> None:
    """The offset is the queue offset."""
    begins = {0: 0, 1: 0}
    made = records(60, begins)
    store = (
        PlainExport(tmp_path, "orders", begins=begins, file_size=4096)
        if form == "rocketmq"
        else LedgerExport(tmp_path, "n0", topic="orders", begins=begins, file_size=4096)
    )
    store.put(made[:25])
    store.put(made[25:])
    store.close()
    rows = read_all(tmp_path)
    assert [(r["queue_id"], r["queue_offset"], r["body"], r["keys"], r["tags"]) for r in rows] == [
        (m.queue_id, m.queue_offset, m.body, f"k{n}", f"t{n % 2}") for n, m in enumerate(made)
    ]
    queues = ConsumeQueues(tmp_path / "consumequeue")
    queues.recover()
    places = {(r["queue_id"], r["queue_offset"]): r["physical_offset"] for r in rows}
    for (_, queue_id), queue in queues.items():
        units = queue.units(0, 100)
        assert [u.physical_offset for u in units] == [places[queue_id, n] for n in range(30)]
    assert not (tmp_path / "abort").exists()
    assert b'"readQueueNums":2' in (tmp_path / "config" / "topics.json").read_bytes()


def test_queue_that_begins_above_0_shows_a_broker_its_first_message(tmp_path: Path) -> None:
    """A broker takes a queue's first unit at or behind the commit log's begin for its first
    message: fillers, whose place is 0, must lie before that begin, or the broker's consumers skip
    real messages with them."""
    begins = {0: 7, 1: 0}
    store = PlainExport(tmp_path, "orders", begins=begins, file_size=4096)
    store.put(records(10, begins))
    store.close()
    with MessageStore(tmp_path, file_size=4096) as opened:
        assert opened.log.min_offset == 4096
        queue = opened.queues.get("orders", 0)
        assert queue is not None
        assert (queue.min_offset, queue.max_offset) == (7, 12)
        assert all(unit.physical_offset < opened.log.min_offset for unit in queue.units(0, 7))
        assert [m.queue_offset for m in opened.messages("orders", 0, 0)] == [7, 8, 9, 10, 11]


def test_messages_that_leave_an_offset_out_are_refused(tmp_path: Path) -> None:
    store = PlainExport(tmp_path, "orders", begins={0: 0}, file_size=4096)
    made = records(3, {0: 0})
    with pytest.raises(ValueError, match="left out"):
        store.put([made[0], made[2]])
    store.abandon()


def ledger_files(directory: Path) -> LedgerFiles:
    return LedgerFiles(directory, data_file_size=DATA_FILE, index_file_size=INDEX_FILE)


def test_entries_of_a_real_node_that_are_written_again_have_its_bytes(tmp_path: Path) -> None:
    files = ledger_files(tmp_path / "dledger-n0")
    for name in DATA:
        data, at = (LEDGER / name).read_bytes(), 0
        while data[at : at + 4] == MAGIC_NORMAL.to_bytes(4):
            _, size, _, term, *_ = HEADER.unpack_from(data, at)
            files.append(term, data[at + HEADER.size : at + size])
            at += size
    files.close()
    for name in (*DATA, f"index/{0:020d}", "checkpoint"):
        assert (tmp_path / "dledger-n0" / name).read_bytes() == (LEDGER / name).read_bytes(), name
    assert (tmp_path / "dledger-n0" / "currterm").read_text() == "voteLeader=\ncurrTerm=0\n"


def test_entry_that_leaves_fewer_than_8_bytes_goes_into_the_next_file(tmp_path: Path) -> None:
    """Exactly 8 bytes may stay; padding is magic -1, the bytes that are left, and zeros."""
    files = ledger_files(tmp_path / "n")
    bodies = bytes(DATA_FILE - 8 - 48), b"x" * 100, b"y" * 829
    assert [files.append(0, body) for body in bodies] == [48, 1024 + 48, 2048 + 48]
    files.close()
    first, second = ((tmp_path / "n" / "data" / f"{n * 1024:020d}").read_bytes() for n in (0, 1))
    assert first[-8:] == struct.pack(">ii", -1, 8)
    assert second[148:156] == struct.pack(">ii", -1, 1024 - 148)
    assert not any(second[156:])


def test_entry_too_large_for_any_file_is_refused_before_a_write(tmp_path: Path) -> None:
    """Java's DLedger burns whole files for it and leaves a log that a restart cuts short."""
    files = ledger_files(tmp_path / "n")
    files.append(0, b"before")
    with pytest.raises(RecordTooLarge, match="entry 1 has 1,017 bytes"):
        files.append(0, bytes(DATA_FILE - 7 - 48))
    files.append(0, b"behind")
    files.close()
    assert sorted(path.name for path in (tmp_path / "n" / "data").iterdir()) == ["0" * 20]


def test_a_directory_with_a_log_is_not_written_over(tmp_path: Path) -> None:
    ledger_files(tmp_path / "n").close()
    with pytest.raises(PathError, match="has a log already"):
        ledger_files(tmp_path / "n")


@pytest.mark.parametrize(
    "name", ["", "a.b", "a/b", "..", "größe", "x" * 128, "TBW102", "rmq_sys_x"]
)
def test_topic_name_that_rocketmq_rejects_is_refused_with_a_remedy(name: str) -> None:
    with pytest.raises(ConfigError, match="--as"):
        check_topic_name(name)


def test_a_retry_topic_s_name_is_a_topic_name() -> None:
    assert check_topic_name("%RETRY%group_1-a") == "%RETRY%group_1-a"


def test_key_replaces_its_header_and_empty_headers_are_left_out() -> None:
    """A record with a key loses its own header KEYS."""
    headers: list[tuple[str, bytes | None]] = [("KEYS", b"h"), ("a", b"1"), ("a", b"2")]
    headers += [("b", b""), ("c", None)]
    message = RecordMessages("t").message(0, 0, 5, b"k1 k2", None, headers)
    assert message.property_map() == {"KEYS": "k1 k2", "a": "2"}
    assert message.body == b""


@pytest.mark.parametrize("value", [b"\xff\xfe", b"a\x01b", b"a\x02"])
def test_a_header_that_is_no_text_is_an_error_or_base64_where_asked_for(value: bytes) -> None:
    with pytest.raises(ConfigError, match=r"t-3, offset 9: header 'h' .*--base64"):
        RecordMessages("t").message(3, 9, 5, None, b"", [("h", value)])
    with pytest.raises(ConfigError, match="the key"):
        RecordMessages("t").message(3, 9, 5, value, b"")
    made: Callable[..., Message] = RecordMessages("t", as_base64=True).message
    assert list(made(3, 9, 5, value, b"", [("h", value)]).property_map()) == ["h_base64", "KEYS"]


def test_a_value_or_properties_too_large_for_a_message_are_named() -> None:
    maker = RecordMessages("t")
    with pytest.raises(RecordTooLarge, match="offset 1: a value of"):
        maker.message(0, 1, 5, None, bytes(MAX_BODY + 1))
    with pytest.raises(RecordTooLarge, match="offset 2: properties of"):
        maker.message(0, 2, 5, None, b"", [("h", b"x" * 33_000)])
    with pytest.raises(ConfigError, match="offset 3"):
        maker.message(0, 3, 5, None, b"", [("\x01", b"x")])
