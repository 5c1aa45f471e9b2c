"""A node's process that is about to go, and what comes behind it: nobody takes it for a node that
runs."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from dledger.embedded import former, start
from dledger.embedded.home import Home, NodeProcess, PidFile
from dledger.embedded.process import ProcessId, this_host
from dledger.types import NodeId

N0 = NodeId("n0")
GONE = ProcessId(1 << 30, "1", this_host())
"""A process that there is no more."""


@pytest.fixture
def held(home: Home) -> PidFile:
    """The lock of a node, taken."""
    pid_file = PidFile(home, N0)
    assert pid_file.acquire(0)
    return pid_file


@pytest.fixture
def sleeping(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], None]:
    """``sleeping(call)``: instead of a pause of whoever starts nodes, something happens."""

    def instead(call: Callable[[], object]) -> None:
        monkeypatch.setattr(
            former, "time", SimpleNamespace(monotonic=lambda: 0.0, sleep=lambda seconds: call())
        )

    return instead


def test_process_that_ended_but_still_has_its_lock_is_waited_for(
    home: Home, held: PidFile, sleeping: Callable[[Callable[[], object]], None]
) -> None:
    """Else the program that comes then has a group without that node, or without any where all have
    just ended."""
    held.clear()
    assert home.node(N0) == NodeProcess(running=True)
    sleeping(lambda: os.close(held._descriptor))
    former.settle(home, N0)
    assert not home.node(N0).running


def test_process_with_fresh_lock_is_waited_for_until_it_gives_its_name(
    home: Home, held: PidFile, sleeping: Callable[[Callable[[], object]], None]
) -> None:
    held.clear()
    sleeping(lambda: held.write(ending=False))
    former.settle(home, N0)
    assert home.node(N0).process == ProcessId.of(os.getpid())
    os.close(held._descriptor)


def test_a_process_that_was_killed_and_has_its_lock_yet_is_waited_for(
    home: Home, held: PidFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lock goes last. Else whoever comes then finds that all nodes run, and waits for one that
    never answers."""
    monkeypatch.setattr(ProcessId, "alive", property(lambda process: False))
    clock = SimpleNamespace(monotonic=lambda: 0.0, sleep=lambda seconds: os.close(held._descriptor))
    monkeypatch.setattr("dledger.embedded.home.time", clock)
    former.settle(home, N0)
    assert not home.node(N0).running


def test_lock_of_another_process_of_node_says_nothing_of_former_one(
    home: Home, held: PidFile
) -> None:
    assert home.wait_gone(N0, GONE, 0)
    held.clear()
    assert not home.wait_gone(N0, GONE, 0), "this may be the lock of the one that has ended"
    os.close(held._descriptor)


@dataclass
class FakeProcess:
    """One that ends when it is asked to."""

    signals: list[int] = field(default_factory=list)

    def signal(self, number: int) -> bool:
        self.signals.append(number)
        return True


class FakeHome:
    """A node with several processes, one behind the other."""

    def __init__(self, processes: list[FakeProcess]) -> None:
        self._left = list(processes)

    def node(self, node_id: NodeId) -> Any:
        if not self._left:
            return NodeProcess(running=False)
        return SimpleNamespace(running=True, process=self._left[0])

    def wait_gone(self, node_id: NodeId, process: FakeProcess, timeout_s: float) -> bool:
        if self._left[0] is process and process.signals:
            self._left.pop(0)
        return True


def test_a_node_that_was_started_twice_is_ended_twice() -> None:
    """Its second process waits for the first one to end, and takes its place."""
    processes = [FakeProcess(), FakeProcess()]
    home: Any = FakeHome(processes)
    start.stop_nodes(home, [N0])
    assert [process.signals for process in processes] == [[signal.SIGTERM], [signal.SIGTERM]]
