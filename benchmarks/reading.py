"""Reads of a range of records: entries of many records, and of one each."""

from __future__ import annotations

import time
from pathlib import Path

import pyarrow as pa

from benchmarks import machine
from benchmarks.appends import leader_address
from benchmarks.groups import variants
from benchmarks.load import append_load
from benchmarks.report import Report
from dledger import Client, EmbeddedGroup

READ = "Client.read of 100 B values without keys"
TOPICS = {"many": "entries of 10,000 records", "one": "entries of one record"}
ROWS = 10_000


def reading(report: Report, directory: Path, repetitions: int, *, quick: bool) -> None:
    """(n) Rows per second of one reader."""
    with variants(directory, "1 replica", "3 replicas") as running:
        for group, client in running.values():
            _fill(group, client, 100 if quick else 200_000)
        for _ in range(repetitions):
            machine.measure(report, directory, quick=quick)
            for label, (_, client) in running.items():
                for topic, entries in TOPICS.items():
                    report.add(READ, f"{entries}, {label}", "rows/s", _read(client, topic))


def _fill(group: EmbeddedGroup, client: Client, entries: int) -> None:
    many, one = (client.create_topic(topic) for topic in TOPICS)
    values = pa.array([b"x" * 100] * ROWS, pa.binary())
    for _ in range(10 * entries // ROWS or 1):
        client.append(many.name, values)
    done = 0
    while done < entries:
        done += append_load(leader_address(group), one.topic_id, 100, 512, 0.5).requests


def _read(client: Client, topic: str) -> float:
    began = time.perf_counter()
    rows: int = sum(batch.num_rows for batch in client.read(topic, 0, 0))
    return rows / (time.perf_counter() - began)
