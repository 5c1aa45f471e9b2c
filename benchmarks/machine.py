"""What the machine can do by itself, so that every other figure has something to stand beside."""

from __future__ import annotations

import os
import platform
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from benchmarks.report import Report

MIB = 1 << 20
SECTION = "this machine during the run, by itself"


def describe(directory: Path) -> dict[str, Any]:
    """Hardware, system and versions, for the record."""
    return {
        "cpu": cpu_name(),
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": platform.platform(),
        "file_system": file_system(directory),
        "python": sys.version.split()[0],
        "versions": {
            name: package_version(name)
            for name in (
                "dledger",
                "pyspark",
                "pyarrow",
                "uvloop",
                "isal",
                "confluent-kafka",
            )
        },
        "commit": commit(),
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def cpu_name() -> str:
    """As the kernel calls it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next(
        (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), ""
    )


def file_system(directory: Path) -> str:
    """Type of the file system that a path is on, by the longest mount point above it."""
    best = ("", "?")
    try:
        mounts = Path("/proc/mounts").read_text().splitlines()
    except OSError:
        return "?"
    for line in mounts:
        _, point, kind, *_ = line.split()
        if directory.resolve().is_relative_to(point) and len(point) >= len(best[0]):
            best = (point, kind)
    return best[1]


def package_version(name: str) -> str:
    """Its version, or ``-``."""
    try:
        return version(name)
    except PackageNotFoundError:
        return "-"


def commit() -> str:
    """The checkout's commit, with ``+`` when there are changes; empty outside a checkout."""
    top = Path(__file__).parent
    command = ["git", "-C", str(top), "describe", "--always", "--dirty=+", "--exclude=*"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def write_and_sync(directory: Path, size: int, count: int) -> list[float]:
    """Seconds of each write + fdatasync of ``size`` bytes, one behind the other in a file allocated
    ahead."""
    path, block, times = directory / f"raw-{size}", os.urandom(size), []
    handle = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
    try:
        os.posix_fallocate(handle, 0, size * count)
        os.fsync(handle)
        for n in range(count):
            start = time.perf_counter()
            os.pwrite(handle, block, n * size)
            os.fdatasync(handle)
            times.append(time.perf_counter() - start)
    finally:
        os.close(handle)
        path.unlink()
    return times


def rounds_of_three(directory: Path, size: int, count: int) -> list[float]:
    """Seconds of each round in which three files are written and synced at once, as three nodes on
    one disk do it."""
    block, times = os.urandom(size), []
    paths = [directory / f"raw-{size}-{n}" for n in range(3)]
    handles = [os.open(path, os.O_CREAT | os.O_RDWR, 0o600) for path in paths]

    def write(handle: int, at: int) -> None:
        os.pwrite(handle, block, at)
        os.fdatasync(handle)

    try:
        for handle in handles:
            os.posix_fallocate(handle, 0, size * count)
            os.fsync(handle)
        with ThreadPoolExecutor(3) as pool:
            for n in range(count):
                start = time.perf_counter()
                list(pool.map(write, handles, [n * size] * 3))
                times.append(time.perf_counter() - start)
    finally:
        for handle in handles:
            os.close(handle)
        for path in paths:
            path.unlink()
    return times


def round_trips(count: int) -> list[float]:
    """Seconds of each round trip of 32 bytes over loopback between two threads' sockets."""
    listener, times = socket.create_server(("127.0.0.1", 0)), []

    def echo() -> None:
        with listener.accept()[0] as peer:
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while data := peer.recv(64):
                peer.sendall(data)

    answering = threading.Thread(target=echo)
    answering.start()
    with listener, socket.create_connection(listener.getsockname()) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(count):
            start = time.perf_counter()
            sock.sendall(b"x" * 32)
            sock.recv(64)
            times.append(time.perf_counter() - start)
    answering.join()
    return times


def additions(count: int) -> float:
    """Seconds for so many additions in a Python loop: how fast this core is now."""
    start, total = time.perf_counter(), 0
    for n in range(count):
        total += n
    return time.perf_counter() - start


def measure(report: Report, directory: Path, *, quick: bool) -> None:
    """One repetition: bandwidth by block size, latency of the smallest, and how fast core and
    loopback are."""
    report.add(SECTION, "a million additions in a Python loop", "ms", additions(1_000_000) * 1000)
    trips = round_trips(20 if quick else 2000)
    report.add(SECTION, "loopback round trip of 32 bytes", "ms", *(t * 1000 for t in trips))
    for size, count in ((4096, 500), (MIB, 64), (4 * MIB, 16)):
        times = write_and_sync(directory, size, max(4, count // (10 if quick else 1)))
        label = f"{size // 1024} KiB" if size < MIB else f"{size // MIB} MiB"
        report.add(
            SECTION, f"write + fdatasync {label}", "MB/s", size * len(times) / sum(times) / 1e6
        )
        if size == MIB:
            rounds = rounds_of_three(directory, size, len(times))
            report.add(
                SECTION,
                "write + fdatasync 1 MiB, three writers at once, each",
                "MB/s",
                size * len(rounds) / sum(rounds) / 1e6,
            )
        if size == 4096:
            report.add(
                SECTION, "write + fdatasync 4 KiB, latency", "ms", *(t * 1000 for t in times)
            )
