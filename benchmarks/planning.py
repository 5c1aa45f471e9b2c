"""How long the plan of a micro-batch takes when a stream reads 1,000 partitions of 50 topics, or
10,000 of one, each with new records; and the transaction that brings them."""

from __future__ import annotations

import itertools
import json
import pickle
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from benchmarks.groups import group
from benchmarks.report import Report
from benchmarks.spark import running_session
from dledger import Client, EmbeddedGroup
from dledger.datasource.table.schema import read_schema
from dledger.streaming.reader import LogStreamReader

PLANNING = "plan of a micro-batch over 1,000 partitions of 50 topics, all with new records"
ALONE, LIMITED = "offsets and tasks, without Spark", "the same, cut down by maxBytesPerTrigger"
IN_SPARK = "latestOffset, getBatch and queryPlanning of Spark's progress, all steps"
IN_ALL = "the whole micro-batch in Spark, into a sink that does nothing"
KIB = "offsets in the checkpoint, largest"
TOPICS, PARTITIONS = 50, 20
MANY: Final = 10_000
WIDE: Final = "a topic of 10,000 partitions, all with new records"
TRANSACTION: Final = "a transaction with a record for each"


def planning(report: Report, directory: Path, repetitions: int, *, quick: bool) -> None:
    """The reader by itself, then inside a query."""
    with group(directory, 3) as running, Client(running.bootstrap_servers) as client:
        names = [f"topic-{number:02}" for number in range(2 if quick else TOPICS)]
        for name in names:
            client.create_topic(name, PARTITIONS)
        feed = feeder(client, names)
        for name, more in ((ALONE, {}), (LIMITED, {"maxBytesPerTrigger": "200k"})):
            options = {"subscribePattern": "topic-.*", **more}
            for took, kib in alone(running, feed, 1 if quick else max(repetitions, 10), **options):
                report.add(PLANNING, name, "ms", took)
                report.add(PLANNING, KIB, "KiB", kib)
        wide(report, running, client, 1 if quick else repetitions, 100 if quick else MANY)
        batches = in_spark(running, directory, feed, 1 if quick else 2, quick=quick)
        steps = ("latestOffset", "getBatch", "queryPlanning")
        report.add(
            PLANNING,
            IN_SPARK,
            "ms",
            *(sum(batch.get(step, 0) for step in steps) for batch in batches),
        )
        report.add(PLANNING, IN_ALL, "ms", *(batch["triggerExecution"] for batch in batches))


def wide(
    report: Report, running: EmbeddedGroup, client: Client, repetitions: int, partitions: int
) -> None:
    """Very many partitions of one topic."""
    client.create_topic("wide", partitions)
    feed = feeder(client, ["wide"], partitions)

    def timed() -> None:
        begin = time.perf_counter()
        feed()
        report.add(WIDE, TRANSACTION, "ms", (time.perf_counter() - begin) * 1000)

    for took, kib in alone(running, timed, repetitions, subscribe="wide"):
        report.add(WIDE, ALONE, "ms", took)
        report.add(WIDE, KIB, "KiB", kib)


def feeder(client: Client, names: list[str], partitions: int = PARTITIONS) -> Callable[[], None]:
    """A function that adds a record to every partition, all at once."""
    turns = itertools.count()

    def feed() -> None:
        with client.transaction(f"planning {names[0]}", next(turns)) as transaction:
            for name in names:
                for partition in range(partitions):
                    transaction.append(name, b"x" * 100, partition=partition)

    return feed


def alone(
    running: EmbeddedGroup, feed: Callable[[], None], repetitions: int, **more: str
) -> Iterator[tuple[float, float]]:
    """Milliseconds of each plan, as the long-lived planner of a query makes it, and KiB of its
    offset."""
    options = {"dledger.bootstrap.servers": running.bootstrap_servers, **more}
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
    running: EmbeddedGroup,
    directory: Path,
    feed: Callable[[], None],
    repetitions: int,
    *,
    quick: bool,
) -> list[dict[str, int]]:
    """Milliseconds that Spark says each micro-batch took, by step."""
    with running_session(quick=quick) as session:
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
    return batches
