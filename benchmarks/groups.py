"""Groups under measurement."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from dledger import Client, EmbeddedGroup
from dledger.types import NodeId

VARIANTS: dict[str, dict[str, Any]] = {
    "1 replica": {"replicas": 1},
    "3 replicas": {"replicas": 3},
    "3 replicas, not synced": {"replicas": 3, "flush": "async"},
}
"""The groups that are measured side by side. The last one shows what of a figure is the disk's and
what is ours."""


@contextmanager
def variants(directory: Path, *labels: str) -> Iterator[dict[str, tuple[EmbeddedGroup, Client]]]:
    """These of VARIANTS, all of them unless some are named, running at the same time."""
    with ExitStack() as stack:
        running = {}
        for label in labels or VARIANTS:
            one = stack.enter_context(group(directory, **VARIANTS[label]))
            running[label] = (one, stack.enter_context(Client(one.bootstrap_servers)))
        yield running


@contextmanager
def group(directory: Path, replicas: int, **settings: Any) -> Iterator[EmbeddedGroup]:
    """A group with a topic ``bench``, gone with its files afterwards."""
    path = directory / f"group-{replicas}-{os.getpid()}-{time.monotonic_ns()}"
    running = EmbeddedGroup(path, replicas=replicas, **settings)
    try:
        with Client(running.bootstrap_servers) as client:
            client.create_topic("bench")
        yield running
    finally:
        running.stop()
        shutil.rmtree(path, ignore_errors=True)


def pid_of(running: EmbeddedGroup, name: NodeId) -> int:
    """The process of a node, which runs."""
    pid = running.nodes[name].pid
    assert pid is not None, f"{name} does not run"
    return pid


def pids_of(running: EmbeddedGroup) -> dict[NodeId, int]:
    """The processes of all nodes, which run."""
    return {name: pid_of(running, name) for name in running.nodes}


def until_in_step(client: Client, timeout_s: float = 60) -> None:
    """Wait until all nodes answer and hold the same log."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        durable = {state.get("durable_index") for state in client.status().values()}
        if len(durable) == 1 and None not in durable:
            return
        time.sleep(0.02)
    raise RuntimeError(f"the nodes do not come into step: {client.status()}")
