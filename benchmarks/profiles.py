"""Where the processor time of one way to use a group goes, by process, thread, package and
function: ``python -m benchmarks.profiles single``.

Three groups, one after the other, because each look disturbs the next: one that is left alone, for
processor time and switches between threads; one under cProfile, for calls; one under strace, if
there is one, for system calls. Times by package are those under cProfile: shares, not costs.
"""

from __future__ import annotations

import argparse
import os
import pickle
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

from benchmarks.appends import leader_address
from benchmarks.costs import processor_ms
from benchmarks.groups import group, pid_of
from benchmarks.load import append_load
from benchmarks.profiled.sitecustomize import DIRECTORY
from benchmarks.spark import new_session, read_from, rows_frame, to_noop, write_to
from dledger import Client, EmbeddedGroup

Way = Callable[[EmbeddedGroup, Client, float], int]
"""Use the group for so many seconds; how many requests that were."""
Profile = dict[str, dict[str, tuple[int, float]]]
"""Calls and seconds by thread and function."""
Functions = dict[str, tuple[float, float]]
"""Calls and microseconds a request."""
SIZE: Final = 1024
TOP: Final = 25
UNPROFILED: Final = ("client", "JVM")
"""Processes that may lack the hook."""


def single(running: EmbeddedGroup, client: Client, seconds: float) -> int:
    """Appends of one record of 1 KiB, one in flight, without a client."""
    return append_load(leader_address(running), _topic(client), SIZE, 1, seconds).requests


def requests(running: EmbeddedGroup, client: Client, seconds: float) -> int:
    """The same, 512 in flight."""
    return append_load(leader_address(running), _topic(client), SIZE, 512, seconds).requests


def bodies(running: EmbeddedGroup, client: Client, seconds: float) -> int:
    """Appends of one record of 1 MiB, 8 in flight."""
    return append_load(leader_address(running), _topic(client), 1 << 20, 8, seconds).requests


def append(running: EmbeddedGroup, client: Client, seconds: float) -> int:
    """`Client.append` of one value of 1 KiB."""
    done, end = 0, time.perf_counter() + seconds
    while time.perf_counter() < end:
        client.append("bench", b"x" * SIZE)
        done += 1
    return done


def producer(running: EmbeddedGroup, client: Client, seconds: float) -> int:
    """`Producer.append` of values of 100 B, each result asked for."""
    done, end = 0, time.perf_counter() + seconds
    with client.producer("bench") as writer:
        while time.perf_counter() < end:
            futures = [writer.append(b"x" * 100) for _ in range(10_000)]
            done += sum(future.result().end > 0 for future in futures)
    return done


def read(running: EmbeddedGroup, client: Client, seconds: float) -> int:
    """Records of `Client.read`, entries of one record of 1 KiB."""
    done, end = 0, time.perf_counter() + seconds
    append_load(leader_address(running), _topic(client), SIZE, 512, seconds)
    while time.perf_counter() < end + seconds:
        done += sum(batch.num_rows for batch in client.read("bench", 0, 0))
    return done


def spark_read(running: EmbeddedGroup, client: Client, seconds: float) -> int:
    """Thousands of rows of Spark's batch reads, values of 100 B."""
    session, rows, done = _session(), 1_000_000, 0
    if not client.end_offsets("bench")[0] > rows:
        write_to(rows_frame(session, rows), running, "bench")
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        to_noop(read_from(session, running, "bench"))
        done += rows
    return done // 1000


def spark_write(running: EmbeddedGroup, client: Client, seconds: float) -> int:
    """Thousands of rows of Spark's batch writes by key to 50 partitions, values of 100 B."""
    session, rows, done = _session(), 500_000, 0
    if "keyed" not in {info.name for info in client.topics()}:
        client.create_topic("keyed", partitions=50)
    frame, end = rows_frame(session, rows), time.perf_counter() + seconds
    while time.perf_counter() < end:
        write_to(frame, running, "keyed")
        done += rows
    return done // 1000


WAYS: Final[dict[str, Way]] = {
    "single": single,
    "requests": requests,
    "bodies": bodies,
    "append": append,
    "producer": producer,
    "read": read,
    "spark-read": spark_read,
    "spark-write": spark_write,
}


def _session() -> SparkSession:
    """The one that runs; its Python workers are profiled where this process says so."""
    hook = {name: os.environ[name] for name in (DIRECTORY, "PYTHONPATH") if DIRECTORY in os.environ}
    return SparkSession.getActiveSession() or new_session(hook)


def _spark_processes() -> dict[str, int]:
    """Of the session that runs, if there is one: the JVM, and the workers of its tasks."""
    session = SparkSession.getActiveSession()
    if session is None:
        return {}
    jvm = session.sparkContext._gateway.proc.pid  # type: ignore[union-attr]
    daemons = [pid for pid in children(jvm) if b"\0pyspark.worker\0" in command_line(pid)]
    workers = sorted(pid for daemon in daemons for pid in children(daemon))
    return {"JVM": jvm} | {f"worker {n}": pid for n, pid in enumerate(workers, 1)}


def children(parent: int) -> list[int]:
    """Pids of the processes that this one has started."""
    tasks = Path(f"/proc/{parent}/task").iterdir()
    return [int(pid) for task in tasks for pid in (task / "children").read_text().split()]


def command_line(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def _topic(client: Client) -> int:
    return client.topic("bench").topic_id


@dataclass(frozen=True)
class Figures:
    """Of one process, for each request."""

    role: str
    processor_us: float
    waited: float
    """Switches because it waited."""
    ousted: float
    """Switches because another one's turn had come."""


@contextmanager
def under_load(directory: Path) -> Iterator[tuple[EmbeddedGroup, Client, dict[str, int]]]:
    """A group, its client, and the processes by role."""
    with group(directory, 3) as running, Client(running.bootstrap_servers) as client:
        followers = [name for name in running.nodes if name != running.leader]
        roles = {"leader": running.leader, "follower": followers[0], "2nd follower": followers[1]}
        pids = {role: pid_of(running, name) for role, name in roles.items()}
        for _ in range(20):
            client.append("bench", b"x")
        try:
            yield running, client, {**pids, "client": os.getpid()}
        finally:
            if (session := SparkSession.getActiveSession()) is not None:
                session.stop()


def figures(way: Way, directory: Path, seconds: float) -> Iterator[Figures]:
    """Processor time and switches, with nothing that looks on."""
    with under_load(directory) as (running, client, pids):
        way(running, client, seconds / 4)
        pids |= _spark_processes()
        before = {role: (sum(processor_ms(pid)), *_switches(pid)) for role, pid in pids.items()}
        count = way(running, client, seconds)
        for role, pid in pids.items():
            now = sum(processor_ms(pid)), *_switches(pid)
            ms, waited, ousted = (after - was for after, was in zip(now, before[role], strict=True))
            yield Figures(role, ms * 1000 / count, waited / count, ousted / count)


def _switches(pid: int) -> tuple[int, int]:
    found = [0, 0]
    for task in Path(f"/proc/{pid}/task").iterdir():
        text = (task / "status").read_text()
        for at, kind in enumerate(("voluntary", "nonvoluntary")):
            found[at] += int(re.findall(rf"^{kind}_ctxt_switches:\s+(\d+)", text, re.MULTILINE)[0])
    return found[0], found[1]


def calls(way: Way, directory: Path, seconds: float) -> Iterator[tuple[str, str, Functions]]:
    """By role and thread, functions with calls and microseconds a request."""
    profiles = directory / "profiles"
    profiles.mkdir()
    hook = str(Path(__file__).parent / "profiled")
    os.environ[DIRECTORY] = str(profiles)
    os.environ["PYTHONPATH"] = os.pathsep.join((hook, os.environ.get("PYTHONPATH", "")))
    try:
        with under_load(directory) as (running, client, pids):
            way(running, client, seconds / 4)
            pids |= _spark_processes()
            before = _profiles(profiles, pids, "before")
            count = way(running, client, seconds)
            after = _profiles(profiles, pids, "after")
    finally:
        del os.environ[DIRECTORY]
    for role, threads in after.items():
        for thread, functions in threads.items():
            was = before[role].get(thread, {})
            spent = {
                name: ((n - was.get(name, (0, 0))[0]) / count, (s - was.get(name, (0, 0.0))[1]))
                for name, (n, s) in functions.items()
            }
            found = {name: (n, s * 1e6 / count) for name, (n, s) in spent.items() if n > 0}
            if sum(n for n, _ in found.values()) > 0.2:
                yield role, thread, found


def _profiles(directory: Path, pids: dict[str, int], name: str) -> dict[str, Profile]:
    (directory / f"take-{name}").touch()
    found = {}
    for role, pid in pids.items():
        path = directory / f"{pid}-{name}.pickle"
        while role not in UNPROFILED and not path.exists():
            time.sleep(0.02)
        if path.exists():
            found[role] = pickle.loads(path.read_bytes())
    return found


def system_calls(way: Way, directory: Path, seconds: float) -> Iterator[tuple[str, Counter[str]]]:
    """By role, calls a request; nothing without strace."""
    if shutil.which("strace") is None:
        return
    with under_load(directory) as (running, client, pids):
        del pids["client"]
        looks = {
            role: subprocess.Popen(
                ["strace", "-c", "-f", "-q", "-o", str(directory / role), "-p", str(pid)],
                stderr=subprocess.DEVNULL,
            )
            for role, pid in pids.items()
        }
        time.sleep(1)  # strace says nothing when it has begun
        count = way(running, client, seconds)
        for role, look in looks.items():
            look.terminate()
            look.wait()
            lines = (directory / role).read_text().splitlines()
            fields = [line.split() for line in lines if re.match(r"\s*\d+\.\d+ ", line)]
            yield role, Counter({one[-1]: int(one[3]) / count for one in fields[:-1]})


def package_of(name: str) -> str:
    """A function's package and the one in it; "C" for a function of C."""
    if name.count(":") < 2:
        return "C"
    path = Path(name.split(":")[0])
    if "dledger" not in path.parts:
        return path.parent.name
    return "/".join(path.parts[path.parts.index("dledger") :][1:3]).removesuffix(".py")


def show(console: Console, role: str, thread: str, functions: Functions) -> None:
    """A thread's packages and functions, the costliest first."""
    total = sum(us for _, us in functions.values())
    by_python = sum(n for name, (n, _) in functions.items() if package_of(name) != "C")
    by_c = sum(n for n, _ in functions.values()) - by_python
    console.rule(f"{role}, {thread}: {by_python:.1f} Python and {by_c:.1f} C calls a request")
    packages: dict[str, list[float]] = {}
    for name, (n, us) in functions.items():
        found = packages.setdefault(package_of(name), [0, 0])
        found[0], found[1] = found[0] + n, found[1] + us
    for title, rows in (
        ("package", [(name, n, us) for name, (n, us) in packages.items()]),
        ("function", [(_short(name), n, us) for name, (n, us) in functions.items()]),
    ):
        table = Table(title, "calls", "µs under cProfile", "share")
        for name, n, us in sorted(rows, key=lambda row: -row[2])[:TOP]:
            table.add_row(name, f"{n:.2f}", f"{us:.2f}", f"{us / total:.0%}")
        console.print(table)


def _short(name: str) -> str:
    path, _, rest = name.rpartition("/dledger/") if ":" in name else ("", "", name)
    return rest if path else name.replace(sys.prefix, "")


def main(argv: list[str]) -> None:
    """Print all of it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.profiles", description=__doc__)
    parser.add_argument("way", choices=WAYS)
    parser.add_argument("--seconds", type=float, default=3.0)
    asked = parser.parse_args(argv)
    way, console = WAYS[asked.way], Console(width=None if sys.stdout.isatty() else 140)
    with tempfile.TemporaryDirectory(prefix="dledger-profile-") as scratch:
        table = Table("process", "processor µs", "waits", "ousted", title=f"{asked.way}: a request")
        for one in figures(way, Path(scratch), asked.seconds):
            numbers = f"{one.processor_us:.1f}", f"{one.waited:.2f}", f"{one.ousted:.2f}"
            table.add_row(one.role, *numbers)
        console.print(table)
        for role, counts in system_calls(way, Path(scratch), asked.seconds):
            named = ", ".join(f"{name} {n:.2f}" for name, n in counts.most_common(9) if n > 0.02)
            console.print(f"{role}, system calls a request: {named}")
        for role, thread, functions in calls(way, Path(scratch), asked.seconds):
            show(console, role, thread, functions)


if __name__ == "__main__":
    main(sys.argv[1:])
