"""The demo's Spark program as a process that can be killed, Python, JVM and all."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

PROGRAM = Path(__file__).with_name("queries.py")


class SparkProcess:
    """Runs ``queries.py`` and keeps the newest of what it says.

    ``totals``: by carrier, as of the newest micro-batch. ``batches``: how many there were, over all
    its lives.
    """

    def __init__(self, servers: str, inbox: Path, checkpoint: Path, log: Path) -> None:
        self._arguments = [sys.executable, str(PROGRAM), servers, str(inbox), str(checkpoint)]
        self._log = log
        self.totals: dict[str, dict[str, Any]] = {}
        self.batches = 0
        self.start()

    def start(self) -> None:
        """Start it, for the first time or again on the same checkpoint."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._arguments,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        self._reader = threading.Thread(target=self._read, args=(self._process,), daemon=True)
        self._reader.start()

    def _read(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            if not line.startswith(b"{") or not line.endswith(b"\n"):
                continue  # something that Spark prints, or a line that a SIGKILL cut
            said = json.loads(line)
            if "totals" in said:
                self.batches += 1
                self.totals = {row.pop("carrier"): row for row in said["totals"]}

    @property
    def rows(self) -> int:
        """Flights in the newest totals."""
        return sum(int(row["flights"]) for row in self.totals.values())

    @property
    def running(self) -> bool:
        """Whether the process lives."""
        return self._process.poll() is None

    def check(self) -> None:
        """Raise when it has ended by itself, with its last words."""
        if not self.running:
            words = self._log.read_text(errors="replace")[-3000:]
            raise SystemExit(f"the Spark program ended with {self._process.returncode}:\n{words}")

    def kill(self) -> None:
        """SIGKILL for all of it: it gets no chance to tidy up."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._reader.join()

    def end(self) -> None:
        """Ask it to end, and wait for that."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        if self._process.wait(60):
            self.check()
        self._reader.join()
