"""Queries for checkpoint_faults.py, run by a process of their own: ``python queries.py
classic|connect SERVERS``.

Each line of its standard input is a query as JSON, and each line of its standard output that begins
with ``answer`` says with which error it ended, or with none. `Desk` is the other end of it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from dledger.datasource.java import ensure_java

ANSWER = "answer "


class Desk:
    """A process that runs one query after the other; one that ends is started again."""

    def __init__(self, kind: str, servers: str, directory: Path) -> None:
        self._command = [sys.executable, str(Path(__file__)), kind, servers]
        self._log = directory / f"queries-{kind}.log"
        self._directory = directory
        self._process: subprocess.Popen[str] | None = None

    def run(self, asked: dict[str, Any], meanwhile: Callable[[], None] = lambda: None) -> str:
        """The error with which a query ended, or "" when it read all that was there. ``meanwhile``
        is called once it has been sent."""
        if self._process is None or self._process.poll() is not None:
            self._start()
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(asked) + "\n")
            self._process.stdin.flush()
        meanwhile()
        for line in self._process.stdout:
            if line.startswith(ANSWER):
                error: str = json.loads(line.removeprefix(ANSWER))
                # a session whose first look-up failed stays so
                if "DATA_SOURCE_NOT_FOUND" in error:
                    self.end()
                return error
        self.end()
        return f"the process of the queries has ended: {self.words()}"

    def said(self) -> str:
        """All that its processes have logged."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def words(self) -> str:
        return self.said()[-2000:]

    def end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            for pipe in (self._process.stdin, self._process.stdout):
                assert pipe is not None
                with suppress(BrokenPipeError):
                    pipe.close()
            self._process = None

    def _start(self) -> None:
        self.end()
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=self._directory,
            )


def make_session(kind: str) -> SparkSession:
    """A session of two cores, or a client of one over Spark Connect."""
    ensure_java()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder: Any = SparkSession.builder
    if kind == "connect":
        # Spark's way to let the server take a free port in place of 15002
        os.environ["SPARK_TESTING"] = "1"
    builder = builder.remote("local[2]") if kind == "connect" else builder.master("local[2]")
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "WARN",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(Path.cwd() / f"warehouse-{kind}"),
        "spark.python.unix.domain.socket.enabled": "true",
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    session: SparkSession = builder.getOrCreate()
    return session


def copy(frame: DataFrame, servers: str, asked: dict[str, Any]) -> Any:
    """A plain copy into a topic."""
    writer = frame.writeStream.format("dledger").option("dledger.bootstrap.servers", servers)
    return writer.option("topic", asked["topic"]).option("createTopic", "true")


def each_batch(frame: DataFrame, servers: str, asked: dict[str, Any]) -> Any:
    """A copy by foreachBatch, which fails behind its write while there is a file ``fail``."""

    def write(rows: DataFrame, batch: int) -> None:
        def save() -> None:
            if asked["thread"]:
                # makes the session the active one of this thread
                rows.sparkSession.createDataFrame([(1,)], "a int")
            writer = rows.write.format("dledger").option("dledger.bootstrap.servers", servers)
            writer = writer.option("topic", asked["topic"]).option("createTopic", "true")
            if asked["named"]:
                writer = writer.option("txnId", f"batch-{batch}")
            writer.mode("append").save()

        if asked["thread"]:
            in_thread(save)
        else:
            save()
        fail = Path(asked["fail"])
        if fail.exists():
            fail.unlink()
            raise RuntimeError("a failure behind the write")

    return frame.writeStream.foreachBatch(write)


def in_thread(action: Callable[[], None]) -> None:
    """In a plain thread, to its end; what it raises is raised here."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            action()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if raised:
        raise raised[0]


def run(spark: SparkSession, servers: str, asked: dict[str, Any]) -> None:
    """One query, to the end of what is there."""
    reader = spark.readStream.format("dledger").option("dledger.bootstrap.servers", servers)
    frame = (
        reader.option("startingOffsets", "earliest")
        .options(**asked["source"])
        .load()
        .select("key", "value")
    )
    stream = (each_batch if "fail" in asked else copy)(frame, servers, asked)
    query = (
        stream.option("checkpointLocation", asked["checkpoint"]).trigger(availableNow=True).start()
    )
    query.awaitTermination()


def main(kind: str, servers: str) -> None:
    spark = make_session(kind)
    for line in sys.stdin:
        error = ""
        try:
            run(spark, servers, json.loads(line))
        except Exception as raised:
            error = f"{type(raised).__name__}: {raised}"
        sys.stdout.write(f"{ANSWER}{json.dumps(error)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
