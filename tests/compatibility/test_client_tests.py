"""The client tests of either release, by its own client, against real nodes of the other."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.compatibility.old_release import TOP, tree_of

pytestmark = pytest.mark.cluster
HERE = Path(__file__).parent
PATIENCE_S = 600
SHARE = ("tests/client/test_client.py", "-k", "append")
"""These of the tests without ``DLEDGER_UPGRADES``."""


def run(client: Path, tests: Path, nodes: Path) -> tuple[int, int]:
    """How many of the tests in a checkout passed, and how many were skipped; none failed."""
    part = ("tests/client",) if "DLEDGER_UPGRADES" in os.environ else SHARE
    command = [str(client), "-m", "pytest", *part, "-p", "other_nodes", "-p", "no:cacheprovider"]
    environment = os.environ | {"DLEDGER_NODES_BY": str(nodes), "PYTHONPATH": str(HERE)}
    done = subprocess.run(
        command, cwd=tests, env=environment, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert done.returncode == 0, f"{done.stdout[-6000:]}\n{done.stderr[-2000:]}"
    counts = {word: int(count) for count, word in re.findall(r"(\d+) (\w+)", done.stdout)}
    print(f"clients of {client} with nodes of {nodes}: {done.stdout.splitlines()[-1]}")  # noqa: T201
    return counts["passed"], counts.get("skipped", 0)


def test_client_tests_pass_with_nodes_of_the_release_before(old: Path) -> None:
    passed, skipped = run(Path(sys.executable), TOP, old)
    assert passed > 2 * skipped


def test_client_tests_of_the_release_before_pass_with_new_nodes(old: Path) -> None:
    """As they are in the history of git."""
    passed, skipped = run(old, tree_of(old), Path(sys.executable))
    assert passed > 2 * skipped
