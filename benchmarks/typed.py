"""(d) The same rows out of a typed topic, and out of a raw one as JSON, by one session in one
run."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import from_json

from benchmarks.groups import group
from benchmarks.report import Report
from benchmarks.spark import read_from, running_session, seconds, to_noop
from dledger import EmbeddedGroup

READ, WRITE = "Spark batch read, rows of 10 columns", "Spark batch write, rows of 10 columns"
TYPED, JSON = "typed", "raw, JSON"
RATIO = "typed, times as fast as JSON"
NESTED = ", two of them nested"
FLAT_COLUMNS = (
    "id", "id % 1000 AS customer", "CAST(id % 7 AS INT) AS items", "id * 0.25d AS amount",
    "CAST(id * 0.01 AS DECIMAL(12,2)) AS price", "concat('order-', id) AS name",
    "id % 2 = 0 AS paid", "date_add(DATE'2024-01-01', CAST(id % 365 AS INT)) AS day",
    "timestamp_micros(1700000000000000 + id) AS at",
    "concat('customer ', id % 1000, ' of shop ', id % 10) AS note",
)  # fmt: skip
NESTED_COLUMNS = (
    *FLAT_COLUMNS[:8],
    "array(CAST(id AS INT), CAST(id % 5 AS INT)) AS path",
    "named_struct('city', concat('c', id % 100), 'zip', CAST(id % 99999 AS INT)) AS place",
)
KINDS = {"": FLAT_COLUMNS, NESTED: NESTED_COLUMNS}


def typed(report: Report, directory: Path, repetitions: int, *, quick: bool) -> None:
    """Writes once each, then reads in turn."""
    rows = 20_000 if quick else 1_000_000
    with ExitStack() as stack:
        running = stack.enter_context(group(directory, 1))
        session = stack.enter_context(running_session(quick=quick))
        for kind, columns in KINDS.items():
            frame = session.range(0, rows, 1, 4).selectExpr(*columns)
            name = "nested" if kind else "flat"
            packed = frame.selectExpr("to_json(struct(*)) AS value")
            for what, given in (TYPED, frame), (JSON, packed):
                topic = f"{name}-{what.partition(',')[0]}"
                took = seconds(partial(make, given, running, topic))
                report.add(WRITE + kind, what, "rows/s", rows / took)
            for repetition in range(0 if quick else -1, repetitions):  # the first one warms up
                into = report if repetition >= 0 else Report({})
                measure(into, session, running, name, kind, frame, rows)


def make(frame: DataFrame, running: EmbeddedGroup, topic: str) -> None:
    """One exactly-once write to a new topic."""
    writer = frame.write.format("dledger").option(
        "dledger.bootstrap.servers", running.bootstrap_servers
    )
    writer.option("createTopic", "true").option("topic", topic).mode("append").save()


def measure(
    report: Report,
    session: SparkSession,
    running: EmbeddedGroup,
    name: str,
    kind: str,
    frame: DataFrame,
    rows: int,
) -> None:
    """One repetition: all rows of both topics, in the frame's columns."""
    own = read_from(session, running, f"{name}-typed")
    raw = read_from(session, running, f"{name}-raw")
    parsed = raw.select(from_json(raw.value.cast("string"), frame.schema).alias("row")).select(
        "row.*"
    )
    assert own.columns == parsed.columns == frame.columns
    took = {TYPED: seconds(lambda: to_noop(own)), JSON: seconds(lambda: to_noop(parsed))}
    for what, each in took.items():
        report.add(READ + kind, what, "rows/s", rows / each)
    report.add(READ + kind, RATIO, "times", took[JSON] / took[TYPED])


__all__ = ["FLAT_COLUMNS", "NESTED", "RATIO", "READ", "typed"]
