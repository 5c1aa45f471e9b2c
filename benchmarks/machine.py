"""What the machine can do by itself, so that every other figure has something to stand beside."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from benchmarks.report import Report

MIB = 1 << 20
SECTION = "disk of this run, one writer"


def describe(directory: Path) -> dict[str, Any]:
    """Hardware, system and versions, for the record."""
    return {
        "cpu": cpu_name(),
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": platform.platform(),
        "file_system": file_system(directory),
        "python": sys.version.split()[0],
        "versions": {name: package_version(name) for name in ("dledger", "pyspark", "pyarrow", "uvloop", "isal")},
        "commit": commit(),
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def cpu_name() -> str:
    """As the kernel calls it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "")


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
    """Seconds of each write + fdatasync of ``size`` bytes, one behind the other in a file allocated ahead."""
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


def measure(report: Report, directory: Path, *, quick: bool) -> None:
    """One repetition: bandwidth by block size, latency of the smallest."""
    for size, count in ((4096, 500), (MIB, 64), (4 * MIB, 16)):
        times = write_and_sync(directory, size, max(4, count // (10 if quick else 1)))
        label = f"{size // 1024} KiB" if size < MIB else f"{size // MIB} MiB"
        report.add(SECTION, f"write + fdatasync {label}", "MB/s", size * len(times) / sum(times) / 1e6)
        if size == 4096:
            report.add(SECTION, "write + fdatasync 4 KiB, latency", "ms", *(t * 1000 for t in times))
