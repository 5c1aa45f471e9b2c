"""Threads that touch a store at the same time, and the calls of each, drawn from the schedule's
seed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from dledger.protocol.messages.catalog_commands import DeleteTopic
from dledger.storage.background import BackgroundState
from dledger.storage.recovery.open_files import StoreSettings
from dledger.types import Index
from verification.disk_states.life import StoreLife
from verification.disk_states.scenarios import RETAINED, SMALL, TOPIC_A, TOPIC_B, batch, command
from verification.interleave.disk import CHANGES, SwitchingDisk
from verification.interleave.life import SharedLife
from verification.interleave.rows import Rows
from verification.interleave.scheduler import Scheduler
from verification.interleave.workers import SwitchedWorker
from verification.sim.rng import Rng

SIZES: Final = (0, 20, 90, 200, 333, 600)
"""Of bodies, in files of 1024 bytes."""


@dataclass(slots=True)
class Run:
    """One schedule of a scenario."""

    scheduler: Scheduler
    life: SharedLife
    rng: Rng
    """The dice of the threads' calls: the same for the same seed, in any order of the threads."""
    at_end: list[Callable[[], object]] = field(default_factory=list)
    """Check that all work is done, once all threads have ended."""
    at_start: list[Callable[[SwitchingDisk], object]] = field(default_factory=list)
    """Check the files that the next process finds, besides the log."""
    at_last: list[Callable[[], object]] = field(default_factory=list)
    """Undo the scenario's replacements of functions and modules, in whichever way it has ended."""

    def now_and_then(self) -> bool:
        """Whether a thread is there that a bug between two others does not need."""
        return self.rng.chance(400_000)

    def thread(self, name: str, *calls: Callable[[], object]) -> None:
        """A thread that makes these calls one after the other."""

        def body() -> None:
            for call in calls:
                call()

        self.scheduler.spawn(name, body)

    def sizes(self, most: int = 2) -> list[int]:
        """Of the bodies of one append."""
        return [self.rng.pick(SIZES) for _ in range(self.rng.between(1, most))]

    def append(self) -> Callable[[], None]:
        """An append of one or two entries."""
        sizes = self.sizes()
        return lambda: self.life.append(sizes)

    def appends(self, most: int) -> list[Callable[[], None]]:
        """Up to so many of them."""
        return [self.append() for _ in range(self.rng.between(1, most))]

    def cut(self, after: int) -> Callable[[], None]:
        return lambda: self.life.truncate(after)

    def times(self, call: Callable[[], object], most: int) -> list[Callable[[], object]]:
        """The same call up to so many times."""
        return [call] * self.rng.between(1, most)

    def reads(self, most: int) -> list[Callable[[], object]]:
        """Reads from anywhere in the log."""
        places = [
            (self.rng.below(6), self.rng.pick((1, 300, 4000)))
            for _ in range(self.rng.between(1, most))
        ]
        return [partial(self.life.read, *place) for place in places]


@dataclass(frozen=True, slots=True)
class Scenario:
    """``prepare`` makes the files, alone; ``start`` starts the threads on an open store. With
    ``keeping`` THREAD the store's housekeeping is one of them."""

    name: str
    prepare: Callable[[StoreLife], None]
    start: Callable[[Run], None]
    settings: StoreSettings = SMALL
    keeping: BackgroundState = BackgroundState.MANUAL
    catalog: bool = False
    index_synced: bool = False
    """With every settled mark, not only behind many bytes."""
    tiny: int = 0
    """A call or two of each thread, which come to about so many of ``places``: one or two
    interruptions at the right one are all that a bug takes. 0: it is not."""
    places: frozenset[str] = CHANGES
    passed: int = 0
    """So many of them come before any that matters."""


def _entries(*sizes: int, committed: int = 0) -> Callable[[StoreLife], None]:
    """A log with entries of term 1, of which those up to ``committed`` are committed."""

    def prepare(life: StoreLife) -> None:
        life.begin()
        life.append_synced(sizes)
        life.commit(committed)
        life.close()

    return prepare


def appends(run: Run) -> None:
    """The loop writes small appends while the flusher's thread syncs."""
    life = run.life
    run.thread("loop", *run.appends(4))
    run.thread("flusher", *run.times(life.sync, 3))
    if run.now_and_then():
        run.thread("keeper", *run.times(life.keep, 2))


def cuts(run: Run) -> None:
    """Truncations over the ends of files, and other entries behind them, beside housekeeping and
    syncs."""
    life, rng = run.life, run.rng
    if rng.chance(500_000):
        life.append_synced([200])
    after = rng.below(3)
    run.thread(
        "writer",
        *run.appends(1) if run.now_and_then() else (),
        run.cut(after),
        *run.appends(2) if run.now_and_then() else (),
        *[run.cut(after), run.append()] if run.now_and_then() else (),
    )
    run.thread("keeper", life.keep, *[life.keep] if run.now_and_then() else ())
    if run.now_and_then():
        run.thread("syncs", *run.times(life.sync, 3))


def settling(run: Run) -> None:
    """Mark and index are settled while the log is cut and grows beyond its old end in another
    term."""
    life, rng = run.life, run.rng
    life.append_synced([20] * rng.between(1, 2))
    after = rng.between(1, 4)
    save = lambda: life.save(2, "n1")  # noqa: E731
    small = [20] * rng.between(2, 6)
    run.thread(
        "writer",
        *[save] if run.now_and_then() else (),
        run.cut(after),
        lambda: life.append(small),
        *run.appends(1) if run.now_and_then() else (),
        life.sync,
    )
    run.thread("keeper", life.keep)
    if run.now_and_then():
        run.thread("syncs", *run.times(life.sync, 2))


def repairs(run: Run) -> None:
    """A damaged entry is repaired while the log behind it is cut and written again."""
    life, rng = run.life, run.rng
    at = rng.below(3)
    life.damage(at)
    after = rng.between(at + 1, 4)
    run.thread(
        "repair",
        lambda: life.put_back(at),
        lambda: at in life.promise.damaged and life.put_back(at),
    )
    run.thread(
        "writer",
        *(run.appends(1) if rng.chance(500_000) else ()),
        lambda: life.save(2, "n1"),
        run.cut(after),
        *run.appends(2),
        *run.times(life.sync, 1),
    )
    if run.now_and_then():
        run.thread("keeper", *run.times(life.keep, 1))
    if run.now_and_then():
        run.thread("reader", *run.reads(2), partial(life.read, at, 1))
    if run.now_and_then():
        run.thread("look", lambda: life.examine(at))


def readers(run: Run) -> None:
    """Readers, of whom one mends the index, beside cuts and a repair."""
    life, rng = run.life, run.rng
    for _ in range(rng.below(3)):
        life.damage_index(rng.below(5))
    if rng.chance(300_000):
        life.damage(1)
        run.thread("repair", lambda: life.put_back(1))
    run.thread("reader 1", *run.reads(3))
    run.thread("reader 2", *run.reads(2), life.read_committed)
    run.thread("writer", *run.appends(1), run.cut(rng.between(2, 4)), *run.appends(2), life.sync)


def retention(run: Run) -> None:
    """Files go from the front beside readers, appends, syncs and housekeeping."""
    life, rng = run.life, run.rng
    run.thread(
        "house", *[partial(life.retain, rng.between(1, 8)) for _ in range(rng.between(1, 2))]
    )
    firsts = [rng.pick((2, 2, 3, 3, 5, 7)) for _ in range(rng.between(1, 3))]  # of files
    run.thread("reader", *[partial(life.read, first, 1) for first in firsts], life.read_committed)
    if run.now_and_then():
        run.thread("loop", *run.appends(2), *[run.cut(8)] * rng.below(2), *run.appends(1))
    if run.now_and_then():
        run.thread("flusher", *run.times(life.sync, 2), life.keep)
    if run.now_and_then():
        run.thread("scrub", *run.times(lambda: life.scrub(700), 3))
    if rng.chance(300_000):
        at = rng.below(6)
        life.damage(at)
        run.thread("repair", *[lambda: life.examine(at)] * rng.below(2), lambda: life.put_back(at))


def records(run: Run) -> None:
    """Terms, votes and members are saved between appends while another thread syncs and one settles
    the mark."""
    life, rng = run.life, run.rng
    calls: list[Callable[[], object]] = []
    term = 1
    for _ in range(rng.between(2, 4)):
        what = rng.below(4)
        if what == 0:
            term += 1
            calls.append(partial(life.save, term))
        elif what == 1:
            term += 1
            calls.append(partial(life.save, term, "n2"))
        elif what == 2:
            calls.append(lambda: life.commit(max(life.promise.durable, life.committed)))
        else:
            calls.append(run.append())
    run.thread("loop", *calls, run.append())
    run.thread("flusher", *run.times(life.sync, 3))
    run.thread("keeper", *run.times(life.keep, 2))


def scrubs(run: Run) -> None:
    """The scrub beside everything that may happen to what it reads."""
    life, rng = run.life, run.rng
    life.commit(rng.between(1, 3))
    if rng.chance(500_000):
        life.damage(1)
        run.thread("repair", lambda: life.put_back(1))
    run.thread("scrub", *[partial(life.scrub, rng.pick((1, 500, 5000))) for _ in range(3)])
    run.thread(
        "writer",
        *run.appends(2),
        run.cut(rng.between(max(life.committed, 2), 4)),
        *run.appends(1),
        life.sync,
    )
    run.thread("keeper", *run.times(life.keep, 2))


def _catalog(life: StoreLife) -> None:
    life.begin(catalog=True)
    life.append_bodies([TOPIC_A, TOPIC_B])
    life.append_bodies([batch(1, 2, 300), batch(1, 3, 500), batch(2, 3, 40)])
    life.sum_up(0)
    life.append_bodies([batch(1, 1, 600), batch(2, 1, 200)])
    life.sync()
    life.commit(6)
    life.close()


def checkpoints(run: Run) -> None:
    """The loop applies entries to the catalog and its tables while a thread saves it, and retention
    drops files."""
    life, rng = run.life, run.rng
    catalog, saver = life.restore()

    def save(jobs: list[tuple[Index, bytes]], last: bool) -> None:
        for index, data in jobs:
            saver.save(data, index, life.store)
            life.promise = replace(life.promise, checkpoint=index)

    thread = SwitchedWorker(run.scheduler, "checkpoint", save)
    thread.start()

    def apply() -> None:
        life.commit(max(life.promise.durable, life.committed))
        catalog.drop_before(life.store.begin_index)

    def offer() -> None:
        catalog.saved(saver.oldest_index)
        thread.put((catalog.applied_index, catalog.snapshot()))

    def fetch() -> None:
        for part in catalog.partitions.values():
            part.table.read(part.begin_row, part.rows)

    calls: list[Callable[[], object]] = []
    for _ in range(rng.between(1, 3)):
        bodies = [
            batch(rng.between(1, 2), rng.between(1, 4), rng.pick((30, 250)))
            for _ in range(rng.between(1, 3))
        ]
        if rng.chance(200_000):
            bodies.append(command(DeleteTopic(name="b")))
        calls += [
            partial(life.append_bodies, bodies),
            *[life.sync] * rng.below(2),
            apply,
            *[offer] * rng.below(2),
            *[fetch] * rng.below(2),
        ]
    run.thread("loop", *calls, life.sync, apply, offer)
    run.thread("flusher", *run.times(life.sync, 2))
    if rng.chance(500_000):
        run.thread("house", *run.times(lambda: life.retain(saver.oldest_index), 2))
    if rng.chance(500_000):
        run.thread("keeper", *run.times(life.keep, 2))


def table(run: Run) -> Rows:
    """The table of a schedule."""
    assert isinstance(run.life.disk, SwitchingDisk)
    rows = Rows(run.life.settings.directory / "tables", run.life.disk)
    # rows behind the last sync may be torn; a start takes them away by the snapshot
    run.life.was_damaged = True
    run.at_start.append(rows.check_start)
    return rows


def tables(run: Run) -> None:
    """Rows come on one thread, and leave at the front, while another one makes them durable."""
    rng, rows = run.rng, table(run)
    calls: list[Callable[[], object]] = []
    for _ in range(rng.between(1, 4)):
        calls.append(partial(rows.append, rng.between(1, 4)))
        if run.now_and_then():
            calls.append(partial(rows.drop, rng.below(4)))
        if run.now_and_then():
            calls.append(rows.look)
    run.thread("loop", *calls)
    run.thread("checkpoint", *run.times(rows.sync, 4))


def everything(run: Run) -> None:
    """All threads of a node at once, each with little to do."""
    life, rng = run.life, run.rng
    run.thread("writer", *run.appends(2), run.cut(rng.between(2, 5)), *run.appends(2))
    run.thread("syncs", *run.times(life.sync, 2))
    run.thread("keeper", *run.times(life.keep, 2))
    run.thread("reader", *run.reads(2))
    size = rng.pick((100, 5000))
    run.thread("scrub", lambda: life.scrub(size))
    run.thread("house", lambda: life.retain(Index(1)))


LOG: Final = _entries(400, 300, 20, 90, 500)
FIVE_FILES: Final = _entries(400, 300, 600, 500, 200, 700, 100, 500, 300, committed=8)
SCENARIOS: Final = (
    Scenario("appends beside syncs", _entries(100, 300), appends),
    Scenario("cuts beside housekeeping", LOG, cuts),
    Scenario("settling beside cuts", LOG, settling, index_synced=True),
    Scenario("repairs beside cuts", LOG, repairs),
    Scenario("readers beside cuts", LOG, readers),
    Scenario("retention", FIVE_FILES, retention, RETAINED),
    Scenario("records beside syncs", LOG, records),
    Scenario("scrub beside cuts", LOG, scrubs),
    Scenario("checkpoints", _catalog, checkpoints, RETAINED, catalog=True),
    Scenario("tables beside a checkpoint", LOG, tables),
    Scenario("all at once", _entries(600, 700, 300, 400, 200, 90), everything, RETAINED),
)
