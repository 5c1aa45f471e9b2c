"""How long the plan of a micro-batch takes when a stream reads 1,000 partitions of 50 topics, each
with new records."""

from __future__ import annotations

import itertools
import json
import pickle
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.groups import group
from benchmarks.report import Report
from benchmarks.spark import new_session
from dledger import Client, EmbeddedGroup
from dledger.datasource.table.schema import read_schema
from dledger.streaming.reader import LogStreamReader

PLANNING = "plan of a micro-batch over 1,000 partitions of 50 topics, all with new records"
ALONE, LIMITED = "offsets and tasks, without Spark", "the same, cut down by maxBytesPerTrigger"
IN_SPARK = "latestOffset, getBatch and queryPlanning of Spark's progress, all steps"
IN_ALL = "the whole micro-batch in Spark, into a sink that does nothing"
KIB = "offsets in the checkpoint, largest"
TOPICS, PARTITIONS = 50, 20


def planning(report: Report, directory: Path, repetitions: int, *, quick: bool) -> None:
    """The reader by itself, then inside a query."""
    with group(directory, 3) as running, Client(running.bootstrap_servers) as client:
        names = [f"topic-{number:02}" for number in range(TOPICS)]
        for name in names:
            client.create_topic(name, PARTITIONS)
        feed = feeder(client, names)
        for name, more in ((ALONE, {}), (LIMITED, {"maxBytesPerTrigger": "200k"})):
            for took, kib in alone(running, feed, 1 if quick else max(repetitions, 10), **more):
                report.add(PLANNING, name, "ms", took)
                report.add(PLANNING, KIB, "KiB", kib)
        batches = in_spark(running, directory, feed, 1 if quick else 2)
        steps = ("latestOffset", "getBatch", "queryPlanning")
        report.add(
            PLANNING,
            IN_SPARK,
            "ms",
            *(sum(batch.get(step, 0) for step in steps) for batch in batches),
        )
        report.add(PLANNING, IN_ALL, "ms", *(batch["triggerExecution"] for batch in batches))


def feeder(client: Client, names: list[str]) -> Callable[[], None]:
    """A function that adds a record to every partition, all at once."""
    turns = itertools.count()

    def feed() -> None:
        with client.transaction("planning", next(turns)) as transaction:
            for name in names:
                for partition in range(PARTITIONS):
                    transaction.append(name, b"x" * 100, partition=partition)

    return feed


def alone(
    running: EmbeddedGroup, feed: Callable[[], None], repetitions: int, **more: str
) -> Iterator[tuple[float, float]]:
    """Milliseconds of each plan, as the long-lived planner of a query makes it, and KiB of its
    offset."""
    options = {
        "dledger.bootstrap.servers": running.bootstrap_servers,
        "subscribePattern": "topic-.*",
        **more,
    }
    reader = LogStreamReader(options, read_schema(False))
    at = reader.initialOffset()
    for _ in range(repetitions):
        feed()
        begin = time.perf_counter()
        text = json.dumps(reader.latestOffset(at, reader.getDefaultReadLimit()))
        end = json.loads(text)
        tasks = [pickle.dumps(one) for one in reader.partitions(at, end)]
        took = time.perf_counter() - begin
        assert tasks
        at = end
        yield took * 1000, len(text) / 1024


def in_spark(
    running: EmbeddedGroup, directory: Path, feed: Callable[[], None], repetitions: int
) -> list[dict[str, int]]:
    """Milliseconds that Spark says each micro-batch took, by step."""
    session: SparkSession = new_session()
    try:
        reader = session.readStream.format("dledger").option("subscribePattern", "topic-.*")
        frame = reader.option("dledger.bootstrap.servers", running.bootstrap_servers).load()
        writer = frame.writeStream.format("noop").option(
            "checkpointLocation", str(directory / "planning")
        )
        query = writer.start()
        query.processAllAvailable()
        for _ in range(repetitions):
            feed()
            query.processAllAvailable()
        batches = [dict(one.durationMs) for one in query.recentProgress if one.numInputRows]
        query.stop()
    finally:
        session.stop()
    return batches
