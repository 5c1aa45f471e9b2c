"""What a service manager hears of a node: a socket of the test's is its own."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dledger.embedded.ports import free_ports
from dledger.net.service_manager import PINGS, ServiceManager
from dledger.node import node as node_module
from dledger.node.service import tell
from tests.cli.commands import program, serving

PATIENCE_S = 30.0


class Heard:
    """The messages so far; a socket of the service manager."""

    def __init__(self, address: str | Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(address))
        self.socket.settimeout(PATIENCE_S)

    def next(self) -> str:
        return self.socket.recv(4096).decode()

    def until(self, start: str) -> str:
        while not (message := self.next()).startswith(start):
            pass
        return message

    def all(self) -> list[str]:
        self.socket.setblocking(False)
        found = []
        with suppress(BlockingIOError):
            while True:
                found.append(self.next())
        self.socket.settimeout(PATIENCE_S)
        return found


@pytest.fixture
def heard(tmp_path: Path) -> Iterator[Heard]:
    found = Heard(tmp_path / "notify")
    yield found
    found.socket.close()


@pytest.mark.cluster
def test_service_manager_hears_of_start_pings_and_end(heard: Heard, tmp_path: Path) -> None:
    (port,) = free_ports("127.0.0.1", 1)
    command = program(serving(f"n0-127.0.0.1:{port}", "n0", tmp_path / "n0"))
    environment = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "300000"}
    with subprocess.Popen(command, env={**os.environ, **environment}) as running:
        try:
            assert heard.next() == "STATUS=reads its files"
            assert f"\nMAINPID={running.pid}" in heard.until("READY=1\nSTATUS=")
            assert "LEADER in term 0, leader n0; log 0 to" in heard.until("STATUS=LEADER")
            for _ in range(3):
                heard.until("WATCHDOG=1")
        finally:
            running.send_signal(signal.SIGTERM)
        heard.until("STOPPING=1")
    assert running.returncode == 0
    assert "WATCHDOG=1" not in heard.all()


@dataclass
class FakeNode:
    is_stuck: bool = False
    summary: str = "LEADER"


async def test_node_that_is_stuck_gives_no_pings_though_its_loop_runs(
    heard: Heard, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    environment = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "30000"}
    node = FakeNode()
    telling = asyncio.create_task(tell(ServiceManager(environment), node))
    await asyncio.to_thread(heard.until, "WATCHDOG=1")
    node.is_stuck, node.summary = True, "stuck"
    await asyncio.to_thread(heard.until, "STATUS=stuck")
    node.summary = "still"
    await asyncio.to_thread(heard.until, "STATUS=still")
    assert heard.all() == []
    node.is_stuck = False
    await asyncio.to_thread(heard.until, "WATCHDOG=1")
    telling.cancel()
    assert len(caplog.messages) == 1


@pytest.mark.group(1)
async def test_node_whose_core_is_not_called_any_more_is_stuck(
    group: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await group.leader()
    monkeypatch.setattr(node_module, "STUCK_MS", 100)
    assert not node.is_stuck
    monkeypatch.setattr(node.raft, "deadline_ms", lambda: 0)
    assert node.is_stuck
    node._restarting = asyncio.get_running_loop().create_future()
    assert not node.is_stuck
    node._restarting = None


def test_messages_are_those_of_the_protocol(heard: Heard, tmp_path: Path) -> None:
    manager = ServiceManager({"NOTIFY_SOCKET": str(tmp_path / "notify")})
    manager.reloading()
    assert heard.next().startswith("RELOADING=1\nMONOTONIC_USEC=")
    manager.ready("well")
    assert heard.next() == f"READY=1\nSTATUS=well\nMAINPID={os.getpid()}"
    manager.tell("one")
    manager.tell("one")
    manager.stopping()
    assert heard.all() == ["STATUS=one", "STOPPING=1\nSTATUS=hands over and stops"]


def test_abstract_address_is_one() -> None:
    name = f"dledger-test-{os.getpid()}"
    found = Heard(f"\0{name}")
    ServiceManager({"NOTIFY_SOCKET": f"@{name}"}).ping()
    assert found.next() == "WATCHDOG=1"
    found.socket.close()


def test_without_a_service_manager_nothing_is_sent_and_nothing_fails(tmp_path: Path) -> None:
    none = ServiceManager({})
    assert not none.is_there
    none.ready("well")
    asyncio.run(tell(none, FakeNode()))
    ServiceManager({"NOTIFY_SOCKET": str(tmp_path / "nowhere")}).ping()


@pytest.mark.parametrize(
    ("variables", "ping_s"),
    [
        ({"WATCHDOG_USEC": "30000000"}, 30 / PINGS),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(os.getpid())}, 30 / PINGS),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({}, None),
    ],
)
def test_pings_are_for_the_process_that_is_watched(
    variables: dict[str, str], ping_s: float | None
) -> None:
    assert ServiceManager({"NOTIFY_SOCKET": "/x", **variables}).ping_s == ping_s


def test_status_that_was_not_taken_is_told_again(tmp_path: Path) -> None:
    manager = ServiceManager({"NOTIFY_SOCKET": str(tmp_path / "later")})
    manager.tell("well")
    later = Heard(tmp_path / "later")
    manager.tell("well")
    manager.tell("well")
    assert later.all() == ["STATUS=well"]
    later.socket.close()
