"""An exception out of a signal handler is the caller's own: whatever its class, it ends the call
and is not taken for what a socket or a file says."""

from __future__ import annotations

import gc
import re
import signal
import socket
import ssl
import sys
import threading
import tomllib
from _thread import interrupt_main
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import pytest

from dledger import interrupts
from dledger.client import Client
from dledger.embedded import EmbeddedGroup, connect_path
from dledger.errors import Unavailable
from dledger.net import user_directory
from dledger.net.connections.blocking import BlockingConnection
from dledger.net.connections.handshake import Greeting
from dledger.protocol.messages.client import AppendRequest
from dledger.protocol.wire import FrameLimits

TOP = Path(__file__).parents[2]
CATCHES_NOTHING = {"pyspark", "fsspec", "click", "rich", "tomlkit"}
"""Libraries below which nobody asks `is_interrupt`: of fsspec only what is on a local disk, which
it has no part in."""
CLASSES = [
    TimeoutError,
    InterruptedError,
    ConnectionResetError,
    BlockingIOError,
    socket.gaierror,
    ssl.SSLError,
]


@contextmanager
def ended_by(error: BaseException) -> Iterator[None]:
    """A signal handler raises this error soon, and that ends the block."""

    def handler(*_: Any) -> None:
        raise error

    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    try:
        with pytest.raises(type(error)) as caught:
            yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert caught.value is error


@pytest.mark.parametrize("kind", CLASSES)
def test_a_handler_s_exception_ends_a_call_that_waits_for_a_node(
    group: Any, kind: type[OSError], client: Client
) -> None:
    client.append("t", b"a")
    group.fault(AppendRequest, "silence")
    with ended_by(kind("the caller's limit")):
        client.append("t", b"b")
    client.append("t", b"c")
    assert group.values("t") == [b"a", b"c"]


def test_a_handler_s_exception_ends_a_connection_that_is_opened() -> None:
    """The listener's queue is full, so that nobody says anything."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener:
        waiting = [socket.socket() for _ in range(4)]
        for sock in waiting:
            sock.setblocking(False)
            sock.connect_ex(listener.getsockname())
        with ended_by(TimeoutError("the caller's limit")):
            connect(listener.getsockname()[1], 30)
        for sock in waiting:
            sock.close()


def test_a_handler_s_exception_ends_a_greeting() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        ended_by(TimeoutError("the caller's limit")),
    ):
        connect(listener.getsockname()[1], 30)


def connect(port: int, timeout_s: float, host: str = "127.0.0.1") -> BlockingConnection:
    return BlockingConnection(
        f"{host}:{port}", Greeting(), limits=FrameLimits(), timeout_s=timeout_s
    )


def test_a_handler_s_exception_ends_a_request_that_leaves_slowly() -> None:
    ours, theirs = socket.socketpair()
    connection = object.__new__(BlockingConnection)
    connection._socket, connection._proof, connection._request_id = ours, [], 0
    connection._timeout_s, connection._under_tls = -1.0, False
    with closing(theirs), closing(connection), ended_by(TimeoutError("the caller's limit")):
        connection.send(AppendRequest(), [bytes(1 << 20)] * 20)


def test_libraries_whose_errors_are_caught_are_known() -> None:
    """Frames of their extension modules would be taken for a handler's, and a damaged frame for an
    interrupt."""
    project = tomllib.loads((TOP / "pyproject.toml").read_text())["project"]
    declared = *project["dependencies"], *project["optional-dependencies"]["rocketmq"]
    names = {re.split(r"[^a-z0-9]", one.lower())[0] for one in declared}
    assert names - CATCHES_NOTHING == interrupts._LIBRARIES


def test_what_the_system_says_is_still_told_as_a_node_that_is_not_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(Unavailable, match="no answer in time"):
            connect(port, 0.01)
    with pytest.raises(Unavailable, match="refused"):
        connect(port, 10)
    with pytest.raises(Unavailable, match=r"localhost.*refused"):
        connect(port, 10, "localhost")
    with pytest.raises(Unavailable, match=r"no-such-host\.invalid:1: "):
        connect(1, 10, "no-such-host.invalid")


def test_what_stands_in_for_the_system_says_what_the_system_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As the disks of a simulator do; a program's own code does not."""
    names: dict[str, Any] = {"__name__": "simulator.disk"}
    exec("def read():\n    raise FileNotFoundError('no such file')\n", names)
    with pytest.raises(FileNotFoundError) as caught:
        names["read"]()
    assert caught.value.__traceback__ is not None
    error = caught.value.with_traceback(caught.value.__traceback__.tb_next)  # without this test
    simulator = ModuleType("simulator")
    monkeypatch.setitem(sys.modules, "simulator", simulator)
    assert interrupts.is_interrupt(error)
    monkeypatch.setattr(simulator, interrupts.STAND_IN, True, raising=False)
    assert not interrupts.is_interrupt(error)


class At:
    """Marks a signal as come at the ``number``-th line of this package that runs in a call. Python
    runs the handler where it next may; an exception of the trace function itself could come where
    none of a handler can, as between the body of a ``with`` and its end, and leave a lock held that
    no program leaves held."""

    def __init__(self, number: int) -> None:
        self.left = number
        self.where = ""

    def __call__(self, frame: FrameType, event: str, _: Any) -> Any:
        if not frame.f_globals.get("__name__", "").startswith("dledger."):
            return None
        if event == "line":
            self.left -= 1
            if not self.left:
                self.where = f"{frame.f_code.co_qualname}, line {frame.f_lineno}"
                outer: FrameType | None = frame
                while outer is not None:
                    outer.f_trace = None
                    outer = outer.f_back
                sys.settrace(None)
                [*map(interrupt_main, SIGNALS)]  # a call would run the handler in here
                return None
        return self


SIGNALS = (signal.SIGUSR1,)


def interrupted(number: int, work: Callable[[], object]) -> At:
    """Do the work, interrupted there."""
    dropped: list[object] = []

    def handle(*_: object) -> None:
        raise TimeoutError("the caller's limit")

    injection, ended = At(number), False
    before, hook = signal.signal(signal.SIGUSR1, handle), sys.unraisablehook
    # of a destructor: Python drops it
    sys.unraisablehook = lambda unraisable: dropped.append(unraisable.exc_value)
    sys.settrace(injection)
    try:
        work()
    except TimeoutError as error:
        if str(error) != "the caller's limit":
            raise
        ended = True
    finally:
        sys.settrace(None)
        sys.unraisablehook = hook
        signal.signal(signal.SIGUSR1, before)
    assert ended or dropped or not injection.where, f"swallowed in {injection.where}"
    return injection


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_a_handler_s_exception_comes_out_of_every_line_of_a_call(group: Any, fast: Any) -> None:
    assert threading.current_thread() is threading.main_thread()
    Client(group.bootstrap, **fast).create_topic("t")
    number, places = 1, set[str]()
    while True:
        with Client(group.bootstrap, **fast) as client:
            injection = interrupted(number, lambda: client.append("t", [b"a", b"b"]))
        if not injection.where:
            break
        places.add(injection.where)
        number += 1 if "blocking" in injection.where or number < 50 else 3
    assert any("_receive_some" in place for place in places)
    gc.collect()  # sockets that were interrupted before anybody had them
    values = group.values("t")
    assert values.count(b"a") == values.count(b"b") >= 1


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_handler_exception_comes_out_of_every_line_of_group_lookup(
    tmp_path: Path,
) -> None:
    """The lookup finds the group of a path."""
    number, places = 1, set[str]()
    with EmbeddedGroup(
        tmp_path / "log", replicas=1, segment_bytes=16 << 20, index_file_bytes=1 << 20
    ) as group:

        def find() -> None:
            user_directory._read.clear()
            user_directory._here.clear()
            with Client(connect_path(group.path)) as client:
                client.topics()

        while (injection := interrupted(number, find)).where:
            places.add(injection.where)
            number += 1
        other = threading.Thread(target=find, daemon=True)
        other.start()
        other.join(60)
        assert not other.is_alive(), "an interrupted call left a lock held"
    gc.collect()
    assert {
        name
        for place in places
        for name in ("Home.node", "start_time", "group_secret")
        if name in place
    } == {"Home.node", "start_time", "group_secret"}
