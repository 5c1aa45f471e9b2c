"""A RocketMQ commit log of 1 KiB messages, read on one core."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.report import Report
from dledger.rocketmq.columns.borders import walk_messages
from dledger.rocketmq.columns.commit_log import column_batches
from dledger.rocketmq.columns.windows import FileReader, LogSpan
from dledger.rocketmq.format.hosts import Host
from dledger.rocketmq.format.message import Message, encode_message
from dledger.rocketmq.format.scan import scan

ROCKETMQ = "RocketMQ commit log of 1 KiB messages, per core"
ALL = "into all Arrow columns, CRCs compared"
RANGE = 64 << 20
CASES: dict[str, Callable[[bytes], int]] = {
    ALL: lambda log: sum(b.rows.num_rows for b in column_batches(log) if b.rows),
    "into all Arrow columns, CRCs not compared": lambda log: sum(
        b.rows.num_rows for b in column_batches(log, check=False) if b.rows
    ),
    "into topic, body and store time, CRCs compared": lambda log: sum(
        b.rows.num_rows
        for b in column_batches(log, columns=["topic", "body", "store_timestamp"])
        if b.rows
    ),
    "the same in ranges of 64 MiB through windows, as Spark's tasks read": lambda log: (
        count_in_ranges(log)
    ),
    "only finding where messages begin": lambda log: len(
        walk_messages(memoryview(log), 0, len(log), 1 << 30)
    ),
    "one message after the other (scan)": lambda log: sum(1 for _ in scan(log)),
}


def count_in_ranges(log: bytes) -> int:
    """Rows of all columns."""
    reader = FileReader(
        lambda offset, length: log[offset : offset + length],
        LogSpan(0, len(log), len(log), len(log)),
    )
    return sum(
        batch.rows.num_rows
        for begin in range(0, len(log), RANGE)
        for batch in reader.batches(begin, begin + RANGE)
        if batch.rows
    )


def make_log(count: int) -> bytes:
    """Messages with keys, tags and a unique id, as a Java client sends them."""
    parts, at = [], 0
    for n in range(count):
        properties = (
            f"KEYS\x01order-{n}\x02UNIQ_KEY\x017F00000100002A139A5518B4AAC2{n & 0xFFFF:04X}\x02"
            f"CLUSTER\x01DefaultCluster\x02TAGS\x01tag{n % 8}"
        )
        parts.append(
            encode_message(
                Message(
                    "orders",
                    bytes([n % 251]) * 1024,
                    properties,
                    queue_id=n % 8,
                    queue_offset=n // 8,
                    physical_offset=at,
                    born_timestamp=1_790_000_000_000 + n,
                    born_host=Host.of("10.0.0.1", 40_000 + n % 50),
                    store_timestamp=1_790_000_000_001 + n,
                    store_host=Host.of("10.0.0.2", 10_911),
                )
            )
        )
        at += len(parts[-1])
    return b"".join(parts)


def rocketmq(report: Report, _directory: Path, repetitions: int, *, quick: bool) -> None:
    """(k) Processor time of a scan in memory; where the bytes come from is not measured."""
    count = 2_000 if quick else 200_000
    log = make_log(count)
    for _ in range(repetitions):
        for name, run in CASES.items():
            began = time.process_time()
            assert run(log) == count
            spent = time.process_time() - began
            report.add(ROCKETMQ, name, "MB/s", len(log) / 1e6 / max(spent, 1e-9))
