"""(q) A typed topic as a frame of Polars, DuckDB and pandas, beside the same batches from a server
of pyarrow.flight on loopback, in one run."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.flight as flight

from benchmarks import machine
from benchmarks.groups import group
from benchmarks.report import Report
from dledger import Client

FRAMES: Final = "5 M rows of a typed topic as a frame"
FLIGHT: Final = " by pyarrow.flight"
RATIO: Final = ", share of pyarrow.flight"
TOPIC: Final = "rows"
ROWS: Final = 5_000_000
PARTITIONS: Final = 3
TICKET: Final = flight.Ticket(b"rows")


def polars(reader: pa.RecordBatchReader) -> int:
    """All rows as a DataFrame."""
    import polars

    return len(polars.DataFrame(reader))


def pandas(reader: pa.RecordBatchReader) -> int:
    """All rows as a DataFrame."""
    return len(reader.read_pandas())


def duckdb(reader: pa.RecordBatchReader) -> int:
    """A query that looks at each column of each row."""
    import duckdb

    sums = 'count(*), sum(id), max(customer), sum(amount), max("at"), max(note)'
    return int(duckdb.from_arrow(reader).aggregate(sums).fetchall()[0][0])


def arrow(reader: pa.RecordBatchReader) -> int:
    """All rows as a table of Arrow."""
    return int(reader.read_all().num_rows)


LIBRARIES: Final[dict[str, Callable[[pa.RecordBatchReader], int]]] = {
    "pyarrow": arrow, "Polars": polars, "DuckDB": duckdb, "pandas": pandas,
}  # fmt: skip


def frames(report: Report, directory: Path, repetitions: int, *, quick: bool) -> None:
    """Rows per second of one reader, ours and flight's in turn."""
    rows = 50_000 if quick else ROWS
    with ExitStack() as stack:
        running = stack.enter_context(group(directory, 1))
        client = stack.enter_context(Client(running.bootstrap_servers))
        table = made(rows)
        client.create_topic(TOPIC, PARTITIONS, schema=table, key_column="id")
        client.append(TOPIC, table)
        names = table.schema.names
        del table
        server = stack.enter_context(serving(running.bootstrap_servers))
        ways: dict[str, Callable[[], pa.RecordBatchReader]] = {
            "": lambda: client.scan(TOPIC, columns=names),
            FLIGHT: lambda: server.do_get(TICKET).to_reader(),
        }
        for repetition in range(0 if quick else -1, repetitions):  # the first one warms up
            into = report if repetition >= 0 else Report({})
            machine.measure(into, directory, quick=quick)
            for library, take in LIBRARIES.items():
                # in turn: the one that comes first has to get its memory from the system
                order = list(ways) if repetition % 2 else list(ways)[::-1]
                took = {way: seconds(take, ways[way], rows) for way in order}
                for way in ways:
                    into.add(FRAMES, library + way, "rows/s", rows / took[way])
                into.add(FRAMES, library + RATIO, "times", took[FLIGHT] / took[""])


def made(rows: int) -> pa.Table:
    """Some 60 bytes a row."""
    ids = np.arange(rows)
    return pa.table(
        {
            "id": ids,
            "customer": pa.array(np.char.add("customer ", (ids % 1000).astype(str))),
            "amount": ids * 0.25,
            "at": pa.array(1_700_000_000_000_000 + ids, pa.timestamp("us", "UTC")),
            "note": pa.array(np.char.add("order ", ids.astype(str))),
        }
    )


def seconds(
    take: Callable[[pa.RecordBatchReader], int], read: Callable[[], pa.RecordBatchReader], rows: int
) -> float:
    """How long one read takes."""
    began = time.perf_counter()
    assert take(read()) == rows
    return time.perf_counter() - began


@contextmanager
def serving(servers: str) -> Iterator[Any]:
    """A client of a process that has the batches of the topic in memory, and serves them."""
    command = [sys.executable, "-m", "benchmarks.frames", servers]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        with flight.connect(f"grpc://127.0.0.1:{int(process.stdout.readline())}") as client:
            yield client
    finally:
        process.communicate()


class Served(flight.FlightServerBase):  # type: ignore[misc]
    """One table, for any ticket."""

    def __init__(self, table: pa.Table) -> None:
        super().__init__("grpc://127.0.0.1:0")
        self._table = table

    def do_get(self, context: Any, ticket: Any) -> Any:
        """The batches as they are."""
        return flight.RecordBatchStream(self._table)


def serve(servers: str) -> None:
    """Print the port, and serve until the input ends."""
    with Client(servers) as client:
        names = [field.name for field in client.scan(TOPIC).schema][3:]
        server = Served(client.table(TOPIC, columns=names))
    print(server.port, flush=True)
    sys.stdin.read()
    server.shutdown()


if __name__ == "__main__":
    serve(sys.argv[1])
