"""Files that a RocketMQ 4.9.8 broker and DLedger 0.3.1.2 wrote: each part is what they put there,
and writing it again gives the same bytes."""

from __future__ import annotations

from typing import Any

import pytest

from dledger.rocketmq.columns.commit_log import column_batches
from dledger.rocketmq.format.checkpoint import StoreCheckpoint
from dledger.rocketmq.format.config_json import decode_config, encode_config
from dledger.rocketmq.format.consume_queue_unit import (
    ConsumeQueueUnit,
    decode_units,
    encode_units,
    sound_units,
)
from dledger.rocketmq.format.index_file import IndexFile
from dledger.rocketmq.format.message import Message, decode_message, encode_blank, encode_message
from dledger.rocketmq.format.properties import keys_of, tags_code
from dledger.rocketmq.format.scan import scan
from dledger.rocketmq.format.scanned_piece import PieceKind
from tests.rocketmq.made_logs import column, damage_of, golden, of_messages

LOGS = [
    ("dledger_data.bin", 0, 5),
    ("old_commitlog.bin", 0, 6),
    ("dledger_data_after_migration.bin", 65_536, 1),
]
CONFIGS = ("topics", "consumerOffset", "delayOffset", "subscriptionGroup", "consumerFilter")


def messages(data: bytes, start: int) -> dict[int, Message]:
    """Every message by its physical offset."""
    places = [piece.message_offset for piece in of_messages(scan(data, start))]
    return {place: decode_message(data, place - start) for place in places}


@pytest.mark.parametrize(("name", "start", "count"), LOGS)
def test_commit_log_of_a_broker_has_every_message_and_no_damage(
    name: str, start: int, count: int
) -> None:
    data = golden(name)
    pieces = list(scan(data, start))
    others = [p.kind for p in pieces if p not in of_messages(pieces)]
    assert others in ([PieceKind.UNUSED], [PieceKind.BLANK])
    found = messages(data, start)
    assert len(found) == count
    for place, message in found.items():
        assert message.physical_offset == place
        encoded = encode_message(message)
        assert encoded == data[place - start : place - start + len(encoded)]


@pytest.mark.parametrize(("name", "start", "count"), LOGS)
def test_columns_of_a_broker_have_what_its_messages_have(name: str, start: int, count: int) -> None:
    data = golden(name)
    batches, expected = list(column_batches(data, start)), messages(data, start)
    assert not damage_of(batches)
    names = ("physical_offset", "topic", "body", "message_id")
    assert list(zip(*(column(batches, name) for name in names), strict=True)) == [
        (place, m.topic, m.body, str(m.offset_id)) for place, m in expected.items()
    ]
    properties = [m.property_map() for m in expected.values()]
    assert [dict(one) for one in column(batches, "properties")] == properties
    assert len(properties) == count


def test_blank_at_the_end_of_an_upgraded_log_equals_the_brokers() -> None:
    data = golden("old_commitlog.bin")
    assert data[1206:1214] == encode_blank(65_536 - 1206)


def test_first_message_has_the_ids_hosts_and_keys_that_the_broker_gave_it() -> None:
    message = messages(golden("dledger_data.bin"), 0)[48]
    assert (message.topic, message.body) == ("TopicA", b"hello world")
    assert str(message.store_host) == "127.0.0.1:30911"
    assert str(message.offset_id) == "7F000001000078BF0000000000000030"
    assert keys_of(message.property_map()) == ["C0A80001000018B4AAC20000000000", "k1", "k2"]


def test_consume_queue_leads_to_the_messages_with_their_tags() -> None:
    data = golden("cq_TopicA_0.bin")
    assert encode_units(decode_units(data)) == data
    found = messages(golden("dledger_data.bin"), 0)
    units = sound_units(data)
    assert [(n, unit.physical_offset) for n, unit in units] == [(0, 48), (1, 284), (2, 1165)]
    for n, unit in units:
        message = found[unit.physical_offset]
        assert message.queue_offset == n
        assert unit.size == len(encode_message(message))
        assert unit.tags_code == tags_code(message.property_map().get("TAGS"))


def test_consume_queue_of_delayed_messages_has_their_time_of_delivery() -> None:
    data = golden("cq_SCHEDULE_2.bin")
    assert encode_units(decode_units(data)) == data
    ((_, unit),) = sound_units(data)
    assert unit == ConsumeQueueUnit(936, 181, 0x1A2000B1182)
    assert messages(golden("dledger_data.bin"), 0)[936].topic == "SCHEDULE_TOPIC_XXXX"


def test_index_file_finds_each_key_and_is_what_putting_the_same_keys_makes() -> None:
    data = golden("indexfile.bin")
    index = IndexFile(data, slots=100)
    assert index.check() == []
    assert index.lookup("TopicA", "k1") == [48]
    assert index.lookup("TopicA", "kd") == [1165]
    assert index.lookup("TopicA", "nothing") == []
    made = IndexFile.empty(100, 400)
    for place, message in messages(golden("dledger_data.bin"), 0).items():
        for key in keys_of(message.property_map()):
            assert made.put(message.topic, key, place, message.store_timestamp)
    assert made.encode() == data


def test_checkpoint_has_the_times_of_commit_log_and_queues() -> None:
    data = golden("checkpoint.bin")
    checkpoint = StoreCheckpoint.decode(data)
    assert checkpoint == StoreCheckpoint(0x1A2000B11CD, 0x1A2000B11CD)
    assert checkpoint.recovery_timestamp == 0x1A2000B11CD - 3000
    assert checkpoint.encode() == data


@pytest.mark.parametrize("name", CONFIGS)
def test_configuration_comes_out_as_the_broker_wrote_it(name: str) -> None:
    data = golden(f"{name}.json")
    assert encode_config(decode_config(data)) == data


FASTJSON = [
    ({"offsetTable": {}}, '{N>"offsetTable":{}N}'),
    ({"offsetTable": {1: 7, 18: 9, 3: 1}}, '{N>"offsetTable":{1:7,18:9,3:1N>}N}'),
    (
        {"k": {0: {"x": 1}, 1: {5: 6}, "z": 1, 2: [1]}},
        '{N>"k":{0:{N>>>"x":1N>>},1:{5:6N>>},N>>"z":1,2:[N>>>1N>>]N>}N}',
    ),
    (
        {"l": ["a", [1]], "el": [], "d": 1.5},
        '{N>"l":[N>>"a",N>>[N>>>1N>>]N>],N>"el":[],N>"d":1.5N}',
    ),
    (
        {"s": "\u00e4\u2028\u007f\u0001/\"\\\u001f'\\u001f"},
        '{N>"s":"\u00e4\\u2028\\u007F\\u0001/\\"\\\\\\u001F\'\\\\u001f"N}',
    ),
]
"""What fastjson 1.2.69 printed for these values, with N for a new line and > for a tab."""


@pytest.mark.parametrize(("value", "printed"), FASTJSON)
def test_configuration_has_the_line_breaks_and_escapes_of_fastjson(
    value: Any, printed: str
) -> None:
    assert encode_config(value).decode() == printed.replace("N", "\n").replace(">", "\t")
    assert decode_config(encode_config(value)) == value


def test_configuration_of_offsets_has_numbers_as_keys() -> None:
    assert decode_config(golden("consumerOffset.json")) == {"offsetTable": {"TopicA@CG": {0: 2}}}
