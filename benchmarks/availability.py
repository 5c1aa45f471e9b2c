"""Leadership that moves on request, and that does not move by itself."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks.appends import leader_address
from benchmarks.failures import Appender
from benchmarks.groups import group, until_in_step
from benchmarks.load import append_load
from benchmarks.report import Report
from dledger import Client, EmbeddedGroup
from dledger.errors import DLedgerError, Unavailable

HANDOVER, ROLLING = (
    "planned hand-over under a steady append",
    "rolling restart of three nodes under load",
)
ELECTIONS = "elections under full write load"
GAP, FAILED = "longest time without an acknowledgement", "failed appends"
MANY = (1 << 10, 512)
LARGE = (1 << 20, 8)
"""Body size and requests in flight of the two loads that no election may come from."""


def handover(report: Report, directory: Path, repetitions: int, *, quick: bool) -> None:
    """One client appends; leadership goes round and round. How long it waits, and whether anything
    fails."""
    with group(directory, 3) as running, Client(running.bootstrap_servers) as client:
        appender = Appender(running.bootstrap_servers)
        appender.start()
        members = list(running.nodes)
        for turn in range(2 if quick else max(20, repetitions)):
            appender.wait_for(30)
            leader = running.leader
            to = members[(members.index(leader) + 1 + turn % 2) % len(members)]
            moment = time.perf_counter()
            with suppress(Unavailable):  # given up, and the old leader goes on: that is a gap too
                client.transfer(to)
            appender.wait_for(30)
            report.add(HANDOVER, GAP, "ms", 1000 * appender.pause_after(moment))
        appender.finish()
        report.add(HANDOVER, FAILED, "", len(appender.failures))


class Stream(threading.Thread):
    """Keeps an idempotent producer busy with batches of small records."""

    def __init__(self, servers: str) -> None:
        super().__init__(daemon=True)
        self._servers = servers
        self._done = threading.Event()
        self.records = 0
        self.failures: list[DLedgerError] = []

    def run(self) -> None:
        values = pa.array([b"x" * 100] * 100, pa.binary())
        futures: list[Any] = []
        with Client(self._servers) as client, client.producer("bench") as producer:
            while not self._done.is_set():
                futures.append(producer.append(values))
                time.sleep(0.005)
            producer.flush()
        for future in futures:
            try:
                answer = future.result()
            except DLedgerError as error:
                self.failures.append(error)
            else:
                self.records += answer.end - answer.start

    def finish(self) -> None:
        self._done.set()
        self.join()


def rolling(report: Report, directory: Path, repetitions: int, *, quick: bool) -> None:
    """SIGTERM, start again, wait until it is in step, next. What was acknowledged is counted in the
    end."""
    with group(directory, 3) as running, Client(running.bootstrap_servers) as client:
        appenders = [Appender(running.bootstrap_servers) for _ in range(3)]
        stream = Stream(running.bootstrap_servers)
        for thread in (*appenders, stream):
            thread.start()
        appenders[0].wait_for(50)
        for _ in range(1 if quick else max(3, repetitions)):
            for node in list(running.nodes):
                leads = running.leader == node
                moment = time.perf_counter()
                running.restart(node)
                until_keeping_up(client, running)
                appenders[0].wait_for(20)
                what = f"{GAP}, the {'leader' if leads else 'follower'} restarts"
                report.add(ROLLING, what, "ms", *(1000 * a.pause_after(moment) for a in appenders))
        for appender in appenders:
            appender.finish()
        stream.finish()
        acknowledged = stream.records + sum(len(a.acknowledged) for a in appenders)
        failures = [*stream.failures, *(f for a in appenders for f in a.failures)]
        for failure in failures:
            print(f"failed: {failure}")
        until_in_step(client)
        report.add(ROLLING, FAILED, "", len(failures))
        report.add(
            ROLLING,
            "acknowledged records that are not in the log, or twice",
            "",
            abs(client.end_offsets("bench")[0] - acknowledged),
        )


def until_keeping_up(client: Client, running: EmbeddedGroup, timeout_s: float = 60) -> None:
    """Wait until every node has applied what was committed when it was asked, as an operator
    would."""
    committed = max(state.get("committed_index", -1) for state in client.status().values())
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        applied = [state.get("applied_index", -1) for state in client.status().values()]
        if len(applied) == len(running.nodes) and min(applied) >= committed:
            return
        time.sleep(0.02)
    raise RuntimeError(f"a node does not keep up: {client.status()}")


def elections(report: Report, directory: Path, repetitions: int, *, quick: bool) -> None:
    """``repetitions`` minutes of as many appends as the group takes, small and large in turn."""
    with (
        group(directory, 3, retention_bytes=4 << 30) as running,
        Client(running.bootstrap_servers) as client,
    ):
        topic_id, before = client.topic("bench").topic_id, highest_term(client)
        began = time.monotonic()
        until = began + (2 if quick else 60 * repetitions)
        while time.monotonic() < until:
            for size, in_flight in (MANY, LARGE):
                load = append_load(
                    leader_address(running), topic_id, size, in_flight, 1 if quick else 10
                )
                name = f"{size:,} B, {in_flight} in flight"
                report.add(ELECTIONS, name, "MB/s", load.megabytes_per_second)
                report.add(
                    ELECTIONS, f"{name}, the slowest answer", "ms", 1000 * max(load.latencies)
                )
        minutes = (time.monotonic() - began) / 60
        report.add(ELECTIONS, "time", "min", minutes)
        report.add(ELECTIONS, "elections", "", highest_term(client) - before)


def highest_term(client: Client) -> int:
    """The term of the last election that anybody knows of."""
    term: int = max(state.get("term", -1) for state in client.status().values())
    return term
