"""``make profile``: functions of every thread of a process are counted, and have their packages."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from benchmarks import profiles
from benchmarks.profiled.sitecustomize import DIRECTORY

PROGRAM = """
import sys, threading
def counted(): pass
def many():
    for _ in range(1000): counted()
thread = threading.Thread(target=many, name="worker")
thread.start(); thread.join()
counted()
print("ready", flush=True)
sys.stdin.read()
"""


@contextmanager
def hooked(program: str, directory: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that runs this program and is profiled into the directory."""
    hook = str(Path(profiles.__file__).parent / "profiled")
    environment = {**os.environ, "PYTHONPATH": hook, DIRECTORY: str(directory)}
    command = [sys.executable, "-c", program]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, env=environment) as process:
        yield process


def counted(threads: dict[str, dict[str, tuple[int, float]]]) -> dict[str, int]:
    """Calls of the program's function, by thread."""
    return {
        thread: sum(n for name, (n, _) in functions.items() if name.endswith(":counted"))
        for thread, functions in threads.items()
    }


def test_hook_counts_calls_by_thread(tmp_path: Path) -> None:
    with hooked(PROGRAM, tmp_path) as process:
        assert process.stdout is not None
        process.stdout.readline()
        found = profiles._profiles(tmp_path, {"it": process.pid}, "now")["it"]
        process.communicate()
    assert counted(found) == {"worker": 1000, "main": 1}
    assert pickle.loads((tmp_path / f"{process.pid}-now.pickle").read_bytes()) == found


FORKED = """
import os
def counted(): pass
for _ in range(500): counted()
child = os.fork()
if not child:
    for _ in range(30): counted()
    print(os.getpid(), flush=True)
    while True: os.read(0, 1)
print("ready", flush=True)
os.read(0, 1)
os.kill(child, 9)
"""


def test_forked_child_counts_its_own_calls_alone(tmp_path: Path) -> None:
    """Spark forks its Python workers from a daemon."""
    with hooked(FORKED, tmp_path) as process:
        assert process.stdout is not None
        lines = {process.stdout.readline().strip() for _ in range(2)}
        (child,) = (int(line) for line in lines - {b"ready"})
        found = profiles._profiles(tmp_path, {"it": process.pid, "child": child}, "now")
        process.communicate(b"x")
    assert {role: counted(threads)["main"] for role, threads in found.items()} == {
        "it": 500,
        "child": 30,
    }


@pytest.mark.parametrize(
    ("name", "package"),
    [
        ("/there/dledger/raft/state/log.py:7:append", "raft/state"),
        ("/there/dledger/types.py:7:f", "types"),
        ("/usr/lib/python3.11/threading.py:1:run", "python3.11"),
        ("<built-in method builtins.len>", "C"),
    ],
)
def test_function_has_its_package(name: str, package: str) -> None:
    assert profiles.package_of(name) == package
