"""Turns of a simulated node's threads that are left at disk operations and locks, and taken up
again."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from verification.disk import coverage
from verification.disk.memory_disk import ProcessKilled
from verification.sim import SeedOutcome, run, run_seed
from verification.sim.cluster import World
from verification.sim.locks import SimLock, SimRLock, SimThreading
from verification.sim.loop import SimLoop
from verification.sim.rng import Rng
from verification.sim.scheduler import SECOND, Clock
from verification.sim.settings import SeedPlan, draw_plan

ALWAYS = 1_000_000
OFTEN = 400_000
LEFT = "turn left at a disk operation"


def left_often(seed: int, safety_ms: int | None = 10_000) -> SeedOutcome:
    """A seed whose turns are left often, whatever it draws."""

    def draw(*args: Any, **how: Any) -> SeedPlan:
        plan = draw_plan(*args, **how)
        plan.turns_left = OFTEN
        return plan

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "draw_plan", draw)
        return run_seed(seed, safety_ms=safety_ms)


def test_seeds_whose_turns_are_left_are_green_and_the_same_each_time():
    outcomes = [left_often(seed) for seed in range(1, 7)]
    assert [str(outcome.violation) for outcome in outcomes if outcome.violation] == []
    assert all(outcome.bites[LEFT] > 10 for outcome in outcomes)
    assert left_often(2) == outcomes[1]


def test_some_seeds_leave_turns_and_some_do_not():
    drawn = [draw_plan(Rng(seed).fork("plan"), 1000).turns_left for seed in range(60)]
    assert drawn.count(0) > 15
    assert len(set(drawn)) == 4


@pytest.mark.usefixtures("marked_only_before")
def test_a_write_that_is_marked_unsynced_only_before_it_is_found():
    red = next(
        (found for seed in range(8, 60) if (found := left_often(seed, None)).violation), None
    )
    assert red is not None, "no seed in which acknowledged entries are gone"
    coverage.FOUND.clear()  # the disk may have seen it before the entries were gone


# --- one process ----------------------------------------------------------------------------------


class Process:
    """A loop whose turns are left wherever they can be; ``note`` is what happened."""

    def __init__(self) -> None:
        self.world = World(1, SeedPlan(nodes=1, clients=0, topics=0, faults=(), safety_ms=0), 10)
        self.loop: SimLoop = self.world.new_loop("n0", Clock(self.world.scheduler))
        self.loop.turns.often = ALWAYS
        self.note: list[str] = []

    def begin(self, *parts: str, lock: SimLock | None = None) -> Any:
        """A turn that notes these, with a disk operation in front of each, and holds a lock for all
        of it."""

        def work() -> str:
            if lock is not None:
                lock.acquire()
            try:
                for part in parts:
                    self.loop.turns.point()
                    self.note.append(part)
            finally:
                if lock is not None:
                    lock.release()
            return parts[-1]

        return self.loop.turns.begin(work, 0, lambda result: self.note.append(f"told {result}"))

    def use_disk(self) -> None:
        """The loop's thread does, in a callback."""
        self.loop.in_callback = True
        try:
            self.loop.turns.point()
        finally:
            self.loop.in_callback = False

    def run(self) -> None:
        self.world.scheduler.run(SECOND)


@pytest.fixture
def process() -> Process:
    return Process()


@pytest.mark.parametrize(
    ("often", "lefts", "noted"),
    [(ALWAYS, 2, ["loop", "a", "b", "told b"]), (0, 0, ["a", "b", "loop", "told b"])],
    ids=["left", "one event"],
)
def test_turn_is_left_and_goes_on_later_or_is_one_event(
    process: Process, often: int, lefts: int, noted: list[str]
):
    process.loop.turns.often = often
    process.begin("a", "b")
    process.note.append("loop")
    process.run()
    assert (process.note, process.loop.turns.lefts) == (noted, lefts)


def test_turn_goes_on_while_the_loop_is_inside_the_disk(process: Process):
    process.begin("a")
    process.use_disk()
    assert process.note == ["a"]


def test_look_from_outside_lets_no_thread_go_on(process: Process):
    process.begin("a")
    process.loop.turns.point()
    assert process.note == []


def test_loop_that_needs_the_lock_of_a_left_turn_lets_it_go_on_just_so_far(process: Process):
    lock = SimLock()
    process.begin("a", lock=lock)  # left when it takes the lock
    process.use_disk()
    assert lock.locked()
    assert not lock.acquire(blocking=False)
    with lock:
        process.note.append("loop")
    process.run()
    assert process.note == ["a", "loop", "told a"]


def test_turn_waits_for_a_lock_of_the_loop(process: Process):
    lock = SimRLock()
    with lock, lock:
        process.begin("a", lock=lock)
        process.use_disk()
        assert process.note == []
    process.run()
    assert process.note == ["a", "told a"]


def test_deadlock_of_the_loop_and_a_turn_is_an_error(process: Process):
    mine, theirs = SimLock(), SimLock()

    def both() -> None:
        with theirs, mine:
            process.note.append("never")

    with mine:
        process.loop.turns.begin(both, 0, lambda _: None)
        process.use_disk()
        with pytest.raises(RuntimeError, match="deadlock"):
            theirs.acquire()
    with pytest.raises(RuntimeError, match="deadlock"), mine:
        mine.acquire()


@pytest.mark.parametrize(("threads", "overlap"), [(1, False), (2, True)])
def test_executor_carries_out_in_order_on_as_many_threads_as_it_has(
    process: Process, threads: int, overlap: bool
):
    """A left turn of the only thread of queues and index beside another one closed a file that it
    wrote."""
    with ThreadPoolExecutor(threads) as executor:
        for name in "abc":

            def work(name: str = name) -> None:
                process.note.append(f"{name} begins")
                process.loop.turns.point()
                process.note.append(f"{name} ends")

            process.loop.run_in_executor(executor, work)
        process.run()
    in_turn = [f"{name} {what}" for name in "abc" for what in ("begins", "ends")]
    assert sorted(process.note) == sorted(in_turn)
    assert [one for one in process.note if one.endswith("begins")] == in_turn[::2]
    assert (process.note != in_turn) == overlap


def test_killed_process_ends_its_left_turns(process: Process):
    seen: list[Callable[[], str] | str] = []

    def work() -> None:
        try:
            process.loop.turns.point()
            seen.append("went on")
        except ProcessKilled:
            seen.append("killed")
            raise
        finally:
            seen.append("cleaned up")

    process.loop.turns.begin(work, 0, lambda _: seen.append("told"))
    process.loop.kill()
    process.run()
    assert seen == ["killed", "cleaned up"]


def test_turn_that_somebody_waits_for_is_finished_at_once(process: Process):
    turn = process.begin("a", "b", "c")
    process.loop.turns.finish(turn)
    assert process.note == ["a", "b", "c"]


def test_other_names_of_threading_are_the_real_ones():
    import threading

    assert SimThreading().local is threading.local
