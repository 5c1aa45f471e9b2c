"""python examples/from_kafka.py JARS

A topic of a real Kafka, copied to dledger and back by Spark while records come in and the copying
program is killed; then records, offsets and micro-batches of both sides are held against each
other. `make kafka` fetches the jars and runs it. Exit code 0 only when all of it holds.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from dledger import Client, EmbeddedGroup
from kafka_copy import queries
from kafka_copy.broker import Broker
from kafka_copy.queries import BACK, BY_KEY, PARTITIONS, TOPIC
from kafka_copy.reconcile import (
    Finding,
    batches_read,
    batches_written,
    query_id,
    same_batches,
    same_partitions,
    same_records,
)

FIRST, MORE = 60_000, 20_000
ROWS_PER_BATCH = 3000
PATIENCE_S = 600


class Copy:
    """The copying program as a process that can be killed, Python, JVM and all."""

    def __init__(self, jars: Path, kafka: str, servers: str, checkpoint: Path, log: Path) -> None:
        self._log = log
        command = [sys.executable, __file__, str(jars), "--copy", kafka, servers, str(checkpoint)]
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
            )

    def kill(self) -> None:
        """SIGKILL for all of it."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def check(self) -> None:
        """Raise when it has ended by itself."""
        if self._process.poll() is not None:
            raise SystemExit(
                f"the copy has ended too soon:\n{self._log.read_text(errors='replace')[-3000:]}"
            )

    def finish(self) -> None:
        """Wait until it has copied everything."""
        if self._process.wait(PATIENCE_S):
            raise SystemExit(
                f"the copy has failed:\n{self._log.read_text(errors='replace')[-3000:]}"
            )


def copied(client: Client) -> int:
    """Records that are in dledger."""
    known = any(info.name == TOPIC for info in client.topics())
    return sum(client.end_offsets(TOPIC).values()) if known else 0


def kill_at(copy: Copy, client: Client, records: int) -> int:
    """Kill it some time after so many records are copied; how many there are then."""
    deadline = time.monotonic() + PATIENCE_S
    while copied(client) < records:
        copy.check()
        if time.monotonic() > deadline:
            raise SystemExit(
                f"waited {PATIENCE_S} s for {records} records: {copied(client)} are copied"
            )
        time.sleep(0.05)
    time.sleep(random.random() / 2)
    copy.check()
    copy.kill()
    return copied(client)


def run(jars: Path, directory: Path, kafka: Broker, servers: str, client: Client) -> list[Finding]:
    """The story, step by step; what was found in the end."""
    spark, checkpoint = queries.session(jars), directory / "checkpoint"
    queries.fill(spark, kafka.servers, 0, FIRST)
    print(f"Kafka has {FIRST:,} records in {PARTITIONS} partitions of {TOPIC}")
    for turn in (1, 2):
        copy = Copy(jars, kafka.servers, servers, checkpoint, directory / "copy.log")
        print(
            f"  SIGKILL of the copy with {kill_at(copy, client, turn * FIRST // 4):,} records in "
            f"dledger"
        )
    queries.fill(spark, kafka.servers, FIRST, FIRST + MORE)
    print(f"Kafka has {MORE:,} more")
    Copy(jars, kafka.servers, servers, checkpoint, directory / "copy.log").finish()
    queries.copy_back(spark, kafka.servers, servers, str(directory / "back"))
    queries.copy_by_key(spark, servers)
    there = queries.records(queries.in_kafka(spark, kafka.servers, TOPIC))
    here = queries.records(queries.in_log(spark, servers, TOPIC))
    back = queries.records(queries.in_kafka(spark, kafka.servers, BACK))
    by_key = queries.records(queries.in_log(spark, servers, BY_KEY))
    spark.stop()
    for partition in range(PARTITIONS):
        ends = [
            max((r[1] + 1 for r in side if r[0] == partition), default=0)
            for side in (there, here, back)
        ]
        print(
            f"  partition {partition}: ends at {ends[0]:,} in Kafka, {ends[1]:,} in dledger, "
            f"{ends[2]:,} in {BACK}"
        )
    read = batches_read(checkpoint, TOPIC, {})
    written = batches_written(client.commits(), query_id(checkpoint), TOPIC)
    return [
        same_records(
            "Kafka to dledger: each record once, with its offset and its time",
            there,
            here,
            times=True,
        ),
        same_batches("each micro-batch wrote the offsets that it read", read, written),
        same_records(
            "dledger to Kafka: each record once, with its offset", here, back, times=False
        ),
        same_partitions("a key alone leads to the partition that it has in Kafka", there, by_key),
        Finding(
            "as many as were sent",
            f"{len(there):,} of {FIRST + MORE:,}",
            len(there) == FIRST + MORE,
        ),
    ]


def main() -> None:
    """Kafka, a group, the story, the verdict."""
    if len(sys.argv) < 2:
        raise SystemExit("which jars? make kafka fetches them, and runs this")
    jars = Path(sys.argv[1])
    if "--copy" in sys.argv:
        source, servers, checkpoint = sys.argv[3:]
        queries.copy(queries.session(jars), source, servers, checkpoint, ROWS_PER_BATCH)
        return
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        directory = Path(name)
        with (
            Broker(jars / "broker", directory / "kafka", PARTITIONS) as kafka,
            EmbeddedGroup(directory / "log", replicas=3) as group,
            Client(group.bootstrap_servers) as client,
        ):
            findings = run(jars, directory, kafka, group.bootstrap_servers, client)
    for one in findings:
        print(f"{'holds ' if one.holds else 'BROKEN'}  {one.claim}: {one.found}")
    if not all(one.holds for one in findings):
        sys.exit(1)


if __name__ == "__main__":
    main()
