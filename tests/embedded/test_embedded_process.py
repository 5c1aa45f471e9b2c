"""Processes are told apart by more than their pid, and a node's log stays bounded."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

from dledger.embedded.nodelog import BoundedLog
from dledger.embedded.process import (
    PidScope,
    ProcessId,
    application_pid,
    is_descendant,
    parent_of,
    this_host,
)


def test_process_with_another_start_time_is_another_process() -> None:
    me = ProcessId.of(os.getpid())
    assert me.alive
    assert not replace(me, started="1").alive
    assert not replace(me, started="").alive
    assert not replace(me, started="1").signal(signal.SIGKILL)


def test_process_of_another_host_is_never_seen_as_alive() -> None:
    """Its pid means something else here; it must not be signalled either."""
    stranger = replace(ProcessId.of(os.getpid()), host=PidScope("elsewhere", "boot", "space"))
    assert not stranger.alive
    assert not stranger.signal(signal.SIGKILL)


def test_process_identity_survives_its_way_through_a_file() -> None:
    me = ProcessId.of(os.getpid())
    assert ProcessId.from_dict(asdict(me)) == me
    assert me.host == this_host()


def test_killed_child_is_gone() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    identity = ProcessId.of(child.pid)
    assert identity.alive
    assert is_descendant(child.pid, os.getpid())
    assert not is_descendant(os.getpid(), child.pid)
    assert identity.signal(signal.SIGKILL)
    child.communicate()
    assert not identity.alive


def test_application_is_this_process_outside_of_spark() -> None:
    assert application_pid() == os.getpid()
    assert parent_of(os.getpid()) == os.getppid()


def test_node_log_is_set_aside_at_its_bound(tmp_path: Path) -> None:
    path = tmp_path / "node.log"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    handler = BoundedLog(path, max_bytes=2000, descriptor=descriptor)
    try:
        for number in range(200):
            handler.emit(logging.LogRecord("x", logging.INFO, "", 0, "line %d", (number,), None))
    finally:
        os.close(descriptor)
    kept, aside = path.read_text(), (tmp_path / "node.log.1").read_text()
    assert "line 199" in kept
    assert len(kept) + len(aside) < 3 * 2000 + 200
    assert aside.splitlines()[-1] != kept.splitlines()[-1]
