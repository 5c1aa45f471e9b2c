"""Pipelined producers, stages and transactions against a group that loses answers and leaders."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import pickle
import threading
from concurrent.futures import wait
from typing import Any

import pytest

from dledger.client import Appended, Client, Committed
from dledger.errors import (
    ConfigError,
    OutcomeUnknown,
    ProducerFenced,
    RecordTooLarge,
    TopicNotFound,
    TransactionError,
    Unavailable,
)
from dledger.protocol.messages.catalog_commands import (
    AbortTransaction,
    InitProducer,
    OpenStage,
    StageSum,
)
from dledger.protocol.messages.client import AppendRequest, ExecuteRequest
from dledger.protocol.messages.codes import Code
from dledger.records.body.build import make_records
from dledger.records.body.header import decode_header
from tests.client.conftest import numbered


def test_producer_appends_in_order_and_answers_each_append(group: Any, connect_either: Any) -> None:
    with connect_either(linger_ms=60_000).producer("t") as producer:
        futures = [producer.append(value) for value in numbered(1000)]
        futures.append(producer.append([b"x", b"y"], keys=[b"k", b"k"]))
    assert [f.result().start for f in futures] == list(range(1001))
    assert futures[-1].result() == Appended("t", 0, 1000, 1002)
    assert group.values("t") == [*numbered(1000), b"x", b"y"]
    assert len(group.requests(AppendRequest)) < 100


@pytest.mark.parametrize(
    "faults",
    [
        ["lose"],
        ["drop"],
        [None, None, "lose", None, "drop", "lose"],
        [None, Code.LEADER_PENDING_FULL],
        [None, Code.NOT_LEADER, None, Code.LEADER_NOT_READY],
        [None, None, ("done", Code.TERM_CHANGED), None, Code.WAIT_QUORUM_ACK_TIMEOUT],
        [None, Code.UNKNOWN_PRODUCER],
        [None, Code.OUT_OF_ORDER_SEQUENCE],
        [None, None, Code.DISK_FULL, "lose", Code.NOT_LEADER, "drop"],
    ],
    ids=str,
)
def test_producer_over_faults_stores_each_batch_once_and_in_order(
    group: Any, either: Any, faults: list[Any]
) -> None:
    group.fault(AppendRequest, *faults)
    with either.producer("t") as producer:
        futures = [producer.append_batch(0, make_records(value)) for value in numbered(200)]
    assert [f.result().start for f in futures] == list(range(200))
    assert group.values("t") == numbered(200)


def test_producer_goes_on_at_the_next_leader(group: Any, either: Any) -> None:
    """Half of what is in flight is stored when the leader dies; all of it is sent again to the next
    one."""

    def die() -> None:
        group.leader = "n2"
        group.nodes["n0"].kill()

    group.fault(AppendRequest, *[None] * 50, die)
    with either.producer("t") as producer:
        futures = [producer.append_batch(0, make_records(value)) for value in numbered(100)]
    assert [f.result().start for f in futures] == list(range(100))
    assert group.values("t") == numbered(100)


def test_producer_refused_for_good_fails_that_append_and_goes_on(group: Any, either: Any) -> None:
    group.fault(AppendRequest, None, Code.CORRUPT_ENTRY)
    with either.producer("t") as producer:
        futures = [producer.append_batch(0, make_records(value)) for value in numbered(10)]
    assert futures[1].exception() is not None
    assert futures[1].exception().definite  # type: ignore[union-attr]
    assert [f.result().start for f in futures if not f.exception()] == list(range(9))
    assert group.values("t") == [v for v in numbered(10) if v != b"1"]


def test_producer_out_of_time_tells_definite_from_indefinite(
    group: Any, connect_either: Any
) -> None:
    client = connect_either(request_timeout_ms=300)
    with client.producer("t") as producer:
        group.fault(AppendRequest, "lose", *[Code.LEADER_NOT_READY] * 5000)
        first = producer.append_batch(0, make_records(b"a"))
        wait([first])
        second = producer.append_batch(0, make_records(b"b"))
        wait([second])
        group.faults.clear()
        assert isinstance(first.exception(), OutcomeUnknown)
        assert type(second.exception()) is Unavailable
        assert producer.append_batch(0, make_records(b"c")).result().start == 1
    assert group.values("t") == [b"a", b"c"]


def test_producer_with_a_name_fences_the_one_before(group: Any, either: Any) -> None:
    old = either.producer("t", name="mine")
    old.append_batch(0, make_records(b"a")).result()
    new = either.producer("t", name="mine")
    new.append_batch(0, make_records(b"b")).result()
    assert isinstance(old.append_batch(0, make_records(b"zombie")).exception(), ProducerFenced)
    assert isinstance(old.append_batch(0, make_records(b"zombie")).exception(), ProducerFenced)
    assert new.append_batch(0, make_records(b"c")).result().start == 2
    old.close()
    new.close()
    assert group.values("t") == [b"a", b"b", b"c"]


def test_producer_session_that_was_given_up_is_fenced_by_the_next_one(
    group: Any, either: Any
) -> None:
    """A copy of a batch that was given up may still wait in some buffer; it must not come after
    what followed it."""
    with either.producer("t") as producer:
        group.fault(AppendRequest, Code.CORRUPT_ENTRY)
        wait([producer.append_batch(0, make_records(b"a"))])
        producer.append_batch(0, make_records(b"b")).result()
    opened = group.commands(InitProducer)
    assert [command.producer_name for command in opened] == [producer.name] * 2
    heads = [decode_header(head) for _, m, head in group.seen if isinstance(m, AppendRequest)]
    assert [head.producer_epoch for head in heads] == [0, 1]


def test_producer_holds_back_when_enough_is_in_flight(group: Any, connect_either: Any) -> None:
    client = connect_either(max_in_flight=4)
    most = 0

    def look() -> None:
        nonlocal most
        most = max(most, producer._flow._count)

    group.fault(AppendRequest, *[look] * 50)
    with client.producer("t") as producer:
        for value in numbered(50):
            producer.append_batch(0, make_records(value))
    assert 0 < most <= 4


def test_producer_sends_a_lone_record_after_linger(either: Any) -> None:
    with either.producer("t") as producer:
        assert producer.append(b"a").result() == Appended("t", 0, 0, 1)


def test_producer_in_use_when_linger_is_over_is_checked_again(group: Any, client: Client) -> None:
    """Two must not close a group at a time, and the thread of all answers does not wait for one who
    is at it."""
    with client.producer("t") as producer:
        lingered, held, again, times = producer._lingered, threading.Event(), threading.Event(), []

        def counted() -> None:
            assert held.wait(20)
            times.append(len(group.requests(AppendRequest)))
            if len(times) == 3:
                again.set()
            lingered()

        producer._lingered = counted  # type: ignore[method-assign]
        future = producer.append(b"a")
        with producer._lock:
            held.set()
            assert again.wait(20)
        assert future.result().start == 0
    assert times[:3] == [0, 0, 0]


def test_producer_refuses_a_record_over_the_limit_and_goes_on(either: Any) -> None:
    with either.producer("t") as producer:
        with pytest.raises(RecordTooLarge):
            producer.append(b"x" * (1 << 20))
        with pytest.raises(RecordTooLarge):
            producer.append([b"y", b"x" * (1 << 20)])
        assert producer.append(b"a").result().start == 0


def test_producer_cuts_what_is_over_the_limit_in_many_records(group: Any, either: Any) -> None:
    with either.producer("t") as producer:
        before = producer.append(b"first")
        large = producer.append([bytes([n]) * 1000 for n in range(250)] * 10)
        after = producer.append(b"last")
    assert (before.result().start, large.result().start, large.result().end) == (0, 1, 2501)
    assert after.result() == Appended("t", 0, 2501, 2502)
    assert len(group.requests(AppendRequest)) >= 3


def test_producer_spreads_keys_over_partitions(either: Any) -> None:
    either.create_topic("u", 3)
    with either.producer("u") as producer:
        places = {
            key: {producer.append(b"v", keys=key).result().partition for _ in range(2)}
            for key in (b"a", b"b", b"c")
        }
        with pytest.raises(ConfigError, match="partitions 0 to 2"):
            producer.append(b"v", partition=3)
    assert all(len(found) == 1 for found in places.values())


def test_producer_of_a_deleted_topic_fails_each_append(either: Any) -> None:
    with either.producer("t") as producer:
        either.delete_topic("t")
        futures = [producer.append_batch(0, make_records(b"x")) for _ in range(3)]
        assert all(isinstance(f.exception(), TopicNotFound) for f in futures)


@pytest.mark.parametrize(
    ("settings", "words"),
    [({"idempotent": False}, "idempotent"), ({"max_in_flight": 5000}, "2000")],
)
def test_producer_needs_sequences(
    connect_either: Any, settings: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        connect_either(**settings).producer("t")


def test_producer_that_is_closed_takes_nothing(either: Any) -> None:
    producer = either.producer("t")
    producer.close()
    producer.close()
    with pytest.raises(ConfigError, match="closed"):
        producer.append(b"x")


def test_stage_is_seen_only_after_its_commit(group: Any, either: Any) -> None:
    either.create_topic("u", 2)
    stage = either.stage("w", 1, "task 0")
    for value in numbered(50):
        stage.append_batch("t", 0, make_records(value))
        stage.append_batch("u", 1, make_records([value, value]))
    total = pickle.loads(pickle.dumps(stage.close()))
    assert total == StageSum(stage_id=stage.stage_id, batches=100, records=150)
    assert either.end_offsets("t") == {0: 0}
    done = either.commit_transaction("w", 1, [total])
    assert done == Committed(False, {"t": {0: (0, 50)}, "u": {1: (0, 100)}}, 150)
    assert group.values("t") == numbered(50)
    assert either.commit_transaction("w", 1, [total]) == Committed(True, done.offsets, 150)
    assert either.stage("w", 1) == Committed(True, done.offsets, 150)


@pytest.mark.parametrize(
    "faults", [[None, "lose", None, "drop"], [None, Code.NOT_LEADER], [Code.TERM_CHANGED]], ids=str
)
def test_stage_over_faults_holds_each_batch_once(
    group: Any, either: Any, faults: list[Any]
) -> None:
    group.fault(AppendRequest, *faults)
    group.fault(ExecuteRequest, "lose")
    stage = either.stage("w", 1)
    for value in numbered(100):
        stage.append_batch("t", 0, make_records(value))
    total = stage.close()
    group.fault(ExecuteRequest, "lose")
    assert either.commit_transaction("w", 1, [total]).records == 100
    assert group.values("t") == numbered(100)


def test_stage_that_is_gone_says_so(either: Any) -> None:
    stage = either.stage("w", 1)
    either.abort_transaction("w", 1)
    stage.append_batch("t", 0, make_records(b"x"))
    with pytest.raises(TransactionError):
        stage.close()
    with pytest.raises(TransactionError):
        stage.append_batch("t", 0, make_records(b"x"))


def test_stage_that_is_closed_takes_nothing(group: Any, either: Any) -> None:
    stage = either.stage("w", 1)
    stage.append_batch("t", 0, make_records(b"a"))
    total = stage.close()
    with pytest.raises(TransactionError, match="the stage is closed"):
        stage.append_batch("t", 0, make_records(b"late"))
    assert either.commit_transaction("w", 1, [total]).records == 1
    assert group.values("t") == [b"a"]


def test_stage_cuts_batches_over_the_limit(either: Any) -> None:
    stage = either.stage("w", 1)
    stage.append_batch("t", 0, make_records([bytes([n]) * 10_000 for n in range(250)]))
    assert stage.close().batches > 2


def test_stage_that_is_forgotten_frees_its_connection(client: Client) -> None:
    stage = client.stage("w", 1)
    stage.append_batch("t", 0, make_records(b"x"))
    task = stage._flow.pipeline._task
    loop = stage._flow.background
    del stage
    gc.collect()

    async def ended() -> bool:
        await asyncio.wait([task])
        return task.cancelled()

    assert loop.run(ended)


def test_transaction_commits_at_the_end_of_its_block(group: Any, either: Any) -> None:
    either.create_topic("u", 4)
    with either.transaction("w", 7) as transaction:
        transaction.append("t", [b"a", b"b"])
        transaction.append("u", numbered(40), keys=numbered(40))
        assert either.end_offsets("t") == {0: 0}
    assert group.values("t") == [b"a", b"b"]
    assert sorted(v for p in range(4) for v in group.values("u", p)) == sorted(numbered(40))
    with either.transaction("w", 7) as again:
        again.append("t", b"other")
    assert again.commit().repeated
    assert group.values("t") == [b"a", b"b"]


def test_transaction_with_an_error_in_its_block_leaves_nothing(group: Any, either: Any) -> None:
    transaction = either.transaction("w", 7)
    with contextlib.suppress(KeyError), transaction:
        transaction.append("t", b"a")
        raise KeyError("mine")
    assert group.values("t") == []
    with pytest.raises(TransactionError):
        transaction.commit()
    with either.transaction("w", 7) as transaction:
        transaction.append("t", b"b")
    assert group.values("t") == [b"b"]


@pytest.mark.parametrize("end", ["commit", "abort"])
def test_transaction_that_is_over_takes_nothing(group: Any, either: Any, end: str) -> None:
    transaction = either.transaction("w", 7)
    transaction.append("t", b"a")
    getattr(transaction, end)()
    with pytest.raises(TransactionError, match="is over"):
        transaction.append("t", b"late")
    assert b"late" not in group.values("t")


def test_transaction_that_is_over_is_not_aborted_any_more(group: Any, either: Any) -> None:
    for begun in ("first", "again"):  # the second one finds it committed when it opens its stage
        transaction = either.transaction("w", 1)
        transaction.append("t", b"a")
        if begun == "first":
            transaction.commit()
        transaction.abort()
    assert not group.commands(AbortTransaction)
    dropped = either.transaction("w", 2)
    dropped.abort()
    dropped.abort()
    assert len(group.commands(AbortTransaction)) == 1
    assert group.values("t") == [b"a"]


def test_open_stage_whose_answer_is_lost_is_asked_again(group: Any, either: Any) -> None:
    group.fault(ExecuteRequest, "lose")
    with either.transaction("w", 1) as transaction:
        transaction.append("t", b"a")
    assert len(group.commands(OpenStage)) == 2
    assert group.values("t") == [b"a"]


def test_future_of_an_append_cannot_be_cancelled(client: Client) -> None:
    with client.producer("t") as producer:
        future = producer.append(b"a")
        assert not future.cancel()
        assert future.result().start == 0
