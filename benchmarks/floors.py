"""The figures that must not be missed on a machine of two cores whose disk syncs cheaply."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.appends import LATENCY, MEMORY, THROUGHPUT
from benchmarks.availability import ELECTIONS, FAILED, GAP, HANDOVER, ROLLING
from benchmarks.backups import BACKUPS, MOVED
from benchmarks.backups import SHARE as OF_COPY
from benchmarks.brokers import BEHIND, BROKERS, LIKE_THEIRS
from benchmarks.brokers import RATIO as TIMES_BROKERS
from benchmarks.costs import BARE_MANY, BARE_ONE, COSTS
from benchmarks.curves import ENTRIES, NODE_MIB, RESTART
from benchmarks.curves import WRITTEN as WRITTEN_GIB
from benchmarks.digests import DIGEST, MORE, RECORDS, TYPED
from benchmarks.failures import FAILOVER, START
from benchmarks.fairness import APART, BESIDE, FAIRNESS, MOST, OF_ALONE, OF_HALF
from benchmarks.following import BARE, FOLLOWING, WRITTEN
from benchmarks.frames import FRAMES
from benchmarks.frames import RATIO as FLIGHT
from benchmarks.gaps import BARE as BARE_WAY
from benchmarks.gaps import GAPS, OURS
from benchmarks.kafka_producing import BESIDE as BESIDE_KAFKA
from benchmarks.kafka_producing import CLIENT as OF_CLIENT
from benchmarks.kafka_producing import OURS as BY_US
from benchmarks.kafka_producing import RATIO as TIMES_KAFKA
from benchmarks.planning import ALONE, KIB, LIMITED, PLANNING
from benchmarks.producing import SIZES
from benchmarks.replacing import KEPT, OF_LIMIT, REPLACING
from benchmarks.replacing import SHARE as OF_SENDER
from benchmarks.report import BYTES, Floor, Report
from benchmarks.rocketmq import ALL, ROCKETMQ
from benchmarks.safeguards import LOADS, SAFEGUARDS, SHARE, UNDER_TLS, WITHOUT_TLS
from benchmarks.spark import NOTHING, READ, WRITE
from benchmarks.spark_costs import AVAILABLE, BY_KEY, BY_TURN, COST, KEYED, STREAM
from benchmarks.spark_costs import NOTHING as NO_STREAM
from benchmarks.typed import NESTED, RATIO
from benchmarks.typed import READ as TYPED_READ
from benchmarks.visible import LOG, SOCKETS, VISIBLE
from benchmarks.visible import NOTHING as NO_SOURCE


def median(section: str, name: str) -> Callable[[Report], float]:
    """A case's median."""
    return lambda report: report.median(section, name)


def share(section: str, name: str, ceiling: str) -> Callable[[Report], float]:
    """A case's median as a share of another one's."""
    return lambda report: report.median(section, name) / report.median(section, ceiling)


def tail(section: str, name: str) -> Callable[[Report], float]:
    """A case's 99th percentile; of fewer than a hundred repetitions that is the worst one."""
    return lambda report: report.cases[section, name].percentile(0.99)


def highest(section: str, name: str) -> Callable[[Report], float]:
    """The worst of a case where less is better."""
    return lambda report: report.cases[section, name].high


def lowest(section: str, name: str) -> Callable[[Report], float]:
    """The worst of a case where more is better."""
    return lambda report: report.cases[section, name].low


def more(section: str, name: str, beside: str) -> Callable[[Report], float]:
    """By how much a case's median is above another one's."""
    return lambda report: report.median(section, name) - report.median(section, beside)


def beyond(section: str, name: str, beside: str) -> Callable[[Report], float]:
    """By how much the worst of a case is above the worst of another one."""
    return lambda report: report.cases[section, name].high - report.cases[section, beside].high


FLOORS = (
    Floor(
        "Spark batch read, share of the do-nothing source, 3 replicas",
        share(READ, "dledger, 3 replicas", NOTHING.format("source")),
        0.6,
        True,
    ),
    Floor(
        "Spark batch write, share of the do-nothing sink, 3 replicas",
        share(WRITE, "dledger, 3 replicas", NOTHING.format("sink")),
        0.35,
        True,
    ),
    Floor(
        "Spark batch write, share of the do-nothing sink, 1 replica",
        share(WRITE, "dledger, 1 replica", NOTHING.format("sink")),
        0.55,
        True,
    ),
    Floor(
        "Spark batch write by key to 50 partitions, times the processor time of one without keys",
        share(KEYED, BY_KEY + COST, BY_TURN + COST),
        1.4,
        False,
    ),
    Floor(
        "Spark's trigger AvailableNow, share of the do-nothing source's",
        share(AVAILABLE, STREAM, NO_STREAM),
        0.6,
        True,
    ),
    Floor(
        "Spark batch read of typed rows, times as fast as from_json",
        median(TYPED_READ, RATIO),
        5,
        True,
    ),
    Floor("the same, nested rows", median(TYPED_READ + NESTED, RATIO), 5, True),
    *(
        Floor(
            f"typed rows as a frame of {library}, share of pyarrow.flight",
            median(FRAMES, library + FLIGHT),
            0.7,
            True,
        )
        for library in ("Polars", "DuckDB", "pandas")
    ),
    *(
        Floor(
            f"share of the digest in a Spark write's processor time, {kind}",
            median(DIGEST, f"{kind}, {MORE}"),
            5,
            False,
            "%",
        )
        for kind in (RECORDS, TYPED)
    ),
    *(
        Floor(
            f"age of a record in foreachBatch, p50, more than of a source that does "
            f"nothing{sockets}",
            more(VISIBLE, LOG + sockets, NO_SOURCE + sockets),
            30,
            False,
            "ms",
        )
        for sockets in SOCKETS
    ),
    Floor(
        "1 MiB appends, 3 replicas",
        median(THROUGHPUT, "1 MiB, 16 in flight, 3 replicas" + BYTES),
        270,
        True,
        "MB/s",
        bare=median(COSTS, BARE_MANY),
    ),
    Floor(
        "1 KiB single requests, 512 in flight, 3 replicas",
        median(THROUGHPUT, "1 KiB, 512 in flight, 3 replicas"),
        15_000,
        True,
        "/s",
    ),
    Floor(
        "one append of 1 KiB in flight, 3 replicas, p50",
        median(LATENCY, "Client.append of 1 KiB, 3 replicas"),
        0.8,
        False,
        "ms",
        bare=median(COSTS, f"{BARE_ONE}, latency"),
    ),
    Floor("plan of a micro-batch over 1,000 partitions", median(PLANNING, ALONE), 200, False, "ms"),
    Floor("plan of one that is cut down by bytes", median(PLANNING, LIMITED), 200, False, "ms"),
    Floor(
        "offsets of 1,000 partitions in the checkpoint", highest(PLANNING, KIB), 64, False, "KiB"
    ),
    Floor("failover", median(FAILOVER, "three replicas"), 0.8, False, "s"),
    Floor("failover, p99", tail(FAILOVER, "three replicas"), 1.5, False, "s"),
    Floor("failover, the worst", highest(FAILOVER, "three replicas"), 3, False, "s"),
    Floor("planned hand-over, p99", tail(HANDOVER, GAP), 200, False, "ms"),
    Floor("failed appends during hand-overs", highest(HANDOVER, FAILED), 0, False),
    Floor("failed appends during a rolling restart", highest(ROLLING, FAILED), 0, False),
    Floor("elections under full write load", highest(ELECTIONS, "elections"), 0, False),
    Floor(
        "embedded start of 3 nodes to the first acknowledgement",
        median(START, "new, 3 nodes, to the first acknowledgement"),
        2,
        False,
        "s",
    ),
    Floor(
        "scan of a RocketMQ commit log into all columns, per core",
        median(ROCKETMQ, ALL),
        150,
        True,
        "MB/s",
    ),
    Floor(
        "a slave follows a RocketMQ master",
        median(FOLLOWING, WRITTEN),
        200,
        True,
        "MB/s",
        bare=median(FOLLOWING, BARE),
    ),
    Floor("a slave follows a real RocketMQ master", median(BEHIND, WRITTEN), 200, True, "MB/s"),
    Floor(
        "puts of 1 KiB messages, times as many as three brokers in DLedger mode",
        median(BROKERS, LIKE_THEIRS + TIMES_BROKERS),
        3,
        True,
    ),
    *(
        Floor(
            f"values of {size} appended one by one, times confluent-kafka's",
            median(BESIDE_KAFKA, size + TIMES_KAFKA),
            1.3,
            True,
        )
        for size in SIZES
    ),
    Floor(
        "processor time of the client for a value of 100 B appended by itself",
        median(BESIDE_KAFKA, f"100 B, {BY_US}{OF_CLIENT}"),
        3,
        False,
        "µs",
    ),
    Floor(
        "memory of a node after 2 GiB, the largest",
        highest(MEMORY, "VmRSS of any node"),
        200,
        False,
        "MiB",
    ),
    Floor(
        "start of a killed node with ten million entries to its next acknowledgement, the longest",
        highest(ENTRIES, f"{RESTART}, 10,000,000"),
        2,
        False,
        "s",
    ),
    Floor(
        "memory of a node after 20 GiB, retention of 1 GiB",
        highest(WRITTEN_GIB, f"{NODE_MIB}, 20 GiB"),
        150,
        False,
        "MiB",
    ),
    Floor(
        "longest time without an acknowledgement at 10,000 partitions, beyond that of bare sockets "
        "and files",
        beyond(GAPS, OURS, BARE_WAY),
        50,
        False,
        "ms",
    ),
    Floor(
        "backup of 1 GiB, share of a plain read + SHA-256 + write",
        median(BACKUPS, OF_COPY),
        0.5,
        True,
    ),
    Floor(
        "bytes that the next backup moves, times the new ones", highest(BACKUPS, MOVED), 1.1, False
    ),
    Floor(
        "a member with 1 GiB is replaced, share of a plain sender and receiver",
        median(REPLACING, OF_SENDER),
        0.7,
        True,
    ),
    Floor(
        "appends while a member is filled, share of those without",
        median(REPLACING, KEPT),
        0.6,
        True,
    ),
    Floor(
        "bytes a second of a member that is filled at a limit, share of it, the most",
        highest(REPLACING, OF_LIMIT),
        1.1,
        False,
    ),
    Floor(
        "the same, the least",
        lowest(REPLACING, OF_LIMIT),
        0.9,
        True,
    ),
    *(
        Floor(
            f"throughput {where} with rules and metrics, share of that without, {load}",
            median(SAFEGUARDS, f"{where}, {load}, {SHARE}"),
            bound,
            True,
        )
        for where, bound in ((UNDER_TLS, 0.9), (WITHOUT_TLS, 0.95))
        for load in LOADS
    ),
    *(
        Floor(
            f"p99 of a light user beside one at full speed over {label}, of that alone",
            median(FAIRNESS, BESIDE.format(label) + OF_ALONE),
            3.0,
            False,
            "x",
            bare=median(FAIRNESS, APART.format(label) + OF_ALONE),
        )
        for label in MOST
    ),
    *(
        Floor(
            f"share of one at full speed beside the other over {label}, of a half",
            median(FAIRNESS, OF_HALF.format(label)),
            0.8,
            True,
            "x",
        )
        for label in MOST
    ),
)
