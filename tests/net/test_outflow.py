"""The budget of answers: what waits, whose turn it is, and who is closed."""

from __future__ import annotations

from typing import Any

from dledger.net.limits.outflow import (
    EACH_TURN,
    GIVEN_BACK_PER_S,
    LEAST_BYTES_PER_S,
    LOOK_S,
    PRESSED_SHARE,
    STALL_S,
    Outflow,
)
from tests.net.net_fakes import FakeLoop

LIMIT = 64_000


class Taker:
    """A connection."""

    def __init__(self, host: str = "a") -> None:
        self.account = host
        self.handed = self.unsent_bytes = 0
        self.closing = False
        self.holds_answers = False
        self.is_read = True
        self.failed: list[str] = []

    def pause_reading(self) -> None:
        self.is_read = False

    def resume_reading(self) -> None:
        self.is_read = True

    def fail(self, error: Exception) -> None:
        self.failed.append(str(error))
        self.unsent_bytes, self.closing = 0, True

    def take(self, size: int) -> None:
        self.unsent_bytes -= size


class Node:
    """Who answers: it notes whose answers it has made, and how much room there was."""

    def __init__(self) -> None:
        self.clock = FakeLoop()
        self.outflow: Outflow[Any] = Outflow(LIMIT, self.clock)
        self.answered: list[str] = []
        self.room: list[int] = []

    def ask(self, taker: Taker, name: str, size: int) -> None:
        def work() -> None:
            self.answered.append(name)
            self.room.append(self.outflow.room)
            self.outflow.begin(size)
            self.outflow.end(taker, size)
            taker.handed += size
            taker.unsent_bytes += size

        self.outflow.ask(taker, work)


def full(node: Node, *hosts: str) -> list[Taker]:
    """Takers that take nothing, whose answers are all that there is room for."""
    takers = [Taker(host) for host in hosts]
    for taker in takers:
        node.ask(taker, "first", LIMIT // len(hosts))
    return takers


def test_answers_are_made_at_once_while_there_is_room() -> None:
    """Answers that were sent make room again."""
    node, taker = Node(), Taker()
    for _ in range(10):
        node.ask(taker, "", LIMIT // 2)
        taker.take(LIMIT // 2)
    assert len(node.answered) == 10
    assert taker.is_read
    node.ask(taker, "larger than all", 2 * LIMIT)
    assert node.answered[-1] == "larger than all"


def test_a_connection_is_not_read_while_its_request_waits_for_room() -> None:
    node, taker = Node(), Taker("b")
    (deaf,) = full(node, "a")
    assert node.outflow.is_full
    node.ask(taker, "waits", 10)
    assert (node.answered, taker.is_read, taker in node.outflow) == (["first"], False, True)
    deaf.take(LIMIT // 2)
    node.clock.pass_time(LOOK_S)
    assert (node.answered[-1], taker.is_read, taker in node.outflow) == ("waits", True, False)
    assert node.room[-1] == LIMIT - LIMIT // 2, "it was the last one that waited"


def test_addresses_have_turns_and_the_connections_of_each_too() -> None:
    node = Node()
    (deaf,) = full(node, "x")
    many, other, alone = Taker("flood"), Taker("flood"), Taker("alone")
    for number in range(3):
        node.ask(many, f"many {number}", 1)
    node.ask(other, "other", 1)
    node.ask(alone, "alone", 1)
    deaf.take(LIMIT)
    node.clock.pass_time(LOOK_S)
    assert len(node.answered) == 1 + EACH_TURN
    node.clock.all_turns()
    assert node.answered[1:] == ["many 0", "alone", "other", "many 1", "many 2"]
    assert node.room[1] == LIMIT // PRESSED_SHARE, "others wait"
    assert many.is_read


def test_room_that_an_answer_leaves_is_used_in_the_same_turn() -> None:
    node, taker = Node(), Taker()
    node.outflow.begin(LIMIT)
    node.ask(taker, "waits", 1)
    assert node.answered == []
    node.outflow.end(Taker(), LIMIT)
    node.clock.turn()
    assert node.answered == ["waits"]


def test_client_that_takes_no_answers_while_others_wait_is_closed() -> None:
    """A client that takes some answers is kept."""
    node, waits = Node(), Taker("c")
    deaf, busy = Taker("a"), Taker("b")
    node.ask(deaf, "first", LIMIT // 2)
    node.ask(busy, "first", 100 * LIMIT)
    node.clock.pass_time(100 * STALL_S)
    assert not deaf.failed, "nobody waits"
    node.ask(waits, "waits", 1)
    for tenth in range(30):
        assert bool(deaf.failed) is (tenth > 10), "from the moment on at which somebody waits"
        node.clock.pass_time(STALL_S / 10)
        busy.take(int(LEAST_BYTES_PER_S * STALL_S / 10) + 500)
    assert not busy.failed
    assert deaf.failed == ["0 bytes of answers were taken in 0.5 s, and others wait for theirs"]
    assert "waits" not in node.answered


def eight_and_sixteen() -> tuple[Node, list[Taker], list[Taker]]:
    """Eight whose answers are all that there is room for, and sixteen that wait for half as much
    each."""
    node = Node()
    first = full(node, *"abcdefgh")
    waiting = [Taker(str(number)) for number in range(16)]
    for taker in waiting:
        node.ask(taker, "waited", LIMIT // 16)
    return node, first, waiting


def test_the_room_of_those_who_are_closed_comes_back_little_by_little() -> None:
    node, first, waiting = eight_and_sixteen()
    node.clock.pass_time(STALL_S + LOOK_S)
    assert all(taker.failed for taker in first)
    in_time = 1 + int(LOOK_S * GIVEN_BACK_PER_S * 16)
    assert node.answered.count("waited") <= in_time
    while len(node.answered) < 8 + 16 and node.clock.now_s < 100:
        before, now_s = node.answered.count("waited"), node.clock.now_s
        node.clock.pass_time(LOOK_S)
        assert node.answered.count("waited") <= before + in_time, now_s
    assert not any(taker.is_read is False for taker in waiting)


def test_the_room_of_those_who_take_comes_back_at_once() -> None:
    node, first, _ = eight_and_sixteen()
    for taker in first:
        taker.take(LIMIT // 8)
    node.clock.pass_time(LOOK_S)
    node.clock.all_turns()
    assert node.answered.count("waited") == 16


def test_who_ends_waits_no_more_and_others_have_its_turn() -> None:
    node = Node()
    (deaf,) = full(node, "x")
    gone, other = Taker("a"), Taker("a")
    node.ask(gone, "gone", 1)
    node.ask(other, "other", 1)
    node.outflow.forget(gone)
    node.outflow.forget(deaf)
    node.clock.pass_time(LOOK_S)
    assert node.answered == ["first", "other"]
    assert gone not in node.outflow
