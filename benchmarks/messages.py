"""Messages of 1 KiB put into the RocketMQ commit log of a group of three (DLedgerCommitLog)."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks import machine
from benchmarks.appends import leader_address
from benchmarks.put_load import put_load
from benchmarks.report import Report
from dledger import Client, EmbeddedGroup
from dledger.rocketmq.format.message import Message, encode_message

MESSAGES = "puts of 1 KiB messages, each its own entry, 3 replicas"
SIZE = 1024
CASES = ((1, 1), (16, 1), (512, 1), (16, 32), (4, 256))
"""Requests in flight, and messages in each. RocketMQ's own benchmark has 16 threads with one
message each."""
MOST = "16 in flight, 32 messages each"


def encoded(count: int) -> bytes:
    """Messages with a unique id and a tag, as a Java client sends them."""
    one = encode_message(
        Message("bench", b"x" * SIZE, "UNIQ_KEY\x017F00000100002A139A5518B4AAC20001\x02TAGS\x01a")
    )
    return one * count


@contextmanager
def commit_log(directory: Path, flush: str) -> Iterator[EmbeddedGroup]:
    """A group that is a commit log, gone with its files afterwards."""
    path = directory / f"messages-{flush}-{os.getpid()}-{time.monotonic_ns()}"
    running = EmbeddedGroup(path, replicas=3, commit_log="rocketmq", flush=flush)
    try:
        yield running
    finally:
        running.stop()
        shutil.rmtree(path, ignore_errors=True)


def until_dispatched(client: Client, timeout_s: float = 120) -> None:
    """Wait until consume queues and index of all nodes have everything, so that one case does not
    pay for another."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        states = client.status().values()
        ends = {state.get("end_index") for state in states} | {
            state.get("dispatched_index") for state in states
        }
        if len(ends) == 1 and None not in ends:
            return
        time.sleep(0.02)
    raise RuntimeError(f"queues and index do not come into step: {client.status()}")


def messages(report: Report, directory: Path, repetitions: int, *, quick: bool) -> None:
    """(m) Put by one connection; a message counts when it is acknowledged, and with the time until
    every node has it in its consume queues and its index."""
    seconds = 0.2 if quick else 3.0
    for flush in ("sync", "async"):
        suffix = "" if flush == "sync" else ", not synced"
        with commit_log(directory, flush) as group, Client(group.bootstrap_servers) as client:
            for _ in range(repetitions):
                machine.measure(report, directory, quick=quick)
                for in_flight, each in CASES:
                    began = time.perf_counter()
                    load = put_load(leader_address(group), encoded(each), each, in_flight, seconds)
                    until_dispatched(client)
                    name = f"{in_flight} in flight, {each} messages each{suffix}"
                    report.add(MESSAGES, name, "messages/s", load.per_second)
                    whole = time.perf_counter() - began
                    report.add(
                        MESSAGES, f"{name}, until dispatched", "messages/s", load.requests / whole
                    )
