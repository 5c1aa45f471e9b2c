"""A consumer whose program is interrupted by signals: no record is left out, and none comes
twice."""

from __future__ import annotations

import itertools
import random
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from dledger.client import Client
from dledger.testing import InProcessGroup

RECORDS = 600


class Stopped(Exception):
    """What a program's signal handler raises."""


@pytest.fixture(scope="module")
def nodes() -> Iterator[InProcessGroup]:
    with InProcessGroup(replicas=1) as group:
        yield group


@pytest.fixture
def alarms() -> Iterator[Callable[[float], None]]:
    """``alarms(seconds)`` raises `Stopped` in the main thread that much later."""

    def handle(number: int, frame: Any) -> None:
        raise Stopped

    before = signal.signal(signal.SIGALRM, handle)
    yield lambda seconds: signal.setitimer(signal.ITIMER_REAL, seconds)
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def by_poll(consumer: Any, found: list[Any]) -> None:
    found[0] = consumer.poll(0.01, max_records=3)


def by_record(consumer: Any, found: list[Any]) -> None:
    """By a loop, as a program does: behind a call of ``next`` a signal handler may come before its
    result has a name."""
    for found[0] in consumer:
        return


def by_batch(consumer: Any, found: list[Any]) -> None:
    for found[0] in consumer.batches():
        return


WAYS: dict[str, tuple[Callable[[Any, list[Any]], None], Callable[[Any], list[int]]]] = {
    "poll": (by_poll, lambda records: [one.offset for one in records]),
    "record": (by_record, lambda record: [record.offset]),
    "batch": (by_batch, lambda batch: batch.column("offset").to_pylist()),
}


@pytest.mark.parametrize("way", WAYS)
def test_interrupted_consumer_goes_on_with_the_next_record(
    nodes: InProcessGroup, alarms: Callable[[float], None], way: str
) -> None:
    """What a call that was interrupted did not return is given by the next one."""
    take, offsets = WAYS[way]
    dice = random.Random(way)
    interrupts = 0
    with Client(nodes.bootstrap_servers) as client:
        client.create_topic(way)
        for first in range(0, RECORDS, 20):
            client.append(way, [b"%d" % at for at in range(first, first + 20)])
        consumer = client.consumer(way, [way])
        seen: list[int] = []
        for _ in itertools.repeat(None, 50 * RECORDS):
            found: list[Any] = [None]
            try:
                alarms(dice.uniform(0.00002, 0.0005))
                take(consumer, found)
                alarms(0)
            except Stopped:
                interrupts += 1
            if found[0] is not None:
                seen += offsets(found[0])
            if len(seen) == RECORDS:
                break
        consumer.close()
    assert seen == list(range(RECORDS))
    assert interrupts
