"""One schedule: threads on an open store in an order that comes from a seed, an end anywhere, and a
start after it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Final

from dledger.errors import DLedgerError
from dledger.node.checkpoints import Checkpoints
from dledger.storage import file_store
from dledger.storage.background import BackgroundState
from dledger.storage.log import index, segments
from dledger.storage.meta import tables
from dledger.storage.opening import open_settings
from dledger.types import Index
from verification.disk.coverage import FOUND
from verification.disk.memory_disk import MemoryDisk
from verification.disk_states.checking import check_start, check_started
from verification.disk_states.life import StoreLife
from verification.disk_states.promise import (
    NotStarted,
    Promise,
    check_catalog,
    read_log,
    require,
)
from verification.greenlets import other_threading
from verification.interleave.disk import CHANGES, UNDER_WAY, Image, Style, SwitchingDisk
from verification.interleave.life import SharedLife
from verification.interleave.locks import Threading
from verification.interleave.scenarios import Run, Scenario
from verification.interleave.scheduler import NEVER, End, Scheduler, Step, Strategy
from verification.interleave.strategies import Chance, Interruptions, Priorities, Replay
from verification.interleave.workers import SwitchedEnvironment
from verification.sim.rng import Rng

STEPS_OF: Final = 8
"""Seeds whose schedules are run once to learn how many steps a scenario has."""
WHOLE_CHECK: Final = 120_000
"""In a million schedules so many check several starts, as crash states do, and the others one."""


@dataclass(slots=True)
class ScheduleOutcome:
    """How a schedule ended; ``problem`` is empty when everything held."""

    scenario: str
    seed: int
    problem: str
    kind: str
    """The kind of problem, or how it ended."""
    steps: int
    crash_at: int = NEVER
    decisions: list[tuple[int, int]] = field(default_factory=list)
    trace: list[Step] = field(default_factory=list)


@dataclass(slots=True)
class Prepared:
    """A scenario's files, and their promise."""

    image: Image
    promise: Promise
    committed: Index
    steps: int = 0


class Bench:
    """Runs schedules, as long as the product's modules have other locks (`bench`)."""

    def __init__(self, threads: Threading) -> None:
        self._threads = threads
        self._steps: dict[str, int] = {}

    def steps_of(self, scenario: Scenario) -> int:
        """About how many steps a schedule of it has; the same on every machine."""
        known = self._steps.get(scenario.name)
        if known is None:
            runs = (self.run(scenario, seed, Replay({}), NEVER).steps for seed in range(STEPS_OF))
            known = self._steps[scenario.name] = max(runs)
        return known

    def run_seed(self, scenario: Scenario, seed: int, traced: bool = False) -> ScheduleOutcome:
        """The schedule that this seed gives."""
        rng = Rng(seed).fork("schedule")
        steps = self.steps_of(scenario)
        crash_at = (
            1 + rng.below(steps * 5 // 4)
            if rng.chance(200_000 if scenario.tiny else 500_000)
            else NEVER
        )
        strategy: Strategy
        if scenario.tiny:
            strategy = Interruptions(rng, scenario.places, scenario.tiny, scenario.passed)
        elif rng.chance(650_000):
            # most schedules of a scenario are shorter than its longest one, and bugs lie near their
            # beginning, too
            strategy = Priorities(
                rng,
                rng.pick((1, 2, 2, 3, 3, 4, 6)),
                steps >> rng.below(3),
                rng.pick((UNDER_WAY, UNDER_WAY, CHANGES, frozenset(), frozenset())),
            )
        else:
            strategy = Chance(rng, rng.pick((1, 3, 10)))
        return self.run(scenario, seed, strategy, crash_at, traced)

    def run(
        self, scenario: Scenario, seed: int, strategy: Strategy, crash_at: int, traced: bool = False
    ) -> ScheduleOutcome:
        """One schedule. The seed decides the calls of the threads, and the loss of a power cut."""
        rng = Rng(seed).fork("threads")
        files = prepared(scenario)
        disk = SwitchingDisk(files.image, Style(rng.chance(300_000), _choice(rng.fork("power"))))
        life = SharedLife(scenario.settings, disk, files.promise, files.committed)
        scheduler = Scheduler(strategy, crash_at, traced)
        _set_limits(rng, scenario.index_synced)
        self._threads.scheduler = scheduler
        problem, kind = "", ""
        run = Run(scheduler, life, rng)
        try:
            life.start(
                open_settings(
                    scenario.settings, disk, scenario.keeping, SwitchedEnvironment(scheduler)
                )
            )
            disk.scheduler = scheduler
            scenario.start(run)
            end = scheduler.run()
            kind = end.value
            if end is End.DONE:
                for look in run.at_end:
                    look()
            if end is End.DEADLOCK:
                problem, kind = f"deadlock: {scheduler.waiting()}", "deadlock"
            else:
                self._end(scenario, run, disk, rng.fork("end"), end)
        except Exception as error:
            problem, kind = f"{type(error).__name__}: {error}", type(error).__name__
        finally:
            disk.scheduler = self._threads.scheduler = None
            for undo in run.at_last:
                undo()
        if FOUND:  # also where a thread has swallowed the error
            problem, kind = problem or FOUND[0], kind if problem else "Uncovered"
            FOUND.clear()
        return ScheduleOutcome(
            scenario.name,
            seed,
            problem,
            kind,
            scheduler.step,
            crash_at,
            scheduler.decisions,
            scheduler.trace,
        )

    def _end(self, scenario: Scenario, run: Run, disk: SwitchingDisk, rng: Rng, end: End) -> None:
        """The process ends one way or another, and the next one starts.

        Raises:
            BrokenPromise: it does not find what was promised.
        """
        disk.scheduler = self._threads.scheduler = None
        life, promise = run.life, run.life.promise
        if end is End.DONE:
            log = promise.logs[0]
            found = read_log(life.store, promise)
            require(
                len(found) == len(log) - life.store.begin_index, f"the log ends at {life.store.end}"
            )
        if rng.chance(750_000):
            disk.cut_power()
        else:
            disk.reboot(power=False)
        if rng.chance(WHOLE_CHECK) and not life.was_damaged:
            check_start(scenario.settings, disk, promise)
            return
        try:
            store = open_settings(scenario.settings, disk, BackgroundState.MANUAL)
            found_then = check_started(store, promise)
            require(
                not any("missing" in note for note in store.recovery.notes),
                f"notes: {store.recovery.notes}",
            )
            for look in run.at_start:
                look(disk)
            if scenario.catalog:
                catalog = Checkpoints(scenario.settings.directory, disk).restore(store)
                check_catalog(catalog, found_then.logs[0], found_then, store.begin_index)
        except DLedgerError as error:
            raise NotStarted(f"{type(error).__name__}: {error}") from error


def _choice(rng: Rng) -> Callable[[int], int] | None:
    """The choice of a power cut: it leaves no unsynced write, all of them, or each with the same
    odds."""
    odds = rng.pick((0, 0, 500_000, 500_000, 900_000, 1_000_000))
    if not odds:
        return None
    return lambda n: int(rng.chance(odds)) if n == 2 else rng.below(n)


def _set_limits(rng: Rng, index_synced: bool) -> None:
    """Limits at which a few entries and rows, and few files, do what takes many in a node."""
    at_once = index_synced or rng.chance(700_000)
    vars(file_store)["INDEXED_EVERY"] = 0 if at_once else LIMITS[file_store]["INDEXED_EVERY"]
    vars(index)["WAITING_UNITS"] = rng.pick((1, 2, LIMITS[index]["WAITING_UNITS"]))
    vars(segments)["MAX_HANDLES"] = rng.pick((1, 2, LIMITS[segments]["MAX_HANDLES"]))
    vars(tables).update(BUFFER_BYTES=rng.pick((1, 100)), CHUNK_ROWS=rng.pick((1, 2, 4)))


LIMITS: Final = {
    module: {name: vars(module)[name] for name in names}
    for module, names in (
        (file_store, ("INDEXED_EVERY",)),
        (index, ("WAITING_UNITS",)),
        (segments, ("MAX_HANDLES",)),
        (tables, ("BUFFER_BYTES", "CHUNK_ROWS")),
    )
}
"""The product's, by module."""


@contextmanager
def bench() -> Iterator[Bench]:
    """The product's limits are small, and its locks are switching points, as long as this lasts."""
    try:
        threads = Threading()
        with other_threading(threads):
            yield Bench(threads)
    finally:
        for module, limits in LIMITS.items():
            vars(module).update(limits)


@cache
def prepared(scenario: Scenario) -> Prepared:
    """The files that each schedule of a scenario begins with."""
    disk = MemoryDisk()
    life = StoreLife(scenario.settings, disk)
    scenario.prepare(life)
    return Prepared(Image.of(disk), life.promise, Index(max(life.promise.commit, 0)))
