"""Batches that nobody can open never make a partition unreadable: each reader names them, or goes
on behind them."""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dledger.client import AsyncClient, Client
from dledger.client.protocol.appending import send
from dledger.client.protocol.consuming.partitions import HeldPartition
from dledger.client.protocol.reading.damage import DamagePolicy
from dledger.datasource.read.reader import LogReader
from dledger.datasource.read.reading import schema_of_table
from dledger.errors import ConfigError, CorruptEntry, UnreadableBatch
from dledger.protocol.messages.client import TopicInfo
from dledger.records.body.header import Flag, decode_header, encode_header
from dledger.streaming.reader import LogStreamReader
from dledger.testing import InProcessGroup
from tests.cli.commands import run
from tests.client.poisons import (
    COUNT,
    RAW,
    TYPED,
    Poison,
    count_that_lies,
    no_arrow,
    rows_of_nothing,
)
from tests.datasource.hops import rows_of
from tests.streaming.stream_engine import Engine

BEGIN, END = 2, 2 + COUNT
"""The offsets of the poison."""
SOUND = [0, 1, END, END + 1]
COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())])
GROUPS = itertools.count()


@pytest.fixture(scope="module")
def nodes() -> Iterator[InProcessGroup]:
    with InProcessGroup(1, max_body_bytes=16 << 20, segment_bytes=64 << 20) as group:
        yield group


@pytest.fixture(scope="module")
def client(nodes: InProcessGroup) -> Iterator[Client]:
    with nodes.client() as made:
        yield made


def poison(client: Client, topic: str, body: Poison) -> None:
    """Appended as by a client that checks nothing."""
    header, payload = body
    there = replace(decode_header(header), topic_id=client.topic(topic).topic_id)
    client._run(send(client.core, topic, encode_header(there), payload))


@pytest.fixture(scope="module")
def poisoned(client: Client) -> Callable[[str], str]:
    """Topics with two sound records, a poison of five, and two sound ones; each as a node of an
    earlier release has taken it."""

    made_topics: dict[str, str] = {}

    def topic(kind: str) -> str:
        if kind in made_topics:
            return made_topics[kind]
        name = made_topics[kind] = kind.replace(" ", "-")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("dledger.node.proposals.proposal.check_sizes", lambda *_: None)
            if kind in RAW:
                client.create_topic(name)
                client.append(name, [b"0", b"1"])
                poison(client, name, RAW[kind]())
                client.append(name, [b"%d" % END, b"%d" % (END + 1)])
            else:
                client.create_topic(name, schema=COLUMNS)
                client.append(name, [{"id": 0, "name": "a"}, {"id": 1, "name": "b"}])
                poison(client, name, TYPED[kind]())
                client.append(name, [{"id": at, "name": "c"} for at in (END, END + 1)])
        return name

    return topic


# --- the readers: each gives the offsets of the records, and holds them against their values ------


def placed(rows: list[dict[str, Any]]) -> list[int]:
    """The offsets of rows whose values say them."""
    for row in rows:
        value = row["id"] if "id" in row else int(row["value"])
        assert value == row["offset"]
    return [row["offset"] for row in rows]


def by_read(client: Client, topic: str, on_damage: str) -> list[int]:
    batches = client.read(topic, 0, 0, with_metadata=True, on_damage=on_damage)
    return placed([row for batch in batches for row in batch.to_pylist()])


def by_read_as_json(client: Client, topic: str, on_damage: str) -> list[int]:
    batches = client.read(topic, 0, 0, value_format="json", on_damage=on_damage)
    return [row["offset"] for batch in batches for row in batch.to_pylist()]


def by_table(client: Client, topic: str, on_damage: str) -> list[int]:
    return placed(client.table(topic, on_damage=on_damage).to_pylist())


def by_scan(client: Client, topic: str, on_damage: str) -> list[int]:
    with client.scan(topic, on_damage=on_damage) as batches:
        return placed([row for batch in batches for row in batch.to_pylist()])


def by_asyncio(client: Client, topic: str, on_damage: str) -> list[int]:
    async def read() -> list[int]:
        async with AsyncClient(client.bootstrap_servers) as asking:
            table = await asking.table(topic, on_damage=on_damage)
            batches = asking.read(topic, 0, 0, with_metadata=True, on_damage=on_damage)
            rows = [row async for batch in batches for row in batch.to_pylist()]
        assert placed(rows) == placed(table.to_pylist())
        return placed(rows)

    return asyncio.run(read())


def by_consumer(client: Client, topic: str, on_damage: str) -> list[int]:
    name = f"g{next(GROUPS)}"
    found: list[int] = []
    with client.consumer(name, [topic], on_damage=on_damage) as consumer:
        while len(found) < len(SOUND):
            found += [one.offset for one in consumer.poll(20)]
        consumer.commit()
    assert client.group(name).offsets == {topic: {0: END + 2}}
    return found


def by_consumer_in_batches(client: Client, topic: str, on_damage: str) -> list[int]:
    rows: list[dict[str, Any]] = []
    with client.consumer(f"g{next(GROUPS)}", [topic], on_damage=on_damage) as consumer:
        for batch in consumer.batches():
            rows += batch.to_pylist()
            if len(rows) >= len(SOUND):
                break
    return placed(rows)


def by_tail(client: Client, topic: str, on_damage: str) -> list[int]:
    done = run(
        f"tail {topic} --from earliest --json --on-damage {on_damage} -b {client.bootstrap_servers}"
    )
    if done.exit_code:
        assert done.exit_code == 2, done.output
        assert f"--on-damage skip, or --partition 0 --from {END}" in done.stderr
        raise UnreadableBatch(done.stderr, "", topic=topic, partition=0, begin=BEGIN, end=END)
    return [json.loads(line)["offset"] for line in done.stdout.splitlines()]


def _spark(client: Client, topic: str, on_damage: str) -> dict[str, str]:
    typed = {"includeMetadata": "true"} if client.topic(topic).typed else {}
    return {
        "dledger.bootstrap.servers": client.bootstrap_servers,
        "subscribe": topic,
        "startingOffsets": "earliest",
        "onDamage": on_damage,
        **typed,
    }


def _with_offset(rows: list[dict[str, Any]]) -> list[int]:
    return placed([{**row, "offset": row.get("_record", row)["offset"]} for row in rows])


def by_spark(client: Client, topic: str, on_damage: str) -> list[int]:
    options = _spark(client, topic, on_damage)
    reader = LogReader(options, schema_of_table(options))
    return _with_offset(rows_of(reader, reader.partitions()))


def by_spark_stream(client: Client, topic: str, on_damage: str) -> list[int]:
    options = _spark(client, topic, on_damage)
    query = Engine(LogStreamReader, options, schema_of_table(options))
    while query.trigger():
        pass
    return _with_offset([row for rows in query.sink.values() for row in rows])


READERS = (
    by_read, by_read_as_json, by_table, by_scan, by_asyncio, by_consumer, by_consumer_in_batches,
    by_tail, by_spark, by_spark_stream,
)  # fmt: skip
Reader = Callable[[Client, str, str], list[int]]
each_reader = pytest.mark.parametrize("reader", READERS, ids=lambda one: one.__name__)


@each_reader
@pytest.mark.parametrize("kind", [*RAW, *TYPED])
def test_reader_goes_on_behind_records_that_nobody_can_open(
    client: Client, poisoned: Any, kind: str, reader: Reader
) -> None:
    assert reader(client, poisoned(kind), "skip") == SOUND


@each_reader
@pytest.mark.parametrize("kind", [*RAW, *TYPED])
def test_reader_names_records_that_nobody_can_open_and_the_way_out(
    client: Client, poisoned: Any, kind: str, reader: Reader
) -> None:
    topic = poisoned(kind)
    with pytest.raises(UnreadableBatch) as caught:
        reader(client, topic, "fail")
    assert f"topic {topic!r} partition 0: the records of offsets [2, 7) cannot be" in str(
        caught.value
    )
    assert "skip" in str(caught.value)
    assert (caught.value.begin, caught.value.end) == (BEGIN, END)


# --- consumers ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["no arrow", "text"])
def test_consumer_hands_out_what_is_before_and_goes_on_where_it_is_told(
    client: Client, poisoned: Any, kind: str
) -> None:
    """All five batches come in one answer: nothing of it is lost, and nothing comes twice."""
    topic = poisoned(kind)
    found: list[int] = []
    with client.consumer(f"g{next(GROUPS)}", [topic]) as consumer:

        def take(most: int) -> None:
            while len(found) < most and (records := consumer.poll(20)):
                found.extend(one.offset for one in records)

        for _ in range(2):
            with pytest.raises(UnreadableBatch, match=rf"seek\('{topic}', 0, {END}\)"):
                take(len(SOUND))
            assert consumer.position() == {(topic, 0): BEGIN}
        consumer.seek(topic, 0, END)
        take(len(SOUND))
    assert found == SOUND


def test_nothing_behind_such_records_comes_before_the_program_is_told(
    client: Client,
) -> None:
    """Each batch is an answer by itself."""
    client.create_topic("large")
    client.append("large", bytes(70_000))
    header, payload = no_arrow()
    poison(client, "large", (header, payload * 70))
    client.append("large", bytes(70_000))
    with client.consumer("large", ["large"], max_bytes=1) as consumer:
        assert [one.offset for one in consumer.poll(20)] == [0]
        with pytest.raises(UnreadableBatch):
            consumer.poll(20)
        consumer.seek("large", 0, 1 + COUNT)
        assert [one.offset for one in consumer.poll(20)] == [1 + COUNT]
    with client.consumer("large-too", ["large"], max_bytes=1, on_damage="skip") as consumer:
        found = [one.offset for _ in range(2) for one in consumer.poll(20)]
    assert found == [0, 1 + COUNT]


def test_nothing_is_fetched_behind_such_records_before_they_are_told() -> None:
    def batches() -> Iterator[tuple[pa.RecordBatch, int]]:
        yield pa.record_batch({"value": [b"a", b"b"]}), 2
        raise CorruptEntry("no records")

    held = HeldPartition(
        TopicInfo(name="t", topic_id=1, log_id="", partitions=1), 0, since=0, position=0
    )
    held.put(batches())
    assert held.is_ready
    held.handed_out(2)
    assert (held.position, held.is_ready, held.wants_more) == (2, False, False)
    held.begin_anew()
    assert held.wants_more


def test_paused_partition_tells_of_no_records_that_cannot_be_opened(
    client: Client, poisoned: Any
) -> None:
    topic = poisoned("no arrow")
    with client.consumer(f"g{next(GROUPS)}", [topic]) as consumer:
        first = consumer.poll(20, max_records=1)
        consumer.pause()
        assert consumer.poll(0.2) == []
        consumer.resume()
        first += consumer.poll(20)
        assert [one.offset for one in first] == [0, 1]
        consumer.pause()
        assert consumer.poll(0.2) == []
        consumer.resume()
        with pytest.raises(UnreadableBatch):
            consumer.poll(20)


def test_consumer_commits_behind_records_at_the_end_that_are_left_out(client: Client) -> None:
    client.create_topic("trailing")
    client.append("trailing", [b"0", b"1"])
    poison(client, "trailing", count_that_lies())
    with client.consumer("trailing", ["trailing"], on_damage="skip") as consumer:
        assert [one.offset for one in consumer.poll(20)] == [0, 1]
        for _ in range(100):
            assert consumer.poll(0.1) == []
            if consumer.position() == {("trailing", 0): END}:
                break
        consumer.commit()
    assert client.group("trailing").offsets == {"trailing": {0: END}}


def test_row_that_python_has_no_value_for_is_the_only_one_left_out(client: Client) -> None:
    client.create_topic("far")
    far = (1 << 62, -(1 << 62))
    client.append(
        "far", [b"%d" % at for at in range(9)], timestamps=[1, 2, 3, far[0], 5, 6, 7, far[1], 9]
    )
    found = []
    with client.consumer("far", ["far"], on_damage="skip") as consumer:
        while len(found) < 7:
            found += [int(one.value) for one in consumer.poll(20)]
    assert found == [0, 1, 2, 4, 5, 6, 8]
    with client.consumer("far-too", ["far"]) as consumer:
        records = [next(consumer) for _ in range(3)]
        assert [one.offset for one in records] == [0, 1, 2]
        with pytest.raises(UnreadableBatch, match=r"offsets \[3, 4\) .* batches\(\) gives it"):
            next(consumer)
        assert next(consumer.batches()).column("value").to_pylist()[0] == b"3"


# --- what is told ---------------------------------------------------------------------------------


def test_what_is_left_out_is_told_once_and_counted(
    client: Client, poisoned: Any, caplog: pytest.LogCaptureFixture
) -> None:
    topic = poisoned("count that lies")
    with caplog.at_level(logging.WARNING):
        reader = client.read(topic, 0, 0, on_damage="skip")
        assert [batch.num_rows for batch in reader] == [2, 2]
    (told,) = [one.getMessage() for one in caplog.records if "left out" in one.getMessage()]
    assert "offsets [2, 7) cannot be read: the payload is no batch of records: the header" in told
    assert "These 5 are left out because on_damage is skip (5 records in 1 batches so far)" in told


def test_reader_that_begins_anew_tells_of_the_same_records_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    damage = DamagePolicy("t", 0, "skip")
    for start in (2, 2, 9, 2):
        damage.met(start, start + 5, CorruptEntry("no records"))
    assert (damage.batches, damage.records, len(caplog.records)) == (2, 10, 2)


def test_option_is_fail_or_skip(client: Client, poisoned: Any) -> None:
    topic = poisoned("no arrow")
    wrong: list[Callable[[], Any]] = [
        lambda: client.read(topic, 0, 0, on_damage="ignore"),
        lambda: client.table(topic, on_damage="ignore"),
        lambda: client.consumer("g", [topic], on_damage="ignore"),
    ]
    for call in wrong:
        with pytest.raises(ConfigError, match="on_damage is 'fail' or 'skip', not 'ignore'"):
            call()
    with pytest.raises(ConfigError, match="'onDamage' is 'ignore': write fail or skip"):
        by_spark(client, topic, "ignore")


def test_time_within_records_that_cannot_be_opened_is_found_at_their_start(client: Client) -> None:
    """Whoever reads from there is told of them."""
    client.create_topic("timed")
    client.append("timed", [b"0"], timestamps=1000)
    header, payload = count_that_lies()
    poison(
        client,
        "timed",
        (
            encode_header(
                replace(
                    decode_header(header),
                    first_time_us=2000,
                    last_time_us=3000,
                    flags=Flag.HAS_TIMES,
                )
            ),
            payload,
        ),
    )
    assert client.offsets_for_times("timed", 2500) == {0: 1}


# --- what a node refuses --------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["zstd bomb", "lz4 bomb", "bomb of many buffers"])
def test_bomb_that_says_its_size_is_not_taken(client: Client, kind: str) -> None:
    client.create_topic("clean", if_absent=True)
    with pytest.raises(ConfigError, match="decompressed it has over 268435456 bytes"):
        poison(client, "clean", RAW[kind]())
    assert client.end_offsets("clean") == {0: 0}


def test_more_records_than_a_reader_counts_are_not_taken(client: Client) -> None:
    client.create_topic("void", schema=pa.schema([("v", pa.null())]), if_absent=True)
    with pytest.raises(ConfigError, match="67108865 records in a batch, which has 67108864"):
        poison(client, "void", rows_of_nothing())
    assert client.end_offsets("void") == {0: 0}


def test_export_names_records_that_nobody_can_open_and_a_way_it_has(
    nodes: InProcessGroup, poisoned: Callable[[str], str], tmp_path: Path
) -> None:
    topic = poisoned(next(iter(RAW)))
    words = f"--format rocketmq -b {nodes.bootstrap_servers} --topic {topic}"
    done = run(f"export {tmp_path}/store {words}")
    assert done.exit_code == 2
    assert f"the records of offsets [2, {END})" in done.stderr
    assert "copy the records to another topic" in done.stderr
    assert "To go on behind it" not in done.stderr  # the command has no such option
