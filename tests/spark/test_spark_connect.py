"""Spark Connect: the client of the session has no JVM, the server has the package."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dledger import EmbeddedGroup

pytestmark = pytest.mark.spark
PROGRAM = Path(__file__).with_name("connect_query.py")


def test_writes_reads_and_streams_work_over_spark_connect(
    running: EmbeddedGroup, tmp_path: Path
) -> None:
    """In a process of its own: Connect and classic sessions do not live together. The format is
    found by its name."""
    pytest.importorskip("grpc", reason="pyspark[connect] is not installed")
    command = [sys.executable, str(PROGRAM), str(running.path), str(tmp_path / "checkpoint")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "sum {'sum(n)': 4950, 'count(1)': 100}" in done.stdout
