"""RocketMQ's and DLedger's files as tables and streams of a real Spark."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


def read(spark: SparkSession, path: Path, **options: str) -> DataFrame:
    return spark.read.format("dledger").options(layout="rocketmq", **options).load(str(path))


def test_an_upgraded_store_is_a_table_in_dataframes_and_in_sql(
    spark: SparkSession, tmp_path: Path, stores: Any
) -> None:
    stores.upgraded(tmp_path / "store")
    table = read(spark, tmp_path / "store", minPartitions="5")
    assert table.count() == 100
    assert table.rdd.getNumPartitions() >= 5
    row = table.where("topic = 'payments' AND keys = 'k41'").first()
    assert row is not None
    assert (row.queueId, row.properties, row.transaction) == (
        1,
        {"KEYS": "k41", "TAGS": "t2"},
        "none",
    )
    assert bytes(row.body).rstrip(b".") == b"000041"
    assert row.storeTimestamp.astimezone(UTC) == datetime.fromtimestamp(
        stores.FIRST / 1000 + 41, UTC
    )
    assert row.entryIndex == 1
    spark.sql(
        f"CREATE TABLE old_messages USING dledger OPTIONS (path '{tmp_path}/store', layout "
        f"'rocketmq')"
    )
    try:
        counted = spark.sql(
            "SELECT tags, count(*) FROM old_messages GROUP BY tags ORDER BY tags"
        ).collect()
        assert [tuple(one) for one in counted] == [("t0", 34), ("t1", 33), ("t2", 33)]
    finally:
        spark.sql("DROP TABLE old_messages")


def test_columns_are_chosen_by_a_schema_and_damage_is_named_or_left_out(
    spark: SparkSession, tmp_path: Path, stores: Any
) -> None:
    log = stores.Log(tmp_path / "commitlog", 4096)
    places = log.append(stores.some(50))
    log.write(places[7] + 100, b"!")
    with pytest.raises(
        PySparkException, match=f"bytes {places[7]} to {places[8]} of the log are damaged"
    ):
        read(spark, tmp_path).count()
    narrow = spark.read.format("dledger").options(
        layout="rocketmq", onDamage="skip", subscribe="orders"
    )
    frame = narrow.schema("physicalOffset BIGINT, topic STRING").load(str(tmp_path))
    assert [tuple(row) for row in frame.orderBy("physicalOffset").collect()] == [
        (p, "orders") for p in places[::2]
    ]
    (damage,) = read(spark, tmp_path, metadata="damage").collect()
    assert (damage.start, damage.end, damage.kind) == (places[7], places[8], "damage")


def test_a_node_of_dledger_is_a_table_of_entries(spark: SparkSession, stores: Any) -> None:
    entries = (
        spark.read.format("dledger")
        .option("layout", "dledger")
        .load(str(stores.GOLDEN / "dledger_clean_n0"))
    )
    assert [row.entryIndex for row in entries.orderBy("position").collect()] == list(range(6))


def test_a_stream_tails_a_store_over_restarts_and_an_upgrade(
    spark: SparkSession, tmp_path: Path, stores: Any, checkpoint: str
) -> None:
    plain = stores.Log(tmp_path / "store" / "commitlog", 4096)
    messages = stores.some(120)
    plain.append(messages[:30])

    def run() -> list[str]:
        source = spark.readStream.format("dledger").options(
            layout="rocketmq", startingOffsets="earliest", maxBytesPerTrigger="3000"
        )
        writer = source.load(str(tmp_path / "store")).select("keys").writeStream.format("parquet")
        query = writer.options(checkpointLocation=checkpoint, path=str(tmp_path / "out")).trigger(
            availableNow=True
        )
        query.start().awaitTermination()
        shown = [row["keys"] for row in spark.read.parquet(str(tmp_path / "out")).collect()]
        return sorted(shown, key=lambda key: int(key[1:]))

    assert run() == [f"k{n}" for n in range(30)]
    plain.append(messages[30:50])
    plain.close()
    ledger = stores.Log(tmp_path / "store" / "dledger-n0" / "data", 4096, plain.end, entries=True)
    ledger.append(messages[50:])
    ledger.commit(39)
    assert run() == [f"k{n}" for n in range(90)]
    ledger.commit(69)
    assert run() == [f"k{n}" for n in range(120)]


def test_a_stream_ends_at_damage_and_says_where(
    spark: SparkSession, tmp_path: Path, stores: Any, checkpoint: str
) -> None:
    log = stores.Log(tmp_path / "commitlog", 4096)
    places = log.append(stores.some(20))
    log.write(places[3] + 100, b"!")
    source = spark.readStream.format("dledger").options(
        layout="rocketmq", startingOffsets="earliest"
    )
    writer = (
        source.load(str(tmp_path))
        .writeStream.format("noop")
        .option("checkpointLocation", checkpoint)
    )
    query = writer.trigger(availableNow=True).start()
    with pytest.raises(
        StreamingQueryException, match=f"bytes {places[3]} to {places[4]} of the log are damaged"
    ):
        query.awaitTermination()
