"""Which process is which: identities that a reused pid cannot fake, and the spawning of detached
children."""

from __future__ import annotations

import os
import platform
import resource
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from dledger.interrupts import suppressed

_SPARK_WORKER_ENV: Final = "PYTHON_WORKER_FACTORY_"


@dataclass(frozen=True, slots=True)
class PidScope:
    """Where a pid means something: a machine, one boot of it, one pid and network namespace (a
    container)."""

    name: str
    boot: str
    space: str

    @staticmethod
    def from_dict(data: dict[str, Any]) -> PidScope:
        return PidScope(*(str(data.get(name, "")) for name in ("name", "boot", "space")))


@lru_cache(maxsize=1)
def this_host() -> PidScope:
    """The host of this process."""
    boot = space = ""
    with suppressed():  # no Linux: the name has to do
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        space = " ".join(str(Path("/proc/self/ns", kind).readlink()) for kind in ("pid", "net"))
    return PidScope(platform.node(), boot, space)


def start_time(pid: int) -> str:
    """When the process was started, in the system's own words; empty when there is none (or it is a
    zombie)."""
    if pid <= 0:
        return ""
    stat = Path(f"/proc/{pid}/stat")
    if stat.parent.parent.joinpath("self").exists():
        with suppressed():
            after_name = stat.read_text().rpartition(")")[2].split()
            return "" if after_name[0] in "ZX" else after_name[19]
        return ""
    done = subprocess.run(
        ["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return done.stdout.strip()


@dataclass(frozen=True, slots=True)
class ProcessId:
    """A process and nothing that comes after it under the same pid."""

    pid: int
    started: str
    host: PidScope

    @staticmethod
    def of(pid: int) -> ProcessId:
        return ProcessId(pid, start_time(pid), this_host())

    @property
    def alive(self) -> bool:
        """Whether it still runs. A process of another host is never seen as alive."""
        return (
            self.host == this_host() and bool(self.started) and start_time(self.pid) == self.started
        )

    def signal(self, number: signal.Signals) -> bool:
        """Send a signal; False when the process is gone already."""
        if not self.alive:
            return False
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            return False
        return True

    @staticmethod
    def from_dict(data: dict[str, Any]) -> ProcessId:
        return ProcessId(int(data["pid"]), str(data["started"]), PidScope.from_dict(data["host"]))


def parent_of(pid: int) -> int:
    """The parent's pid, 0 when unknown."""
    with suppressed():
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return 0


def _is_java(pid: int) -> bool:
    with suppressed():
        return Path(f"/proc/{pid}/comm").read_text().strip() == "java"
    return False


def application_pid() -> int:
    """The process that stands for the application: this one, or in a Spark worker its driver's Java
    process.

    Spark plans in workers that may live for a second; a group must not take their end for the
    application's.
    """
    pid = os.getpid()
    if any(name.startswith(_SPARK_WORKER_ENV) for name in os.environ):
        ancestor = parent_of(pid)
        while ancestor > 1:
            if _is_java(ancestor):
                return ancestor
            ancestor = parent_of(ancestor)
    return pid


def is_descendant(pid: int, ancestor: int) -> bool:
    """Whether ``ancestor`` started ``pid``, however indirectly."""
    while pid > 1:
        pid = parent_of(pid)
        if pid == ancestor:
            return True
    return False


def raise_limits(*limits: int) -> None:
    """As much of these as the system allows, whatever this process's starter had set for itself."""
    for limit in limits:
        with suppress(OSError, ValueError):
            hard = resource.getrlimit(limit)[1]
            resource.setrlimit(limit, (hard, hard))


def reap(pid: int) -> None:
    """Take a finished child off the process table; nothing when it is not this process's child."""
    with suppressed():
        os.waitpid(pid, os.WNOHANG)


def exit_code(pid: int, timeout_s: float) -> int | None:
    """How a child ends: its exit code, or minus the signal that ended it. It is taken off the
    process table.

    None when it has not ended by then, and where its end cannot be known: another part of the
    program has taken it off, or the program ignores SIGCHLD.
    """
    deadline = time.monotonic() + timeout_s
    with suppressed():
        while time.monotonic() < deadline:
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.005)
    return None


def spawn_python(module: str, arguments: list[str], stdout: int, log_file: Path) -> int:
    """Start ``python -m module`` in a session of its own, with stdin closed and stderr in
    ``log_file``.

    ``stdout`` is a descriptor the child gets as its descriptor 1. Signals are at their defaults in
    the child, also those that the caller ignores or blocks.
    """
    # -P: a file of the user's in the working directory must not pass for a library module.
    command = [sys.executable, "-P", "-m", module, *arguments]
    environment = {k: v for k, v in os.environ.items() if not k.startswith(_SPARK_WORKER_ENV)}
    root = Path(__file__).parents[2]
    # a source tree: the child does not find it by itself
    if root.name not in {"site-packages", "dist-packages"}:
        environment["PYTHONPATH"] = os.pathsep.join(
            filter(None, [str(root), os.environ.get("PYTHONPATH", "")])
        )
    return os.posix_spawn(
        sys.executable,
        command,
        environment,
        file_actions=[
            (os.POSIX_SPAWN_DUP2, stdout, 1),
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 2, str(log_file), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
        ],
        setsid=True,
        setsigmask=(),
        setsigdef=(signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGPIPE, signal.SIGCHLD),
    )
