"""SIGKILL of the Spark driver at random moments of a streaming copy: the copy is record for record.

The consumer group that is told of its progress is never ahead of what is written.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from dledger import Client, EmbeddedGroup
from tests.cluster.records import records_of

pytestmark = [pytest.mark.cluster, pytest.mark.spark]
PROGRAM = Path(__file__).with_name("copy_query.py")
PER_KILL = 4000
"""Records for each kill: eight micro-batches, and as many behind the last kill, so that the copy is
not over before."""


def start_copy(servers: str, checkpoint: Path, log: Path) -> subprocess.Popen[bytes]:
    """The copy, in a process group of its own: Python and JVM go together."""
    with log.open("ab") as out:
        return subprocess.Popen(
            [sys.executable, str(PROGRAM), servers, str(checkpoint)],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )


def told(client: Client) -> int:
    """How far the copy's consumer group is."""
    return client.group("copy").offsets.get("a", {}).get(0, 0)


def test_a_copy_is_exact_though_its_driver_is_killed(
    tmp_path: Path, until: Callable[..., None], dice: random.Random, kills: int
) -> None:
    """Exactly once (P12): staged by task, committed once for each micro-batch, whatever dies in
    between. Both topics and the progress are one group's, and agree at every moment."""
    times = 2 * kills if kills > 1 else 1
    log, moments = tmp_path / "spark.log", []
    with (
        EmbeddedGroup(tmp_path / "log", replicas=3) as group,
        Client(group.bootstrap_servers) as client,
    ):
        client.create_topic("a")
        client.create_topic("b")
        total = PER_KILL * times + PER_KILL
        for start in range(0, total, 4000):
            keys = [f"key {n % 97}".encode() for n in range(start, start + 4000)]
            client.append(
                "a", [f"value {n}".encode() for n in range(start, start + 4000)], keys=keys
            )

        for _ in range(times):
            copy = start_copy(group.bootstrap_servers, tmp_path / "checkpoint", log)
            goal = client.end_offsets("b")[0] + dice.randrange(1, PER_KILL - 2000)

            def hit(copy: subprocess.Popen[bytes] = copy, goal: int = goal) -> bool:
                return copy.poll() is not None or client.end_offsets("b")[0] >= goal

            until(hit, f"the copy to write up to {goal}")
            threading.Event().wait(dice.random() * 0.3)
            assert copy.poll() is None, log.read_text()[-3000:]
            os.killpg(copy.pid, signal.SIGKILL)
            copy.wait()
            moments.append(client.end_offsets("b")[0])
            assert told(client) <= moments[-1]

        copy = start_copy(group.bootstrap_servers, tmp_path / "checkpoint", log)
        assert copy.wait(300) == 0, log.read_text()[-3000:]
        assert moments == sorted(moments)
        assert 0 < moments[0] <= moments[-1] < total, "a kill hit nothing"
        assert records_of(client, "b") == records_of(client, "a")
        assert told(client) == total
