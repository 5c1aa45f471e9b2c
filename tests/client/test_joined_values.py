"""Single values that only join the one before them, which is the cheapest way through a
producer: they fare as those that are looked at more closely."""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from dledger.client import Client
from dledger.client.blocking.producer import Producer
from dledger.client.protocol.writing.record_accumulator import RecordAccumulator
from dledger.errors import ConfigError, RecordTooLarge
from tests.client.test_forks import in_child
from tests.client.test_interrupts import Stopped

PARTITIONS = 3


class Watched(list[bytes]):
    """The records of a batch, where something comes in between when the next one is put there."""

    def __init__(self, records: list[bytes], behind: bool, between: Callable[[], None]) -> None:
        super().__init__(records)
        self._between: Callable[[], None] | None = between
        self._behind = behind

    def append(self, value: bytes) -> None:
        between, self._between = self._between, None
        if between is not None and not self._behind:
            between()
        super().append(value)
        if between is not None and self._behind:
            between()


def watch(producer: Producer, between: Callable[[], None], behind: bool = False) -> None:
    """Have it called amid the next append, which joins others."""
    assert producer._accumulator.joined is not None
    batch = producer._accumulator.joined[1]
    batch.records = Watched(batch.records, behind, between)


def some_appends(producer: Producer, seed: int) -> list[tuple[int, int, int]]:
    """Values alone, with keys, with partitions and in lists, in any order; their places."""
    dice, asked = random.Random(seed), list[Any]()
    for number in range(400):
        value = b"%d " % number + b"x" * dice.choice([0, 10, 300])
        kind = dice.choice(["alone"] * 12 + ["keyed", "placed", "list", "flush"])
        if kind == "alone":
            asked.append(producer.append(value))
        elif kind == "keyed":
            asked.append(producer.append(value, key=b"k%d" % dice.randrange(9)))
        elif kind == "placed":
            asked.append(producer.append(value, partition=dice.randrange(PARTITIONS)))
        elif kind == "list":
            asked.append(producer.append([value, value]))
        else:
            producer.flush()
    producer.flush()
    places = [one.result() for one in asked]
    return [(place.partition, place.start, place.end) for place in places]


@pytest.mark.parametrize("seed", range(5))
def test_values_that_join_get_the_places_that_they_get_without(
    group: Any, connect: Any, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    found = {}
    for topic in ("joined", "alone"):
        client = connect(linger_ms=60_000, batch_bytes=6000)
        client.create_topic(topic, PARTITIONS)
        with client.producer(topic) as producer:
            places = some_appends(producer, seed)
        found[topic] = places, [group.values(topic, at) for at in range(PARTITIONS)]
        monkeypatch.setattr(RecordAccumulator, "join", lambda *_: None)
    assert found["joined"] == found["alone"]


def test_value_over_the_limit_is_refused_beside_one_that_waits(group: Any, connect: Any) -> None:
    with connect(linger_ms=60_000).producer("t") as producer:
        first = producer.append(b"first")
        with pytest.raises(RecordTooLarge):
            producer.append(b"x" * ((1 << 20) - 200))
        producer.flush()
        assert first.result().start == 0
    assert group.values("t") == [b"first"]


def test_values_behind_an_interrupt_before_the_timer_go_out_by_a_timer(
    connect: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(producer: Producer) -> None:
        raise Stopped

    with connect(linger_ms=1).producer("t") as producer:
        with monkeypatch.context() as patched:
            patched.setattr(Producer, "_linger", stop)
            with pytest.raises(Stopped):
                producer.append(b"a")
        assert producer.append(b"b").result(60).start == 1


@pytest.mark.parametrize("behind", [False, True])
def test_interrupt_of_a_value_that_joins_leaves_others_their_places(
    group: Any, connect: Any, behind: bool
) -> None:
    def stop() -> None:
        raise Stopped

    with connect(linger_ms=60_000).producer("t") as producer:
        before = [producer.append(b"0"), producer.append(b"1")]
        watch(producer, stop, behind)
        with pytest.raises(Stopped):
            producer.append(b"lost or not")
        after = [producer.append(b"2"), producer.append(b"3")]
        producer.flush()
        stored = group.values("t")
        assert [stored[one.result().start] for one in before + after] == [b"0", b"1", b"2", b"3"]
    assert len(stored) == 4 + behind


def test_signal_handler_amid_a_value_that_joins_may_not_append(group: Any, connect: Any) -> None:
    refused = []

    def handle() -> None:
        with pytest.raises(ConfigError, match="signal handler"):
            producer.append(b"from a handler")
        refused.append(True)

    with connect(linger_ms=60_000).producer("t") as producer:
        producer.append(b"0")
        watch(producer, handle)
        assert producer.append(b"1")._at == 1
        assert producer.append(b"2")._at == 2
    assert refused
    assert group.values("t") == [b"0", b"1", b"2"]


def test_child_may_not_put_a_value_to_those_of_its_parent(group: Any, connect: Any) -> None:
    with connect(linger_ms=60_000).producer("t") as producer:
        producer.append(b"a")
        assert producer._accumulator.joined is not None
        assert in_child(lambda: producer.append(b"x")).startswith("ForkedClient: the producer")
    assert group.values("t") == [b"a"]


def test_producer_that_is_closed_takes_no_value_to_others(client: Client) -> None:
    producer = client.producer("t")
    producer.append(b"a")
    producer.close()
    with pytest.raises(ConfigError, match="is closed"):
        producer.append(b"b")


def test_threads_that_share_a_producer_each_get_their_own_places(group: Any, connect: Any) -> None:
    with connect(batch_bytes=4000).producer("t") as producer, ThreadPoolExecutor(4) as pool:

        def work(name: int) -> list[tuple[bytes, int]]:
            values = [b"%d %d" % (name, number) for number in range(500)]
            handles = [producer.append(value) for value in values]
            return [(v, one.result(60).start) for v, one in zip(values, handles, strict=True)]

        found = list(pool.map(work, range(4)))
    stored = group.values("t")
    assert all(stored[start] == value for rows in found for value, start in rows)
    assert all([start for _, start in rows] == sorted(start for _, start in rows) for rows in found)
    assert len(stored) == 2000
