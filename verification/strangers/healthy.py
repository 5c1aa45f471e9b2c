"""A client that means well, and how long it waits."""

from __future__ import annotations

import threading
import time
from typing import Final

from dledger.client import Client
from dledger.errors import DLedgerError

TOPIC: Final = "healthy"


def p99(samples: list[float]) -> float:
    """In the samples' unit; 0 without any."""
    ordered = sorted(samples)
    return ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))] if ordered else 0.0


class Healthy:
    """Appends one record after the other on a thread, until it is stopped."""

    def __init__(self, bootstrap_servers: str, **settings: str) -> None:
        self._client = Client(bootstrap_servers, request_timeout_ms=10_000, **settings)
        self._client.create_topic(TOPIC, if_absent=True)
        self._samples: list[float] = []
        self.errors: list[str] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="dledger-healthy", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            began = time.monotonic()
            try:
                self._client.append(TOPIC, b"a record")
            except DLedgerError as error:
                self.errors.append(str(error))
            self._samples.append(1000 * (time.monotonic() - began))
            self._stop.wait(0.002)

    def take(self) -> list[float]:
        """The waits since the last call, in ms."""
        samples, self._samples = self._samples, []
        return samples

    def close(self) -> None:
        self._stop.set()
        self._thread.join(30)
        self._client.close()
