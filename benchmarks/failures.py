"""A group that starts, and one that loses its leader."""

from __future__ import annotations

import threading
import time
from itertools import pairwise
from pathlib import Path

from benchmarks.groups import group, until_in_step
from benchmarks.report import Report
from dledger import Client, EmbeddedGroup

FAILOVER, START = "leader SIGKILL to the next acknowledged append", "embedded group"


class Appender(threading.Thread):
    """Appends one small record after the other and notes when each was acknowledged."""

    def __init__(self, servers: str) -> None:
        super().__init__(daemon=True)
        self._servers = servers
        self._done = threading.Event()
        self.acknowledged: list[float] = []

    def run(self) -> None:
        with Client(self._servers) as client:
            while not self._done.is_set():
                client.append("bench", b"x")
                self.acknowledged.append(time.perf_counter())

    def finish(self) -> None:
        self._done.set()
        self.join()

    def pause_after(self, moment: float) -> float:
        """The longest time without an acknowledgement from that moment on; the kill of an idle moment is in it."""
        return max(b - a for a, b in pairwise([moment, *(at for at in self.acknowledged if at > moment)]))


def failover(report: Report, directory: Path, repetitions: int, *, quick: bool) -> None:
    """(d) The client's view, each time from the SIGKILL on; the killed node is back and in step before the next."""
    with group(directory, 3) as running, Client(running.bootstrap_servers) as client:
        for _ in range(2 if quick else max(20, repetitions)):
            until_in_step(client)
            report.add(FAILOVER, "three replicas", "s", one_failover(running))


def one_failover(running: EmbeddedGroup) -> float:
    """Kill the leader under a steady append; seconds until the next acknowledgement. It is restarted."""
    appender = Appender(running.bootstrap_servers)
    appender.start()
    while len(appender.acknowledged) < 50:
        time.sleep(0.01)
    victim = running.leader
    before, moment = len(appender.acknowledged), time.perf_counter()
    running.kill(victim)
    while len(appender.acknowledged) < before + 50:
        time.sleep(0.01)
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
                with EmbeddedGroup(path, replicas=replicas) as running, Client(running.bootstrap_servers) as client:
                    if what == "new":
                        client.create_topic("first")
                    client.append("first", b"record")
                    took = time.perf_counter() - began
                label = f"{replicas} node{'s'[: replicas > 1]}"
                report.add(START, f"{what}, {label}, to the first acknowledgement", "s", took)
