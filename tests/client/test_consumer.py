"""Consumers of a group of real nodes, blocking and asyncio: shares, commits, places,
transactions."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from dledger.client import AsyncClient, Client, TopicPartition
from dledger.client.aio.consuming import heartbeats
from dledger.client.protocol.consuming.partitions import HeldPartition
from dledger.client.protocol.consuming.records import CONSUMED_SCHEMA
from dledger.errors import (
    ConfigError,
    ConsumerFenced,
    DLedgerError,
    GroupInUse,
    OffsetOutOfRange,
    TopicNotFound,
    TransactionError,
)
from dledger.testing import InProcessGroup

NUMBERS = itertools.count()
QUICK: dict[str, Any] = {"session_timeout_ms": 5000}


@pytest.fixture(scope="module")
def nodes() -> Iterator[InProcessGroup]:
    with InProcessGroup(replicas=1) as group:
        yield group


@pytest.fixture(scope="module")
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    """A running one, for asyncio clients and their heartbeats."""
    running = asyncio.new_event_loop()
    thread = threading.Thread(target=running.run_forever, daemon=True)
    thread.start()
    yield running
    running.call_soon_threadsafe(running.stop)
    thread.join(10)
    running.close()


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Members hear of changes soon."""
    monkeypatch.setattr(heartbeats, "MOST_MS", 50)


class Waiting:
    """An object of asyncio, whose calls are waited for."""

    def __init__(self, awaited: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._awaited, self._loop = awaited, loop

    def _wait(self, call: Callable[[], Any]) -> Any:
        async def run() -> Any:
            found = call()
            return await found if inspect.isawaitable(found) else found

        found = asyncio.run_coroutine_threadsafe(run(), self._loop).result(30)
        is_one = hasattr(found, "__aenter__") or hasattr(found, "__anext__")
        return Waiting(found, self._loop) if is_one else found

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._awaited, name)
        if not callable(found):
            return found
        return lambda *args, **more: self._wait(lambda: found(*args, **more))

    def __next__(self) -> Any:
        return self._wait(self._awaited.__anext__)

    def __iter__(self) -> Waiting:
        return self

    def __enter__(self) -> Waiting:
        self._wait(self._awaited.__aenter__)
        return self

    def __exit__(self, *error: Any) -> None:
        self._wait(lambda: self._awaited.__aexit__(*error))


@pytest.fixture(params=["blocking", "asyncio"])
def client(request: Any, nodes: InProcessGroup, loop: Any) -> Iterator[Any]:
    if request.param == "blocking":
        with Client(nodes.bootstrap_servers) as made:
            yield made
    else:
        with Waiting(AsyncClient(nodes.bootstrap_servers), loop) as waiting:
            yield waiting


@pytest.fixture
def topic(client: Any) -> str:
    """A topic of its own, with two partitions of 1000 records each."""
    name = f"t{next(NUMBERS)}"
    client.create_topic(name, 2)
    for partition in range(2):
        client.append(name, values(partition, 1000), partition=partition)
    return name


def values(partition: int, count: int) -> list[bytes]:
    return [b"%d/%d" % (partition, at) for at in range(count)]


def polled(consumer: Any, count: int) -> list[Any]:
    """So many records at least."""
    found: list[Any] = []
    while len(found) < count:
        records = consumer.poll(20)
        assert records, "no record came within 20 s"
        found += records
    return found


def until(condition: Callable[[], Any], *consumers: Any) -> None:
    """Let these consumers take part until it is so."""
    for _ in range(400):
        if condition():
            return
        for consumer in consumers:
            consumer.poll(0.02)
    raise AssertionError("it does not become so")


# --- records --------------------------------------------------------------------------------------


def test_one_member_reads_all_in_the_order_of_each_partition(client: Any, topic: str) -> None:
    with client.consumer(f"g1-{topic}", [topic]) as consumer:
        records = polled(consumer, 2000)
        assert len(records) == 2000
        for partition in range(2):
            mine = [one for one in records if one.partition == partition]
            assert [one.value for one in mine] == values(partition, 1000)
            assert [one.offset for one in mine] == list(range(1000))
        assert records[0].topic == topic
        assert records[0].timestamp.tzinfo is UTC
        assert consumer.poll(0) == []


def test_rows_of_a_typed_topic_come_in_its_own_columns(client: Any) -> None:
    """Those of the newest version, and of a newer one from its first row on; names that the log has
    too are the topic's."""
    name = f"typed-{next(NUMBERS)}"
    columns = pa.schema([("offset", pa.int64()), ("topic", pa.string())])
    client.create_topic(name, schema=columns, key_column="topic")
    client.append(name, [{"offset": 70, "topic": "a"}, {"offset": None, "topic": None}])
    with client.consumer(f"g-{name}", [name]) as consumer:
        records = polled(consumer, 2)
        assert [one.value for one in records] == [
            {"offset": 70, "topic": "a"},
            {"offset": None, "topic": None},
        ]
        assert [(one.topic, one.offset, one.key) for one in records] == [
            (name, 0, b"a"),
            (name, 1, None),
        ]
        assert records[0].timestamp.tzinfo is UTC
        client.append(name, [{"offset": 1, "topic": "b", "more": 2.5}], evolve=True)
        (record,) = polled(consumer, 1)
        assert record.value == {"offset": 1, "topic": "b", "more": 2.5}
    with client.consumer(f"g-batches-{name}", [name]) as consumer:
        batch = next(consumer.batches())
    names = ["_topic", "partition", "_offset", "timestamp", "offset", "topic", "more"]
    assert batch.schema.names == names
    assert batch.column("_topic").to_pylist() == [name] * batch.num_rows
    assert batch.column("offset").to_pylist()[0] == 70


def test_typed_topic_without_columns_yet_is_read_from_its_first_row_on(client: Any) -> None:
    name = f"typed-{next(NUMBERS)}"
    client.create_topic(name, type="typed")
    with client.consumer(f"g-{name}", [name]) as consumer:
        assert consumer.poll(0.2) == []
        client.append(name, [{"id": 1}])
        assert [one.value for one in polled(consumer, 1)] == [{"id": 1}]


def test_records_have_keys_headers_and_nulls(client: Any, topic: str) -> None:
    client.append(
        topic,
        [b"v", None],
        keys=[None, b"k"],
        headers=[[("h", b"1"), ("n", None)], None],
        partition=1,
        timestamps=datetime(2020, 1, 2, 3, 4, 5, 6, tzinfo=UTC),
    )
    with client.consumer(f"g2-{topic}", [topic]) as consumer:
        last = [one for one in polled(consumer, 2002) if one.partition == 1][-2:]
    assert [(one.key, one.value) for one in last] == [(None, b"v"), (b"k", None)]
    assert [list(one.headers) for one in last] == [[("h", b"1"), ("n", None)], []]
    assert last[0].timestamp == datetime(2020, 1, 2, 3, 4, 5, 6, tzinfo=UTC)


def test_iteration_by_record_counts_each_one_as_it_is_handed_out(client: Any, topic: str) -> None:
    with client.consumer(f"g3-{topic}", [topic]) as consumer:
        first = [next(consumer) for _ in range(3)]
        place = TopicPartition(topic, first[0].partition)
        assert consumer.position()[place] == 3
        consumer.commit()
        assert consumer.committed() == {place: 3}
        rest = [next(consumer) for _ in range(1997)]
    assert len({(one.partition, one.offset) for one in first + rest}) == 2000


def test_batches_are_arrow_with_their_place(client: Any, topic: str) -> None:
    with client.consumer(f"g4-{topic}", [topic]) as consumer:
        batches = consumer.batches()
        both = [next(batches), next(batches)]
        assert set(consumer.position().values()) == {1000}
    assert [batch.schema for batch in both] == [CONSUMED_SCHEMA] * 2
    table = pa.Table.from_batches(both)
    assert table.column("topic").unique().to_pylist() == [topic]
    assert sorted(table.column("partition").unique().to_pylist()) == [0, 1]
    assert both[0].column("offset").to_pylist() == list(range(1000))


def test_records_that_come_later_are_handed_out_when_they_are_there(
    client: Any, topic: str
) -> None:
    with client.consumer(f"g5-{topic}", [topic], auto_offset_reset="latest") as consumer:
        assert consumer.poll(0.3) == []
        client.append(topic, [b"new"], partition=1)
        assert [one.value for one in consumer.poll(20)] == [b"new"]


def test_rows_of_a_typed_topic_come_as_json(client: Any, nodes: InProcessGroup) -> None:
    from dledger.records.columns.types import Atom, Columns, Field

    name = f"t{next(NUMBERS)}"
    info = client.create_topic(name, type="typed")
    client.evolve_schema(info, 0, Columns((Field("n", Atom("long")),)))
    with client.consumer("typed", [name]) as consumer:
        assert consumer.poll(0.3) == []


def test_slow_program_and_paused_partition_gather_nothing(
    client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One answer for each partition, of ``max_bytes`` together, waits for the program."""
    name, waiting = f"t{next(NUMBERS)}", {0: 0, 1: 0}
    client.create_topic(name, 2)
    for partition in range(2):
        for _ in range(20):
            client.append(name, [bytes(40_000)], partition=partition)
    put = HeldPartition.put

    def counted(held: HeldPartition, batches: Any) -> None:
        waiting[held.number] += 1
        put(held, batches)

    monkeypatch.setattr(HeldPartition, "put", counted)
    with client.consumer(f"g-{name}", [name], max_bytes=1) as consumer:
        until(lambda: min(waiting.values()), consumer)
        consumer.pause()
        before = dict(waiting)
        assert consumer.poll(1) == []
        # what was under way when it was paused may still come
        assert all(waiting[at] <= before[at] + 1 for at in waiting)
        assert max(waiting.values()) < 15
        consumer.resume()
        assert polled(consumer, 1)


# --- shares ---------------------------------------------------------------------------------------


def test_members_share_partitions_and_the_last_commit_hands_over(client: Any, topic: str) -> None:
    """Nothing is read twice behind the commit of who gives a partition up, and nothing is left
    out."""
    told: list[tuple[str, Any]] = []
    seen: list[tuple[int, int]] = []

    def on_revoked(places: Any) -> Any:
        told.append(("revoked", places))
        return a.commit_async() if hasattr(a, "commit_async") else a._awaited.commit()

    a = client.consumer(
        f"g6-{topic}",
        [topic],
        on_assigned=lambda places: told.append(("a", places)),
        on_revoked=on_revoked,
    )
    seen += [(one.partition, one.offset) for one in polled(a, 1200)]
    b = client.consumer(
        f"g6-{topic}", [topic], on_assigned=lambda places: told.append(("b", places))
    )
    for consumer in itertools.islice(itertools.cycle((a, b)), 400):
        seen += [(one.partition, one.offset) for one in consumer.poll(0.02)]
        if len(seen) >= 2000 and len(told) >= 3:
            break
    assert len(seen) == len(set(seen)) == 2000
    both = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    kinds = dict(told)
    assert kinds["a"] == both
    assert kinds["revoked"] == kinds["b"] == b.assignment()
    assert sorted(a.assignment() + b.assignment()) == both
    b.close()
    until(lambda: len(a.assignment()) == 2, a)
    a.close()


def test_closed_member_gives_its_partitions_away_at_once(client: Any, topic: str) -> None:
    long = {"session_timeout_ms": 600_000}
    with client.consumer(f"g7-{topic}", [topic], **long) as a:
        polled(a, 1)
        with client.consumer(f"g7-{topic}", [topic], **long) as b:
            until(lambda: b.assignment(), a, b)
        until(lambda: len(a.assignment()) == 2, a)


def test_member_whose_session_has_ended_loses_and_joins_again(client: Any, topic: str) -> None:
    lost: list[Any] = []
    with client.consumer(f"g8-{topic}", [topic], on_lost=lost.append) as a:
        polled(a, 1)
        member = a.member_id
        end_session(client, f"g8-{topic}", member)
        until(lambda: lost and a.assignment(), a)
        assert lost == [[TopicPartition(topic, 0), TopicPartition(topic, 1)]]
        assert a.member_id != member
        with pytest.raises(ConsumerFenced):
            a.commit({(topic, 5): 1})


def end_session(client: Any, group: str, member_id: str) -> None:
    """As the leader does with a member that it does not hear of."""
    from dledger.client.protocol.operations.group_membership import MemberId, leave_group

    bare = getattr(client, "_awaited", client)
    with Client(bare.bootstrap_servers) as other:
        other._run(leave_group(MemberId(group, member_id)))


def test_static_member_comes_back_and_the_others_hear_nothing(client: Any, topic: str) -> None:
    told: list[Any] = []
    with client.consumer(
        f"g9-{topic}", [topic], on_assigned=told.append, on_revoked=told.append
    ) as a:
        b = client.consumer(f"g9-{topic}", [topic], instance_id="one")
        until(lambda: b.assignment(), a, b)
        before, mine = len(told), b.assignment()
        b.close()
        with client.consumer(f"g9-{topic}", [topic], instance_id="one") as again:
            until(lambda: again.assignment(), a, again)
            assert again.assignment() == mine
        assert len(told) == before


def test_second_program_of_an_instance_id_takes_over_and_the_first_is_told(
    client: Any, topic: str
) -> None:
    a = client.consumer(f"g10-{topic}", [topic], instance_id="one")
    polled(a, 1)
    with client.consumer(f"g10-{topic}", [topic], instance_id="one") as b:
        text = "another consumer has joined group .* as instance 'one'"
        with pytest.raises(ConsumerFenced, match=text):
            until(lambda: False, a)
        until(lambda: len(b.assignment()) == 2, b)
    a.close()


def test_pattern_reads_topics_that_come_later(
    client: Any, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeats, "LOOK_MS", 0)
    with client.consumer(f"g11-{topic}", pattern=f"{topic}(-.*)?") as consumer:
        polled(consumer, 1)
        client.create_topic(f"{topic}-later", 1)
        client.create_topic(f"not-{topic}", 1)
        until(lambda: len(consumer.assignment()) == 3, consumer)
        assert consumer.assignment()[-1].topic == f"{topic}-later"


def test_more_partitions_and_a_deleted_topic_change_the_share(client: Any, topic: str) -> None:
    other = f"t{next(NUMBERS)}"
    client.create_topic(other)
    with client.consumer(f"g12-{topic}", [topic, other]) as consumer:
        until(lambda: len(consumer.assignment()) == 3, consumer)
        client.add_partitions(topic, 4)
        client.delete_topic(other)
        until(lambda: consumer.assignment() == [(topic, at) for at in range(4)], consumer)


def test_program_that_asks_for_nothing_leaves_until_it_asks(client: Any, topic: str) -> None:
    with client.consumer(f"g13-{topic}", [topic], max_poll_interval_ms=1) as a:
        polled(a, 1)
        with client.consumer(f"g13-{topic}", [topic]) as b:
            until(lambda: len(b.assignment()) == 2, b)
            until(lambda: a.assignment(), a, b)


# --- commits --------------------------------------------------------------------------------------


def test_commit_by_time_has_what_was_processed_and_no_more(client: Any, topic: str) -> None:
    """What was handed out last may be in work."""
    with client.consumer(f"g14-{topic}", [topic], commit=0.001) as consumer:
        first = consumer.poll(20)
        assert consumer.committed() == {}
        consumer.poll(20)
        place = TopicPartition(topic, first[0].partition)
        assert consumer.committed()[place] == 500
    assert sum(sum(of.values()) for of in client.group(f"g14-{topic}").offsets.values()) == 1000


def test_error_that_leaves_the_block_commits_nothing(client: Any, topic: str) -> None:
    def work() -> None:
        with client.consumer(f"g15-{topic}", [topic], commit=60) as consumer:
            consumer.poll(20)
            raise RuntimeError("record 7 is broken")

    with pytest.raises(RuntimeError, match="record 7"):
        work()
    assert client.group(f"g15-{topic}").offsets == {}


def test_commit_goes_on_where_the_group_is(client: Any, topic: str) -> None:
    with client.consumer(f"g16-{topic}", [topic]) as consumer:
        polled(consumer, 1)
        consumer.commit({(topic, 0): 990, (topic, 1): 1000})
        with pytest.raises(OffsetOutOfRange, match="ends at offset 1000"):
            consumer.commit({(topic, 0): 1001})
    with client.consumer(f"g16-{topic}", [topic]) as consumer:
        assert [one.offset for one in polled(consumer, 10)] == list(range(990, 1000))


def test_only_members_commit_for_a_group_that_has_any(client: Any, topic: str) -> None:
    client.commit_offsets(f"g17-{topic}", {topic: {0: 998}})
    with client.consumer(f"g17-{topic}", [topic]) as consumer:
        records = polled(consumer, 1002)
        assert [one.offset for one in records if one.partition == 0] == [998, 999]
        with pytest.raises(GroupInUse, match="has 1 members"):
            client.commit_offsets(f"g17-{topic}", {topic: {0: 5}})
        with pytest.raises(GroupInUse):
            client.delete_group(f"g17-{topic}")
    client.commit_offsets(f"g17-{topic}", {topic: {0: 5}})


def test_commit_async_is_done_when_its_future_is(nodes: InProcessGroup) -> None:
    with Client(nodes.bootstrap_servers) as client:
        client.create_topic("async")
        client.append("async", values(0, 10))
        with client.consumer("g18", ["async"]) as consumer:
            polled(consumer, 10)
            assert consumer.commit_async().result(20) is None
            assert consumer.committed() == {("async", 0): 10}
            error = consumer.commit_async({("async", 3): 1}).exception(20)
            assert isinstance(error, ConsumerFenced)


# --- places ---------------------------------------------------------------------------------------


def test_seek_by_offset_and_by_time(client: Any, topic: str) -> None:
    late = datetime(2100, 1, 1, tzinfo=UTC)
    client.append(topic, [b"late"], partition=1, timestamps=late)
    with client.consumer(f"g19-{topic}", [topic]) as consumer:
        polled(consumer, 2001)
        consumer.seek(topic, 0, 998)
        assert [one.offset for one in polled(consumer, 2)] == [998, 999]
        consumer.seek(topic, 1, late)
        assert [one.value for one in polled(consumer, 1)] == [b"late"]
        consumer.seek(topic, 1, datetime(2101, 1, 1))  # noqa: DTZ001 - it is UTC
        assert consumer.position()[TopicPartition(topic, 1)] == 1001
        with pytest.raises(OffsetOutOfRange, match="0 or more"):
            consumer.seek(topic, 0, -1)
        with pytest.raises(ConsumerFenced, match=f"{topic}/7 is not assigned"):
            consumer.seek(topic, 7, 0)


def test_paused_partition_hands_out_nothing_and_goes_on_where_it_was(
    client: Any, topic: str
) -> None:
    with client.consumer(f"g20-{topic}", [topic]) as consumer:
        next(consumer)
        consumer.pause([(topic, 0)])
        others = [next(consumer) for _ in range(990)]
        assert {one.partition for one in others} == {1}
        consumer.pause()
        assert consumer.poll(0.2) == []
        consumer.resume()
        assert len(polled(consumer, 1009)) == 1009


def test_lag_counts_records_behind_the_position(client: Any, topic: str) -> None:
    with client.consumer(f"g21-{topic}", [topic]) as consumer:
        first = polled(consumer, 300)
        mine = TopicPartition(topic, first[0].partition)
        assert consumer.lag()[mine] == 500
        assert sum(consumer.lag().values()) == 1500


def test_begin_is_earliest_latest_or_an_error(client: Any, topic: str) -> None:
    consumer = client.consumer(f"g22-{topic}", [topic], auto_offset_reset="error")
    with pytest.raises(OffsetOutOfRange, match="has committed no offset of"):
        consumer.poll(20)
    consumer.close()
    with client.consumer(f"g23-{topic}", [topic], auto_offset_reset="latest") as consumer:
        assert consumer.poll(0.5) == []
        assert set(consumer.committed().values()) == {1000}


# --- transactions ---------------------------------------------------------------------------------


@pytest.fixture
def out(client: Any) -> str:
    name = f"t{next(NUMBERS)}"
    client.create_topic(name)
    return name


def count(client: Any, topic: str) -> int:
    return sum(client.end_offsets(topic).values())


def test_transaction_commits_what_was_made_and_what_it_was_made_of(
    client: Any, topic: str, out: str
) -> None:
    with client.consumer(f"g24-{topic}", [topic]) as consumer:
        while count(client, out) < 2000:
            made = [one.value for one in consumer.poll(20)]
            with consumer.transaction() as transaction:
                transaction.append(out, made)
        assert set(consumer.committed().values()) == {1000}
    assert client.group(f"g24-{topic}").offsets == {topic: {0: 1000, 1: 1000}}


def test_failed_transaction_hands_its_records_out_again(client: Any, topic: str, out: str) -> None:
    def fails(consumer: Any) -> None:
        with consumer.transaction() as transaction:
            transaction.append(out, [b"half"])
            raise RuntimeError("broken")

    with client.consumer(f"g25-{topic}", [topic]) as consumer:
        first = consumer.poll(20)
        with pytest.raises(RuntimeError):
            fails(consumer)
        again = [one for one in polled(consumer, 2000) if one.partition == first[0].partition]
        assert again[: len(first)] == first
        assert count(client, out) == 0


def test_transaction_ends_with_the_share_that_it_was_made_of(
    client: Any, topic: str, out: str
) -> None:
    with client.consumer(f"g26-{topic}", [topic]) as a:
        polled(a, 2000)
        transaction = a.transaction()
        transaction.append(out, [b"made"])
        with client.consumer(f"g26-{topic}", [topic]) as b:
            until(lambda: b.assignment(), a, b)
            with pytest.raises(ConsumerFenced, match="went to another member while this"):
                transaction.commit()
            assert count(client, out) == 0


def test_transaction_of_a_member_that_is_none_any_more_is_refused(
    client: Any, topic: str, out: str
) -> None:
    with client.consumer(f"g27-{topic}", [topic]) as consumer:
        polled(consumer, 2000)
        transaction = consumer.transaction()
        transaction.append(out, [b"made"])
        end_session(client, f"g27-{topic}", consumer.member_id)
        with pytest.raises(ConsumerFenced):
            transaction.commit()
        assert count(client, out) == 0
        assert len(polled(consumer, 2000)) == 2000


def test_there_is_one_transaction_and_none_beside_commits_by_time(client: Any, topic: str) -> None:
    with client.consumer(f"g28-{topic}", [topic]) as consumer:
        transaction = consumer.transaction()
        with pytest.raises(TransactionError, match="a transaction already"):
            consumer.transaction()
        transaction.abort()
        with consumer.transaction():
            pass
    consumer = client.consumer(f"g29-{topic}", [topic], commit=1)
    with pytest.raises(ConfigError, match="commit='manual'"):
        consumer.transaction()
    consumer.close()


# --- arguments ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"topics": ["t"], "pattern": "t"}, "topics or those of a pattern"),
        ({}, "topics or those of a pattern"),
        ({"pattern": "("}, "pattern"),
        ({"topics": ["t"], "commit": "sometimes"}, "'manual' or a number of seconds"),
        ({"topics": ["t"], "commit": 0}, "'manual' or a number of seconds"),
        ({"topics": ["t"], "auto_offset_reset": "smallest"}, "'earliest' or 'latest' or 'error'"),
        ({"topics": ["t"], "max_bytes": 0}, "max_bytes is 1 or more"),
        ({"topics": "t"}, "a list of texts"),
        ({"topics": ["t"], "session_timeout_ms": 10}, "session_timeout_ms is 1000 to"),
    ],
)
def test_arguments_that_cannot_be_are_told(client: Any, wrong: Any, text: str) -> None:
    client.create_topic("t", if_absent=True)
    with pytest.raises(ConfigError, match=text):
        client.consumer("args", **wrong)
    assert "args" not in client.groups()


def test_topic_that_is_not_there_is_told_before_joining(client: Any) -> None:
    with pytest.raises(TopicNotFound, match="no topic 'typo'"):
        client.consumer("args", ["typo"])
    assert "args" not in client.groups()


def test_closed_consumer_hands_out_nothing(client: Any, topic: str) -> None:
    consumer = client.consumer(f"g30-{topic}", [topic])
    consumer.close()
    consumer.close()
    assert consumer.poll() == []
    with pytest.raises(DLedgerError):
        consumer.commit({(topic, 0): 1})
