"""A process that forks: what a child can use, and what tells it that it cannot."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import select
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Coroutine, ValuesView
from functools import partial
from importlib import import_module
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import pytest

from dledger import forks
from dledger.client import Client
from dledger.client.blocking import background_loop as background
from dledger.client.blocking import pool
from dledger.client.protocol.seen_end_offsets import SeenEndOffsets
from dledger.embedded.home import Home, PidFile
from dledger.errors import ConfigError, ForkedClient, Unavailable
from dledger.net.loop import loop_factory
from dledger.protocol.messages.hello import HelloRequest
from dledger.records.body.build import make_records
from dledger.storage.disk.disk import RealLock
from dledger.types import NodeId

pytestmark = pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")


class Stopped(Exception):
    """What a program's signal handler raises."""


def in_child(work: Callable[[], object]) -> str:
    """What `work` says in a forked child; an error's class and text where it raises, nothing where
    it hangs."""
    read_end, write_end = os.pipe()
    pid = os.fork()
    if not pid:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(30)
        try:
            said = str(work())
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"
        os.write(write_end, said.encode())
        os._exit(0)
    os.close(write_end)
    with open(read_end, encoding="utf-8") as pipe:
        said = pipe.read()
    os.waitpid(pid, 0)
    return said


def test_what_was_made_before_a_fork_is_refused_in_the_child_alone() -> None:
    born = forks.generation
    forks.check_born_here(born, "the producer of 't'")
    assert in_child(lambda: forks.check_born_here(born, "the producer of 't'")) == (
        "ForkedClient: the producer of 't' was made before this process was forked, and belongs to "
        "the parent process; make a new Client in the child, and from it what the child needs"
    )
    assert in_child(lambda: forks.check_born_here(forks.generation, "the child's own")) == "None"
    assert in_child(
        lambda: in_child(lambda: forks.check_born_here(born, "the grandparent's"))
    ).startswith("ForkedC")
    forks.check_born_here(born, "the producer of 't'")
    assert issubclass(ForkedClient, ConfigError)


def test_a_fork_waits_until_a_lock_is_free_so_that_no_child_meets_it_held() -> None:
    lock = forks.fork_lock()
    held, free, forked = threading.Event(), threading.Event(), threading.Event()
    order = []

    def hold() -> None:
        with lock:
            held.set()
            free.wait(60)
            order.append("given back")

    def fork() -> None:
        said.append(in_child(take))
        order.append("forked")
        forked.set()

    def take() -> str:
        with lock:
            return "taken"

    said: list[str] = []
    holder, forker = threading.Thread(target=hold), threading.Thread(target=fork)
    holder.start()
    held.wait(60)
    forker.start()
    assert not forked.wait(0.05)
    free.set()
    holder.join()
    forker.join()
    assert (said, order) == (["taken"], ["given back", "forked"])
    with lock:
        pass


class SlowToLoad(Loader):
    """Loads a module of this name as slowly as a test wants."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.loading = threading.Event()
        self.may_end = threading.Event()

    def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
        return ModuleSpec(name, self) if name == self.name else None

    def exec_module(self, module: ModuleType) -> None:
        self.loading.set()
        self.may_end.wait(60)


def test_a_fork_waits_for_the_modules_that_other_threads_are_loading(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As Arrow for a first append; the child would wait for ever for the lock on the module."""
    slow = SlowToLoad("dledger.slow_to_load")
    monkeypatch.setattr(sys, "meta_path", [slow, *sys.meta_path])
    said: list[str] = []
    loader = threading.Thread(target=import_module, args=(slow.name,))
    forker = threading.Thread(
        target=lambda: said.append(in_child(lambda: import_module(slow.name).__name__))
    )
    loader.start()
    slow.loading.wait(60)
    forker.start()
    forker.join(0.05)
    slow.may_end.set()
    loader.join()
    forker.join()
    del sys.modules[slow.name]
    assert said == [slow.name]


@pytest.mark.parametrize("depth", [1, 3])
def test_who_holds_a_lock_may_fork(depth: int) -> None:
    """As a signal handler does that came in between."""
    lock = forks.fork_lock()

    def nested(left: int) -> str:
        with lock:
            return nested(left - 1) if left else in_child(lambda: "alive")

    assert nested(depth) == "alive"


def forked_while_held(
    hold: Callable[[Callable[[], None]], object], work: Callable[[], object]
) -> str:
    """What `work` says in a child of a fork that began while another thread was within `hold`,
    which calls its argument where a fork must not come."""
    inside, forked = threading.Event(), threading.Event()
    os.register_at_fork(after_in_parent=forked.set)
    holder = threading.Thread(target=hold, args=[lambda: (inside.set(), forked.wait(0.5))])
    holder.start()
    assert inside.wait(60)
    said = in_child(work)
    holder.join()
    return said


def test_first_producer_of_child_does_not_wait_for_one_in_parent(
    group: Any, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The parent was making its producer at the fork."""
    monkeypatch.setattr(background, "_background", None)

    def produce(value: bytes) -> str:
        with client.producer("t") as producer:
            return str(producer.append(value).result(30))

    def hold(no_fork: Callable[[], None]) -> None:
        def factory() -> asyncio.AbstractEventLoop:
            no_fork()
            return loop_factory()()

        monkeypatch.setattr(background, "loop_factory", lambda: factory)
        produce(b"parent's")
        monkeypatch.undo()

    said = forked_while_held(hold, lambda: produce(b"child's"))
    assert said.startswith("Appended(")
    assert sorted(group.values("t")) == [b"child's", b"parent's"]


def test_child_does_not_wait_for_end_offsets_update_of_another_thread() -> None:
    ends = SeenEndOffsets()

    class Slow(dict[int, int]):
        no_fork: Callable[[], None]

        def values(self) -> ValuesView[int]:
            self.no_fork()
            return super().values()

    def hold(no_fork: Callable[[], None]) -> None:
        found = Slow({0: 7})
        found.no_fork = no_fork
        ends._lift("t", "log", found)

    def work() -> object:
        ends.reached("t", "log", 1, 8)
        return ends.of(["t"])

    assert forked_while_held(hold, work) == "{'t': {'log': {0: 7, 1: 8}}}"


def test_child_does_not_wait_for_shared_client_made_by_another_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def hold(no_fork: Callable[[], None]) -> None:
        def make(address: str) -> Client:
            no_fork()
            return Client(address)

        monkeypatch.setattr(pool, "Client", make)
        made.append(pool.shared_client("127.0.0.1:3"))
        monkeypatch.undo()

    made: list[Client] = []
    assert forked_while_held(hold, lambda: pool.shared_client("127.0.0.1:3") in made) == "False"
    assert pool.shared_client("127.0.0.1:3") is made[0]


def with_open_locks(open_files: list[int]) -> None:
    """As a child has them that was forked by a library that runs no hooks, or that has not run its
    program yet."""
    open_files.extend(map(os.dup, forks._locked))


def test_released_lock_is_free_though_other_process_has_the_open_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forks, "_locked", set())  # whatever other tests have left open
    inherited: list[int] = []
    home = Home(tmp_path)
    with home.lock():
        with_open_locks(inherited)
    with home.lock(timeout_s=0):
        pass
    lock = RealLock(tmp_path / "store.lock")
    with_open_locks(inherited)
    lock.release()
    RealLock(tmp_path / "store.lock").release()
    assert len(inherited) == 2
    for descriptor in inherited:
        os.close(descriptor)


def test_a_look_at_a_node_keeps_nobody_from_starting_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forks, "_locked", set())
    home, inherited = Home(tmp_path), list[int]()
    node = PidFile(home, NodeId("n0"))

    real = os.pread

    def pread(*arguments: int) -> bytes:
        with_open_locks(inherited)
        return b""

    monkeypatch.setattr(os, "pread", pread)
    assert not home.node(NodeId("n0")).running
    monkeypatch.setattr(os, "pread", real)
    assert len(inherited) == 1
    assert node.acquire(0, 0)
    os.close(inherited[0])
    os.close(node._descriptor)


def test_a_child_that_lives_on_keeps_no_lock_of_a_parent_that_was_killed(tmp_path: Path) -> None:
    """It was forked while another thread of the parent held them."""
    home, lock_file = Home(tmp_path), tmp_path / "store.lock"
    read_end, write_end = os.pipe()

    def hold() -> None:
        with home.lock():
            RealLock(lock_file)
            held.set()
            signal.pause()

    held = threading.Event()
    parent = os.fork()
    if not parent:
        signal.alarm(120)
        threading.Thread(target=hold).start()
        held.wait(60)
        child = os.fork()
        if not child:
            os.close(write_end)
            signal.alarm(120)
            signal.pause()
        os.write(write_end, b"%d" % child)
        signal.pause()
    os.close(write_end)
    child = int(os.read(read_end, 20))
    with open(read_end, "rb") as ended:
        with pytest.raises(Unavailable), home.lock(timeout_s=0):
            pass
        os.kill(parent, signal.SIGKILL)
        os.waitpid(parent, 0)
        assert ended.read() == b""  # the child has closed it: it is in its pause, or just before
    try:
        with home.lock(timeout_s=0):
            RealLock(lock_file).release()
    finally:
        os.kill(child, signal.SIGKILL)


def test_no_child_keeps_the_end_of_a_pipe_open_that_its_parent_waits_for() -> None:
    read_end, write_end = forks.open_pipe()
    child = os.fork()
    if not child:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(300)
        signal.pause()
    forks.let_go(write_end)
    try:
        assert select.select([read_end], [], [], 60)[0]
        assert os.read(read_end, 1) == b""
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(read_end)


def test_a_child_gives_back_no_lock_that_its_parent_holds(tmp_path: Path) -> None:
    home, said = Home(tmp_path), []
    lock = RealLock(tmp_path / "store.lock")
    with contextlib.ExitStack() as stack:
        stack.enter_context(home.lock())
        said.append(in_child(lambda: (lock.release(), stack.close())))
        with pytest.raises(Unavailable), Home(tmp_path).lock(timeout_s=0):
            pass
        with pytest.raises(BlockingIOError):
            RealLock(tmp_path / "store.lock")
    assert said == ["(None, None)"]
    lock.release()


def test_producer_from_before_fork_works_in_parent_and_not_in_child(
    group: Any, client: Client
) -> None:
    producer = client.producer("t")
    producer.append(b"a").result(60)
    calls: list[Callable[[], Any]] = [
        lambda: producer.append(b"x"),
        lambda: producer.append([b"x", b"y"]),
        lambda: producer.append_batch(0, make_records(b"x")),
        producer.flush,
    ]
    for call in calls:
        assert in_child(call).startswith(
            "ForkedClient: the producer of topic 't' was made before this process"
        )
    assert in_child(producer.close) == "None"
    producer.append(b"b").result(60)
    producer.close()
    assert group.values("t") == [b"a", b"b"]


def test_child_is_told_of_no_answer_that_comes_to_its_parent(
    gate: threading.Event, client: Client
) -> None:
    """What was answered before the fork is known in both."""
    with client.producer("t") as producer:
        waiting = producer.append(b"a")
        assert in_child(waiting.result).startswith("ForkedClient: an append that is under way")
        gate.set()
        assert waiting.result(60).start == 0
        assert in_child(waiting.result) == str(waiting.result())


def test_appends_of_parent_and_child_by_one_client_are_all_stored(
    group: Any, client: Client
) -> None:
    """With one session for both, the parent's next number would be taken for a repeat of the
    child's."""
    client.append("t", b"a")
    hellos = len(group.requests(HelloRequest))
    assert in_child(lambda: client.append("t", b"b").start) == "1"
    assert len(group.requests(HelloRequest)) > hellos
    assert client.append("t", b"c").start == 2
    assert group.values("t") == [b"a", b"b", b"c"]


def test_child_interrupted_in_first_call_never_uses_parent_connections(
    group: Any, client: Client
) -> None:
    """At each line of what a client does about a fork."""

    def first_and_second(line: int) -> str:
        left = line

        def trace(frame: FrameType, event: str, argument: Any) -> Any:
            nonlocal left
            if frame.f_code is not Client._leave_to_parent.__code__:
                return trace if event == "call" else None
            if event == "line":
                left -= 1
                if left < 0:
                    raise Stopped
            return trace

        sys.settrace(trace)
        try:
            client.append("t", b"of a child, first")
        except Stopped:
            sys.settrace(None)
            return f"interrupted, {client.append('t', b'of a child, second').start}"
        finally:
            sys.settrace(None)
        return "not interrupted"

    client.append("t", b"of the parent")
    end, line, said = 1, 0, ""
    while said != "not interrupted":
        said = in_child(partial(first_and_second, line))
        assert said in (f"interrupted, {end}", "not interrupted")
        assert client.append("t", b"of the parent").start == end + 1
        end, line = end + 2, line + 1
    assert line > 3
    assert len(group.values("t")) == end


def test_client_and_reader_from_before_a_fork_go_on_in_both_processes(
    group: Any, client: Client
) -> None:
    """Neither reads what the other one's connection brings."""
    for n in range(6):
        client.append("t", f"{n}".encode())
    reader = client.read("t", 0, 0, max_bytes=1)
    assert next(reader)["value"].to_pylist() == [b"0"]

    def rest() -> list[bytes]:
        found = [value for one in reader for value in one["value"].to_pylist()]
        client.append("t", b"from one of them")
        return found

    assert in_child(rest) == str([b"1", b"2", b"3", b"4", b"5"])
    assert rest() == [b"1", b"2", b"3", b"4", b"5"]
    assert group.values("t")[6:] == [b"from one of them"] * 2


def test_child_closes_its_copies_of_the_connections_of_a_reader(client: Client) -> None:
    client.append("t", [b"0", b"1"])
    reader = client.read("t", 0, 0, 2, max_bytes=1)
    next(reader)

    def unclosed() -> list[str]:
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always", ResourceWarning)
            client.topics()
            assert not list(reader)
            gc.collect()
        return [str(one.message) for one in told]

    assert in_child(unclosed) == "[]"
    assert not list(reader)


def test_child_calls_do_not_use_connections_of_reader_from_before_fork(
    group: Any, client: Client
) -> None:
    """Its session's numbers are the parent's, whose own record would be taken for a repeat of the
    child's."""
    for n in range(3):
        client.append("t", f"{n}".encode())
    reader = client.read("t", 0, 0, 3, max_bytes=1)
    next(reader)

    def work() -> int:
        client.append("t", b"of the child, first")
        assert len(list(reader)) == 2
        return client.append("t", b"of the child, second").start

    assert in_child(work) == "4"
    assert len(list(reader)) == 2
    assert client.append("t", b"of the parent").start == 5
    assert group.values("t")[3:] == [
        b"of the child, first",
        b"of the child, second",
        b"of the parent",
    ]


def test_transaction_from_before_a_fork_is_the_parents(group: Any, client: Client) -> None:
    transaction = client.transaction("w", 1)
    transaction.append("t", b"a")

    def failing_block() -> None:
        with transaction:
            raise Unavailable("the child's own")

    for call in (lambda: transaction.append("t", b"x"), transaction.commit):
        assert in_child(call).startswith("ForkedClient: stage ")
    assert in_child(transaction.abort) == "None"
    assert in_child(failing_block) == "Unavailable: the child's own"
    transaction.append("t", b"b")
    transaction.commit()
    assert group.values("t") == [b"a", b"b"]


def test_stage_from_before_a_fork_is_the_parents(group: Any, client: Client) -> None:
    stage = client.stage("w", 1)
    stage.append_batch("t", 0, make_records(b"a"))
    for call in (lambda: stage.append_batch("t", 0, make_records(b"x")), stage.close):
        assert in_child(call).startswith("ForkedClient: stage ")
    client.commit_transaction("w", 1, (stage.close(),))
    assert group.values("t") == [b"a"]


@pytest.mark.usefixtures("new_loop")
async def test_asyncio_client_and_what_it_made_are_the_parents(
    group: Any, connect_async: Any
) -> None:
    async with connect_async() as client:
        producer = await client.producer("t")
        transaction, stage = await client.transaction("w", 1), await client.stage("v", 1)
        await (await producer.append(b"a"))
        await transaction.append("t", b"b")
        refused: list[Callable[[], Coroutine[Any, Any, Any]]] = [
            lambda: client.append("t", b"x"),
            lambda: anext(client.read("t", 0, 0)),
            lambda: producer.append(b"x"),
            lambda: producer.append([b"x", b"y"]),
            producer.flush,
            lambda: stage.append_batch("t", 0, make_records(b"x")),
            stage.close,
            transaction.commit,
        ]
        for call in refused:
            assert in_child(lambda: in_a_loop_of_its_own(call)).startswith("ForkedClient: ")  # noqa: B023
        for nothing in (producer.close, transaction.abort, client.close):
            assert in_child(lambda: in_a_loop_of_its_own(nothing)) == "None"  # noqa: B023
        await (await producer.append(b"c"))
        await producer.close()
        await transaction.commit()
    assert group.values("t") == [b"a", b"c", b"b"]


def in_a_loop_of_its_own(call: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """Run it in a child, where the parent's loop seems to be running."""
    asyncio._set_running_loop(None)
    return asyncio.run(_awaited(call))


async def _awaited(call: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    return await call()
