"""What is made of a log: a unit and keys for each message that the rules give them to."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dledger.errors import FormatError
from dledger.rocketmq.dispatch.build_consume_queue import DELAY_LEVELS_MS, Dispatcher, Reput
from dledger.rocketmq.format.consume_queue_unit import ConsumeQueueUnit
from dledger.rocketmq.format.hosts import Host
from dledger.rocketmq.format.message import (
    Message,
    SysFlag,
    encode_blank,
    encode_dledger_blank,
    message_size,
)
from dledger.rocketmq.format.properties import java_hash
from dledger.rocketmq.store.consume_queues import ConsumeQueues
from dledger.rocketmq.store.index_service import IndexService
from tests.rocketmq.made_logs import files, make_log, some

V6 = Host.of("fd00::7", 40001)


@pytest.fixture
def queues(tmp_path: Path) -> ConsumeQueues:
    return ConsumeQueues(tmp_path / "consumequeue", 10)


@pytest.fixture
def index(tmp_path: Path) -> IndexService:
    return IndexService(tmp_path / "index", 16, units=100)


@pytest.mark.parametrize("entries", [False, True])
def test_each_message_has_its_unit_with_place_size_and_tags_code(
    queues: ConsumeQueues, index: IndexService, entries: bool
) -> None:
    messages = [replace(m, queue_offset=n // 8) for n, m in enumerate(some(24))]
    log = make_log(messages, entries=entries)
    assert Reput(queues, index, offset=0).dispatch(log, 0, 1 << 20) == len(log)
    at = 0
    for message in messages:
        at += 48 if entries else 0
        queue = queues.get(message.topic, message.queue_id)
        assert queue is not None
        tags = java_hash(message.property_map()["TAGS"])
        unit = ConsumeQueueUnit(at, message_size(message), tags)
        assert queue.units(message.queue_offset, 1)[0] == unit
        assert index.lookup(message.topic, message.property_map()["UNIQ_KEY"]) == [at]
        assert at in index.lookup(message.topic, "all")
        at += message_size(message)


def test_messages_of_both_versions_and_both_kinds_of_hosts_are_read(queues: ConsumeQueues) -> None:
    messages = [
        Message("t" * 300, b"x", version=2, born_host=V6, store_timestamp=5),
        Message("größe", b"", "", store_host=V6, store_timestamp=6),
        Message("t", b"y" * 300, born_host=V6, store_host=V6, store_timestamp=7),
    ]
    found, end = Dispatcher().requests(make_log(messages), 0, 1 << 20)
    read = [(one.topic, one.store_timestamp) for one in found]
    assert read == [("t" * 300, 5), ("größe", 6), ("t", 7)]
    assert end == sum(map(message_size, messages))


@pytest.mark.parametrize(
    ("flag", "in_queue", "in_index"),
    [(0, True, True), (0x4, False, True), (0x8, True, True), (0xC, False, False)],
)
def test_prepared_and_rolled_back_messages_are_in_no_queue(
    queues: ConsumeQueues, index: IndexService, flag: int, in_queue: bool, in_index: bool
) -> None:
    """A rolled back message is in no index either."""
    message = Message("t", b"x", "KEYS\x01k", sys_flag=flag, store_timestamp=1)
    Reput(queues, index, offset=0).dispatch(make_log([message]), 0, 1 << 20)
    assert (queues.get("t", 0) is not None) == in_queue
    assert index.lookup("t", "k") == ([0] if in_index else [])


@pytest.mark.parametrize(
    ("delay", "level"),
    [("3", 3), ("18", 18), ("99", 18), ("0", 0), ("-1", 0), ("x", 0), ("9" * 30, 0), ("", 0)],
)
def test_a_delayed_message_has_its_time_of_delivery_for_a_tags_code(
    queues: ConsumeQueues, delay: str, level: int
) -> None:
    properties = f"DELAY\x01{delay}\x02TAGS\x01a"
    message = Message("SCHEDULE_TOPIC_XXXX", b"", properties, queue_id=2, store_timestamp=1000)
    (found,), _ = Dispatcher().requests(make_log([message]), 0, 1 << 20)
    assert found.tags_code == (1000 + DELAY_LEVELS_MS[level - 1] if level else java_hash("a"))


def test_keys_are_the_unique_one_first_and_each_word_of_the_others() -> None:
    properties = ("KEYS\x01 a  b \x02UNIQ_KEY\x01u", "UNIQ_KEY\x01u", "KEYS\x01a", "")
    log = make_log(Message("t", b"", text) for text in properties)
    found, _ = Dispatcher().requests(log, 0, 1 << 20)
    assert [tuple(one.keys) for one in found] == [("u", "a", "b"), ("u",), ("a",), ()]


@pytest.mark.parametrize("entries", [False, True])
def test_a_blank_leads_to_the_next_file_however_short_it_is(
    queues: ConsumeQueues, entries: bool
) -> None:
    blank = encode_dledger_blank if entries else encode_blank
    for room in (8, 9, 47, 48, 90, 91, 200):
        log = make_log(some(1), entries=entries)
        found, end = Dispatcher().requests(log + blank(room), 0, len(log) + room)
        assert (len(found), end) == (1, len(log) + room)


def test_bytes_are_dispatched_again_from_anywhere_without_a_change(
    queues: ConsumeQueues, index: IndexService
) -> None:
    messages = [replace(m, queue_offset=n // 8) for n, m in enumerate(some(24))]
    log = make_log(messages)
    reput = Reput(queues, index, offset=0)
    reput.dispatch(log, 0, 1 << 20)
    before = files(queues.root.parent)
    reput.dispatch(log, 0, 1 << 20)
    at = 0
    for message in messages:
        Reput(queues, index, offset=at).dispatch(log[at:], at, 1 << 20)
        at += message_size(message)
    assert files(queues.root.parent) == before


@pytest.mark.parametrize("place", [0, 3, 4, 28, 35, 84, 100])
def test_damage_is_named_after_what_is_before_it_has_been_put(
    queues: ConsumeQueues, place: int
) -> None:
    messages = some(3)
    log = bytearray(make_log(messages))
    second = message_size(messages[0])
    log[second + place] ^= 0x41
    dispatcher = Dispatcher(check=True)
    reput = Reput(queues, None, offset=0, dispatcher=dispatcher)
    assert reput.dispatch(log, 0, len(log)) == second
    with pytest.raises(FormatError, match=f"byte {second:,}: "):
        reput.dispatch(log, 0, len(log))
    assert queues.max_physical == second


def test_bytes_that_leave_something_out_are_refused(queues: ConsumeQueues) -> None:
    with pytest.raises(ValueError, match="come first"):
        Reput(queues, None, offset=0).dispatch(make_log(some(1)), 10, 1 << 20)


def test_zeros_are_where_the_log_goes_on(queues: ConsumeQueues) -> None:
    log, reput = make_log(some(1)), Reput(queues, None, offset=0)
    assert reput.dispatch(log + bytes(500), 0, 1 << 20) == len(log)
    assert reput.dispatch(log + bytes(500), 0, 1 << 20) == len(log)


def test_a_topic_that_leads_elsewhere_is_an_error(queues: ConsumeQueues) -> None:
    with pytest.raises(FormatError, match="cannot be the name of a folder"):
        Reput(queues, None, offset=0).dispatch(make_log([Message("../../x", b"")]), 0, 1 << 20)
    assert not queues.root.exists()


def test_compressed_bodies_are_of_no_concern(queues: ConsumeQueues) -> None:
    log = make_log([Message("t", b"not zlib", sys_flag=int(SysFlag.COMPRESSED))])
    assert Reput(queues, None, offset=0).dispatch(log, 0, 1 << 20) == len(log)
