"""Beside RocketMQ's own programs: messages into three of its brokers in DLedger mode and into a
group of three nodes, and a slave of one of its masters."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from benchmarks import machine
from benchmarks.appends import leader_address
from benchmarks.following import ACKNOWLEDGED, WRITTEN, follow, write_log
from benchmarks.messages import SIZE, commit_log, encoded, until_dispatched
from benchmarks.put_load import put_load
from benchmarks.report import Report
from benchmarks.rocketmq import make_log
from dledger import Client

BROKERS = "messages of 1 KiB, 3 replicas, beside RocketMQ's brokers in DLedger mode"
BEHIND = "slave of a real RocketMQ master, 1 KiB messages, over loopback"
JARS = "DLEDGER_INTEROP"
"""The environment variable with the folder of jars, as for the tests against the real programs."""
THEIRS = "three brokers, asynchronous flush, 16 threads of RocketMQ's producer"
OURS = {"sync": "a group, each message synced before it counts", "async": "a group, flush=async"}
CASES = {"16 in flight": (16, 1), "4 in flight, 256 messages each": (4, 256)}
LIKE_THEIRS = f"{OURS['async']}, 4 in flight, 256 messages each"
"""What counts before it is synced, as it does with the brokers."""
RATIO = ", times the brokers"
TOPIC = "measured"
THREADS = 16
QUEUES = 4
MEMORY = ("-Xms1g", "-Xmx1g")
"""The virtual machine is otherwise as it is without a word."""
FILE_BYTES = 1 << 30
"""Of a commit log file, as it is without a word."""


@contextmanager
def real_programs(directory: Path) -> Iterator[tuple[Any, Any]]:
    """The module that starts RocketMQ's programs, and programs with their files in ``directory``.

    Raises:
        SystemExit: there are no jars.
    """
    jars = Path(os.environ.get(JARS, ""))
    if not any(jars.glob("rocketmq-broker-*.jar")):
        raise SystemExit(
            f"the section brokers needs the real RocketMQ: make bench BENCH=brokers (it sets "
            f"{JARS})"
        )
    from tests.interop import real_programs as real

    directory.mkdir()
    programs = real.Programs(jars, directory, MEMORY)
    try:
        yield real, programs
    finally:
        programs.stop()


@contextmanager
def brokers(directory: Path) -> Iterator[Any]:
    """RocketMQ's producer, in a process of its own, in front of three brokers of which one
    leads."""
    names = ("n0", "n1", "n2")
    with ExitStack() as stack:
        real, programs = stack.enter_context(real_programs(directory))
        peers = ";".join(f"{name}-127.0.0.1:{real.free_port()}" for name in names)
        running = []
        for name in names:
            mode = {
                "enableDLegerCommitLog": "true",
                "dLegerGroup": "bench",
                "dLegerSelfId": name,
                "dLegerPeers": peers,
            }
            settings = {
                **real.DEFAULTS,
                **mode,
                "brokerName": "bench",
                "mappedFileSizeCommitLog": FILE_BYTES,
            }
            running.append(
                real.Broker(programs, name, directory / name, real.free_port(), **settings)
            )
            stack.callback(running[-1].kill)
        sender = real.Talker(
            programs.java("Messages", programs.name_server), directory / "sender.log"
        )
        stack.callback(sender.stop)

        def leader() -> Any:
            return next((one for one in running if sender.ask("master", broker=one.address)), None)

        sender.ask(
            "topic", broker=real.eventually("a leader", leader).address, topic=TOPIC, queues=QUEUES
        )
        yield sender


def real_ones(report: Report, directory: Path, repetitions: int, *, quick: bool) -> None:
    """All that is measured with RocketMQ's own programs."""
    behind_a_master(report, directory, repetitions, quick=quick)
    beside_brokers(report, directory, repetitions, quick=quick)


def behind_a_master(report: Report, directory: Path, repetitions: int, *, quick: bool) -> None:
    """(o) A slave of ours catches up with a real master, whose log lies in one file."""
    log, root = make_log(2_000 if quick else 400_000), directory / "real-master"
    write_log(root, log)
    with real_programs(directory / "master-programs") as (real, programs):
        settings = {
            **real.DEFAULTS,
            "mappedFileSizeCommitLog": FILE_BYTES,
            "brokerRole": "ASYNC_MASTER",
        }
        broker = real.Broker(programs, "master", root, real.free_port(), **settings)
        try:
            for n in range(repetitions):
                written, acknowledged, _ = follow(
                    directory / f"real-slave-{n}", broker.port + 1, len(log)
                )
                report.add(BEHIND, WRITTEN, "MB/s", len(log) / 1e6 / written)
                report.add(BEHIND, ACKNOWLEDGED, "MB/s", len(log) / 1e6 / acknowledged)
        finally:
            broker.kill()
    shutil.rmtree(root)


def beside_brokers(report: Report, directory: Path, repetitions: int, *, quick: bool) -> None:
    """(n) Both in turn; the other one is idle meanwhile. The ratio is of each
    repetition's own figures."""
    seconds = 0.5 if quick else 8.0
    with ExitStack() as stack:
        sender = stack.enter_context(brokers(directory / "brokers"))
        groups = {flush: stack.enter_context(commit_log(directory, flush)) for flush in OURS}
        clients = {
            flush: stack.enter_context(Client(group.bootstrap_servers))
            for flush, group in groups.items()
        }

        def theirs() -> float:
            return float(
                sender.ask(
                    "load",
                    broker="bench",
                    topic=TOPIC,
                    queues=QUEUES,
                    threads=THREADS,
                    size=SIZE,
                    seconds=seconds,
                )
            )

        def ours(flush: str, in_flight: int, each: int) -> float:
            load = put_load(leader_address(groups[flush]), encoded(each), each, in_flight, seconds)
            until_dispatched(clients[flush])
            return load.per_second

        theirs()  # until what is run often is compiled
        for _ in range(repetitions):
            machine.measure(report, directory, quick=quick)
            before = theirs()
            found = {
                f"{OURS[flush]}, {name}": ours(flush, *case)
                for flush in OURS
                for name, case in CASES.items()
            }
            rate = (before + theirs()) / 2
            report.add(BROKERS, THEIRS, "messages/s", rate)
            for name, per_second in found.items():
                report.add(BROKERS, name, "messages/s", per_second)
                report.add(BROKERS, name + RATIO, "", per_second / rate)
