"""Groups under measurement."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dledger import Client, EmbeddedGroup


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


def until_in_step(client: Client, timeout_s: float = 60) -> None:
    """Wait until all nodes answer and hold the same log."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        durable = {state.get("durable_index") for state in client.status().values()}
        if len(durable) == 1 and None not in durable:
            return
        time.sleep(0.02)
    raise RuntimeError(f"the nodes do not come into step: {client.status()}")
