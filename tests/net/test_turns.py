"""Commands and hellos of many connections: a little in a while, and no address before the
others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from dledger.net.limits.turns import Company, Pace, Turns
from tests.net.net_fakes import Timer


@dataclass(eq=False)
class FakeConnection:
    """A connection as `Turns` sees it."""

    host: str
    waits: bool = False

    @property
    def account(self) -> str:
        return self.host


class Counter:
    """Where work is carried out, two in a while."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.room = 100
        self.alone: list[bool] = []
        """Whether each was, as the room for it was asked for."""
        self.is_alone = False
        self.now_s = 0.0
        self.timers: list[Callable[[], None]] = []
        self.turns: Turns[FakeConnection] = Turns(
            Pace(2, 1.0),
            on_wait=partial(self.note, True),
            on_done=partial(self.note, False),
            is_free=self.is_free,
            is_alone=lambda _: self.is_alone,
            clock=self,
        )

    def is_free(self, alone: bool) -> bool:
        self.alone.append(alone)
        return self.room > 0

    def note(self, waits: bool, connection: FakeConnection) -> None:
        connection.waits = waits

    def time(self) -> float:
        return self.now_s

    def call_later(self, delay: float, callback: Callable[[], None], /) -> Any:
        assert self.now_s + delay == 1.0 + self.now_s // 1.0, (
            "whiles are of one second, from the first one's begin on"
        )
        self.timers.append(callback)
        return Timer()

    def ask(self, host: str, name: str) -> FakeConnection:
        connection = FakeConnection(host)
        self.turns.ask(connection, lambda: self.work(name))
        return connection

    def work(self, name: str) -> None:
        self.room -= 1
        self.done.append(name)

    def next_while(self) -> list[str]:
        """What is carried out in it."""
        assert len(self.timers) <= 1, "one while at a time"
        before = len(self.done)
        self.now_s += 1.0
        if self.timers:
            self.timers.pop()()
        return self.done[before:]


def test_requests_per_period_are_limited_and_waiting_client_is_not_read() -> None:
    counter = Counter()
    asked = [counter.ask("a", f"a{n}") for n in range(5)]
    assert counter.done == ["a0", "a1"], "the first ones at once"
    assert [one.waits for one in asked] == [False, False, True, True, True]
    assert counter.next_while() == ["a2", "a3"]
    assert [one.waits for one in asked] == [False, False, False, False, True]
    assert counter.next_while() == ["a4"]
    assert counter.next_while() == []
    assert not counter.timers, "nothing waits, so no timer runs"
    counter.ask("a", "at once")
    assert counter.done[-1] == "at once"


def test_a_timer_that_goes_off_a_little_early_ends_the_while_all_the_same() -> None:
    """By the loop's clock, which it may. A timer for what is left of the while could go off at
    once, for ever."""
    counter = Counter()
    for n in range(4):
        counter.ask("a", f"a{n}")
    counter.now_s -= 1e-9
    assert counter.next_while() == ["a2", "a3"]
    assert not counter.timers


def test_a_new_one_does_not_pass_those_that_wait() -> None:
    counter = Counter()
    for n in range(5):
        counter.ask("a", f"a{n}")
    counter.next_while()
    counter.ask("a", "new")
    assert counter.next_while() == ["a4", "new"]


def test_address_with_many_connections_gets_no_more_turns_than_others() -> None:
    counter = Counter()
    for n in range(102):
        counter.ask("flood", f"f{n}")
    counter.ask("b", "b0")
    counter.ask("c", "c0")
    assert counter.next_while() == ["f2", "b0"]
    assert counter.next_while() == ["c0", "f3"]


def test_what_waits_goes_on_when_there_is_room_again_and_not_before() -> None:
    counter = Counter()
    counter.room = 1
    counter.ask("a", "a0")
    waits = counter.ask("a", "a1")
    assert counter.done == ["a0"]
    assert waits.waits
    assert counter.next_while() == []
    counter.room = 1
    counter.turns.go_on()
    assert counter.done == ["a0", "a1"]
    assert not waits.waits


def test_work_of_a_connection_that_has_ended_is_not_carried_out() -> None:
    counter = Counter()
    asked = [counter.ask("a", f"a{n}") for n in range(4)]
    gone = counter.ask("b", "b0")
    counter.turns.forget(asked[2])
    counter.turns.forget(gone)
    counter.turns.forget(asked[0])
    assert len(counter.turns.waiting) == 1
    assert counter.next_while() == ["a3"]


def test_no_while_is_counted_where_nobody_else_is_there() -> None:
    counter = Counter()
    counter.is_alone = True
    for n in range(5):
        counter.ask("a", f"a{n}")
    assert len(counter.done) == 5
    assert counter.alone == [True] * 5
    counter.room = 0
    for host in ("a", "a", "b"):
        counter.ask(host, "waits")
    counter.alone.clear()
    counter.room = 10
    counter.turns.go_on()
    assert len(counter.done) == 8
    assert counter.alone == [False, False, True], (
        "addresses that wait for one another are not alone"
    )
    counter.is_alone = False
    counter.ask("a", "with company")
    assert len(counter.done) == 8
    assert counter.next_while() == ["with company"]


def test_work_that_ends_at_once_begins_no_other_within_itself() -> None:
    """A thousand connections may wait, and each would go a few calls deeper."""
    counter = Counter()
    counter.is_alone, counter.room = True, 0
    depth: list[int] = []

    def ends_at_once(number: int) -> None:
        depth.append(number)
        counter.turns.go_on()
        assert depth.pop() == number
        assert not depth

    for n in range(2000):
        counter.turns.ask(FakeConnection("a"), partial(ends_at_once, n))
    counter.room = 1
    counter.turns.go_on()
    assert len(counter.turns.waiting) == 0


def test_company_is_another_connection_that_asked_a_moment_ago() -> None:
    company: Company[FakeConnection] = Company(1.0)
    one, other, third = FakeConnection("a"), FakeConnection("a"), FakeConnection("b")
    assert company.is_alone(one, 10.0)
    assert company.is_alone(one, 10.0)
    assert not company.is_alone(other, 10.0)
    assert not company.is_alone(other, 11.0)
    assert company.is_alone(other, 11.1), "that was long ago"
    company.note(one, 12.0)
    assert not company.is_alone(one, 13.0)
    assert company.is_alone(one, 13.1)
    company.forget(one)
    assert not company.is_alone(third, 14.0), "who is gone may have asked just now"
    assert company.is_alone(third, 15.1)


def test_nothing_is_carried_out_after_the_end() -> None:
    loop_free: Turns[FakeConnection] = Turns(
        Pace(1, 1.0), on_wait=lambda _: None, on_done=lambda _: None, clock=Counter()
    )
    done: list[str] = []
    loop_free.ask(FakeConnection("a"), lambda: done.append("first"))
    loop_free.ask(FakeConnection("a"), lambda: done.append("second"))
    loop_free.close()
    loop_free.go_on()
    assert done == ["first"]
    assert len(loop_free.waiting) == 0
