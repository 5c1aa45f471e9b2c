"""Frames of all clients share the turns of the loop."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dledger.net.limits.accounts import Accounts
from dledger.net.limits.frame_turns import CROWD, FEW, LEAST, MOST, WHILE_S, FrameTurns
from dledger.types import Principal
from tests.net.net_fakes import FakeLoop


class Client:
    """A connection with frames that are to be handed out."""

    def __init__(self, turns: FrameTurns, frames: int, account: str = "a") -> None:
        self.account = account
        self.turns = turns
        self.frames = frames
        self.handed_out = 0

    def have_turn(self) -> None:
        size = min(self.frames, self.turns.share)
        self.frames -= size
        self.handed_out += size
        if size:
            self.turns.took(size)
        if self.frames:
            self.turns.wait(self)


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> FakeLoop:
    loop = FakeLoop()
    monkeypatch.setattr(asyncio, "get_running_loop", lambda: loop)
    return loop


def pass_while(loop: FakeLoop) -> None:
    """As long as one while, with a turn before it."""
    loop.turn()
    loop.pass_time(WHILE_S)


def come(turns: FrameTurns, clients: int, frames: int) -> list[Client]:
    """Connections that have so many frames each, in one turn."""
    came = [Client(turns, frames) for _ in range(clients)]
    for client in came:
        client.have_turn()
    return came


def total(clients: list[Client]) -> int:
    return sum(client.handed_out for client in clients)


def test_a_crowd_that_has_much_hands_out_little_in_a_while_and_takes_turns(loop: FakeLoop) -> None:
    turns = FrameTurns(Accounts())
    flood = come(turns, 300, 1000)
    assert total(flood) == MOST, "all of them in one turn"
    pass_while(loop)
    before = total(flood)
    for number in range(1, 101):
        pass_while(loop)
        assert total(flood) == before + number * LEAST
    shares = [client.handed_out for client in flood[1:]]
    assert max(shares) - min(shares) <= 1


def test_who_comes_with_a_few_waits_for_no_crowd(loop: FakeLoop) -> None:
    turns = FrameTurns(Accounts())
    come(turns, 100, 100_000)
    loop.turn()
    (few,) = come(turns, 1, FEW)
    assert few.handed_out == FEW
    loop.turn()
    crowd = come(turns, 50, FEW)
    assert total(crowd) == MOST, "a crowd of those is one, too"
    loop.turn()
    (many,) = come(turns, 1, 2 * FEW)
    assert many.handed_out == FEW


def test_two_that_have_much_hand_out_more_in_a_while_than_each_of_many(loop: FakeLoop) -> None:
    turns = FrameTurns(Accounts())
    two = come(turns, 2, 10_000)
    pass_while(loop)
    before = total(two)
    pass_while(loop)
    assert total(two) == before + MOST // 2


def test_lone_connection_gets_full_turns_and_no_call_without_frames(
    loop: FakeLoop,
) -> None:
    """Its turns follow each other without a delay."""
    turns = FrameTurns(Accounts())
    (alone,) = come(turns, 1, 3 * MOST)
    for turn in range(2, 4):
        loop.turn()
        assert alone.handed_out == turn * MOST
    loop.turn()
    assert (loop.soon, loop.timers) == ([], [])
    assert turns.share == MOST


def test_who_has_gone_has_no_turn(loop: FakeLoop) -> None:
    turns = FrameTurns(Accounts())
    gone: Any = Client(turns, 10)
    turns.wait(gone)
    turns.forget(gone)
    loop.turn()
    assert gone.handed_out == 0
    assert (loop.soon, loop.timers) == ([], [])


def test_what_becomes_of_one_takes_no_turn_from_the_others(loop: FakeLoop) -> None:
    turns = FrameTurns(Accounts())

    class Broken:
        account = "a"

        def have_turn(self) -> None:
            raise RuntimeError("a defect")

    turns.wait(Broken())
    other = Client(turns, 1)
    turns.wait(other)
    with pytest.raises(RuntimeError):
        pass_while(loop)
    pass_while(loop)
    assert other.handed_out == 1
    assert turns.share == MOST


def test_accounts_have_equal_parts_of_a_while_however_many_connections(loop: FakeLoop) -> None:
    accounts = Accounts()
    accounts.enter(Principal("crowd"))
    accounts.enter(Principal("one"))
    turns = FrameTurns(accounts)
    crowd = [Client(turns, 10_000, "crowd") for _ in range(50)]
    one = Client(turns, 10_000, "one")
    for client in (*crowd, one):
        client.have_turn()
    pass_while(loop)
    before = total(crowd), one.handed_out
    for _ in range(100):
        pass_while(loop)
    assert one.handed_out - before[1] >= 0.8 * (total(crowd) - before[0]) / 2


def test_few_connections_of_a_crowd_are_read_in_one_while(loop: FakeLoop) -> None:
    """Each may have a megabyte ready, and another account's record comes meanwhile."""
    accounts = Accounts()
    accounts.enter(Principal("crowd"))
    turns = FrameTurns(accounts)
    turned: list[int] = []

    class Large:
        account = "crowd"

        def have_turn(self) -> None:
            turned.append(1)
            turns.wait(self)

    for _ in range(50):
        turns.wait(Large())
    pass_while(loop)
    assert len(turned) > CROWD, "alone"
    accounts.enter(Principal("one"))
    turned.clear()
    loop.pass_time(WHILE_S)
    assert len(turned) == CROWD
