"""(e) How old a record is when foreachBatch has it, beside a Python stream source that does
nothing, in one session.

Run as a program it is the producer, a process of its own: ``python -m benchmarks.visible SERVERS``
appends the time each 100 ms until its input ends.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from benchmarks.clock import TICK_NS
from benchmarks.groups import group
from benchmarks.report import Report
from benchmarks.spark import new_session
from dledger import Client, EmbeddedGroup

VISIBLE = "age of a record in foreachBatch, one record each 100 ms, default trigger"
NOTHING, LOG = "a Python stream source that does nothing", "dledger, 3 replicas, appended and read"
SOCKETS = {", unix socket": "true", "": "false"}
"""Spark's ``spark.python.unix.domain.socket.enabled``, false by default; it takes some 40 ms off
every batch."""
FIRST_S = 120.0


def visible(report: Report, directory: Path, repetitions: int, *, quick: bool) -> None:
    """Laps of either source in turn, in a session with and in one without Spark's unix socket,
    which a quick run leaves out."""
    laps, seconds = (1, 0.5) if quick else (max(2, repetitions // 2), 12.0)
    with group(directory, 3) as running:
        if quick and (other := SparkSession.getActiveSession()) is not None:
            other.stop()  # of all sections, without the socket
        for sockets, enabled in list(SOCKETS.items())[: 1 if quick else None]:
            session = new_session(spark_python_unix_domain_socket_enabled=enabled)
            try:
                for lap in range(laps):
                    where = directory / f"visible-{enabled}-{lap}"
                    where.mkdir()
                    frame, over = clock(session, where / "over"), where / "over"
                    found = ages(frame, where / "clock", seconds, partial(over.touch))
                    report.add(VISIBLE, NOTHING + sockets, "ms", *found)
                    with producer(running) as end:
                        found = ages(log(session, running), where / "log", seconds, end)
                        report.add(VISIBLE, LOG + sockets, "ms", *found)
            finally:
                session.stop()


def clock(session: SparkSession, over: Path) -> DataFrame:
    """Until the file is there."""
    return session.readStream.format("clock").option("over", str(over)).load()


def log(session: SparkSession, running: EmbeddedGroup) -> DataFrame:
    reader = session.readStream.format("dledger").option(
        "dledger.bootstrap.servers", running.bootstrap_servers
    )
    return reader.option("subscribe", "bench").load()


def ages(
    frame: DataFrame, checkpoint: Path, seconds: float, over: Callable[[], None]
) -> list[float]:
    """Milliseconds from each record's time to when ``collect`` in foreachBatch has returned it.
    What comes in the query's first seconds does not count: Spark starts its workers then. ``over``
    ends the records, so that the query is not stopped within foreachBatch, of which Spark makes a
    thousand lines of stack."""
    found: list[tuple[float, float]] = []
    began = threading.Event()

    def see(batch: DataFrame, number: int) -> None:
        values = [int(row.value) for row in batch.select("value").collect()]
        now = time.time_ns()
        found.extend((now / 1e9, (now - value) / 1e6) for value in values)
        if values:
            began.set()

    query = (
        frame.writeStream.foreachBatch(see).option("checkpointLocation", str(checkpoint)).start()
    )
    try:
        if not began.wait(FIRST_S):
            raise RuntimeError(f"no record in {FIRST_S:g} s: {query.exception() or query.status}")
        time.sleep(seconds / 4)
        since = time.time()
        time.sleep(seconds)
        over()
        query.processAllAvailable()
    finally:
        query.stop()
    inside = [age for at, age in found if since <= at < since + seconds]
    # where the machine is so busy that nothing came meanwhile
    return inside or [age for _, age in found]


@contextmanager
def producer(running: EmbeddedGroup) -> Iterator[Callable[[], None]]:
    """One record each 100 ms, from a process of its own, until the function is called that comes
    with it."""
    command = [sys.executable, "-m", "benchmarks.visible", running.bootstrap_servers]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, cwd=Path(__file__).resolve().parents[1]
    ) as process:

        def end() -> None:
            process.communicate()  # closes its input, which ends it

        yield end


def produce(servers: str, end: threading.Event) -> None:
    """Append the time at every tick of the clock, as the other source has its records."""
    with Client(servers) as client:
        due = time.time_ns() // TICK_NS + 1
        while not end.wait(max(0.0, due * TICK_NS - time.time_ns()) / 1e9):
            client.append("bench", str(time.time_ns()).encode())
            due += 1


def main(servers: str) -> None:
    """Until standard input is closed."""
    end = threading.Event()
    worker = threading.Thread(target=produce, args=(servers, end))
    worker.start()
    sys.stdin.read()
    end.set()
    worker.join()


__all__ = ["LOG", "NOTHING", "SOCKETS", "VISIBLE", "visible"]

if __name__ == "__main__":
    main(sys.argv[1])
