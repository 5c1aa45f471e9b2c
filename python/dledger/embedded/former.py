"""Processes of nodes that were there before: half gone, or of another host."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterable
from typing import Final

from dledger.embedded.home import Home, NodeProcess
from dledger.embedded.process import this_host
from dledger.errors import PathError
from dledger.types import NodeId

DRAIN_TIMEOUT_S: Final = 15.0
"""For a node to end after SIGTERM; then SIGKILL, which loses nothing that was acknowledged."""
SIGN_OF_LIFE_S: Final = 3.0
"""Six times as long as a node goes without touching its node.pid."""


def settle(home: Home, node: NodeId) -> None:
    """End a process of the node's that is half gone: it ends already, or its path is another
    directory by now. Wait for one that was killed."""
    state = _named(home, node)
    process = state.process
    if process is None or not state.running:
        return
    if not process.alive:  # killed; its lock goes last, and until then it seems to run
        home.wait_gone(node, process, DRAIN_TIMEOUT_S)
        return
    moved = state.home != str(home) and Home(state.home).place() != home.place()
    if moved:  # it would write to a path that is gone
        process.signal(signal.SIGTERM)
    if (state.ending or moved) and not home.wait_gone(node, process, DRAIN_TIMEOUT_S):
        process.signal(signal.SIGKILL)
        home.wait_gone(node, process, DRAIN_TIMEOUT_S)


def _named(home: Home, node: NodeId) -> NodeProcess:
    """The node's process. One without a name has just taken its lock, or has ended and is about to
    let go of it."""
    deadline = time.monotonic() + DRAIN_TIMEOUT_S
    while (
        (state := home.node(node)).running and state.process is None and time.monotonic() < deadline
    ):
        time.sleep(0.005)
    return state


def refuse_other_host(home: Home, nodes: Iterable[NodeId]) -> None:
    """A second host (or container) on the same directory: never two processes on one store.

    The lock tells within one kernel; on a file system whose locks do not reach other hosts, signs
    of life do.
    """
    found = {node: home.node(node) for node in nodes}
    elsewhere = {
        node: state
        for node, state in found.items()
        if state.process and state.process.host != this_host()
    }
    alive = [node for node, state in elsewhere.items() if state.running]
    boot = this_host().boot
    silent = {
        node: home.last_sign_of_life(node)
        for node, state in elsewhere.items()
        if state.process and not (state.running or state.process.host.boot == boot)
    }
    deadline = time.monotonic() + SIGN_OF_LIFE_S
    while silent and not alive and time.monotonic() < deadline:
        time.sleep(0.05)
        alive = [node for node, first in silent.items() if home.last_sign_of_life(node) != first]
    for node in alive:
        process = elsewhere[node].process
        assert process is not None
        raise PathError(
            f"{home}: host {process.host.name!r} (or a container of that name) runs {node} of "
            f"this group, process {process.pid}. Use its addresses as dledger.bootstrap.servers "
            "(it needs dledger.advertise.host for that), or end the programs that use it there: "
            "its nodes end by themselves soon after"
        )
