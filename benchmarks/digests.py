"""(c'') What the digest of its rows costs a Spark write: the same writes with and without it, in
pairs.

The format of the writes without one is this package's own; only the tasks' digest function is a
stub that counts rows. A pair is two writes of each kind, those of one kind between those of the
other, so that what changes with time is the same for both; they go to a group of their own that is
new, and the next pair has the kinds the other way round. Processor time is that of the JVM, of
Spark's Python workers and of the nodes, user and system.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from benchmarks.costs import TICKS
from benchmarks.groups import group, pids_of
from benchmarks.report import Report
from benchmarks.spark import rows_frame, running_session
from benchmarks.typed import FLAT_COLUMNS
from dledger import Client, EmbeddedGroup
from dledger.datasource.write import sink
from dledger.datasource.write.writer import BatchWriter
from dledger.records.digest import RowsSum
from pyspark_dledger import DefaultSource

DIGEST: Final = "digest of a Spark write's rows, 3 replicas"
RECORDS, TYPED = "100-byte values and keys", "typed rows of 10 columns"
WITH, WITHOUT = "processor time with the digest", "processor time without it"
MORE: Final = "the digest's share of the processor time"
ROWS: Final = 1_000_000


class Digested(DefaultSource):
    """Format "dledger" by another name, so that both kinds of writes are looked up in the same
    way."""

    @classmethod
    def name(cls) -> str:
        return "digested"

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        return BatchWriter(self.options, schema, overwrite=overwrite)


class Undigested(Digested):
    """The same, but tasks make no digest."""

    @classmethod
    def name(cls) -> str:
        return "undigested"

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        return UndigestedWriter(self.options, schema, overwrite=overwrite)


class UndigestedWriter(BatchWriter):
    """Its tasks count their rows, which the commit is held to as well."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        with patch.object(sink, "sum_rows", counted):
            return super().write(iterator)


def counted(batch: pa.RecordBatch, _: Iterable[int] | None = None) -> RowsSum:
    """Stands in for `dledger.records.digest.sum_rows`."""
    return RowsSum(batch.num_rows)


def digests(report: Report, directory: Path, repetitions: int, *, quick: bool) -> None:
    """At least 20 pairs of each kind of rows, unless it is a quick run."""
    rows, pairs = (20_000, 1) if quick else (ROWS, max(20, repetitions))
    with ExitStack() as stack:
        session = stack.enter_context(running_session(quick=quick))
        for source in (Digested, Undigested):
            session.dataSource.register(source)
        frames = {
            RECORDS: rows_frame(session, rows),
            TYPED: session.range(0, rows, 1, 4).selectExpr(*FLAT_COLUMNS),
        }
        for number in range(0 if quick else -1, pairs):  # the first one warms up
            for kind, frame in frames.items():
                spent = pair(directory, session, frame, rows, digested_first=number % 2 == 0)
                if number >= 0:
                    with_it, without = spent["digested"], spent["undigested"]
                    report.add(DIGEST, f"{kind}, {WITH}", "s", with_it)
                    report.add(DIGEST, f"{kind}, {WITHOUT}", "s", without)
                    report.add(DIGEST, f"{kind}, {MORE}", "%", 100 * (with_it - without) / with_it)


def pair(
    directory: Path, session: SparkSession, frame: DataFrame, rows: int, *, digested_first: bool
) -> dict[str, float]:
    """Seconds of processor time of a write of each kind, by the name of its format."""
    outer, inner = ("digested", "undigested") if digested_first else ("undigested", "digested")
    spent = dict.fromkeys((outer, inner), 0.0)
    with group(directory, 3) as running, Client(running.bootstrap_servers) as client:
        for number, name in enumerate((outer, inner, inner, outer)):
            spent[name] += spent_on(client, running, frame, rows, name, f"{name}-{number}") / 2
    return spent


def spent_on(
    client: Client, running: EmbeddedGroup, frame: DataFrame, rows: int, name: str, topic: str
) -> float:
    """Seconds of processor time of all processes that take part in one write; a write with a txnId
    has a digest."""
    writer = frame.write.format(name).option("dledger.bootstrap.servers", running.bootstrap_servers)
    write = partial(
        writer.options(topic=topic, createTopic="true", txnId="once").mode("append").save
    )
    roots = {os.getpid(), *pids_of(running).values()}
    before = processor_s(roots)
    write()
    after = processor_s(roots)
    assert sum(client.end_offsets(topic).values()) == rows
    return after - before


def processor_s(roots: set[int]) -> float:
    """Seconds of user and system time of these processes and all below them, those included that
    have ended there."""
    there: dict[int, tuple[int, int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and (found := _stat(entry)) is not None:
            there[int(entry.name)] = found
    wanted = set(roots)
    while more := {pid for pid, (parent, _) in there.items() if parent in wanted} - wanted:
        wanted |= more
    return sum(there[pid][1] for pid in wanted if pid in there) / TICKS


def _stat(entry: Path) -> tuple[int, int] | None:
    """Parent, and ticks of the process and of its children that were waited for; None when it has
    ended."""
    try:
        fields: list[Any] = (entry / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return int(fields[1]), sum(map(int, fields[11:15]))
