"""Processes of nodes: made, and heard until each serves or has said why it does not."""

from __future__ import annotations

import json
import os
import select
import signal
import time
from typing import Final

from dledger import errors
from dledger.embedded.home import LOG_FILE, Home
from dledger.embedded.process import exit_code, reap, spawn_python
from dledger.errors import DLedgerError, StorageError, Unavailable
from dledger.forks import let_go, open_pipe
from dledger.types import NodeId

START_TIMEOUT_S: Final = 60.0
"""For a node's process to serve; recovery of a large store takes its time."""
END_TIMEOUT_S: Final = 15.0
"""For the kernel to end a process that says nothing any more."""


class Killed(Unavailable):
    """A process was killed before it served, by a person or by the kernel. Its store may be
    sound."""


def spawn_nodes(home: Home, nodes: list[NodeId]) -> dict[NodeId, DLedgerError | None]:
    """Start processes and collect each one's first word: why it does not serve, None where it
    does."""
    pending: dict[int, tuple[NodeId, int]] = {}
    for node in nodes:
        home.make_node_directory(node)
        read_end, write_end = open_pipe()
        log = home.node_directory(node) / LOG_FILE
        pid = spawn_python("dledger.embedded.child", [str(home), node], write_end, log)
        let_go(write_end)
        pending[read_end] = (node, pid)
    answers: dict[NodeId, DLedgerError | None] = {}
    heard: dict[int, bytes] = dict.fromkeys(pending, b"")
    deadline = time.monotonic() + START_TIMEOUT_S
    try:
        while pending:
            for descriptor in _readable(list(pending), deadline):
                data = os.read(descriptor, 65536)
                heard[descriptor] += data
                if not data or heard[descriptor].endswith(b"\n"):
                    node, pid = pending.pop(descriptor)
                    os.close(descriptor)
                    answers[node] = _answer(home, node, pid, heard[descriptor])
            if time.monotonic() > deadline:
                break
    finally:
        for descriptor in pending:
            os.close(descriptor)
    for node, _ in pending.values():
        answers[node] = Unavailable(
            f"node {node} of {home} did not serve within {START_TIMEOUT_S:.0f} s; its log ends "
            f"with: {home.log_tail(node)}"
        )
    return answers


def _readable(descriptors: list[int], deadline: float) -> list[int]:
    poll = select.poll()  # not select(): a program with many files has descriptors over 1023
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return [descriptor for descriptor, _ in poll.poll(max(0.0, deadline - time.monotonic()) * 1000)]


def _answer(home: Home, node: NodeId, pid: int, said: bytes) -> DLedgerError | None:
    """The error that a node's first word stands for, None when it serves."""
    try:
        answer = json.loads(said)
    except ValueError:
        tail = home.log_tail(node) or "nothing"
        if exit_code(pid, END_TIMEOUT_S) == -signal.SIGKILL:
            return Killed(
                f"node {node} of {home} was killed (SIGKILL) before it served, twice; start it "
                "again when it is known what kills it, as the kernel does where memory is short; "
                f"its log ends with: {tail}"
            )
        return StorageError(
            f"node {node} of {home} ended before it served; its log ends with: {tail}"
        )
    if answer.get("ready") or answer.get("error") == "AlreadyRunning":
        return None
    reap(pid)
    kind = getattr(errors, answer["error"], None)
    message = f"node {node} of {home}: {answer['message']}"
    if isinstance(kind, type) and issubclass(kind, DLedgerError):
        return kind(message)
    return Unavailable(f"{message} ({answer['error']}; see {home.node_directory(node) / LOG_FILE})")
