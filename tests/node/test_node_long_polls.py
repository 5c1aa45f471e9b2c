"""Requests that wait: how many may, whose turn it is, and who is served at once."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

from dledger.node.events import Event
from dledger.node.handlers import parked_requests as long_polls
from dledger.node.handlers.parked_requests import (
    MOST_COST,
    POLL_COST,
    TURN_ANSWERS,
    LongPoll,
    LongPolls,
)
from tests.net.net_fakes import FakeLoop

COST = POLL_COST + 2
"""Of one that names a partition."""
KEY = 5 << 32


class Growth:
    """The ends of partitions."""

    def __init__(self) -> None:
        self.grown: set[int] = set()
        self.gone: set[int] = set()
        self.is_watched = False
        self.ends: dict[int, int] = {}
        self.looks = 0

    def end_of(self, key: int) -> int:
        self.looks += 1
        return self.ends.get(key, 0)


class Node:
    """Notes who was served and who was given up."""

    def __init__(self, loop: FakeLoop) -> None:
        self.loop = loop
        self.growth = Growth()
        self.applied: Event[[]] = Event()
        watched: Event[[bool]] = Event()
        watched.subscribe(lambda is_watched: self.told.append(is_watched))
        self.told: list[bool] = []
        self.polls = LongPolls(self.growth, applied=self.applied, watched=watched)
        self.served: list[Any] = []
        self.given_up: list[Any] = []

    def hold(
        self, connection: Any, *wants: tuple[int, int], wait_ms: int = 1000, size: int = 0
    ) -> None:
        serve, give_up = (partial(to.append, connection) for to in (self.served, self.given_up))
        self.polls.hold(LongPoll(connection, wants, serve, give_up, size), wait_ms)

    def append(self, key: int = KEY) -> None:
        self.growth.ends[key] = self.growth.end_of(key) + 1
        self.growth.grown.add(key)
        self.applied()


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Node:
    loop = FakeLoop()
    monkeypatch.setattr(asyncio, "get_running_loop", lambda: loop)
    return Node(loop)


@pytest.fixture
def small(node: Node, monkeypatch: pytest.MonkeyPatch) -> Node:
    """There is room for 64 that wait for a partition each."""
    monkeypatch.setattr(long_polls, "MOST_COST", 64 * COST)
    return node


def test_long_poll_is_served_by_its_record_or_given_up_at_its_time(
    node: Node,
) -> None:
    node.hold("a", (KEY, 0))
    node.hold("b", (KEY, 5))
    node.hold("c", (KEY + 1, 0))
    node.append()
    assert (node.served, node.given_up, len(node.polls)) == (["a"], [], 2)
    node.loop.pass_time(1)
    node.loop.turn()
    assert (node.served, node.given_up, len(node.polls)) == (["a"], ["b", "c"], 0)
    node.loop.pass_time(100)
    node.loop.all_turns()
    node.append()
    assert (node.served, node.given_up) == (["a"], ["b", "c"])


def test_first_long_poll_and_end_of_last_are_told(node: Node) -> None:
    node.hold("a", (KEY, 0))
    node.hold("b", (KEY, 1))
    assert node.told == [True]
    node.append()
    assert node.told == [True]
    node.append()
    assert node.told == [True, False]
    node.hold("c", (KEY, 2))
    node.polls.forget("c")
    assert node.told == [True, False, True, False]


def test_long_poll_of_many_partitions_is_served_once_by_first_change(
    node: Node,
) -> None:
    """The first partition that grows or goes away serves it."""
    node.hold("two", (KEY, 3), (KEY + 1, 0))
    node.hold("gone", (KEY, 9))
    node.hold("other", (KEY + (1 << 32), 0))
    node.append(KEY + 1)
    node.append(KEY)
    assert node.served == ["two"]
    node.growth.gone.add(KEY >> 32)
    node.polls.applied()
    assert node.served == ["two", "gone"]
    assert not node.growth.gone
    assert not node.growth.grown
    node.growth.gone.add(KEY >> 32)
    node.polls.applied()
    assert node.served == ["two", "gone"]


def test_who_waits_for_anything_is_served_by_anything(node: Node) -> None:
    node.hold("any")
    node.polls.applied()
    assert (node.served, len(node.polls)) == (["any"], 0)


def test_client_may_hold_all_free_polls_and_loses_its_oldest_to_others(
    small: Node,
) -> None:
    for _ in range(64):
        small.hold("many", (KEY, 0))
    assert len(small.polls) == 64
    small.hold("one", (KEY, 0))
    for _ in range(100):
        small.hold("many", (KEY, 0))
    small.hold("wide", (KEY, 0), size=100 * 64 * COST)
    small.loop.all_turns()
    assert set(small.given_up) == {"many", "wide"}, "the last has more than there is room for"
    small.append()
    small.loop.all_turns()
    assert small.served.count("one") == 1
    assert 50 < len(small.served) <= 64


def test_all_together_hold_no_more_than_there_is_room_for(small: Node) -> None:
    for number in range(1000):
        small.hold(number % 200, (KEY, 0))
        assert len(small.polls) <= 64
    small.loop.all_turns()
    assert len(small.given_up) == 1000 - 64


def test_answers_that_are_due_and_not_made_yet_take_room_too(small: Node) -> None:
    for _ in range(64):
        small.hold("many", (KEY, 0))
    small.append()
    assert len(small.served) == TURN_ANSWERS
    for _ in range(1000):
        small.hold("many", (KEY, 100))
    assert len(small.served) + len(small.given_up) >= 1064 - 64, "most of them are answered by now"
    small.loop.all_turns()
    assert len(small.served) + len(small.given_up) + len(small.polls) == 1064


def test_an_append_looks_at_none_that_it_does_not_serve(node: Node) -> None:
    for number in range(10_000):
        node.hold("many", (KEY, 100 + number))
        node.hold("many", (KEY + number + 1, 0))
    node.hold("one", (KEY, 0))
    node.growth.looks = 0
    node.append()
    assert node.served == ["one"]
    assert node.growth.looks <= 2


def test_answers_are_made_a_few_in_a_turn_and_the_connections_take_turns(node: Node) -> None:
    assert 2000 * COST < MOST_COST
    for _ in range(1000):
        node.hold("many", (KEY, 0))
        node.hold("late", (KEY, 100))
    node.hold("one", (KEY, 0))
    node.append()
    assert len(node.served) == TURN_ANSWERS
    assert "one" in node.served
    assert node.loop.all_turns() >= 1000 // TURN_ANSWERS
    assert len(node.served) == 1001
    node.loop.pass_time(1)
    node.loop.turn()
    assert len(node.given_up) == TURN_ANSWERS
    node.loop.all_turns()
    assert len(node.given_up) == 1000


def test_who_has_gone_is_not_answered_and_at_the_end_everybody_is(node: Node) -> None:
    for _ in range(50):
        node.hold("gone", (KEY, 0))
        node.hold("stays", (KEY, 7))
    node.append()
    node.polls.forget("gone")  # type: ignore[arg-type]
    node.served.clear()
    node.polls.stop()
    assert (node.served, len(node.given_up), len(node.polls)) == ([], 50, 0)
    node.loop.pass_time(1)
    node.loop.all_turns()
    assert (node.served, set(node.given_up), len(node.given_up)) == ([], {"stays"}, 50)
