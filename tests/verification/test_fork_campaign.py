"""A share of ``make forks``, and whether its checks can fail."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dledger.embedded.home import LOCK_FILE, Home
from verification.forks import campaign
from verification.forks.children import WORKS, Before, Told

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.filterwarnings("ignore:This process:DeprecationWarning"),
]


def test_a_share_of_the_campaign_hangs_loses_and_doubles_nothing(tmp_path: Path) -> None:
    file = tmp_path / "found.json"
    asked = ["--forks", "100", "--seed", "7", "--json", str(file)]
    command = [sys.executable, "-m", "verification.forks", *asked]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(file.read_text())
    assert found["figures"]["forks"] == 100
    assert found["faults"].keys() == WORKS.keys()


def hang(before: Before) -> Told:
    threading.Event().wait()
    return {}


def keep_the_lock(before: Before) -> Told:
    descriptor = os.open(before.folder / LOCK_FILE, os.O_RDWR)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    return {}


def tell_lies(before: Before) -> Told:
    return {"values": ["never appended"], "partition": 0, "start": 0}


def append_for_the_parent(before: Before) -> Told:
    before.client.append(before.topic, b"told nobody")
    return {}


def fail(before: Before) -> Told:
    raise ValueError("of the child")


@pytest.mark.parametrize(
    ("work", "problem"),
    [
        (hang, "hangs:"),
        (keep_the_lock, "keeps the lock of the group's directory"),
        (tell_lies, "0 of 1 records from b'never appended' on are stored"),
        (append_for_the_parent, "b'told nobody' is stored, and nobody appended it"),
        (fail, "ValueError('of the child')"),
    ],
)
def test_child_that_does_not_keep_the_promise_is_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, work: Callable[[Before], Told], problem: str
) -> None:
    monkeypatch.setattr(campaign, "PATIENCE_S", 1.0 if work is hang else 60.0)
    monkeypatch.setattr(campaign, "LIVING", 1.0)
    if work is keep_the_lock:  # a thread of the parent looks for so long
        monkeypatch.setattr(Home.lock, "__defaults__", (1.0,))
    found: dict[str, Any] = campaign.run(tmp_path, 1, 1, print, {"it": work})
    assert not found["ok"]
    assert any(problem in one for one in found["problems"]), found["problems"]
