"""Groups under measurement."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dledger import Client, EmbeddedGroup
from dledger.errors import DLedgerError


@contextmanager
def group(directory: Path, replicas: int) -> Iterator[EmbeddedGroup]:
    """A group with a topic ``bench``, gone with its files afterwards."""
    path = directory / f"group-{replicas}-{os.getpid()}-{time.monotonic_ns()}"
    running = EmbeddedGroup(path, replicas=replicas)
    try:
        with Client(running.bootstrap_servers) as client:
            client.create_topic("bench")
        yield running
    finally:
        running.stop()
        shutil.rmtree(path, ignore_errors=True)


def until_in_step(running: EmbeddedGroup, client: Client, timeout_s: float = 60) -> None:
    """Wait until all nodes answer and hold the same log."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        try:
            status = client.status()
        except DLedgerError:
            status = {}
        if len(status) == len(running.nodes) and len({s["durable_index"] for s in status.values()}) == 1:
            return
        time.sleep(0.02)
    raise RuntimeError(f"the nodes do not come into step: {client.status()}")
