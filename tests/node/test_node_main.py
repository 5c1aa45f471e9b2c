"""A node as a process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

PROGRAM = """
import sys
from pathlib import Path
from dledger.config import GroupConfig, NodeConfig
from dledger.node.process import run_node
from dledger.types import NodeId
settings = dict(segment_bytes=1 << 20, index_file_bytes=3200, max_body_bytes=1 << 16)
node = NodeConfig(node_id=NodeId("n0"), directory=Path(sys.argv[1]), **eval(sys.argv[2]))
run_node(GroupConfig(**settings), node, lambda: {}, lambda port: print(port, flush=True))
heavy = [name for name in ("pyarrow", "pyspark", "numpy") if name in sys.modules]
print("loaded", heavy)
"""


Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a node in a directory, with settings."""
    started: list[subprocess.Popen[str]] = []

    def start(name: str = "n0", settings: str = "{}") -> subprocess.Popen[str]:
        command = [sys.executable, "-c", PROGRAM, str(tmp_path / name), settings]
        pipe = subprocess.PIPE
        process = subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=os.environ)
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_node_gracefully(start: Start, number: signal.Signals) -> None:
    node = start()
    assert node.stdout is not None
    assert int(node.stdout.readline()) > 0
    node.send_signal(number)
    out, log = node.communicate(timeout=30)
    assert node.returncode == 0, log
    assert "loaded []" in out
    assert "has stopped" in log


def test_sighup_lets_a_node_look_at_its_files_and_go_on(start: Start) -> None:
    node = start()
    assert node.stdout is not None
    assert int(node.stdout.readline()) > 0
    node.send_signal(signal.SIGHUP)
    assert node.stderr is not None
    assert any("told to read its files again: none has changed" in line for line in node.stderr)
    node.send_signal(signal.SIGTERM)
    assert node.communicate(timeout=30)[0] == "loaded []\n"


def test_the_log_has_the_form_and_level_of_the_settings(start: Start) -> None:
    node = start(settings="dict(log_format='json', log_level='warning', idle_timeout_ms=200)")
    assert node.communicate(timeout=30)[1] == ""
    node = start(settings="dict(log_format='json', idle_timeout_ms=200)")
    log = [json.loads(line) for line in node.communicate(timeout=30)[1].splitlines()]
    assert {line["level"] for line in log} == {"info"}
    assert any("listens on" in line["message"] for line in log)


def test_an_unused_node_ends_by_itself(start: Start) -> None:
    node = start(settings="dict(idle_timeout_ms=200)")
    _, log = node.communicate(timeout=30)
    assert node.returncode == 0, log
    assert "nobody has used it" in log


def test_a_second_node_on_the_same_port_fails_with_a_clear_error(start: Start) -> None:
    first = start("first")
    assert first.stdout is not None
    port = first.stdout.readline().strip()
    second = start("second", f"dict(port={port})")
    _, log = second.communicate(timeout=30)
    assert second.returncode != 0
    assert "PortInUse" in log
    assert port in log
