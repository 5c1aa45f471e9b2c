"""(c') Spark's reads and writes beside the do-nothing source and sink, and beside the least that a
source or a sink must do whose rows are kept by three processes: what of a difference is the
log's."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame

from benchmarks.bare_rows import bare_nodes
from benchmarks.costs import processor_ms
from benchmarks.groups import pids_of
from benchmarks.report import Report
from benchmarks.spark import read_from, rows_frame, to_noop, write_to
from benchmarks.spark_costs import COST, add, running_group, spent

SECTION = "Spark, 100-byte values, 3 replicas, beside bare sockets and files"
READ, PAIR, WRITE = "read of 7 columns", "read of key and value alone", "write"
NOTHING, BARE, LOG = ", by nothing", ", by bare sockets and files", ", by dledger"
NODES = ", processor time of the three nodes"
Way = Callable[[], object]


def spark_floors(report: Report, directory: Path, repetitions: int, *, quick: bool) -> None:
    """All ways in turn, with the processor time of Spark's processes and of the nodes."""
    rows = 40_000 if quick else 2_000_000
    with (
        running_group(directory, quick=quick) as (session, running, client),
        bare_nodes(directory) as bare,
    ):
        client.create_topic("data")
        frame = rows_frame(session, rows)
        write_to(frame, running, "data")

        def read(form: str, columns: str) -> Way:
            options: dict[str, Any] = {"rows": rows, "parts": 4, "port": bare.port}
            reader = session.read.format(form).options(columns=columns, **options)
            return lambda: to_noop(reader.load())

        def from_log(columns: str) -> Way:
            return lambda: to_noop(read_from(session, running, "data", columns))

        def write() -> None:
            topic = f"written-{time.monotonic_ns()}"
            client.create_topic(topic)
            write_to(frame, running, topic)
            assert client.end_offsets(topic)[0] == rows
            client.delete_topic(topic)

        ways: dict[str, Way] = {}
        for case, columns in ((READ, ""), (PAIR, "key,value")):
            ways[case + NOTHING] = read("ceiling", columns)
            ways[case + BARE] = read("bare", columns)
            ways[case + LOG] = from_log(columns)
        ways[WRITE + NOTHING] = frame.write.format("ceiling").mode("append").save
        ways[WRITE + BARE] = _writer(frame, bare.port)
        ways[WRITE + LOG] = write
        nodes: dict[str, list[int]] = {BARE: bare.pids, LOG: [*pids_of(running).values()]}
        for repetition in range(0 if quick else -1, repetitions):  # the first one warms up
            into = report if repetition >= 0 else Report({})
            for case, way in ways.items():
                pids = next((pids for end, pids in nodes.items() if case.endswith(end)), [])
                before = _seconds(pids)
                add(into, SECTION, case, rows, spent(session, way))
                if pids:
                    cost = (_seconds(pids) - before) / rows * 1e6
                    into.add(SECTION, case + NODES, "s/M rows", cost)


def _writer(frame: DataFrame, port: int) -> Way:
    return frame.write.format("bare").option("port", port).mode("append").save


def _seconds(pids: Iterable[int]) -> float:
    """Of processors, of all of these processes."""
    return sum(sum(processor_ms(pid)) for pid in pids) / 1000


BESIDE = {
    case + LOG + of: case + BARE + of for case in (READ, PAIR, WRITE) for of in ("", COST, NODES)
}
"""The floor of each case."""
