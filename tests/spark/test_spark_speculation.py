"""Speculation: Spark runs a slow task a second time while the first attempt still runs, and takes
whichever is ready.

It never does so on the host of the first attempt, so this is a cluster of its own, of two hosts:
127.0.0.2 and .3.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event
from typing import Any

import pyspark
import pytest
from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

from dledger.datasource.java import ensure_java
from tests.spark.conftest import make_session

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(sys.platform != "linux", reason="127.0.0.2 is no address there"),
]
HOSTS = ("127.0.0.2", "127.0.0.3")
JVM = os.environ["SPARK_SUBMIT_OPTS"]
SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.executor.extraJavaOptions": JVM,
    "spark.executor.memory": "512m",
    "spark.executorEnv.PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    "spark.cores.max": "2",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.speculation": "true",
    "spark.speculation.interval": "50ms",
    "spark.speculation.minTaskRuntime": "50ms",
    "spark.speculation.multiplier": "1.01",
    "spark.speculation.quantile": "0.25",
}
"""One core on each host, and a second attempt at once."""


def start(log: Path, kind: str, host: str, *words: str) -> subprocess.Popen[bytes]:
    """One of Spark's own daemons, with little memory."""
    command = [
        str(Path(pyspark.__file__).parent / "bin" / "spark-class"),
        f"org.apache.spark.deploy.{kind}",
        "--host",
        host,
        "--webui-port",
        "0",
        *words,
    ]
    settings = {
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_LOCAL_IP": host,
        "SPARK_DAEMON_JAVA_OPTS": f"{JVM} -Dspark.master.rest.enabled=false",
    }
    with log.open("wb") as out:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            env={**os.environ, **settings},
        )


def master_of(log: Path, timeout_s: float = 300) -> str:
    """Its address, once it listens."""
    deadline = time.monotonic() + timeout_s
    while not (found := re.search(r"Starting Spark master at (spark://\S+)", log.read_text())):
        assert time.monotonic() < deadline, log.read_text()
        Event().wait(0.05)
    return found[1]


@pytest.fixture
def two_hosts(last_session: None, tmp_path: Path) -> Iterator[SparkSession]:
    """An executor with one core on each host, and a scheduler that runs slow tasks again at
    once."""
    ensure_java()
    log = tmp_path / "master.log"
    daemons = [start(log, "master.Master", "127.0.0.1", "--port", "0")]
    try:
        master, small = master_of(log), "--cores 1 --memory 1g --work-dir"
        daemons += [
            start(tmp_path / f"{host}.log", "worker.Worker", host, *small.split(), place, master)
            for host, place in ((host, str(tmp_path / host)) for host in HOSTS)
        ]
        session = make_session(master, tmp_path / "warehouse", **SETTINGS)
        yield session
        session.stop()
    finally:
        for one in reversed(daemons):
            one.terminate()
            one.wait()


def waits_once(folder: Path) -> Callable[[int], int]:
    """The first attempt that comes to number 99 goes on when a second one has come there too."""
    folder.mkdir()
    name = str(folder)

    def check(number: int) -> int:
        if number == 99:
            context: Any = TaskContext.get()
            Path(name, str(context.attemptNumber())).touch()
            while context.attemptNumber() == 0 and not Path(name, "1").exists():
                Event().wait(0.01)
        return number

    return check


def test_what_two_attempts_of_a_task_write_at_once_is_there_once(
    two_hosts: SparkSession, table: Any, topic: str, tmp_path: Path
) -> None:
    """A batch write and a stream, both in one session, for starting it takes long."""
    expected = sorted(str(number) for number in range(400))
    number = udf(waits_once(tmp_path / "batch"), "bigint", useArrow=False)
    table.write(
        two_hosts.range(0, 400, 1, 4).select(number("id").cast("string").alias("value")), topic
    )
    assert (tmp_path / "batch" / "1").exists()
    assert sorted(table.values(topic)) == expected
    again = udf(waits_once(tmp_path / "stream"), "bigint", useArrow=False)
    rows = table.stream(topic, minPartitions=4)
    rows = rows.select(
        again(rows.value.cast("string").cast("bigint")).cast("string").alias("value")
    )
    query = table.copy(rows, f"{topic}-copy", tmp_path / "checkpoint")
    assert (tmp_path / "stream" / "1").exists()
    assert sum(one.numInputRows for one in query.recentProgress) == 400
    assert sorted(table.values(f"{topic}-copy")) == expected
