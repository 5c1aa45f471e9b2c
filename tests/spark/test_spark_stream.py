"""Streams with a real Spark and a real group: exactly once through failures, restarts and
replays."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from dledger import Client, EmbeddedGroup
from dledger.datasource.options.offsets import StreamOffset
from dledger.streaming.reader import LogStreamReader
from pyspark_dledger import DefaultSource
from tests.spark.conftest import Table, run

pytestmark = pytest.mark.spark


def append(client: Client, topic: str, first: int, last: int) -> None:
    client.append(topic, [str(i).encode() for i in range(first, last)])


def numbers(last: int) -> list[str]:
    return [str(i) for i in range(last)]


def test_a_stream_copies_a_topic_row_for_row_over_restarts(
    table: Any, topic: str, client: Client, checkpoint: str
) -> None:
    client.create_topic(topic)
    copy = f"{topic}-copy"
    for first in (0, 500):
        for i in range(first, first + 500, 100):
            append(client, topic, i, i + 100)
        query = table.copy(table.stream(topic, maxOffsetsPerTrigger=200), copy, checkpoint)
        assert [p.numInputRows for p in query.recentProgress if p.numInputRows] == [200, 200, 100]
    assert table.values(copy) == numbers(1000)
    times = table.read(topic).join(
        table.read(copy).selectExpr("offset", "timestamp AS copied"), "offset"
    )
    assert times.where("timestamp != copied").count() == 0


def test_a_batch_that_fails_after_its_writes_is_written_once_to_each_topic(
    table: Any, topic: str, client: Client, checkpoint: str
) -> None:
    """foreachBatch with two topics, and a third write to one of them under its own name."""
    client.create_topic(topic)
    append(client, topic, 0, 100)
    fail = [True]

    def write(frame: DataFrame, batch_id: int) -> None:
        table.write(frame.select("value"), f"{topic}-a")
        table.write(frame.select("value").where("offset < 10"), f"{topic}-b")
        table.write(frame.select("value").where("offset >= 10"), f"{topic}-b", txnId="rest")
        if fail.pop():
            raise RuntimeError("after the writes")

    source = table.stream(topic)
    with pytest.raises(StreamingQueryException):
        run(source.writeStream.foreachBatch(write), checkpoint)
    fail.append(False)
    run(source.writeStream.foreachBatch(write), checkpoint)
    assert table.values(f"{topic}-a") == numbers(100)
    assert table.values(f"{topic}-b") == numbers(100)


def copied(table: Any, topic: str, copy: str, checkpoint: str, **options: str) -> Any:
    """Copy what is new, as a user would start the same query again."""
    return table.copy(table.stream(topic).select("key", "value"), copy, checkpoint, **options)


def test_restored_older_checkpoint_is_an_error_without_silent_loss(
    table: Any, topic: str, client: Client, checkpoint: str
) -> None:
    client.create_topic(topic)
    copy = f"{topic}-copy"
    append(client, topic, 0, 10)
    copied(table, topic, copy, checkpoint)
    shutil.copytree(checkpoint, f"{checkpoint}-old")
    append(client, topic, 10, 20)
    copied(table, topic, copy, checkpoint)
    shutil.rmtree(checkpoint)
    shutil.copytree(f"{checkpoint}-old", checkpoint)
    append(client, topic, 20, 30)
    with pytest.raises(
        StreamingQueryException, match=r"with 10 rows, and now it has 20 rows.*onReplayMismatch"
    ):
        copied(table, topic, copy, checkpoint)
    assert table.values(copy) == numbers(20)
    copied(table, topic, copy, checkpoint, onReplayMismatch="keep")
    append(client, topic, 30, 40)
    copied(table, topic, copy, checkpoint)
    assert table.values(copy) == [*numbers(20), *(str(i) for i in range(30, 40))]


def test_checkpoint_restored_before_new_records_arrive_goes_on(
    table: Any, topic: str, client: Client, checkpoint: str
) -> None:
    """The batch of that number has the same rows: it is the replay that it looks like."""
    client.create_topic(topic)
    copy = f"{topic}-copy"
    append(client, topic, 0, 10)
    copied(table, topic, copy, checkpoint)
    shutil.copytree(checkpoint, f"{checkpoint}-old")
    append(client, topic, 10, 20)
    copied(table, topic, copy, checkpoint)
    copied(table, topic, copy, f"{checkpoint}-old")
    assert table.values(copy) == numbers(20)


def test_copied_checkpoint_with_another_target_topic_writes_all_rows(
    table: Any, topic: str, client: Client, checkpoint: str
) -> None:
    client.create_topic(topic)
    append(client, topic, 0, 10)
    copied(table, topic, f"{topic}-copy", checkpoint)
    shutil.copytree(checkpoint, f"{checkpoint}-fork")
    append(client, topic, 10, 20)
    copied(table, topic, f"{topic}-copy", checkpoint)
    query = copied(table, topic, f"{topic}-fork", f"{checkpoint}-fork")
    assert table.values(f"{topic}-copy") == numbers(20)
    assert table.values(f"{topic}-fork") == [str(i) for i in range(10, 20)]
    made = table.metadata("commits").where(f"array_contains(topics, '{topic}-fork')")
    rows = made.select("source", "query", "batch").collect()
    assert [tuple(row) for row in rows] == [("stream", str(query.id), 1)]


def test_two_writes_under_one_name_stop_the_query_and_swallow_nothing(
    table: Any, topic: str, client: Client, checkpoint: str
) -> None:
    client.create_topic(topic)
    append(client, topic, 0, 10)

    def write(frame: DataFrame, batch_id: int) -> None:
        table.write(frame.select("value"), f"{topic}-a")
        table.write(frame.select("value"), f"{topic}-a")

    with pytest.raises(StreamingQueryException, match="txnId"):
        run(table.stream(topic).writeStream.foreachBatch(write), checkpoint)
    assert table.values(f"{topic}-a") == numbers(10)


def test_a_stream_from_latest_loses_nothing_when_its_first_batch_fails(
    spark: SparkSession, table: Any, topic: str, client: Client, checkpoint: str
) -> None:
    """Spark asks for the first offset again after the failure; "latest" is behind the planned
    records by then. The source here plans its first batch only when there are records for it, which
    a busy topic does by chance."""

    class Busy(DefaultSource):
        @classmethod
        def name(cls) -> str:
            return "dledger_busy"

        def streamReader(self, schema: StructType) -> LogStreamReader:
            class Reader(LogStreamReader):
                def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
                    begin = StreamOffset.from_json(start).logs
                    while self.log.look(begin, begin, 500).offsets == begin:
                        pass
                    return super().latestOffset(start, limit)

            return Reader(self.options, schema)

    spark.dataSource.register(Busy)
    client.create_topic(topic)
    append(client, topic, 0, 1)
    seen: list[str] = []
    fail = [True]

    def collect(frame: DataFrame, batch_id: int) -> None:
        rows = [row.value.decode() for row in frame.collect()]
        if fail:
            fail.pop()
            raise RuntimeError("the first batch fails")
        seen.extend(rows)

    def feed(query: Any) -> None:
        while not query.awaitTermination(0.2):
            append(client, topic, 1, 2)

    source = spark.readStream.format("dledger_busy").option("subscribe", topic).load(table.path)
    first = (
        source.writeStream.foreachBatch(collect).option("checkpointLocation", checkpoint).start()
    )
    try:
        with pytest.raises(StreamingQueryException, match="the first batch fails"):
            feed(first)
    finally:
        first.stop()
    wrote = client.end_offsets(topic)[0]
    latest = table.stream(topic, startingOffsets="latest")
    run(latest.writeStream.foreachBatch(collect), checkpoint)
    planned = json.loads((Path(checkpoint) / "offsets" / "0").read_text().splitlines()[-1])
    assert planned["from"][topic]["0"] < planned["logs"][topic]["p"]["0"]
    assert len(seen) == wrote - planned["from"][topic]["0"]


def test_both_limits_of_a_batch_hold_and_the_backlog_is_read(
    table: Any, topic: str, client: Client, checkpoint: str
) -> None:
    client.create_topic(topic)
    for _ in range(10):
        client.append(topic, [b"x" * 1000] * 10)  # ten bodies of some 10 KiB
    source = table.stream(topic, maxOffsetsPerTrigger=45, maxBytesPerTrigger="35k")
    query = run(source.writeStream.format("noop"), checkpoint)
    rows = [p.numInputRows for p in query.recentProgress if p.numInputRows]
    assert sum(rows) == 100
    assert max(rows) == 30


def test_a_pattern_reads_topics_that_appear_under_the_running_query(
    spark: SparkSession, table: Any, topic: str, client: Client, checkpoint: str
) -> None:
    """And the rows of every batch are those between its offsets."""
    client.create_topic(f"{topic}-a")
    reader = spark.readStream.format("dledger").option("subscribePattern", f"{topic}-[a-c]")
    writer = reader.load(table.path).writeStream.format("memory").queryName("found")
    query = writer.option("checkpointLocation", checkpoint).start()
    try:
        query.processAllAvailable()
        for name in ("b", "d", "c"):
            client.create_topic(f"{topic}-{name}", 2)
            for partition in range(2):
                client.append(f"{topic}-{name}", [b"x"] * 5, partition=partition)
        append(client, f"{topic}-a", 0, 7)
        query.processAllAvailable()
        progress = query.recentProgress
    finally:
        query.stop()
    counts = spark.sql("SELECT topic, COUNT(*) FROM found GROUP BY topic").collect()
    assert sorted(map(tuple, counts)) == [(f"{topic}-a", 7), (f"{topic}-b", 10), (f"{topic}-c", 10)]
    assert sum(one.numInputRows for one in progress) == 27
    latest = json.loads(progress[-1].sources[0].latestOffset)
    assert {name: log["p"] for name, log in latest["logs"].items()} == {
        f"{topic}-a": {"0": 7},
        f"{topic}-b": {"0": 5, "1": 5},
        f"{topic}-c": {"0": 5, "1": 5},
    }


def test_a_checkpoint_of_a_topic_that_was_created_again_is_refused(
    table: Any, topic: str, client: Client, checkpoint: str
) -> None:
    client.create_topic(topic)
    append(client, topic, 0, 5)
    run(table.stream(topic).writeStream.format("noop"), checkpoint)
    client.delete_topic(topic)
    client.create_topic(topic)
    append(client, topic, 0, 9)
    with pytest.raises(StreamingQueryException, match="was deleted and created again"):
        run(table.stream(topic).writeStream.format("noop"), checkpoint)


def test_a_checkpoint_of_a_path_that_was_deleted_and_made_anew_is_refused(
    spark: SparkSession, tmp_path: Path, checkpoint: str
) -> None:
    path = tmp_path / "log"
    ids: list[str] = []
    for last in (5, 9):
        with EmbeddedGroup(path, replicas=1) as group, Client(group.bootstrap_servers) as client:
            client.create_topic("t")
            append(client, "t", 0, last)
            ids.append(client.lineage().group_id)
            writer = Table(spark, str(path)).stream("t").writeStream.format("noop")
            if last == 5:
                run(writer, checkpoint)
            else:
                with pytest.raises(
                    StreamingQueryException, match=f"of group {ids[0]}, and at .* is group {ids[1]}"
                ):
                    run(writer, checkpoint)
        shutil.rmtree(path)
    assert ids[0] != ids[1]


@pytest.mark.parametrize(
    ("mode", "message"),
    [
        pytest.param("complete", "a log only grows", id="complete: with what to write instead"),
        pytest.param(
            "update", "does not support Update mode", id="update: by Spark, as documented"
        ),
    ],
)
def test_an_output_mode_that_a_log_does_not_have_is_refused(
    table: Any, topic: str, client: Client, checkpoint: str, mode: str, message: str
) -> None:
    client.create_topic(topic)
    counts = table.stream(topic).groupBy("partition").count()
    values = counts.selectExpr("CAST(count AS STRING) AS value")
    with pytest.raises(StreamingQueryException, match=message):
        run(table.writer(values, "x").outputMode(mode), checkpoint)
