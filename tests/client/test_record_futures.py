"""The handles of records that a producer takes one by one."""

from __future__ import annotations

import asyncio
import logging
import threading
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

import pytest

from dledger.client import Client, Delivery, RecordFuture
from dledger.client.protocol.results import Appended
from dledger.client.protocol.writing import record_accumulator
from dledger.client.protocol.writing.batching import PartitionQueue
from dledger.errors import CorruptEntry, ProducerFenced, RecordTooLarge
from dledger.protocol.messages.client import AppendRequest
from dledger.protocol.messages.codes import Code
from dledger.records.body.build import make_records
from dledger.records.body.sizer import OVERHEAD
from tests.client.conftest import numbered


def test_handle_may_be_asked_again_after_the_end_and_by_other_threads(
    gate: threading.Event, client: Client
) -> None:
    with client.producer("t") as producer:
        handles = [producer.append(value) for value in numbered(100)]
        assert not any(handle.done() for handle in handles)
        with ThreadPoolExecutor(4) as pool:
            asked = pool.map(lambda handle: handle.result(60), handles * 2)
            gate.set()
            places = list(asked)
    expected = [Appended("t", 0, n, n + 1) for n in range(100)]
    assert places == expected * 2
    assert [handle.result() for handle in handles] == expected
    assert not any(handle.exception() for handle in handles)


def test_callbacks_of_handles_are_each_called_once(gate: threading.Event, client: Client) -> None:
    called: list[RecordFuture] = []
    with client.producer("t") as producer:
        handles = [producer.append(value) for value in numbered(50)]
        for handle in handles:
            handle.add_done_callback(called.append)
        assert not called
        gate.set()
    handles[7].add_done_callback(called.append)
    assert called == [*handles, handles[7]]


def test_callback_that_fails_is_logged_and_keeps_no_other_from_its_call(
    gate: threading.Event, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    called: list[RecordFuture] = []
    with client.producer("t") as producer, caplog.at_level(logging.ERROR):
        handle = producer.append(b"a")
        handle.add_done_callback(lambda _: 1 / 0)
        handle.add_done_callback(called.append)
        gate.set()
    assert called == [handle]
    assert "ZeroDivisionError" in caplog.text


def test_records_of_one_batch_fail_with_its_error(group: Any, client: Client) -> None:
    group.fault(AppendRequest, Code.CORRUPT_ENTRY)
    with client.producer("t") as producer:
        handles = [producer.append(value) for value in numbered(3)]
        producer.flush()
        assert [type(handle.exception()) for handle in handles] == [CorruptEntry] * 3
        with pytest.raises(CorruptEntry):
            handles[1].result()
        assert producer.append(b"next").result(60).start == 0


def test_future_of_a_handle_is_one_of_the_library(gate: threading.Event, client: Client) -> None:
    with client.producer("t") as producer:
        futures = [producer.append(value).future() for value in numbered(3)]
        gate.set()
        done, waiting = wait(futures, 60)
    assert not waiting
    assert sorted(future.result().start for future in done) == [0, 1, 2]


def test_values_keys_and_batches_keep_their_order_in_a_partition(
    group: Any, connect_either: Any
) -> None:
    with connect_either(linger_ms=60_000).producer("t", partition=0) as producer:
        producer.append(b"0")
        producer.append(b"1", keys=b"k")
        producer.append(b"2")
        producer.append([b"3", b"4"])
        last = producer.append(b"5", keys=b"k")
    assert group.values("t") == numbered(6)
    assert last.result().start == 5


def test_handles_of_a_batch_that_is_cut_have_their_own_places() -> None:
    """Its pieces are answered in any order."""
    queue = PartitionQueue("t", 0)
    values = queue.values(keyed=False)
    values.records += [bytes([n]) * 1000 for n in range(6)]
    queue.size = 6000
    batches, error = queue.batches(4400)
    assert error is None
    assert len(batches) > 1
    begins = [sum(len(batch.records) for batch in batches[:at]) for at in range(len(batches))]
    for batch, begin in [*zip(batches, begins, strict=True)][::-1]:
        assert not values.is_done
        batch.answered(100 * begin)
    places = [
        Appended("t", 0, 100 * begin + at, 100 * begin + at + 1)
        for batch, begin in zip(batches, begins, strict=True)
        for at in range(len(batch.records))
    ]
    assert [values.result_of(at) for at in range(6)] == places
    assert [RecordFuture(values, at).result() for at in range(6)] == places


def test_part_of_a_cut_batch_that_failed_fails_its_own_records_alone() -> None:
    queue = PartitionQueue("t", 0)
    values = queue.values(keyed=False)
    values.records += [b"x" * 1000] * 4
    queue.size = 4000
    (first, *rest), _ = queue.batches(3200)
    fenced = ProducerFenced("a newer session took over")
    for batch in rest:
        batch.answered(fenced)
    first.answered(7)
    stored = len(first.records)
    places = [Appended("t", 0, 7 + at, 8 + at) for at in range(stored)]
    assert [values.result_of(at) for at in range(stored)] == places
    assert [values.error_of(at) for at in range(4)] == [*[None] * stored, *[fenced] * (4 - stored)]
    with pytest.raises(ProducerFenced):
        values.result_of(stored)


def test_values_on_their_way_are_kept_once(gate: threading.Event, connect: Any) -> None:
    """Handles that a program keeps hold no record."""
    with connect(linger_ms=60_000).producer("t") as producer:
        handle = producer.append(b"a")
        assert handle._batch.records == [b"a"]
        producer._accumulator.hand_over()
        assert handle._batch.records == []
        gate.set()


async def test_asyncio_handle_is_awaited_any_number_of_times(connect_async: Any) -> None:
    async with connect_async() as client, await client.producer("t") as producer:
        handles = [await producer.append(value) for value in numbered(20)]
        with pytest.raises(asyncio.InvalidStateError):
            handles[0].result()
        with pytest.raises(asyncio.InvalidStateError):
            handles[0].exception()
        first = await asyncio.gather(*handles)
        again = [await handle for handle in handles]
    assert [place.start for place in first] == list(range(20))
    assert first == again == [handle.result() for handle in handles]
    assert not any(handle.exception() for handle in handles)


def test_each_batch_is_reported_once_with_its_range_or_error(
    group: Any, connect_either: Any, caplog: pytest.LogCaptureFixture
) -> None:
    group.fault(AppendRequest, None, Code.CORRUPT_ENTRY)
    client = connect_either(linger_ms=60_000)
    told: list[Delivery] = []

    def note(delivery: Delivery) -> None:
        told.append(delivery)
        raise ValueError("of the program")

    with client.producer("t", on_delivery=note) as producer, caplog.at_level(logging.ERROR):
        for value in numbered(3):
            producer.append(value)
        producer.flush()
        producer.append([b"a", b"b"])
        producer.flush()
        producer.append_batch(0, make_records([b"c", b"d"]))
    assert [(one.records, one.start, one.end) for one in told] == [
        (3, 0, 3),
        (2, -1, -1),
        (2, 3, 5),
    ]
    assert [type(one.error) for one in told] == [type(None), CorruptEntry, type(None)]
    assert {(one.topic, one.partition) for one in told} == {("t", 0)}
    assert "a callback of a producer failed" in caplog.text


def test_report_of_a_refused_batch_counts_all_its_records(
    monkeypatch: pytest.MonkeyPatch, connect_either: Any
) -> None:
    told: list[Delivery] = []
    with connect_either(linger_ms=60_000).producer("t", on_delivery=told.append) as producer:
        producer.append(b"x" * 200)
        producer.append(b"y" * 200, keys=b"k")
        monkeypatch.setattr(record_accumulator, "max_body", lambda core: OVERHEAD + 100)
    [one] = told
    assert (one.records, one.start, type(one.error)) == (2, -1, RecordTooLarge)
