"""The chapters of docs/performance.md: which cases of a run each has, and its words."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from benchmarks.appends import LATENCY, THROUGHPUT
from benchmarks.backups import BACKUPS
from benchmarks.costs import BARE_MANY, BARE_ONE, COSTS, MANY, ONE
from benchmarks.curves import (
    BY_CONNECTIONS,
    BY_ENTRIES,
    BY_PARTITIONS,
    BY_SIZE,
    BY_WRITTEN,
    Curve,
)
from benchmarks.frames import FRAMES
from benchmarks.gaps import BARE, GAPS, OURS
from benchmarks.kafka_producing import BESIDE as KAFKA
from benchmarks.lines import LINES_RATE
from benchmarks.long_polls import READABLE
from benchmarks.many_requests import COMPILED, MOST, PYTHON, REQUESTS
from benchmarks.producing import EACH, NOWHERE, PRODUCING
from benchmarks.producing import SIZES as VALUES
from benchmarks.reading import READ
from benchmarks.replacing import PLAIN, REPLACED, REPLACING
from benchmarks.report import BYTES
from benchmarks.request_cost import COST, LEADER, PROGRAM
from benchmarks.safeguards import SAFEGUARDS
from benchmarks.spark_costs import AVAILABLE, BY_KEY, BY_TURN, KEYED, SINK, STREAM
from benchmarks.spark_costs import COST as SPARK_COST
from benchmarks.spark_costs import NOTHING as NO_STREAM
from benchmarks.spark_costs import ONE as ONE_PARTITION
from benchmarks.spark_floors import BESIDE
from benchmarks.spark_floors import SECTION as SPARK


@dataclass(frozen=True)
class Chapter:
    """One chapter. ``name`` is that of the section of ``make bench``, and of its files."""

    name: str
    title: str
    words: str
    sections: tuple[str, ...] = ()
    """Titles in the run; those of ``curve`` unless some are named."""
    curve: Curve | None = None
    floors: dict[str, str] = field(default_factory=dict)
    """Cases beside which another one of the same section stands, and that one."""
    hidden: tuple[str, ...] = ()
    """Ends of the names of cases that are not shown."""

    @property
    def shown(self) -> tuple[str, ...]:
        return self.sections or (() if self.curve is None else (self.curve.section,))


CHAPTERS: Final = (
    Chapter(
        "append",
        "Appends by size and requests in flight",
        "Single requests over one connection, each a record. An acknowledgement waits for the "
        "disks of a majority. The producer is fed Arrow arrays of 10,000 values.",
        (THROUGHPUT,),
        hidden=(BYTES,),
    ),
    Chapter(
        "latency",
        "One append in flight",
        "1 KiB at a time. The floor is a write with fdatasync, by as many writers at once as "
        "there are replicas, without any message. Where that is slow, the disk was, in that "
        "run.",
        (LATENCY,),
        floors={
            f"{what} of 1 KiB, {replicas}": floor
            for what in ("request", "Client.append")
            for replicas, floor in (
                ("1 replica", "write + fdatasync of 4 KiB by itself"),
                ("3 replicas", "write + fdatasync of 4 KiB by three at once"),
            )
        },
    ),
    Chapter(
        "costs",
        "Where the time of an append goes",
        "Processor time by process. The floor is three processes that pass the same bytes "
        "through bare sockets and write and sync them, without frames, checksums, index or "
        "catalog.",
        (COSTS,),
        floors={f"{ONE}, latency": f"{BARE_ONE}, latency", MANY: BARE_MANY},
    ),
    Chapter(
        "request-cost",
        "A request beside a small program",
        "Single requests of 1 KiB, 512 at a time, 3 replicas. The floor is one process in "
        "plain Python that takes as many frames from a socket, checks them, makes entries "
        "with checksums, writes and answers; it has no followers, sync or catalog. "
        "`tests/benchmarks/test_request_cost.py` holds the ratio in each test run.",
        (COST,),
        floors={LEADER: PROGRAM},
    ),
    Chapter(
        "requests",
        "Single requests, 512 in flight",
        "By the load generator of all chapters, over one connection; each waits for the disks of a "
        "majority. Client and three nodes share the cores, so that no more requests are possible "
        "than the cores have processor time for. Where cores are not all busy, others used the "
        "machine, or requests waited for disks.",
        (REQUESTS,),
        floors={name: f"{name}{MOST}" for name in (COMPILED, PYTHON)},
    ),
    Chapter(
        "producer",
        "Values appended one by one",
        "`Producer.append(value)` for each record, and each result asked for by its handle, at "
        "most 100,000 records later; 3 replicas. Where nothing is sent, each batch is made as it "
        "is sent, and answered at once: so many values a program can hand over and ask for. Where "
        "Arrow arrays of 10,000 values are appended, nothing is done for each record: so many the "
        "group takes from one producer. Client and nodes share the cores. The run of 2026-11-28 "
        "shared its machine with others; processor times bear that better than rates. "
        "`make bench BENCH=kafka-producer` measures the same way beside Kafka.",
        (PRODUCING,),
        floors={f"{size}, {EACH}": f"{size}, {NOWHERE}" for size in VALUES},
    ),
    Chapter(
        "kafka-producer",
        "Values appended one by one, beside Kafka",
        "One thread, which learns of each record; one partition, three copies. confluent-kafka's "
        "Producer has acks=all, enable.idempotence and its defaults beside them, and a callback "
        "for each record. Its poll is called for each record, as in the examples of its "
        "documentation, or once for 500, which is cheaper. Three Kafka brokers in KRaft mode "
        "acknowledge what is in the memory of all three; the group, what is on the disks of a "
        "majority. `Producer.append(value)` gives a handle for each record, which is asked for its "
        "result at most 100,000 records later. All run in turn, in one process, and share the "
        "cores with what they write to; rates count to the last acknowledgement. The ratio is that "
        "of each turn, beside the faster of Kafka's two.",
        (KAFKA,),
    ),
    Chapter(
        "safeguards",
        "Rules and metrics",
        "Single requests over one connection, at groups side by side of which one works at a "
        "time, in pairs of slices of 3 s. A request is decided by the last one of fifty rules "
        "and some; nobody scrapes the metrics meanwhile.",
        (SAFEGUARDS,),
    ),
    Chapter(
        "read",
        "Reads",
        "`Client.read` of a topic's 100-byte values.",
        (READ,),
    ),
    Chapter(
        "frames",
        "Frames of other libraries",
        "Five million rows of a typed topic, some 60 bytes each, by `Client.scan` as a frame of "
        "pyarrow, Polars, DuckDB and pandas. Beside each stand the same batches from the memory "
        "of a pyarrow.flight server on loopback, read in turn in the same run.",
        (FRAMES,),
    ),
    Chapter(
        "lines",
        "Lines of a shell",
        "A million lines of some 100 bytes in by `dledger append` and out by `dledger tail`, each "
        "with the start of its process, at one node. Processor time is that of the command "
        "alone.",
        (LINES_RATE,),
    ),
    Chapter(
        "backup",
        "Backup and restore",
        "A whole backup of a follower of three nodes, with 1 GiB of records of 1 KiB, to a "
        "directory of the same disk, whose files are synced. Beside it, in turn, stands a program "
        "that reads the files of that node's log, hashes and writes them, 8 MiB at a time, and "
        "syncs nothing. The next backup comes after another 64 MiB of records.",
        (BACKUPS,),
    ),
    Chapter(
        "replacing",
        "A member is replaced",
        "Three nodes with a log of 1 GiB, entries of 1 MiB, of which one is replaced by a new one, "
        "from the command until it has the old one's place. Beside it, in turn, stand two "
        "processes in plain Python: one reads the log's files and sends them over loopback, 4 MiB "
        "at a time "
        "with a CRC-32, the other one checks and writes them, and syncs behind on a thread of its "
        "own. Then a member is replaced beside appends, whose rate is compared with the one of "
        "before: it is filled in turns with rests between then. And once more at a limit of 64 MiB "
        "a second (`catch_up_bytes_per_s`).",
        (REPLACING,),
        floors={REPLACED: PLAIN},
    ),
    Chapter(
        "spark-floors",
        "Spark beside bare sockets and files",
        "Batch reads and writes of one session with two cores, which Spark's JVM, its Python "
        "workers and three nodes share. A source and a sink that do nothing show what Spark takes "
        "by itself. The floor is a source to which another process sends the stored columns from "
        "a file, and a sink that sends its Arrow batches to three processes, each of which writes "
        "and syncs them, without checksums, index, commit or repeats "
        "(`benchmarks/bare_rows.py`). No rows that three processes keep can be had for less. The "
        "run of 2026-11-28 shared its machine with others, so that its rates say little. All "
        "processor time of it, in s/M rows, by nothing, by the floor and by dledger: read of 7 "
        "columns 0.69, 0.78, 0.86; read of key and value alone 0.50, 0.58, 0.77; write 0.56, 0.90, "
        "1.24. By that measure the floor of a write reaches 0.62 of the sink that does nothing, "
        "and that of a read 0.88 of the source; this source takes 1.37 times as much for 7 columns "
        "as for 2. What dledger adds to the floor is nearly all in the nodes.",
        (SPARK,),
        floors=BESIDE,
    ),
    Chapter(
        "keyed",
        "Spark's writes by key",
        "The same bytes a row with and without a key, to 50 partitions and to one. The floor of a "
        "write by key is the same write without keys: of a sink that does nothing it is Spark's "
        "own price for a second column.",
        (KEYED,),
        floors={
            BY_KEY + of + what: BY_TURN + of + what
            for of in (SINK, "", ONE_PARTITION)
            for what in ("", SPARK_COST)
        },
    ),
    Chapter(
        "available",
        "Spark's trigger AvailableNow",
        "Whole queries, from their start to their end; Spark starts a Python process for the "
        "source of each. The floor is the query of a stream source that does nothing.",
        (AVAILABLE,),
        floors={STREAM + what: NO_STREAM + what for what in ("", SPARK_COST)},
    ),
    Chapter(
        "poll",
        "From an acknowledgement to a reader",
        "A reader with a long poll in a process of its own, while a record is appended each 10 ms.",
        (READABLE,),
    ),
    Chapter(
        "curves-size",
        "Over the size of the log",
        "One node, a log of records of 1 MiB. The log is written by the store itself while "
        "the node is stopped (`benchmarks/long_logs.py`): files of 1 GiB, headers, both "
        "checksums, index, the catalog's rows and its checkpoint are as a node makes them, "
        "and are all on the disk. The values are zeros, which are left out as holes: they "
        "read as the zeros that the checksums were made of. Each repetition appends for a "
        "second with 512 requests of 1 KiB in flight, kills the node, and looks at the "
        "process that is started then. Blocks on the disk are those at the beginning of each "
        "point.",
        curve=BY_SIZE,
    ),
    Chapter(
        "curves-entries",
        "Over the number of entries",
        "As before, with records of 100 bytes, one an entry, and nothing left out.",
        curve=BY_ENTRIES,
    ),
    Chapter(
        "curves-partitions",
        "Over the number of partitions",
        "A new group of one node for each count. A plan is made as the long-lived planner of "
        "a query makes it, without Spark, after a transaction has added a record to each "
        "partition. Nodes are killed under the load of before, after their first checkpoint, "
        "which makes a file for each partition.",
        curve=BY_PARTITIONS,
    ),
    Chapter(
        "curves-connections",
        "Over the number of connections",
        "One load generator, which sends the next request over a connection when the last one "
        "is answered. All counts in turn, five times.",
        curve=BY_CONNECTIONS,
    ),
    Chapter(
        "curves-written",
        "Memory over what was written",
        "One process of one node, 8 requests in flight; what is beyond a GiB goes again.",
        curve=BY_WRITTEN,
    ),
    Chapter(
        "curves-gaps",
        "The longest time without an acknowledgement",
        "Three replicas, 10,000 partitions, records of 1 KiB to each in turn, 64 in flight, "
        "with files of 16 MiB, 64 MiB kept and a checkpoint each 20,000 entries. A slice "
        "takes 10 s, or longer, until a checkpoint, a new file and retention have all "
        "happened in it. The floor writes and syncs 64 KiB at a time by bare sockets and "
        "files, in slices of 10 s between those of the group.",
        (GAPS,),
        floors={OURS: BARE},
    ),
)
"""In the order of the page."""
