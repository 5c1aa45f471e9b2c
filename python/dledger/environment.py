"""The services of the machine that a node or a client uses: clocks, dice, and threads for work in
the background.

Everything in this package that wants one of these asks an `Environment`, so that a test can hand in
another one and decide what time it is, how the dice fall and when the background work is done.
"""

from __future__ import annotations

import os
import platform
import secrets
import socket
import threading
import time
from collections.abc import Callable
from ipaddress import ip_address
from queue import Empty, SimpleQueue
from typing import Any, Final, Protocol

from dledger.interrupts import is_interrupt

Turn = Callable[[list[Any], bool], float | None]
"""``turn(jobs, last)``: carry out all jobs that wait; ``last`` when no more can come. Returns the
seconds after which it wants to be called again although there is no job, or None."""

_END: Final = object()


class Worker(Protocol):
    """Jobs for a thread of its own, which takes all that wait at once."""

    @property
    def put(self) -> Callable[[Any], None]:
        """Give it one more job; never waits."""

    def start(self) -> None: ...
    def join(self) -> None:
        """Carry out the given jobs, then end. Waits for that; safe without `start`."""


class ThreadWorker:
    """A `Worker` that really is a thread."""

    def __init__(self, name: str, turn: Turn, *, pause_s: float) -> None:
        self._turn = turn
        self._pause_s = pause_s
        self._jobs: SimpleQueue[Any] = SimpleQueue()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.put: Callable[[Any], None] = self._jobs.put

    def start(self) -> None:
        self._thread.start()

    def join(self) -> None:
        self._ending.set()
        self._jobs.put(_END)
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        wait: float | None = None
        while True:
            jobs: list[Any] = []
            try:
                jobs.append(self._jobs.get(timeout=wait))
                while jobs[-1] is not _END:
                    jobs.append(self._jobs.get_nowait())
            except Empty:
                pass
            last = bool(jobs) and jobs[-1] is _END
            if last:
                jobs.pop()
            wait = self._turn(jobs, last)
            if last:
                return
            if self._pause_s:
                self._ending.wait(self._pause_s)


class Environment:
    """The machine as it is."""

    @staticmethod
    def now_ms() -> int:
        """Monotonic milliseconds: every timer and deadline (D10)."""
        return time.monotonic_ns() // 1_000_000

    @staticmethod
    def now_s() -> float:
        """Monotonic seconds, for durations that are under a millisecond; no timer goes by it."""
        return time.perf_counter()

    @staticmethod
    def wall_us() -> int:
        """Microseconds since 1970 UTC: only ever written into records and commands, never compared
        with a timer."""
        return time.time_ns() // 1000

    @staticmethod
    def below(n: int) -> int:
        """A fair integer in [0, ``n``)."""
        return secrets.randbelow(n)

    @staticmethod
    def is_here(host: str) -> bool:
        """Whether ``host``, a name or an IP address, is this machine's. No name is looked up
        anywhere: one that is another name of this machine is taken for another machine's."""
        return host_is_here(host, platform.node())

    @staticmethod
    def pid() -> int:
        """The number of this process."""
        return os.getpid()

    def program(self) -> str:
        """This process, for people: its machine and its number."""
        return f"{platform.node()}/{self.pid()}"

    def wall_ms(self) -> int:
        """`wall_us` in milliseconds."""
        return self.wall_us() // 1000

    def fraction(self) -> float:
        """A fair number in [0, 1)."""
        return self.below(1 << 53) / (1 << 53)

    def unique(self) -> str:
        """32 hexadecimal digits that no other call draws."""
        return f"{self.below(1 << 128):032x}"

    def worker(self, name: str, turn: Turn, pause_s: float = 0.0) -> Worker:
        """Calls ``turn`` for the jobs it is given, at most once in ``pause_s`` seconds."""
        return ThreadWorker(name, turn, pause_s=pause_s)


def host_is_here(host: str, own: str) -> bool:
    """As `Environment.is_here`, for a machine with the name ``own``. Either name may come without
    its domain."""
    try:
        address = ip_address(host)
    except ValueError as error:
        if is_interrupt(error):
            raise
        name, own = host.lower(), own.lower()
        short = "." not in name or "." not in own
        return name in {"localhost", own} or (
            short and name.partition(".")[0] == own.partition(".")[0]
        )
    return address.is_loopback or _can_bind(str(address), address.version)


def _can_bind(address: str, version: int) -> bool:
    """Only a machine's own addresses can be bound; a datagram socket takes no connection."""
    try:
        with socket.socket(
            socket.AF_INET if version == 4 else socket.AF_INET6, socket.SOCK_DGRAM
        ) as probe:
            probe.bind((address, 0))
    except OSError as error:
        if is_interrupt(error):
            raise
        return False
    return True


REAL: Final = Environment()
