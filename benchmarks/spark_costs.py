"""What Spark's processes spend on a write by key and on a query with trigger AvailableNow, each
beside the plainest way to move the same rows."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from benchmarks.costs import TICKS
from benchmarks.groups import group
from benchmarks.report import Report
from benchmarks.spark import read_from, running_session, to_noop, write_to
from dledger import Client, EmbeddedGroup

PARTITIONS = 50
KEYED = f"Spark batch write of 136 bytes a row, {PARTITIONS} partitions, 3 replicas"
BY_KEY, BY_TURN = "key of 36 bytes and value of 100", "value of 136 bytes, no key"
ONE = ", topic of one partition"
SINK = ", a Python sink that does nothing"
AVAILABLE = "Spark's trigger AvailableNow, 100-byte values, 7 columns, 3 replicas"
NOTHING, BATCH, STREAM = (
    "AvailableNow of a Python stream source that does nothing",
    "dledger, batch read of the same rows",
    "dledger, AvailableNow",
)
COST = ", processor time of Spark's processes"
ENDING_S = 0.5
"""Spark ends the process of a stream's source after its query."""


@dataclass(frozen=True)
class Spent:
    """On one action: seconds of the clock, and of processors by the JVM and its Python workers."""

    wall: float
    jvm: float
    workers: float


def spent(session: SparkSession, action: Callable[[], object]) -> Spent:
    """Carry it out."""
    jvm = session.sparkContext._gateway.proc.pid  # type: ignore[union-attr]
    before, began = _processors(jvm), time.perf_counter()
    action()
    wall = time.perf_counter() - began
    time.sleep(ENDING_S)
    return Spent(wall, *(now - was for now, was in zip(_processors(jvm), before, strict=True)))


def _processors(jvm: int) -> tuple[float, float]:
    """Seconds of a JVM, and of all processes below it, those that have ended among them."""
    children: dict[int, list[int]] = {}
    own: dict[int, float] = {}
    waited: dict[int, float] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            continue
        pid = int(path.parent.name)
        children.setdefault(int(fields[1]), []).append(pid)
        own[pid] = (int(fields[11]) + int(fields[12])) / TICKS
        waited[pid] = (int(fields[13]) + int(fields[14])) / TICKS
    total, left = waited[jvm], list(children.get(jvm, ()))
    while left:
        pid = left.pop()
        total += own[pid] + waited[pid]
        left += children.get(pid, ())
    return own[jvm], total


def add(report: Report, section: str, case: str, rows: int, one: Spent) -> None:
    """One repetition of a case."""
    report.add(section, case, "rows/s", rows / one.wall)
    report.add(section, case + COST, "s/M rows", (one.jvm + one.workers) / rows * 1e6)
    report.add(section, f"{case}, Python workers alone", "s/M rows", one.workers / rows * 1e6)


@contextmanager
def running_group(
    directory: Path, *, quick: bool
) -> Iterator[tuple[SparkSession, EmbeddedGroup, Client]]:
    """Three nodes, a client of theirs and a session."""
    with ExitStack() as stack:
        running = stack.enter_context(group(directory, 3))
        client = stack.enter_context(Client(running.bootstrap_servers))
        session = stack.enter_context(running_session(quick=quick))
        yield session, running, client


def keyed(report: Report, directory: Path, repetitions: int, *, quick: bool) -> None:
    """(o) Writes with and without keys, in turn; each goes to a topic of its own."""
    rows = 20_000 if quick else 2_000_000
    key = "concat('00000000-0000-4000-8000-', lpad(cast(id as string), 12, '0'))"
    with running_group(directory, quick=quick) as (session, running, client):
        numbers = session.range(0, rows, 1, 4)
        frames = {
            BY_TURN: numbers.selectExpr(
                f"cast(concat({key}, repeat('x', 100)) as binary) as value"
            ),
            BY_KEY: numbers.selectExpr(
                f"cast({key} as binary) as key", "cast(repeat('x', 100) as binary) as value"
            ),
        }
        for repetition in range(0 if quick else -1, repetitions):  # the first one warms up
            into = report if repetition >= 0 else Report({})
            for case, frame in frames.items():
                nothing = frame.write.format("ceiling").mode("append")
                add(into, KEYED, case + SINK, rows, spent(session, nothing.save))
                for others, partitions in (("", PARTITIONS), (ONE, 1)):
                    topic = f"written-{time.monotonic_ns()}"
                    client.create_topic(topic, partitions=partitions)
                    write = partial(write_to, frame, running, topic)
                    add(into, KEYED, case + others, rows, spent(session, write))
                    assert sum(client.end_offsets(topic).values()) == rows
                    client.delete_topic(topic)


def available(report: Report, directory: Path, repetitions: int, *, quick: bool) -> None:
    """(p) Whole queries, from their start to their end, in turn with batch reads."""
    rows = 40_000 if quick else 4_000_000
    with running_group(directory, quick=quick) as (session, running, client):
        client.create_topic("data")
        frame = session.range(0, rows, 1, 4).selectExpr(
            "cast(cast(id as string) as binary) as key", "cast(repeat('x', 100) as binary) as value"
        )
        write_to(frame, running, "data")
        nothing = session.readStream.format("ceiling").option("rows", rows).option("parts", 4)
        stream = session.readStream.format("dledger").option(
            "dledger.bootstrap.servers", running.bootstrap_servers
        )
        stream = stream.option("subscribe", "data").option("startingOffsets", "earliest")
        ways = {
            NOTHING: lambda: query(nothing.load(), directory),
            BATCH: lambda: to_noop(read_from(session, running, "data")),
            STREAM: lambda: query(stream.load(), directory),
        }
        for repetition in range(0 if quick else -1, repetitions):  # the first one warms up
            into = report if repetition >= 0 else Report({})
            for case, way in ways.items():
                add(into, AVAILABLE, case, rows, spent(session, way))


def query(frame: DataFrame, directory: Path) -> None:
    """All that is there, as a new query."""
    checkpoint = directory / f"query-{time.monotonic_ns()}"
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    started = writer.trigger(availableNow=True).start()
    started.awaitTermination()
    assert sum(one.numInputRows for one in started.recentProgress) > 0
    shutil.rmtree(checkpoint)
