"""Messages, properties, ids, batches, index and configuration, each on its own."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dledger.errors import FormatError
from dledger.rocketmq.format.compression import compress, compression_flags, unpack
from dledger.rocketmq.format.config_json import decode_config, encode_config
from dledger.rocketmq.format.consume_queue_unit import (
    FILLER,
    ConsumeQueueUnit,
    encode_units,
    sound_units,
)
from dledger.rocketmq.format.hosts import Host, OffsetId, UniqueId
from dledger.rocketmq.format.index_file import IndexFile, key_hash
from dledger.rocketmq.format.message import (
    Compression,
    Message,
    TransactionType,
    decode_message,
    encode_message,
    message_size,
)
from dledger.rocketmq.format.producer_batch import BatchItem, decode_batch, encode_batch
from dledger.rocketmq.format.properties import (
    format_properties,
    java_hash,
    keys_of,
    parse_properties,
    tags_code,
)
from tests.rocketmq.made_logs import FIVE


def test_message_of_any_kind_comes_back_as_it_was() -> None:
    for message in FIVE:
        data = encode_message(message)
        assert len(data) == message_size(message)
        back = decode_message(data)
        assert encode_message(back) == data
        assert replace(back, body_crc=None, sys_flag=message.sys_flag) == message


@pytest.mark.parametrize("host", [Host.of("1.2.3.4", 5), Host.of("fd00::1", 5)])
@pytest.mark.parametrize("flag", [-1, -(1 << 31), -587_190_240, (1 << 31) - 1])
def test_bits_of_a_system_flag_that_nobody_knows_stay(flag: int, host: Host) -> None:
    message = Message("t", sys_flag=flag, born_host=host, store_host=host)
    back = decode_message(encode_message(message))
    assert back.sys_flag == (flag | 0x30 if host.is_v6 else flag & ~0x30)


def test_empty_message_has_91_bytes_and_12_more_per_ipv6_host() -> None:
    v6 = Host(bytes(16), 0)
    assert message_size(Message("")) == 91
    assert message_size(Message("", born_host=v6, store_host=v6, version=2)) == 116


@pytest.mark.parametrize(
    "message",
    [
        Message("t" * 128),
        Message("t", b"x" * 4_194_305),
        Message("t", b"", "p" * 32_768),
        Message("t", version=3),
    ],
)
def test_message_over_a_limit_is_refused(message: Message) -> None:
    with pytest.raises(ValueError):
        encode_message(message)


@pytest.mark.parametrize("state", TransactionType)
def test_transaction_state_is_in_two_bits_of_the_flag(state: TransactionType) -> None:
    for other in (0, 1, 0x13):
        assert Message("t", sys_flag=state | other).transaction is state


def test_damaged_body_can_be_had_without_the_check() -> None:
    data = bytearray(encode_message(FIVE[0]))
    data[88] ^= 1
    with pytest.raises(FormatError, match="CRC"):
        decode_message(data)
    assert decode_message(data, check=False).body == b"iello world"


@pytest.mark.parametrize(
    ("text", "code"),
    [("polygenelubricants", -(1 << 31)), ("tagA", 0x3633E7), ("", 0), ("𝄞", 1_772_394)],
)
def test_hash_is_the_one_of_java(text: str, code: int) -> None:
    """The first two stand in a broker's consume queue; the last has two UTF-16 units, D834 and
    DD1E."""
    assert java_hash(text) == code
    assert tags_code(text or None) == code


def test_key_hash_is_the_one_in_a_brokers_index_file() -> None:
    assert key_hash("TopicA", "k1") == 0x717125C9


def test_incomplete_properties_are_skipped_and_a_later_duplicate_counts() -> None:
    """A property without a name or without a value is incomplete."""
    text = "a\x011\x02b\x01\x02\x01x\x02c\x02a\x012\x02d\x01x\x01y"
    assert parse_properties(text) == {"a": "2", "d": "x\x01y"}


def test_properties_are_written_with_and_without_the_last_separator() -> None:
    assert format_properties({"a": "1", "b": "2"}) == "a\x011\x02b\x012"
    assert format_properties({"a": "1"}, trailing=True) == "a\x011\x02"
    with pytest.raises(ValueError, match="without the characters"):
        format_properties({"a": "1\x02"})


def test_keys_are_the_unique_one_and_then_each_word() -> None:
    assert keys_of({"KEYS": " k1  k2", "UNIQ_KEY": "u"}) == ["u", "k1", "k2"]
    assert keys_of({}) == []


def test_ids_say_host_and_place() -> None:
    id4 = OffsetId(Host.of("127.0.0.1", 30911), 48)
    assert str(id4) == "7F000001000078BF0000000000000030"
    id6 = OffsetId(Host.of("fd00::1", 10911), 1 << 40)
    assert len(str(id6)) == 56
    assert [OffsetId.parse(str(i)) for i in (id4, id6)] == [id4, id6]
    unique = UniqueId.parse("C0A800010000 18B4AAC2000000000007".replace(" ", ""))
    assert (unique.ip, unique.process, unique.counter) == (b"\xc0\xa8\0\1", 0, 7)
    for text in ("", "7F", "7F000001000078BF00000000000000 0", "x" * 32, "٣" * 32):
        with pytest.raises(FormatError):
            OffsetId.parse(text)


def test_producer_batch_comes_back_as_it_was() -> None:
    items = [BatchItem(b"one", "KEYS\x01a", 7), BatchItem(b"")]
    items.append(BatchItem(b"\0" * 100, "größe\x01x"))
    assert decode_batch(encode_batch(items)) == items
    with pytest.raises(FormatError, match="byte 31"):
        decode_batch(encode_batch(items[:1])[:-1] + b"x" + encode_batch(items[1:])[:21])


@pytest.mark.parametrize("kind", list(Compression))
def test_body_is_unpacked_up_to_a_limit(kind: Compression) -> None:
    body = b"z" * 100_000
    packed = compress(body, kind)
    message = Message("t", packed, sys_flag=compression_flags(kind))
    assert message.compression is kind
    assert unpack(packed, kind) == body
    if kind is not Compression.NONE:
        with pytest.raises(FormatError, match="more than 99,999"):
            unpack(packed, kind, limit=99_999)
        with pytest.raises(FormatError):
            unpack(packed[:-8], kind)


def test_body_compressed_in_a_way_nobody_knows_is_refused() -> None:
    with pytest.raises(FormatError, match="compression 5 is not known"):
        unpack(b"x", 5)


def test_queue_that_begins_above_zero_has_fillers_that_are_no_messages() -> None:
    one, two = ConsumeQueueUnit(100, 91, 5), ConsumeQueueUnit(191, 91, 6)
    behind = ConsumeQueueUnit(0, 0, 0), ConsumeQueueUnit(1, 1, 1)
    data = encode_units([FILLER, FILLER, one, two, *behind])
    assert sound_units(data, first_offset=1000) == [(1002, one), (1003, two)]


def test_index_chains_have_the_newest_first_and_stop_when_the_file_is_full() -> None:
    index = IndexFile.empty(slots=1, units=4)
    put = [index.put("T", "k", 10 * n, t) for n, t in enumerate((5_000, 7_500, 9_000, 9_001))]
    assert put == [True, True, True, False]
    assert (index.count, index.is_full, index.used_slots) == (4, True, 1)
    again = IndexFile(index.encode(), slots=1)
    assert again.lookup("T", "k") == [20, 10, 0]
    assert again.lookup("T", "k", begin=7_000, end=8_000) == [10]
    # a file knows whole seconds, and this is within one
    assert again.lookup("T", "k", begin=7_400, end=8_000) == [10]
    assert again.check() == []


def test_index_whose_chain_runs_in_a_circle_is_reported_and_not_followed() -> None:
    index = IndexFile.empty(slots=1, units=4)
    index.put("T", "k", 0, 5_000)
    data = bytearray(index.encode())
    data[40 + 4 + 20 + 19] = 1  # unit 1 leads on to itself
    index = IndexFile(data, slots=1)
    with pytest.raises(FormatError, match="older units only"):
        index.lookup("T", "k")
    assert len(index.check()) == 1


def test_index_of_another_size_is_refused() -> None:
    with pytest.raises(FormatError, match="cannot have 3 slots"):
        IndexFile(bytes(40 + 8), slots=3)


@pytest.mark.parametrize("text", ['{"a":{1:2,2:3}}', '{"a":{"1":2,"2":3}}'])
def test_configuration_is_read_with_and_without_quotes_around_numbers(text: str) -> None:
    value = decode_config(text.encode())
    assert {int(k): v for k, v in value["a"].items()} == {1: 2, 2: 3}
    assert decode_config(encode_config(value)) == value


NO_CONFIG = ["", "{", '{"a"}', '{"a":}', "[1,]", '{"a":1}x', "{1.5:2}", "tru", '"\\ud800"']


@pytest.mark.parametrize("text", [*NO_CONFIG, "[" * 1000, "\xff", "9" * 5000])
def test_configuration_that_is_none_is_refused_by_its_place(text: str) -> None:
    with pytest.raises(FormatError, match="configuration"):
        decode_config(text.encode("latin-1"))
