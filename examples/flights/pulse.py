"""A pulse: one small append after the other, to see when the group acknowledges and when it does
not."""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter

from dledger import Client
from dledger.errors import DLedgerError


class Pulse(threading.Thread):
    """Appends to topic ``pulse`` until `finish`, and remembers the moment of each
    acknowledgement."""

    def __init__(self, servers: str) -> None:
        super().__init__(daemon=True)
        self._servers = servers
        self._done = threading.Event()
        self.acknowledged: list[tuple[float, int]] = []
        """(monotonic seconds, offset)."""
        self.error: DLedgerError | None = None

    def run(self) -> None:
        """The beating."""
        try:
            with Client(self._servers) as client:
                while not self._done.is_set():
                    appended = client.append("pulse", str(len(self.acknowledged)).encode())
                    self.acknowledged.append((time.monotonic(), appended.start))
                    self._done.wait(0.02)
        except DLedgerError as error:
            self.error = error

    def finish(self) -> None:
        """Stop beating; raise what went wrong."""
        self._done.set()
        self.join()
        if self.error:
            raise self.error

    def gap_ms(self, since: float) -> float | None:
        """From that moment to the next acknowledgement of an append that was sent after it; None:
        not yet."""
        later = [at for at, _ in self.acknowledged if at > since]
        # the first one may have been under way already; the election is the longest pause near the
        # kill
        beats = [since, *later[:20]]
        return max(b - a for a, b in itertools.pairwise(beats)) * 1000 if len(beats) > 5 else None

    def lost_or_doubled(self) -> int:
        """How many acknowledged beats are not in the topic exactly once, at their offset."""
        with Client(self._servers) as client:
            end = client.end_offsets("pulse")[0]
            values = [
                v for b in client.read("pulse", 0, 0, end) for v in b.column("value").to_pylist()
            ]
        times = Counter(values)
        expected = {offset: str(n).encode() for n, (_, offset) in enumerate(self.acknowledged)}
        return sum(
            values[offset] != value or times[value] != 1 for offset, value in expected.items()
        )
