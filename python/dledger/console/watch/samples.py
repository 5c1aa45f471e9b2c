"""Answers of a group that all pages share: one question a second at most, however many look."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from dledger.environment import REAL, Environment
from dledger.errors import DLedgerError

T = TypeVar("T")
FRESH_S: Final = 0.5
"""An answer that is no older than this is given again; pages ask once a second."""
KEPT: Final = 256
"""Answers about things with a name."""


@dataclass(frozen=True, slots=True)
class Told(Generic[T]):
    """The last answer."""

    value: T | None
    """None: there was none yet."""
    time_s: float
    """When ``value`` was told, in seconds since 1970."""
    error: str = ""
    """Why there is none that is newer."""


class Sample(Generic[T]):
    """A question, and its last answer. Threads may share it.

    Args:
        ask: the question; a `DLedgerError` leaves the former answer in place.
        fresh_s: no answer is asked for again before.
    """

    def __init__(
        self, ask: Callable[[], T], *, fresh_s: float = FRESH_S, environment: Environment = REAL
    ) -> None:
        self._ask = ask
        self._fresh_s = fresh_s
        self._environment = environment
        self._asking = threading.Lock()
        self._told: Told[T] = Told(None, 0.0)
        self._asked_ms: float | None = None

    def get(self) -> Told[T]:
        """The answer, asked for anew where it is not fresh. While another thread asks, the former
        one; the first answer of all is waited for."""
        if not self._asking.acquire(blocking=self._told.value is None):
            return self._told
        try:
            now_ms = self._environment.now_ms()
            if self._asked_ms is None or now_ms - self._asked_ms >= 1000 * self._fresh_s:
                self._told = self._new()
                # of the end: a slow answer is no older for that
                self._asked_ms = self._environment.now_ms()
            return self._told
        finally:
            self._asking.release()

    def forget(self) -> None:
        """Something was changed: the next one to ask sees it."""
        self._asked_ms = None

    def _new(self) -> Told[T]:
        try:
            value = self._ask()
        except DLedgerError as error:
            return Told(self._told.value, self._told.time_s, str(error))
        return Told(value, self._environment.wall_us() / 1e6)


class NamedSamples(Generic[T]):
    """A sample for each name that is asked for; those that nobody asks for are dropped."""

    def __init__(self, ask: Callable[[str], T]) -> None:
        self._ask = ask
        self._lock = threading.Lock()
        self._samples: OrderedDict[str, Sample[T]] = OrderedDict()

    def get(self, name: str) -> Told[T]:
        return self._of(name).get()

    def forget(self, name: str) -> None:
        """As `Sample.forget`."""
        with self._lock:
            self._samples.pop(name, None)

    def _of(self, name: str) -> Sample[T]:
        with self._lock:
            if name not in self._samples:
                self._samples[name] = Sample(lambda: self._ask(name))
            self._samples.move_to_end(name)
            while len(self._samples) > KEPT:
                self._samples.popitem(last=False)
            return self._samples[name]
