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
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from examples.session import spark_session

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
    builder = SparkSession.builder.master("local[2]")
    if kind == "connect":
        # Spark's way to let the server take a free port in place of 15002
        os.environ["SPARK_TESTING"] = "1"
        builder = SparkSession.builder.remote("local[2]")
    warehouse = str(Path.cwd() / f"warehouse-{kind}")
    settings = {"spark.log.level": "WARN", "spark.sql.warehouse.dir": warehouse}
    return spark_session("queries", builder, **settings)


def target(servers: str, asked: dict[str, Any]) -> dict[str, str]:
    """The options of a write."""
    topic: str = asked["topic"]
    return {"dledger.bootstrap.servers": servers, "topic": topic, "createTopic": "true"}


def copy(frame: DataFrame, servers: str, asked: dict[str, Any]) -> Any:
    """A plain copy into a topic."""
    return frame.writeStream.format("dledger").options(**target(servers, asked))


def each_batch(frame: DataFrame, servers: str, asked: dict[str, Any]) -> Any:
    """A copy by foreachBatch, which fails behind its write while there is a file ``fail``."""

    def write(rows: DataFrame, batch: int) -> None:
        named = {"txnId": f"batch-{batch}"} if asked["named"] else {}

        def save() -> None:
            if asked["thread"]:
                # makes the session the active one of this thread
                rows.sparkSession.createDataFrame([(1,)], "a int")
            writer = rows.write.format("dledger").options(**target(servers, asked), **named)
            writer.mode("append").save()

        if asked["thread"]:
            with ThreadPoolExecutor(1) as pool:
                pool.submit(save).result()
        else:
            save()
        fail = Path(asked["fail"])
        if fail.exists():
            fail.unlink()
            raise RuntimeError("a failure behind the write")

    return frame.writeStream.foreachBatch(write)


def run(spark: SparkSession, servers: str, asked: dict[str, Any]) -> None:
    """One query, to the end of what is there."""
    source = {"dledger.bootstrap.servers": servers, "startingOffsets": "earliest"}
    reader = spark.readStream.format("dledger").options(**source, **asked["source"])
    frame = reader.load().select("key", "value")
    stream = (each_batch if "fail" in asked else copy)(frame, servers, asked)
    stream = stream.option("checkpointLocation", asked["checkpoint"])
    stream.trigger(availableNow=True).start().awaitTermination()


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
