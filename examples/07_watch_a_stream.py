"""python examples/07_watch_a_stream.py

Throughput and lag of a query, out of its own progress: a burst of records, a query that catches up,
and a picture.
"""

import json
import sys
import tempfile
import threading
import time
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.sql import SparkSession

from dledger import Client, EmbeddedGroup
from session import spark_session

TICKS = 40
LEAST, MOST = 100, 2000
"""Records of a tick: few, then in the middle a burst that is more than the query takes in one
micro-batch."""


class Point(NamedTuple):
    """One micro-batch."""

    second: float
    """Since the first one began."""
    rows: int
    rows_per_second: float
    lag: int
    """Records that were there and not read when it was planned."""


def records(offset: str | None) -> int:
    """Offsets of all partitions, summed up. No offset is ever skipped, so differences of such sums
    are records."""
    logs = json.loads(offset)["logs"] if offset else {}
    return sum(sum(log["p"].values()) for log in logs.values())


def points(progress: list[Any]) -> list[Point]:
    """What StreamingQueryProgress says of each micro-batch that had rows."""
    found: list[Point] = []
    begin: datetime | None = None
    for one in progress:
        if one.numInputRows:
            at = datetime.fromisoformat(one.timestamp)
            begin = begin or at
            source = one.sources[0]
            lag = records(source.latestOffset) - records(source.endOffset)
            found.append(
                Point(
                    (at - begin).total_seconds(), one.numInputRows, one.processedRowsPerSecond, lag
                )
            )
    return found


def feed(servers: str) -> None:
    """Append for some ten seconds, ever more and then less."""
    with Client(servers) as client:
        for tick in range(TICKS):
            count = MOST if TICKS // 3 < tick < 2 * TICKS // 3 else LEAST
            client.append("clicks", [b"x" * 100] * count)
            time.sleep(0.25)


def run(spark: SparkSession, servers: str, checkpoint: str) -> list[Any]:
    """The query, until it has read everything; its progress."""
    reader = spark.readStream.format("dledger").option("dledger.bootstrap.servers", servers)
    reader = reader.option("subscribe", "clicks").option("startingOffsets", "earliest")
    clicks = reader.option("maxOffsetsPerTrigger", 1500).load()
    query = clicks.writeStream.format("noop").option("checkpointLocation", checkpoint).start()
    # Spark's workers take their time to start; that is no lag of the query
    query.processAllAvailable()
    feeder = threading.Thread(target=feed, args=(servers,))
    feeder.start()
    feeder.join()
    query.processAllAvailable()
    query.stop()
    return query.recentProgress


def draw(found: list[Point], path: Path) -> bool:
    """Save a picture; False without matplotlib."""
    try:
        import matplotlib
    except ImportError:
        return False
    matplotlib.use("Agg")  # a file, no window
    from matplotlib import pyplot

    figure, (upper, lower) = pyplot.subplots(2, sharex=True)
    seconds = [point.second for point in found]
    upper.plot(seconds, [point.rows_per_second for point in found])
    upper.set_ylabel("rows/s")
    lower.fill_between(seconds, [point.lag for point in found], step="post")
    lower.set_ylabel("lag, records")
    lower.set_xlabel("seconds")
    figure.savefig(path)
    return True


def main() -> None:
    """Feed, read, and show what the progress says."""
    spark = spark_session("watch")
    with (
        tempfile.TemporaryDirectory() as directory,
        EmbeddedGroup(f"{directory}/log", replicas=3) as group,
    ):
        with Client(group.bootstrap_servers) as client:
            client.create_topic("clicks")
            client.append("clicks", b"the first one, for Spark to start its workers by")
            found = points(run(spark, group.bootstrap_servers, f"{directory}/checkpoint"))
            appended = client.end_offsets("clicks")[0]
        spark.stop()
    for point in found:
        print(
            f"  {point.second:5.1f} s  {point.rows:5} rows  {point.rows_per_second:8,.0f} rows/s  "
            f"lag {point.lag:6,}"
        )
    print(f"rows in progress: {sum(point.rows for point in found)} of {appended} records")
    print(f"largest lag: {max(point.lag for point in found)} records, at the end {found[-1].lag}")
    path = Path(
        sys.argv[1]
        if len(sys.argv) > 1
        else f"{tempfile.gettempdir()}/dledger-throughput-and-lag.png"
    )
    print(
        f"drawn in {path}"
        if draw(found, path)
        else "for a picture of it: pip install 'dledger[examples]'"
    )


if __name__ == "__main__":
    main()
