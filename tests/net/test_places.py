"""Who gives way to whom: idle clients to new ones, strangers to those that say hello, nobody's
client to a member."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from dledger.logs.repeats import INTERVAL_S, MOST_KINDS
from dledger.net import Patience
from dledger.net.limits.connection_slots import MOST_OF_A_MEMBER, Places, TooMany
from dledger.net.limits.rare_warnings import Seldom


class FakeConnection:
    """A connection as `Places` sees it."""

    def __init__(self, clock: list[float], host: str = "10.0.0.1", *, busy: bool = False) -> None:
        self.host = host
        self.clock = clock
        self.opened_at = self.idle_since = clock[0]
        self.busy = busy
        self.is_member = False
        self.ended: Exception | None = None

    def now_s(self) -> float:
        return self.clock[0]

    def become_member(self) -> None:
        self.is_member = True

    def look_idle(self, now_s: float) -> None:
        if self.busy:
            self.idle_since = now_s

    def fail(self, error: Exception) -> None:
        self.ended = error

    give_way = fail


class Room:
    """Places, and those who come."""

    def __init__(self, **patience: Any) -> None:
        self.clock = [0.0]
        self.places = Places(Patience(**patience))

    def come(self, host: str = "10.0.0.1", *, busy: bool = False) -> FakeConnection:
        connection = FakeConnection(self.clock, host, busy=busy)
        self.places.open(connection)  # type: ignore[arg-type]
        return connection

    def client(self, host: str = "10.0.0.1", *, busy: bool = False) -> tuple[FakeConnection, str]:
        connection = self.come(host, busy=busy)
        refusal = self.places.refusal(connection)  # type: ignore[arg-type]
        if not refusal:
            self.places.seat_client(connection)  # type: ignore[arg-type]
        return connection, refusal


def test_a_new_client_takes_the_place_of_one_that_is_idle() -> None:
    room = Room(max_per_address=4, max_connections=100)
    idle = [room.client()[0] for _ in range(3)]
    busy, _ = room.client(busy=True)
    room.clock[0] = 10.0
    _, refusal = room.client()
    assert refusal == ""
    ended = [one.ended is not None for one in (*idle, busy)]
    assert ended == [True, False, False, False], "the one that came first"
    assert room.places.clients == 4


def test_where_all_are_busy_the_new_client_is_refused_with_the_setting() -> None:
    room = Room(max_per_address=4, max_connections=6)
    for _ in range(4):
        assert room.client(busy=True)[1] == ""
    room.clock[0] = 10.0
    assert "max_connections_per_address" in room.client(busy=True)[1]
    for _ in range(2):
        assert room.client("10.0.0.2", busy=True)[1] == ""
    assert "max_connections of the node" in room.client("10.0.0.3", busy=True)[1]


def test_4200_idle_clients_of_one_address_leave_room_for_everybody() -> None:
    room = Room()
    for number in range(4200):
        room.clock[0] = number * 0.01
        assert room.client()[1] == ""
    room.clock[0] += 2.0
    for host in ("10.0.0.1", "10.0.0.2"):
        assert room.client(host)[1] == ""
    assert room.places.clients <= 1025 + 1


def test_strangers_that_say_nothing_go_before_those_of_other_addresses() -> None:
    room = Room(max_unknown=10)
    member = room.come("10.0.0.9")
    flood = [room.come() for _ in range(30)]
    assert member.ended is None
    assert [isinstance(one.ended, TooMany) for one in flood] == [True] * 21 + [False] * 9


def test_members_have_places_of_their_own_and_few_each() -> None:
    room = Room(max_per_address=1, max_connections=1)
    assert room.client(busy=True)[1] == ""
    seats = [room.come() for _ in range(MOST_OF_A_MEMBER + 1)]
    for seat in seats:
        room.places.seat_member("n1", seat)  # type: ignore[arg-type]
    assert [seat.ended is not None for seat in seats] == [True] + [False] * MOST_OF_A_MEMBER
    assert all(seat.is_member for seat in seats)
    room.clock[0] = 1e6
    room.places.sweep(room.clock[0])
    assert seats[1].ended is None, "a member is never idle too long"


def test_who_has_ended_has_no_place_any_more() -> None:
    room = Room(max_per_address=2)
    first, _ = room.client(busy=True)
    room.client(busy=True)
    unknown = room.come()
    room.places.close(first)  # type: ignore[arg-type]
    room.places.close(unknown)  # type: ignore[arg-type]
    assert room.client(busy=True)[1] == ""
    assert room.places.clients == 2


def test_warnings_of_one_kind_come_once_in_a_while_with_a_count(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = [0.0]
    seldom = Seldom(logging.getLogger("dledger.net"), lambda: clock[0])
    with caplog.at_level(logging.WARNING, "dledger.net"):
        for _ in range(1000):
            seldom.warn("10.0.0.1:5", "no hello within 5 s")
        seldom.warn("10.0.0.2:5", "no hello within 5 s")
        seldom.warn("10.0.0.1:6", "frame CRC is 1 where the frame says 2")
        assert len(caplog.records) == 3
        clock[0] = INTERVAL_S
        seldom.sweep()
        assert [one.getMessage() for one in caplog.records[3:]] == [
            "999 more connections from 10.0.0.1 closed in 10 s: no hello ..."
        ]
        clock[0] = 2 * INTERVAL_S
        seldom.sweep()
        seldom.warn("10.0.0.1:5", "no hello within 5 s")
        assert len(caplog.records) == 5


def test_warnings_of_very_many_addresses_take_no_more_memory_and_few_lines(
    caplog: pytest.LogCaptureFixture,
) -> None:
    seldom = Seldom(logging.getLogger("dledger.net"), lambda: 0.0)
    with caplog.at_level(logging.WARNING, "dledger.net"):
        for number in range(10_000):
            seldom.warn(f"10.0.{number // 256}.{number % 256}:5", "no hello within 5 s")
    assert len(caplog.records) <= MOST_KINDS + 1
