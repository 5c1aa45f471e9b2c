"""The budget of frames under way, with senders that do what a test says and a clock that it
moves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from dledger.net.limits.accounts import Accounts
from dledger.net.limits.inflow import LEAST_BYTES_PER_S, LET_IN_BYTES_PER_S, Inflow, Stalled
from dledger.types import Principal
from tests.net.net_fakes import FakeLoop

MIB = 1 << 20
PATIENCE_S = 60
"""A test that still waits then has failed."""


class FakeSender:
    """A connection as the budget sees it."""

    def __init__(self, inflow: Inflow, account: str = "a") -> None:
        self.inflow = inflow
        self.account = account
        self.received = 0
        self.is_kept_waiting = False
        self.takes_no_answers = False
        self.size = 0
        self.taken = False
        self.has_room = asyncio.Event()
        self.error: Exception | None = None

    def begin(self, size: int) -> bool:
        """Announce a frame of this size."""
        self.size = size
        self.proceed()
        return self.taken

    def proceed(self) -> None:
        self.taken = self.inflow.admits(self, self.size)
        self.is_kept_waiting = not self.taken
        if self.taken:
            self.has_room.set()
        self.inflow.note(self, self.size if self.taken else 100)

    def end(self) -> None:
        self.inflow.note(self, 0)

    def fail(self, error: Exception) -> None:
        self.error = error
        self.inflow.forget(self)


class Bench:
    def __init__(self, limit: int = 10 * MIB) -> None:
        self.now = 0.0
        self.others = 0
        self.apart = 0
        self.accounts = Accounts()
        self.inflow = Inflow(
            lambda: limit - self.apart,
            lambda: self.others,
            stall_s=30,
            pressed_s=2,
            accounts=self.accounts,
            now_s=lambda: self.now,
        )

    def sender(self, account: str = "a") -> FakeSender:
        return FakeSender(self.inflow, account)

    def sweep_at(self, now: float) -> None:
        self.now = now
        self.inflow.sweep()


@pytest.fixture
def new_loop() -> Callable[[], asyncio.AbstractEventLoop]:
    return asyncio.new_event_loop


@pytest.fixture
@asynccontextmanager
async def bench(new_loop: object) -> AsyncIterator[Bench]:
    async with asyncio.timeout(PATIENCE_S):
        yield Bench()


async def test_frames_get_their_room_in_the_order_in_which_they_came(bench: Bench) -> None:
    senders = [bench.sender() for _ in range(5)]
    assert [sender.begin(4 * MIB) for sender in senders] == [True, True, False, False, False]
    assert not bench.sender().begin(1), (
        "a small one does not overtake: it would keep the large ones out for ever"
    )
    senders[0].end()
    await senders[2].has_room.wait()
    assert [sender.taken for sender in senders] == [True, True, True, False, False]
    senders[1].end()
    senders[2].end()
    await senders[4].has_room.wait()
    assert all(sender.taken for sender in senders)
    assert bench.inflow.used <= 8 * MIB + 100


async def test_frames_have_the_room_that_connections_leave(bench: Bench) -> None:
    bench.apart = 6 * MIB
    first, second = bench.sender(), bench.sender()
    assert [first.begin(3 * MIB), second.begin(3 * MIB)] == [True, False]
    assert bench.inflow.presses(second), "beginnings have half of what is left"
    bench.apart = 0
    bench.sweep_at(1)
    await second.has_room.wait()


async def test_a_frame_over_the_budget_is_taken_alone(bench: Bench) -> None:
    assert bench.sender().begin(12 * MIB)
    assert not bench.sender().begin(MIB)


async def test_whole_requests_that_wait_for_answers_count_too(bench: Bench) -> None:
    bench.others = 9 * MIB
    first, second = bench.sender(), bench.sender()
    assert first.begin(2 * MIB), "one always goes on"
    assert not second.begin(MIB)
    bench.others = 0
    bench.inflow.relieved()
    await second.has_room.wait()


async def test_a_frame_that_trickles_is_given_up_and_one_that_comes_on_is_not(bench: Bench) -> None:
    """A byte now and then is no progress."""
    slow, steady = bench.sender(), bench.sender()
    slow.begin(MIB)
    steady.begin(MIB)
    for second in range(1, 62):
        slow.received += 100
        steady.received += LEAST_BYTES_PER_S
        bench.sweep_at(second)
        assert (slow.error is not None) is (second >= 30)
    assert isinstance(slow.error, Stalled)
    assert steady.error is None
    assert bench.inflow.used == MIB


async def test_while_others_wait_patience_is_shorter_and_their_turn_comes(bench: Bench) -> None:
    slow, waiting = bench.sender(), bench.sender()
    slow.begin(9 * MIB)
    assert not waiting.begin(9 * MIB)
    bench.sweep_at(1.9)
    assert slow.error is None
    bench.sweep_at(2.0)
    assert slow.error is not None
    await waiting.has_room.wait()


async def test_who_is_made_to_wait_by_this_side_is_not_slow(bench: Bench) -> None:
    paused, deaf = bench.sender(), bench.sender()
    paused.begin(4 * MIB)
    deaf.begin(4 * MIB)
    paused.is_kept_waiting = deaf.takes_no_answers = True
    bench.sweep_at(1000)
    assert (paused.error, deaf.error) == (None, None)
    assert not bench.sender().begin(4 * MIB)
    bench.sweep_at(2000)
    assert paused.error is None
    assert deaf.error is not None, "who takes no answers holds no room that others wait for"


async def test_a_sender_that_has_gone_leaves_nothing_behind(bench: Bench) -> None:
    first, second = bench.sender(), bench.sender()
    first.begin(9 * MIB)
    second.begin(9 * MIB)
    bench.inflow.forget(second)
    bench.inflow.forget(first)
    assert (bench.inflow.used, bench.inflow.kept_waiting) == (0, {})


async def test_waiting_senders_get_buffers_one_by_one_and_not_in_one_turn(
    bench: Bench,
) -> None:
    loop = bench.inflow._loop = FakeLoop()  # type: ignore[assignment]
    crowd = [bench.sender() for _ in range(5)]
    for sender in crowd:
        sender.begin(4 * MIB)
    crowd[0].end()
    crowd[1].end()
    loop.turn()
    bench.inflow.relieved()
    loop.turn()
    assert sum(sender.taken for sender in crowd) == 3
    loop.pass_time(4 * MIB / LET_IN_BYTES_PER_S)
    assert sum(sender.taken for sender in crowd) == 4
    crowd[2].end()
    crowd[3].end()
    loop.turn()
    loop.pass_time(4 * MIB / LET_IN_BYTES_PER_S)
    assert all(sender.taken for sender in crowd)


async def test_a_crowd_leaves_room_for_another_account(bench: Bench) -> None:
    bench.accounts.enter(Principal("crowd"))
    bench.accounts.enter(Principal("one"))
    crowd = [bench.sender("crowd") for _ in range(20)]
    taken = [sender.begin(MIB) for sender in crowd]
    assert taken.count(True) == 6, "as much as was free then"
    one = bench.sender("one")
    assert one.begin(2 * MIB), "it is not behind those that wait"
    assert not bench.sender("crowd").begin(MIB)
    for sender in (*crowd[:2], one):
        sender.end()
    await crowd[6].has_room.wait()


async def test_accounts_are_let_in_by_turns(bench: Bench) -> None:
    bench.accounts.enter(Principal("crowd"))
    bench.accounts.enter(Principal("one"))
    first = bench.sender("crowd")
    assert first.begin(9 * MIB)
    crowd = [bench.sender("crowd") for _ in range(5)]
    one = [bench.sender("one") for _ in range(2)]
    assert not any(sender.begin(2 * MIB) for sender in (*crowd, *one))
    first.end()
    await one[1].has_room.wait()
    assert sum(sender.taken for sender in crowd) <= 3
    for sender in (*crowd, *one):
        sender.inflow.forget(sender)
    assert bench.inflow._used_by == {}


async def test_one_account_alone_may_have_all(bench: Bench) -> None:
    bench.accounts.enter(Principal("a"))
    assert [bench.sender().begin(MIB) for _ in range(12)].count(True) == 10


async def test_an_account_that_has_much_reads_little_while_there_are_others(bench: Bench) -> None:
    """What one read brings whole asks for no room, so that a crowd would have all of it."""
    much, little = bench.sender("much"), bench.sender("little")
    bench.accounts.enter(Principal("much"))
    bench.accounts.hold("much", 3 * MIB)
    assert not bench.inflow.presses(much)
    bench.accounts.enter(Principal("little"))
    assert bench.inflow.presses(much)
    assert not bench.inflow.presses(little)
