"""Clients whose calls are ended half way: by a signal handler's exception, by a cancelled task, or
by a second call."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from dledger.client import AsyncClient, Client
from dledger.client.aio.pipeline import Pipeline
from dledger.client.blocking.outflow import Flow
from dledger.client.blocking.transport import BlockingTransport
from dledger.client.protocol.writing import staging
from dledger.client.protocol.writing.record_accumulator import make_item
from dledger.errors import ConfigError, TransactionError
from dledger.net.connections.blocking import BlockingConnection
from dledger.protocol.messages.client import AppendRequest
from dledger.records.body.build import make_records


class Stopped(Exception):
    """What a program's signal handler raises."""


@pytest.fixture
def alarm() -> Iterator[Callable[[], bool]]:
    """Interrupts the main thread as soon as it waits for something, from another one."""

    def handle(number: int, frame: Any) -> None:
        raise Stopped

    before = signal.signal(signal.SIGUSR1, handle)
    main = threading.main_thread().ident
    assert main is not None

    def interrupt() -> bool:
        waits = 0
        while waits < 20:
            threading.Event().wait(0.001)
            names = [
                frame.f_code.co_name
                for frame, _ in traceback.walk_stack(sys._current_frames()[main])
            ]
            waits = waits + 1 if names[0] in ("wait", "wait_for") and "start" not in names else 0
        signal.pthread_kill(main, signal.SIGUSR1)
        return True

    yield interrupt
    signal.signal(signal.SIGUSR1, before)


def in_thread(work: Callable[[], Any]) -> Callable[[], Any]:
    """Begins the work; what is given back waits for its end and result."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(work()), daemon=True)
    thread.start()

    def ended() -> Any:
        thread.join(60)
        assert found, "it hangs, or failed"
        return found[0]

    return ended


def fails_at(monkeypatch: pytest.MonkeyPatch, module: Any, name: str, call: int) -> None:
    """The n-th call of a function of a module is interrupted."""
    function, calls = getattr(module, name), [0]

    def interrupted(*arguments: Any, **named: Any) -> Any:
        calls[0] += 1
        if calls[0] == call:
            raise Stopped
        return function(*arguments, **named)

    monkeypatch.setattr(module, name, interrupted)


def test_interrupt_while_append_waits_for_room_loses_no_taken_record(
    group: Any, connect: Any, alarm: Callable[[], bool], gate: threading.Event
) -> None:
    """A busy producer is nearly always in that wait, with the records of earlier appends in its
    hands."""
    client = connect(max_in_flight=8, batch_bytes=400, linger_ms=5)
    futures = []
    producer = client.producer("t")

    def work() -> None:
        with producer:
            while True:
                futures.append(producer.append(f"{len(futures)} {'x' * 40}".encode()))

    ended = in_thread(lambda: (alarm(), gate.set()))
    with pytest.raises(Stopped):
        work()
    assert ended()
    assert all(future.done() for future in futures)
    assert [future.result().start for future in futures] == list(range(len(futures)))
    stored = group.values("t")
    assert [int(value.split()[0]) for value in stored[: len(futures)]] == list(range(len(futures)))
    assert len(stored) <= len(futures) + 1


def test_interrupt_while_a_batch_is_made_leaves_it_to_the_next_call(
    group: Any, connect: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dledger.client.protocol.writing import record_accumulator as intake

    client = connect(linger_ms=60_000)
    producer = client.producer("t")
    futures = [producer.append(b"a"), producer.append(b"b")]
    fails_at(monkeypatch, intake, "make_item", 1)
    with pytest.raises(Stopped):
        producer.flush()
    futures.append(producer.append(b"c"))
    producer.flush()
    assert [future.result(0).start for future in futures] == [0, 1, 2]
    assert group.values("t") == [b"a", b"b", b"c"]


def test_record_group_interrupted_at_hand_over_is_sent_once(
    group: Any, fast: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The interrupt comes between closing the group and handing it over."""
    from dledger.client.protocol.writing.record_accumulator import RecordAccumulator

    # items stay alive here: no two have the same id
    ready, push, pushed = RecordAccumulator._ready, Pipeline.push, []
    monkeypatch.setattr(
        Pipeline, "push", lambda pipeline, *items: (pushed.extend(items), push(pipeline, *items))
    )
    for interrupted in ("before", "behind"):
        with Client(group.bootstrap, **{**fast, "linger_ms": 60_000}) as client:
            client.create_topic(interrupted)
            producer = client.producer(interrupted)
            futures = [producer.append(b"a")]

            def stop(intake: RecordAccumulator, outgoing: Any, when: str = interrupted) -> int:
                if when == "behind":
                    ready(intake, outgoing)
                raise Stopped

            monkeypatch.setattr(RecordAccumulator, "_ready", stop)
            with pytest.raises(Stopped):
                producer.flush()
            monkeypatch.setattr(RecordAccumulator, "_ready", ready)
            futures.append(producer.append(b"b"))
            producer.close()
            assert [future.result(0).start for future in futures] == [0, 1]
            assert group.values(interrupted) == [b"a", b"b"]
            assert len({id(item) for item in pushed}) == len(pushed)
            pushed.clear()


def test_interrupt_while_the_loop_is_woken_does_not_keep_others_from_it(
    group: Any, monkeypatch: pytest.MonkeyPatch, client: Client
) -> None:
    producer = client.producer("t")
    loop = producer._flow.background.loop

    class Loop:
        def call_soon_threadsafe(self, *_: Any) -> None:
            raise Stopped

    monkeypatch.setattr(producer._flow.background, "loop", Loop())
    with pytest.raises(Stopped):
        producer.append_batch(0, make_records(b"a"))
    monkeypatch.setattr(producer._flow.background, "loop", loop)
    assert in_thread(lambda: producer.append_batch(0, make_records(b"b")).result(60).start)() == 1
    assert group.values("t") == [b"a", b"b"]
    producer.close()


@pytest.mark.parametrize("given", [b"a", [b"a"]], ids=["value", "list"])
def test_interrupt_of_one_who_waits_for_a_future_lets_it_end(
    alarm: Callable[[], bool], gate: threading.Event, client: Client, given: Any
) -> None:
    with client.producer("t") as producer:
        future = producer.append(given)
        with pytest.raises(TimeoutError):
            future.result(0.001)
        ended = in_thread(lambda: (alarm(), gate.set()))
        with pytest.raises(Stopped):
            future.result(60)
        ended()
        assert future.result(60).start == 0


def test_callback_of_a_future_may_append_while_a_thread_waits_for_room(
    group: Any, fast: dict[str, Any]
) -> None:
    client = Client(group.bootstrap, **{**fast, "max_in_flight": 8, "linger_ms": 0})
    client.create_topic("t")
    producer = client.producer("t")
    again: list[Any] = []

    def append_again(_: Any) -> None:
        again.append(producer.append_batch(0, make_records(b"from a callback")))

    def work() -> int:
        for n in range(400):
            future = producer.append(b"x" * 20_000)
            if n % 2:
                future.add_done_callback(append_again)
        producer.flush()
        return len(group.values("t"))

    assert in_thread(work)() == 600
    assert all(future.result(0) for future in again)
    client.close()  # only here: where the loop stands, closing would wait for it, too


@pytest.mark.parametrize("given", [b"here", [b"here"]], ids=["value", "list"])
def test_append_waits_for_room_with_nothing_held(
    client: Client, monkeypatch: pytest.MonkeyPatch, given: Any
) -> None:
    """The thread that makes room may append, too, in the callback of a future."""
    producer, wait_for_room = client.producer("t"), Flow.wait_for_room
    elsewhere: list[Any] = []

    def wait_while_another_thread_appends(flow: Flow) -> None:
        if threading.current_thread() is threading.main_thread():
            elsewhere.append(in_thread(lambda: producer.append(b"elsewhere"))())
        wait_for_room(flow)

    monkeypatch.setattr(Flow, "wait_for_room", wait_while_another_thread_appends)
    assert producer.append(given).result(60).topic == "t"
    assert [future.result(60).topic for future in elsewhere] == ["t"]


@pytest.mark.parametrize("call", ["flush", "close", "producer", "transaction", "client"])
def test_callback_that_would_wait_for_its_own_thread_is_told_so(
    group: Any, fast: dict[str, Any], call: str
) -> None:
    client = Client(group.bootstrap, **fast)
    client.create_topic("t")
    producer = client.producer("t")
    calls = {
        "flush": producer.flush,
        "close": producer.close,
        "producer": lambda: client.producer("t"),
        "transaction": lambda: client.transaction("w", 1),
        "client": client.close,
    }
    ended, errors = threading.Event(), []

    def called(_: Any) -> None:
        try:
            calls[call]()
        except ConfigError as error:
            errors.append(str(error))
        ended.set()

    producer.append(b"a").add_done_callback(called)
    assert ended.wait(60), "it hangs, and with it all producers of the process"
    assert "hand the call to a thread of your own" in errors[0]
    client.close()


def test_signal_handler_that_comes_into_an_append_may_not_append(
    monkeypatch: pytest.MonkeyPatch, client: Client
) -> None:
    from dledger.client.protocol.writing import record_accumulator as intake

    producer = client.producer("t")
    make, errors = intake.make_item, []

    def interrupted(*arguments: Any, **named: Any) -> Any:
        if not errors:  # as a handler would, that comes in between
            with pytest.raises(ConfigError, match="signal handler"):
                producer.append(b"from a handler")
            errors.append(1)
        return make(*arguments, **named)

    monkeypatch.setattr(intake, "make_item", interrupted)
    assert in_thread(lambda: producer.append_batch(0, make_records(b"a")).result(60).start)() == 0
    assert errors


@pytest.mark.filterwarnings("ignore:Exception ignored in:pytest.PytestUnraisableExceptionWarning")
def test_interrupts_of_append_and_cleanup_use_no_number_twice(
    group: Any, monkeypatch: pytest.MonkeyPatch, client: Client
) -> None:
    """A number that was used and is used again is taken for a repeat: acknowledged, and never
    stored."""

    def stop(*_: Any) -> Any:
        raise Stopped

    client.append("t", b"zero")
    with monkeypatch.context() as patch:
        patch.setattr(BlockingConnection, "receive", stop)
        patch.setattr(BlockingTransport, "close", stop)
        patch.setattr(BlockingTransport, "abandon", stop, raising=False)
        with pytest.raises(Stopped):
            client.append("t", b"one, interrupted twice")
        gc.collect()  # of a connection that nobody could close
    while len(group.values("t")) < 2:
        threading.Event().wait(0.001)  # it was sent
    assert client.append("t", b"two").start == 2
    assert group.values("t")[2:] == [b"two"]


def test_transaction_whose_append_was_interrupted_is_not_committed(
    connect: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = connect(4)
    keys = [f"k{n}".encode() for n in range(40)]
    fails_at(monkeypatch, staging, "make_item", 3)
    one = client.transaction("w", 0)
    with pytest.raises(Stopped):
        one.append("t", [b"v"] * 40, keys=keys)
    with pytest.raises(TransactionError, match="abort, and do all of it again"):
        one.commit()
    assert sum(client.end_offsets("t").values()) == 0
    with client.transaction("w", 0) as again:
        again.append("t", [b"v"] * 40, keys=keys)
    assert sum(client.end_offsets("t").values()) == 40


def test_transaction_whose_append_failed_half_way_is_not_committed(
    connect: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(core: Any, info: Any, at: int, piece: Any, *more: Any, **named: Any) -> Any:
        if at == 3:
            raise ConfigError("not this one")
        return make(core, info, at, piece, *more, **named)

    make = make_item
    monkeypatch.setattr(staging, "make_item", refused)
    client = connect(4)
    one = client.transaction("w", 0)
    with pytest.raises(ConfigError, match="not this one"):
        one.append("t", [b"v"] * 40, keys=[f"k{n}".encode() for n in range(40)])
    with pytest.raises(TransactionError):
        one.commit()
    assert sum(client.end_offsets("t").values()) == 0


def test_transaction_of_which_nothing_was_staged_yet_may_go_on(connect: Any) -> None:
    client = connect(2)
    with client.transaction("w", 0) as one:
        with pytest.raises(ConfigError):
            one.append("t", b"v", partition=7)
        one.append("t", b"w", partition=1)
    assert client.end_offsets("t") == {0: 0, 1: 1}


def test_second_close_waits_as_long_as_the_first(
    group: Any, gate: threading.Event, client: Client
) -> None:
    producer = client.producer("t")
    futures = [producer.append(b"x") for _ in range(10)]
    first = in_thread(lambda: producer.close() or True)
    wait_for_append(group)
    second = in_thread(lambda: producer.close() or [future.done() for future in futures])
    gate.set()
    assert first()
    assert second() == [True] * 10


def test_close_that_was_interrupted_is_done_by_the_next_one(
    alarm: Callable[[], bool], gate: threading.Event, client: Client
) -> None:
    producer = client.producer("t")
    futures = [producer.append(b"x") for _ in range(10)]
    ended = in_thread(alarm)
    with pytest.raises(Stopped):
        producer.close()
    ended()
    gate.set()
    producer.close()
    assert [future.done() for future in futures] == [True] * 10


def test_stage_that_two_threads_close_has_one_sum(gate: threading.Event, client: Client) -> None:
    stage = client.stage("w", 0)
    stage.append_batch("t", 0, make_records([b"a", b"b"]))
    ends = [in_thread(stage.close) for _ in range(2)]
    gate.set()
    assert [end().records for end in ends] == [2, 2]


@pytest.fixture
def aio_client(
    connect_async: Any, new_loop: object
) -> contextlib.AbstractAsyncContextManager[AsyncClient]:
    return connect_async()


async def test_asyncio_second_close_waits_as_long_as_the_first(
    aio_client: AsyncClient, gate: threading.Event
) -> None:
    producer = await aio_client.producer("t")
    futures = [await producer.append(b"x") for _ in range(10)]
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(producer.close(), 0.01)
    asyncio.get_running_loop().call_later(0.05, gate.set)
    await producer.close()
    assert [future.done() for future in futures] == [True] * 10


@pytest.mark.usefixtures("new_loop")
async def test_asyncio_append_waiting_for_room_is_told_that_producer_closed(
    connect_async: Any, gate: threading.Event
) -> None:
    async with connect_async(max_in_flight=2) as client:
        producer = await client.producer("t")
        futures = [await producer.append_batch(0, make_records(b"x")) for _ in range(2)]
        waiting = asyncio.create_task(producer.append_batch(0, make_records(b"y")))
        await asyncio.sleep(0)
        closing = asyncio.create_task(producer.close())
        await asyncio.sleep(0)
        gate.set()
        with pytest.raises(ConfigError, match="closed"):
            await waiting
        await closing
        assert sum(future.done() for future in futures) == 2


def wait_for_append(group: Any) -> None:
    """Until a node of the group has received one. The node may hold the group's lock by then."""
    while not any(isinstance(message, AppendRequest) for _, message, _ in list(group.seen)):
        threading.Event().wait(0.001)


@pytest.mark.usefixtures("new_loop")
async def test_asyncio_transaction_whose_append_was_cancelled_is_not_committed(
    group: Any, connect_async: Any, gate: threading.Event
) -> None:
    keys = [f"k{n}".encode() for n in range(40)]
    async with connect_async(4, max_in_flight=1) as client:
        transaction = await client.transaction("w", 0)
        append = asyncio.create_task(transaction.append("t", [b"v"] * 40, keys=keys))
        await asyncio.to_thread(wait_for_append, group)
        append.cancel()
        with pytest.raises(asyncio.CancelledError):
            await append
        gate.set()
        with pytest.raises(TransactionError, match="abort, and do all of it again"):
            await transaction.commit()
        assert sum((await client.end_offsets("t")).values()) == 0


async def test_asyncio_stage_that_two_tasks_close_has_one_sum(aio_client: AsyncClient) -> None:
    stage = await aio_client.stage("w", 0)
    await stage.append_batch("t", 0, make_records([b"a", b"b"]))
    sums = await asyncio.gather(stage.close(), stage.close())
    assert [total.records for total in sums] == [2, 2]


async def test_asyncio_stage_that_was_cancelled_before_it_began_fails_what_comes(
    aio_client: AsyncClient,
) -> None:
    stage = await aio_client.stage("w", 0)
    stage.cancel()
    await stage.append_batch("t", 0, make_records(b"x"))
    with pytest.raises(Exception, match="closed before"):
        await stage.close()
