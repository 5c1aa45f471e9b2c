"""Interleavings of threads that share a store: a share of what ``make schedules`` tries, and what
it is made of."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from dledger.errors import ConfigError
from verification import greenlets
from verification.disk.memory_disk import MemoryDisk, ProcessKilled
from verification.disk.memory_inode import SECTOR
from verification.greenlets import other_threading
from verification.interleave import campaign as campaigns
from verification.interleave.__main__ import main
from verification.interleave.campaign import ALL, campaign, named, schedules
from verification.interleave.disk import Image, Style, SwitchingDisk
from verification.interleave.locks import Threading
from verification.interleave.schedule import bench
from verification.interleave.scheduler import End, Scheduler, Strategy
from verification.interleave.shrink import shrunk, story
from verification.interleave.strategies import Chance, Exhaustive, Interruptions, Priorities, Replay
from verification.interleave.tiny import TINY, every_schedule
from verification.mutants.__main__ import hunts
from verification.sim.rng import Rng

COUNT = 60 * len(ALL)
A, B = Path("/a"), Path("/b")


def test_threads_sharing_a_store_keep_promises_in_any_interleaving():
    out = io.StringIO()
    found = campaign(COUNT, 1, out)
    assert found["ok"], out.getvalue()
    assert [row[1] for row in found["table"][1:]] == [COUNT // len(ALL)] * len(ALL)
    assert found["faults"]["crash between two steps"] > COUNT // 5


def test_every_schedule_of_two_threads_with_one_preemption_is_green():
    out = io.StringIO()
    assert campaigns.exhaust(1, out), out.getvalue()
    assert out.getvalue().count(", 0 red") == len(TINY)


def test_same_seed_gives_the_same_schedule_step_by_step():
    with bench() as runner:
        runs = [[runner.run_seed(scenario, 7, traced=True) for scenario in ALL] for _ in range(2)]
    for first, again in zip(*runs, strict=True):
        assert [str(step) for step in first.trace] == [str(step) for step in again.trace]
        assert first.decisions == again.decisions


def test_schedule_is_replayed_from_its_decisions_alone():
    with bench() as runner:
        for scenario, found in schedules(runner, ALL, 4 * len(ALL), 50):
            again = runner.run(scenario, found.seed, Replay(dict(found.decisions)), found.crash_at)
            for name in ("steps", "kind", "decisions"):
                assert getattr(again, name) == getattr(found, name), name


def test_planted_races_are_found_within_a_thousand_schedules():
    names = [
        "race-marked-only-before-write",
        "threads-durable-in-spite-of-a-cut",
        "programs-look-once",
    ]
    for hunt in hunts(names, 1, 1):
        assert hunt.caught_by, hunt
        assert hunt.seeds <= 1000


@pytest.mark.usefixtures("marked_only_before")
def test_schedules_with_two_preemptions_show_the_race_of_write_and_syncs():
    """All such schedules are tried; the race is between one write and two syncs."""
    with bench() as runner:
        red = [found for found in every_schedule(runner, TINY[0], 2) if found.problem]
    assert {found.kind for found in red} == {"Uncovered"}
    assert all("no sync covers byte" in found.problem for found in red)


@pytest.mark.usefixtures("marked_only_before")
def test_red_schedule_is_told_with_as_few_switches_as_it_takes(capsys):
    scenario = named("checkpoints")
    with bench() as runner:
        red = next(
            found for seed in range(1000) if (found := runner.run_seed(scenario, seed)).problem
        )
        least = shrunk(runner, scenario, red)
        assert least.kind == red.kind
        for gone in range(len(least.decisions)):
            fewer = dict(least.decisions[:gone] + least.decisions[gone + 1 :])
            assert runner.run(scenario, red.seed, Replay(fewer), least.crash_at).kind != red.kind
    assert len(least.decisions) <= 4
    told = story(least)
    assert f"seed {red.seed}" in told
    assert "pwritev" in told
    assert "acquire FileStore._sync_lock" in told
    assert main(["--scenario", scenario.name, "--seed", str(red.seed)]) == 1
    assert red.problem in capsys.readouterr().out


def test_command_writes_its_result_and_exits_by_it(tmp_path, capsys):
    path = tmp_path / "schedules.json"
    assert main(["--schedules", "26", "--seed", "3", "--json", str(path)]) == 0
    result = json.loads(path.read_text())
    assert (result["campaign"], result["ok"]) == ("schedules", True)
    assert result["figures"]["schedules"] == 26
    assert "26 schedules from seed 3 on" in capsys.readouterr().out
    assert main(["--exhaustive", "0"]) == 0
    with pytest.raises(SystemExit):
        main(["--scenario", "no such thing"])
    said = "'no such thing' is not one scenario; there are appends beside syncs"
    assert said in capsys.readouterr().err


def test_missing_package_is_named_with_the_command_that_installs_it(monkeypatch, capsys):
    monkeypatch.setitem(__import__("sys").modules, "greenlet", None)
    greenlets._package.cache_clear()
    try:
        assert main(["--schedules", "1"]) == 2
        with pytest.raises(ConfigError, match=r"pip install 'dledger\[test\]'"):
            greenlets.current_greenlet()
    finally:
        monkeypatch.undo()
        greenlets._package.cache_clear()
    said = "this needs the package greenlet: pip install 'dledger[test]'\n"
    assert capsys.readouterr().err == said


# --- the scheduler --------------------------------------------------------------------------------


def together(scheduler: Scheduler, **threads: Callable[[], object]) -> End:
    """Run threads of these names, and say how that ends."""
    for name, function in threads.items():
        scheduler.spawn(name, function)
    return scheduler.run()


def steps(scheduler: Scheduler, note: list[str], name: str, count: int) -> Callable[[], None]:
    def run() -> None:
        for number in range(count):
            scheduler.point("step", name)
            note.append(f"{name}{number}")

    return run


def two_threads(strategy: Strategy) -> str:
    """The order of their steps, two of each."""
    note: list[str] = []
    scheduler = Scheduler(strategy)
    threads = {name: steps(scheduler, note, name, 2) for name in "ab"}
    assert together(scheduler, **threads) is End.DONE
    return "".join(note)


def test_exhaustive_search_makes_every_schedule_once():
    """Two threads of two steps each, six orders; without preemptions two."""
    for bound, due in ((0, 2), (4, 6)):
        strategy, seen, more = Exhaustive(bound), set(), True
        while more:
            seen.add(two_threads(strategy))
            more = strategy.advance()
        assert len(seen) == due


@pytest.mark.parametrize(
    "strategy",
    [
        lambda rng: Priorities(rng, 3, 12),
        lambda rng: Chance(rng, 2),
        lambda rng: Interruptions(rng, frozenset(), 3),
    ],
)
def test_random_strategies_reach_every_schedule_of_two_short_threads(strategy):
    assert len({two_threads(strategy(Rng(seed))) for seed in range(300)}) == 6


def opposite_orders(seed: int) -> tuple[End, str]:
    """Two threads that take two locks, one of them the other way round."""
    threads = Threading()
    with other_threading(threads):
        scheduler = threads.scheduler = Scheduler(Chance(Rng(seed), 1))
        first, second = threads.Lock(), threads.RLock()

        def one() -> None:
            with first, second:
                scheduler.point("in", "one")

        def two() -> None:
            with second, first:
                scheduler.point("in", "two")

        return together(scheduler, one=one, two=two), scheduler.waiting()


def test_deadlock_is_found_and_says_who_waits_for_what():
    found = {opposite_orders(seed) for seed in range(40)}
    assert {end for end, _ in found} == {End.DONE, End.DEADLOCK}
    assert any(text.startswith("one for ") and ", two for " in text for _, text in found)


@pytest.mark.parametrize("seed", range(20))
def test_condition_event_and_timed_waits_pass_a_token_on(seed: int):
    threads = Threading()
    with other_threading(threads):
        scheduler = threads.scheduler = Scheduler(Chance(Rng(seed), 1))
        condition, event = threads.Condition(), threads.Event()
        tokens: list[int] = []
        got: list[object] = []

        def take() -> None:
            with condition:
                while not tokens:
                    condition.wait()
                got.append(tokens.pop())
            event.set()

        def give() -> None:
            with condition:
                tokens.append(seed)
                condition.notify()
            got.append(event.wait())
            event.clear()
            got.append(event.wait(0.1))

        assert together(scheduler, take=take, give=give) is End.DONE
        assert got == [seed, True, False]


def test_error_of_a_thread_ends_the_schedule_and_comes_out():
    scheduler = Scheduler(Replay({}))
    scheduler.spawn("waits", lambda: scheduler.block("nothing"), service=True)
    scheduler.spawn("fails", lambda: scheduler.threads[7])
    with pytest.raises(IndexError):
        scheduler.run()


def test_killed_process_does_nothing_more():
    note: list[str] = []
    scheduler = Scheduler(Replay({}), crash_at=2)
    assert together(scheduler, a=steps(scheduler, note, "a", 3)) is End.CRASHED
    assert note == [], "the first step is the start, the second one the crash"
    with pytest.raises(ProcessKilled):
        scheduler.point("more", "a")


def test_other_threads_go_on_having_real_locks():
    made: list[object] = []
    threads = Threading()
    with other_threading(threads):
        threads.scheduler = Scheduler(Replay({}))
        thread = threading.Thread(target=lambda: made.append(threads.Lock()))
        thread.start()
        thread.join()
        made.append(threads.Lock())
        assert type(made[0]) is type(threading.Lock())
        assert type(made[1]) is not type(threading.Lock())


# --- the disk -------------------------------------------------------------------------------------


def empty_disk(torn: bool = False) -> SwitchingDisk:
    source = MemoryDisk()
    file = source.open(A, create=True)
    file.fallocate(2 * SECTOR)
    file.fdatasync()
    return SwitchingDisk(Image.of(source), Style(torn))


def test_sync_covers_nothing_that_is_written_while_it_is_under_way():
    disk = empty_disk()
    file = disk.open(A)
    file.pwritev([b"before"], 0)

    def write_during() -> None:
        while not disk.names[A].flights:
            scheduler.point("wait", A)
        disk.open(A).pwritev([b"during"], SECTOR)

    scheduler = disk.scheduler = Scheduler(Chance(Rng(1), 1))
    together(scheduler, sync=file.fdatasync, write=write_during)
    assert disk.holds(A, 0, 6)
    assert not disk.holds(A, SECTOR, SECTOR + 6)
    disk.scheduler = None
    disk.cut_power()
    assert bytes(disk.content(A)).rstrip(b"\0") == b"before"


def test_sync_under_way_at_a_power_cut_may_have_done_nothing():
    disk = empty_disk()
    file = disk.open(A)
    file.pwritev([b"x"], 0)
    scheduler = disk.scheduler = Scheduler(Replay({}), crash_at=3)
    assert together(scheduler, sync=file.fdatasync) is End.CRASHED
    assert not disk.holds(A, 0, 1)
    disk.scheduler = None
    disk.cut_power()
    assert bytes(disk.content(A)).count(0) == 2 * SECTOR


def test_torn_write_is_seen_by_halves():
    disk = empty_disk(torn=True)
    scheduler = disk.scheduler = Scheduler(Chance(Rng(3), 1))
    seen = set()
    together(
        scheduler,
        write=lambda: disk.open(A).pwritev([b"ab", b"cd"], 0),
        read=lambda: [seen.add(disk.open(A).pread(4, 0)) for _ in range(9)],
    )
    assert b"ab\0\0" in seen


def test_name_that_is_made_while_its_directory_is_synced_is_not_durable():
    disk = empty_disk()

    def make_during() -> None:
        while all(step.what != "fsync_dir under way" for step in scheduler.trace):
            scheduler.point("wait", B)
        disk.open(B, create=True)

    scheduler = disk.scheduler = Scheduler(Chance(Rng(2), 1), traced=True)
    together(scheduler, sync=lambda: disk.fsync_dir(Path("/")), make=make_during)
    disk.scheduler = None
    disk.cut_power()
    assert disk.exists(A)
    assert not disk.exists(B)
