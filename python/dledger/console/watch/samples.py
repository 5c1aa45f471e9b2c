"""Answers of a group that all pages share: one question a second at most, however many look; and
no page waits long for one that does not come."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, wait
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from dledger.environment import REAL, Environment
from dledger.errors import AccessDenied, DLedgerError

T = TypeVar("T")
FRESH_S: Final = 0.5
"""An answer that is no older than this is given again; pages ask once a second."""
PATIENCE_S: Final = 1.0
"""How long a page waits for an answer; then it shows the former one."""
KEPT: Final = 256
"""Answers about things with a name."""


@dataclass(frozen=True, slots=True)
class Told(Generic[T]):
    """The last answer."""

    value: T | None
    """None: there was none yet, or the group's rules let this console have none."""
    time_s: float
    """When ``value`` was told, in seconds since 1970."""
    error: str = ""
    """Why there is none that is newer."""


class Sample(Generic[T]):
    """A question, and its last answer. Threads may share it.

    Args:
        ask: the question; a `DLedgerError` leaves the former answer in place, `AccessDenied` none.
        pool: carries it out.
        fresh_s: no answer is asked for again before.
    """

    def __init__(
        self,
        ask: Callable[[], T],
        pool: Executor,
        *,
        fresh_s: float = FRESH_S,
        environment: Environment = REAL,
    ) -> None:
        self._ask = ask
        self._pool = pool
        self._fresh_ms = 1000 * fresh_s
        self._environment = environment
        self._lock = threading.Lock()
        self._told: Told[T] = Told(None, 0.0)
        self._told_ms: float | None = None
        self._asking: Future[None] | None = None
        self._changes = 0

    def get(self, patience_s: float = PATIENCE_S) -> Told[T]:
        """The answer, asked for anew where it is not fresh; the former one where that takes longer
        than ``patience_s``. The first answer of all is waited for."""
        is_first = self._told_ms is None
        asking = self.start()
        if asking is not None:
            wait([asking], None if is_first else patience_s)
        return self._told

    @property
    def last(self) -> Told[T]:
        """The last answer, as it is."""
        return self._told

    def start(self) -> Future[None] | None:
        """The question that is on its way, from now on if need be; None: the answer is fresh."""
        with self._lock:
            told_ms = self._told_ms
            if told_ms is not None and self._environment.now_ms() - told_ms < self._fresh_ms:
                return None
            if self._asking is None:
                self._asking = self._pool.submit(self._take, self._changes)
            return self._asking

    def forget(self) -> None:
        """Something was changed: the next one to look waits for an answer of afterwards."""
        with self._lock:
            self._told_ms = None
            self._asking = None
            self._changes += 1

    def _take(self, changes: int) -> None:
        try:
            told = Told(self._ask(), self._environment.wall_us() / 1e6)
        except DLedgerError as error:
            # what this console may not see any more, no page shows any more
            former = None if isinstance(error, AccessDenied) else self._told.value
            told = Told(former, self._told.time_s, str(error))
        with self._lock:
            if changes == self._changes:  # else it may be of before the change
                # of the end: a slow answer is no older for that
                self._told, self._told_ms = told, self._environment.now_ms()
                self._asking = None


class NamedSamples(Generic[T]):
    """A sample for each name that is asked for; those that nobody asks for are dropped."""

    def __init__(self, ask: Callable[[str], T], pool: Executor) -> None:
        self._ask = ask
        self._pool = pool
        self._lock = threading.Lock()
        self._samples: OrderedDict[str, Sample[T]] = OrderedDict()

    def get(self, name: str) -> Told[T]:
        return self._of(name).get()

    def get_all(self, names: Sequence[str]) -> list[Told[T]]:
        """Of each; all are asked at once, and waited for together."""
        samples = [self._of(name) for name in names]
        wait([asking for one in samples if (asking := one.start())], PATIENCE_S)
        return [one.last for one in samples]

    def forget(self, name: str) -> None:
        """As `Sample.forget`."""
        with self._lock:
            self._samples.pop(name, None)

    def _of(self, name: str) -> Sample[T]:
        with self._lock:
            if name not in self._samples:
                self._samples[name] = Sample(lambda: self._ask(name), self._pool)
            self._samples.move_to_end(name)
            while len(self._samples) > KEPT:
                self._samples.popitem(last=False)
            return self._samples[name]
