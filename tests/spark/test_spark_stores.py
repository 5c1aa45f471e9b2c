"""RocketMQ's and DLedger's files as tables and streams of a real Spark."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from tests.spark.conftest import run

pytestmark = pytest.mark.spark


def read(spark: SparkSession, path: Path, layout: str = "rocketmq", **options: str) -> DataFrame:
    return spark.read.format("dledger").options(layout=layout, **options).load(str(path))


def stream(spark: SparkSession, path: Path, **options: str) -> DataFrame:
    reader = spark.readStream.format("dledger").option("startingOffsets", "earliest")
    return reader.options(layout="rocketmq", **options).load(str(path))


def test_an_upgraded_store_is_a_table_in_dataframes_and_in_sql(
    spark: SparkSession, tmp_path: Path, stores: Any
) -> None:
    stores.upgraded(tmp_path / "store")
    table = read(spark, tmp_path / "store", minPartitions="5")
    assert table.count() == 100
    assert table.rdd.getNumPartitions() >= 5
    row = table.where("topic = 'payments' AND keys = 'k41'").first()
    assert row is not None
    assert (row.queueId, row.transaction, row.entryIndex) == (1, "none", 1)
    assert row.properties == {"KEYS": "k41", "TAGS": "t2"}
    assert bytes(row.body).rstrip(b".") == b"000041"
    assert row.storeTimestamp.astimezone(UTC) == datetime.fromtimestamp(
        stores.FIRST / 1000 + 41, UTC
    )
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
    entries = read(spark, stores.GOLDEN / "dledger_clean_n0", "dledger")
    assert [row.entryIndex for row in entries.orderBy("position").collect()] == list(range(6))


def test_a_stream_tails_a_store_over_restarts_and_an_upgrade(
    spark: SparkSession, tmp_path: Path, stores: Any, checkpoint: str
) -> None:
    plain = stores.Log(tmp_path / "store" / "commitlog", 4096)
    messages = stores.some(120)
    plain.append(messages[:30])

    def shown_keys() -> list[str]:
        keys = stream(spark, tmp_path / "store", maxBytesPerTrigger="3000").select("keys")
        run(keys.writeStream.format("parquet").option("path", str(tmp_path / "out")), checkpoint)
        shown = [row["keys"] for row in spark.read.parquet(str(tmp_path / "out")).collect()]
        return sorted(shown, key=lambda key: int(key[1:]))

    assert shown_keys() == [f"k{n}" for n in range(30)]
    plain.append(messages[30:50])
    plain.close()
    ledger = stores.Log(tmp_path / "store" / "dledger-n0" / "data", 4096, plain.end, entries=True)
    ledger.append(messages[50:])
    ledger.commit(39)
    assert shown_keys() == [f"k{n}" for n in range(90)]
    ledger.commit(69)
    assert shown_keys() == [f"k{n}" for n in range(120)]


def test_a_stream_ends_at_damage_and_says_where(
    spark: SparkSession, tmp_path: Path, stores: Any, checkpoint: str
) -> None:
    log = stores.Log(tmp_path / "commitlog", 4096)
    places = log.append(stores.some(20))
    log.write(places[3] + 100, b"!")
    with pytest.raises(
        StreamingQueryException, match=f"bytes {places[3]} to {places[4]} of the log are damaged"
    ):
        run(stream(spark, tmp_path).writeStream.format("noop"), checkpoint)
