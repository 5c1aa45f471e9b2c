"""(r) Lines in and out by the command: ``dledger append`` and ``dledger tail`` as processes of
their own, with their start."""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from benchmarks import machine
from benchmarks.groups import group
from benchmarks.report import Report

LINES_RATE: Final = "a million lines by the command"
CPU: Final = ", of processor time"
LINES: Final = 1_000_000
SHAPES: Final = {
    "plain": (b"%d " + b"x" * 92, ""),
    "keyed": (b"k%d:" + b"x" * 90, "--key-delimiter :"),
    "JSON": (b'{"key":"k%d","value":"' + b"x" * 70 + b'"}', "--format json"),
}
"""A line, and the words of the command that says what it is."""


def lines(report: Report, directory: Path, repetitions: int, *, quick: bool) -> None:
    """Lines per second, by the clock and by the processor time of the command alone."""
    count = 20_000 if quick else LINES
    with group(directory, 1) as running:
        for _ in range(repetitions):
            machine.measure(report, directory, quick=quick)
            for shape, (line, words) in SHAPES.items():
                given = directory / "lines"
                given.write_bytes(b"".join(line % (at % 1000) + b"\n" for at in range(count)))
                told = f"append {shape} --create {words} {given}"
                _measured(report, f"in, {shape}", told, running.bootstrap_servers, count)
            for form in ("plain", "json"):
                told = f"tail plain --from earliest --count {count}"
                told += " --json" if form == "json" else ""
                _measured(report, f"out, {form}", told, running.bootstrap_servers, count)


def _measured(report: Report, name: str, words: str, servers: str, count: int) -> None:
    command = [sys.executable, "-m", "dledger", *words.split(), "-b", servers]
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    took, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    busy = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    report.add(LINES_RATE, name, "lines/s", count / took)
    report.add(LINES_RATE, name + CPU, "lines/s", count / busy)
