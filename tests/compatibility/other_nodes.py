"""A pytest plugin: the tests of ``tests/client`` with real nodes of another release in place of the
group that they bring along. ``DLEDGER_NODES_BY`` is the interpreter that has that release.

Each client's bytes go to a real node and its answers come back as they are, but for the nodes'
addresses and the group's id; in between, a test's faults happen. Tests that look into their own
group, such as its catalog, are skipped."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.hello import HelloRequest, HelloResponse
from dledger.protocol.wire import FrameLimits, FrameReader, decode, encode
from dledger.protocol.wire.framing import Frame, pack_frame
from dledger.protocol.wire.msgpack import pack, unpack

OF_THE_FAKE = [
    "catalog",
    "index",
    "bodies",
    "behind",
    "lag",
    "most_cuts",
    "racks",
    "handle",
    "_append",
    "_execute",
    "_fetch",
    "_offsets",
    "_group",
]
"""What of their own group a test may look into, or change, that real nodes do not have."""
LONG = "a limit of its own catalog"
REFUSAL = "the client refuses before the node does"
MEANWHILE = "it changes amid a request"
REPLACED = "members are replaced by nodes of its own"
OF_ITS_ANSWERS = {
    "test_topics_and_offsets_and_groups": "the whole status of a node",
    "test_status_names_the_node_that_does_not_answer": "the whole status of a node",
    "test_client_of_one_group_id_takes_that_group_alone": REFUSAL,
    "test_client_of_one_group_id_takes_that_group_or_a_copy_of_it": REFUSAL,
    "test_stored_bytes_of_many_ranges_are_those_of_their_pieces": "an answer that no node gives",
    "test_many_long_schemas_come_in_several_answers": LONG,
    "test_records_that_retention_takes_during_the_search_are_passed_over": MEANWHILE,
    "test_a_topic_that_is_created_again_during_the_search_is_refused": MEANWHILE,
    "test_a_client_finds_a_leader_that_came_while_another_one_led": REPLACED,
    "test_a_producer_finds_a_leader_that_came_while_another_one_led": REPLACED,
}
"""Tests that hold answers against those of their own group."""
GROUP_ID = "A"
"""What tests take the group's id for."""


class Host:
    """The process with the nodes."""

    def __init__(self) -> None:
        script = Path(__file__).with_name("node_host.py")
        command = [os.environ["DLEDGER_NODES_BY"], str(script)]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self._process = subprocess.Popen(command, stderr=subprocess.DEVNULL, text=True, **pipes)
        self._lock = threading.Lock()

    def call(self, *words: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._lock:
            self._process.stdin.write(json.dumps(words) + "\n")
            self._process.stdin.flush()
            return json.loads(self._process.stdout.readline())

    def end(self) -> None:
        self._process.communicate(timeout=60)


def frames(sock: socket.socket) -> Iterator[Frame]:
    """Those that come, until the other side ends."""
    reader = FrameReader(FrameLimits())
    while True:
        if (wanted := reader.wanted) is None:
            if not (data := sock.recv(1 << 16)):
                return
            yield from reader.feed(data)
        elif size := sock.recv_into(wanted):
            if (frame := reader.received(size)) is not None:
                yield frame
        else:
            return


class Front:
    """The address that clients have of a node."""

    def __init__(self, group: Any, node_id: str, real: str) -> None:
        self.group = group
        self.node_id = node_id
        self.real = real
        self.alive = True
        self.sockets: set[socket.socket] = set()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        self.threads = [threading.Thread(target=self._accept, daemon=True)]
        self.threads[0].start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                sock, _ = self.listener.accept()
                self._begin(Passage(self, sock))

    def _begin(self, passage: Passage) -> None:
        with self.group.lock:
            if not self.alive:
                passage.close()
                return
            self.sockets.add(passage.client)
            for run in (passage.requests, passage.answers):
                thread = threading.Thread(target=run, daemon=True)
                self.threads.append(thread)
                thread.start()

    def kill(self) -> None:
        """No client reaches the node any more."""
        with self.group.lock:
            self.alive = False
            sockets = list(self.sockets)
        _close(self.listener, *sockets)


def _close(*sockets: socket.socket) -> None:
    for sock in sockets:
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)
        sock.close()


class Passage:
    """One connection of a client, and the one behind it to the node."""

    def __init__(self, front: Front, client: socket.socket) -> None:
        self.front = front
        self.group = front.group
        self.client = client
        host, _, port = front.real.rpartition(":")
        self.node = socket.create_connection((host, int(port)))
        self._sending = threading.Lock()
        self._held: dict[int, Any] = {}
        """By request that was passed on, what its answer becomes."""

    def close(self) -> None:
        with self.group.lock:
            self.front.sockets.discard(self.client)
        _close(self.client, self.node)

    def _answer(self, request_id: int, message: Any) -> None:
        with self._sending:
            self.client.sendall(b"".join(encode(message, request_id)))

    def requests(self) -> None:
        """To the node, but for those that something happens to."""
        try:
            for frame in frames(self.client):
                message = decode(frame.kind, frame.header, frame.payload)
                fault = self.group.fault_of(self.front, message, frame.payload)
                if fault == "drop":
                    return
                if fault == "silence":
                    continue
                if fault == "lose" or isinstance(fault, tuple | Hello):
                    self._held[frame.request_id] = message, fault
                elif fault is not None:
                    is_code = isinstance(fault, Code)
                    answer = self.group.refuse(message, fault, "") if is_code else fault
                    self._answer(frame.request_id, answer)
                    continue
                header = frame.header
                if isinstance(message, HelloRequest):
                    for known in {GROUP_ID, *(one for one, _ in self.group.ids.values())}:
                        header = _renamed(header, known, self.group.real_id, whole=True)
                    self._held.setdefault(frame.request_id, (message, None))
                self.node.sendall(_packed(frame, header))
        except OSError:
            return
        finally:
            self.close()

    def answers(self) -> None:
        """Back to the client."""
        try:
            for frame in frames(self.node):
                message, fault = self._held.pop(frame.request_id, (None, None))
                header = self.group.fronted(frame.header)
                if isinstance(message, HelloRequest):
                    header = _renamed(header, self.group.real_id, GROUP_ID)
                if fault == "lose":
                    return
                if isinstance(fault, Hello):
                    answer = decode(frame.kind, frame.header, frame.payload)
                    self._answer(frame.request_id, fault.of(answer))
                elif fault is not None:
                    self._answer(frame.request_id, self.group.refuse(message, fault[1], ""))
                else:
                    with self._sending:
                        self.client.sendall(_packed(frame, header))
        except OSError:
            return
        finally:
            self.close()


def _packed(frame: Frame, header: Any) -> bytes:
    payload = bytes(frame.payload)
    return pack_frame(frame.kind, frame.request_id, bytes(header), len(payload)) + payload


def _renamed(header: Any, before: str, after: str, *, whole: bool = False) -> bytes:
    """A header with another word in its texts, or in place of ``whole`` ones; fields that this
    release does not know stay."""

    def other(value: Any) -> Any:
        if isinstance(value, str):
            return value.replace(before, after) if not whole or value == before else value
        if isinstance(value, list | tuple):
            return [other(one) for one in value]
        return value

    return pack(other(unpack(header)))


class Hello:
    """The node's answer to a hello, but for the group's id."""

    def __init__(self, group_id: str, ancestors: tuple[tuple[str, int], ...]) -> None:
        self._changes = {"group_id": group_id, "ancestors": ancestors}

    def of(self, answer: HelloResponse) -> HelloResponse:
        return replace(answer, **self._changes)


def group_on(host: Host, conftest: ModuleType) -> type:
    """The class that takes the place of ``FakeGroup``."""

    class Group(conftest.FakeGroup):  # type: ignore[name-defined,misc]
        """Fronts of real nodes."""

        def __init__(self) -> None:
            self.lock = threading.RLock()
            self.faults: dict[type, deque[Any]] = {}
            self.seen: list[tuple[str, Any, bytes]] = []
            self.name = "g"
            self.ids: dict[str, tuple[str, tuple[tuple[str, int], ...]]] = {}
            self.refusal: Code | None = None
            self.refuse = conftest.refuse
            real, self.real_id = host.call("start", self.name, conftest.MAX_BODY)
            self.nodes = {node: Front(self, node, address) for node, address in real.items()}
            self.leader = "n0"

        @property
        def leader(self) -> str:
            return str(host.call("leader"))

        @leader.setter
        def leader(self, node: str) -> None:
            if node not in self.nodes:
                pytest.skip("real nodes always elect a leader")
            host.call("lead", node)

        def values(self, topic: str, partition: int = 0) -> list[bytes]:
            """As a client of the nodes' own release reads them."""
            return [one.encode("latin-1") for one in host.call("values", topic, partition)]

        def fault_of(self, front: Front, message: Any, payload: memoryview) -> Any:
            """What happens to a request; None: nothing."""
            with self.lock:
                self.seen.append((front.node_id, message, bytes(payload[:64])))
                if isinstance(message, HelloRequest):
                    if self.refusal is not None:
                        return HelloResponse(code=self.refusal, group=self.name)
                    known = self.ids.get(front.node_id)
                    return None if known is None else Hello(*known)
                waiting = self.faults.get(type(message))
                fault = waiting.popleft() if waiting else None
                return fault() if callable(fault) else fault

        def fronted(self, header: Any) -> bytes:
            """A header with the fronts' addresses in place of the nodes'."""
            found = bytes(header)
            for front in self.nodes.values():
                real, shown = front.real.encode(), front.address.encode()
                assert len(real) == len(shown), "one may take the place of the other"
                found = found.replace(real, shown)
            return found

        def close(self) -> None:
            super().close()
            host.call("stop")

    for name in OF_THE_FAKE:
        setattr(Group, name, property(_skip, _skip))
    return Group


def _skip(*_: Any) -> None:
    pytest.skip("it looks into a group that real nodes take the place of")


class Plugin:
    """Puts the real nodes in, and leaves out tests that use none of them."""

    def __init__(self) -> None:
        self.host = Host()

    def pytest_plugin_registered(self, plugin: Any) -> None:
        if getattr(plugin, "__file__", "").endswith("tests/client/conftest.py"):
            plugin.FakeGroup = group_on(self.host, plugin)

    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        chosen = [item for item in items if _has_group(item)]
        for item in chosen:
            if reason := OF_ITS_ANSWERS.get(getattr(item, "originalname", "")):
                item.add_marker(pytest.mark.skip(reason=reason))
        config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
        items[:] = chosen

    def pytest_unconfigure(self) -> None:
        self.host.end()


def _has_group(item: Any) -> bool:
    found = item._fixtureinfo.name2fixturedefs.get("group", ())
    return bool(found) and found[-1].baseid.endswith("tests/client")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Plugin(), "nodes of another release")
