"""(c) Spark's batch reads and writes, beside a source and a sink that do nothing, in the same
session."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from benchmarks.bare_rows import Bare
from benchmarks.ceiling import Ceiling
from benchmarks.clock import Clock
from benchmarks.groups import group
from benchmarks.report import Report
from dledger import Client, EmbeddedGroup
from dledger.datasource.java import ensure_java

READ, WRITE = (
    "Spark batch read, 100-byte values, 7 columns",
    "Spark batch write, 100-byte values and keys",
)
NOTHING = "a Python {} that does nothing"


def new_session(workers: Mapping[str, str] | None = None, **more: str) -> SparkSession:
    """local[2], with workers that can import this package.

    Args:
        workers: the environment of Python workers, beside this process's.
        more: settings, with underscores for their dots.
    """
    ensure_java()
    # each process of Spark's would compile the package anew, which pip does when it installs it
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    top = str(Path(__file__).resolve().parents[1])
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [top, os.environ.get("PYTHONPATH")]))
    builder = SparkSession.builder.master("local[2]").appName("benchmarks")
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.driver.memory": "2g",
        "spark.sql.session.timeZone": "UTC",
        **{name.replace("_", "."): value for name, value in more.items()},
        **{f"spark.executorEnv.{name}": value for name, value in (workers or {}).items()},
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    for source in (Ceiling, Bare, Clock):
        session.dataSource.register(source)
    return session


@contextmanager
def running_session(*, quick: bool) -> Iterator[SparkSession]:
    """A new one that ends with it; in a quick run, one for all sections, whose figures mean
    nothing."""
    session = new_session()
    try:
        yield session
    finally:
        if not quick:
            session.stop()


def seconds(action: Callable[[], object]) -> float:
    """How long it takes."""
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def rows_frame(session: SparkSession, rows: int) -> DataFrame:
    """Keys and values of a producer: the value is 100 bytes."""
    return session.range(0, rows, 1, 4).selectExpr(
        "cast(cast(id as string) as binary) as key", "cast(repeat('x', 100) as binary) as value"
    )


def write_to(frame: DataFrame, running: EmbeddedGroup, topic: str) -> None:
    """One exactly-once batch write."""
    writer = frame.write.format("dledger").option(
        "dledger.bootstrap.servers", running.bootstrap_servers
    )
    writer.option("topic", topic).mode("append").save()


def read_from(
    session: SparkSession, running: EmbeddedGroup, topic: str, columns: str = ""
) -> DataFrame:
    """All of a topic, or these of its columns."""
    reader = session.read.format("dledger").option(
        "dledger.bootstrap.servers", running.bootstrap_servers
    )
    if columns:
        reader = reader.option("columns", columns)
    return reader.option("subscribe", topic).load()


def to_noop(frame: DataFrame) -> None:
    """Pull every column of every row out of the source."""
    frame.write.format("noop").mode("overwrite").save()


def spark(report: Report, directory: Path, repetitions: int, *, quick: bool) -> None:
    """Reads and writes in turn; each write goes to a topic of its own."""
    read_rows, write_rows = (40_000, 20_000) if quick else (4_000_000, 2_000_000)
    with ExitStack() as stack:
        groups = {replicas: stack.enter_context(group(directory, replicas)) for replicas in (1, 3)}
        clients = {r: stack.enter_context(Client(g.bootstrap_servers)) for r, g in groups.items()}
        session = stack.enter_context(running_session(quick=quick))
        for replicas, running in groups.items():
            clients[replicas].create_topic("data")
            write_to(rows_frame(session, read_rows), running, "data")
        for repetition in range(0 if quick else -1, repetitions):  # the first one warms up
            into = report if repetition >= 0 else Report({})
            measure_reads(into, session, groups, read_rows)
            measure_writes(into, session, groups, clients, write_rows)


def measure_reads(
    report: Report, session: SparkSession, groups: dict[int, EmbeddedGroup], rows: int
) -> None:
    """One repetition of every read."""
    nothing = session.read.format("ceiling").option("rows", rows).option("parts", 4)
    took = seconds(lambda: to_noop(nothing.load()))
    report.add(READ, NOTHING.format("source"), "rows/s", rows / took)
    for replicas, running in groups.items():
        label = f"dledger, {replicas} replica{'s'[: replicas > 1]}"
        for columns, case in (("", label), ("key, value", f"{label}, key and value alone")):
            frame = read_from(session, running, "data", columns)
            took = seconds(partial(to_noop, frame))
            report.add(READ, case, "rows/s", rows / took)


def measure_writes(
    report: Report,
    session: SparkSession,
    groups: dict[int, EmbeddedGroup],
    clients: dict[int, Client],
    rows: int,
) -> None:
    """One repetition of every write; what was written is counted, then its topic goes."""
    frame = rows_frame(session, rows)
    took = seconds(lambda: frame.write.format("ceiling").mode("append").save())
    report.add(WRITE, NOTHING.format("sink"), "rows/s", rows / took)
    for replicas, running in groups.items():
        topic = f"written-{time.monotonic_ns()}"
        clients[replicas].create_topic(topic)
        took = seconds(partial(write_to, frame, running, topic))
        assert clients[replicas].end_offsets(topic)[0] == rows
        report.add(
            WRITE, f"dledger, {replicas} replica{'s'[: replicas > 1]}", "rows/s", rows / took
        )
        clients[replicas].delete_topic(topic)
