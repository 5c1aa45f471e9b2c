"""A group that starts, and one that loses its leader."""

from __future__ import annotations

import threading
import time
from bisect import bisect
from itertools import pairwise
from pathlib import Path

from benchmarks.groups import group, until_in_step
from benchmarks.report import Report
from dledger import Client, EmbeddedGroup
from dledger.errors import DLedgerError

FAILOVER, START = "leader SIGKILL to the next acknowledged append", "embedded group"


class Appender(threading.Thread):
    """Appends one small record after the other and notes when each was acknowledged."""

    def __init__(self, servers: str) -> None:
        super().__init__(daemon=True)
        self._servers = servers
        self._done = threading.Event()
        self.acknowledged: list[float] = []
        self.failures: list[DLedgerError] = []

    def run(self) -> None:
        with Client(self._servers) as client:
            while not self._done.is_set():
                try:
                    client.append("bench", b"x")
                except DLedgerError as error:
                    self.failures.append(error)
                else:
                    self.acknowledged.append(time.perf_counter())

    def wait_for(self, count: int) -> None:
        """Until so many more are acknowledged."""
        wanted = len(self.acknowledged) + count
        while len(self.acknowledged) < wanted:
            time.sleep(0.01)

    def finish(self) -> None:
        self._done.set()
        self.join()

    def pause_after(self, moment: float) -> float:
        """The longest time without an acknowledgement from that moment on; the kill of an idle
        moment is in it."""
        known = self.acknowledged[:]
        return max(b - a for a, b in pairwise([moment, *known[bisect(known, moment) :]]))


def failover(report: Report, directory: Path, repetitions: int, *, quick: bool) -> None:
    """(d) The client's view, each time from the SIGKILL on; the killed node is back and in step
    before the next."""
    with group(directory, 3) as running, Client(running.bootstrap_servers) as client:
        for _ in range(2 if quick else max(20, repetitions)):
            until_in_step(client)
            report.add(FAILOVER, "three replicas", "s", one_failover(running))


def one_failover(running: EmbeddedGroup) -> float:
    """Kill the leader under a steady append; seconds until the next acknowledgement. It is
    restarted."""
    appender = Appender(running.bootstrap_servers)
    appender.start()
    appender.wait_for(50)
    victim = running.leader
    moment = time.perf_counter()
    running.kill(victim)
    appender.wait_for(50)
    appender.finish()
    running.restart(victim)
    return appender.pause_after(moment)


def start(report: Report, directory: Path, repetitions: int, *, quick: bool) -> None:
    """(e) From nothing to the first acknowledged append, and again on the same files."""
    for n in range(1 if quick else max(5, repetitions)):
        for replicas in (1, 3):
            path = directory / f"start-{n}-{replicas}"
            for what in ("new", "again"):
                began = time.perf_counter()
                with (
                    EmbeddedGroup(path, replicas=replicas) as running,
                    Client(running.bootstrap_servers) as client,
                ):
                    if what == "new":
                        client.create_topic("first")
                    client.append("first", b"record")
                    took = time.perf_counter() - began
                label = f"{replicas} node{'s'[: replicas > 1]}"
                report.add(START, f"{what}, {label}, to the first acknowledgement", "s", took)
