"""Several executors, each with its own processes, which die.

Speculation is on, but Spark never runs the second attempt of a task on the host of the first: what
it leads to is shown by test_spark_speculation.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import udf

from dledger import Client
from tests.spark.conftest import make_session, run

pytestmark = pytest.mark.spark


@pytest.fixture
def executors(last_session: None, tmp_path: Path) -> Iterator[SparkSession]:
    """Two executors on this machine; one that dies is replaced."""
    settings = {
        "spark.executorEnv.PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "spark.executor.extraJavaOptions": os.environ["SPARK_SUBMIT_OPTS"],
        "spark.speculation": "true",
    }
    session = make_session("local-cluster[2,1,1024]", tmp_path / "warehouse", **settings)
    yield session
    session.stop()


def dies_once(mark: Path) -> Callable[[int], int]:
    """Ends the executor that comes to number 50 first, JVM and all, in the middle of a task."""
    name = str(mark)

    def check(number: int) -> int:
        if number == 50 and not Path(name).exists():
            Path(name).touch()
            daemon = Path(f"/proc/{os.getppid()}/stat").read_text()
            os.kill(int(daemon.rpartition(")")[2].split()[1]), signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)
        return number

    return check


def test_writes_happen_once_when_an_executor_is_killed_during_each(
    executors: SparkSession, table: Any, topic: str, client: Client, tmp_path: Path
) -> None:
    """A batch write, then foreachBatch, both in one session, for starting it takes long."""
    number = udf(dies_once(tmp_path / "batch"), "bigint", useArrow=False)
    frame = executors.range(0, 400, 1, 4).select(number("id").cast("string").alias("value"))
    table.write(frame, topic, **{"createTopic.partitions": 2})
    expected = sorted(str(n) for n in range(400))
    assert (tmp_path / "batch").exists()
    assert sorted(table.values(topic)) == expected
    again = udf(dies_once(tmp_path / "stream"), "bigint", useArrow=False)

    def write(batch: DataFrame, batch_id: int) -> None:
        rows = batch.select(
            again(batch.value.cast("string").cast("bigint")).cast("string").alias("value")
        )
        table.write(rows, f"{topic}-copy")

    stream = table.stream(topic, minPartitions=4, groupId=f"{topic}-g")
    query = run(stream.writeStream.foreachBatch(write), tmp_path / "checkpoint")
    assert (tmp_path / "stream").exists()
    assert sum(one.numInputRows for one in query.recentProgress) == 400
    assert sorted(table.values(f"{topic}-copy")) == expected
