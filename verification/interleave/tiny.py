"""Two threads with a call or two each: so few switching points that every schedule with few
preemptions is run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from dledger.types import Index
from verification.disk_states.scenarios import RETAINED
from verification.interleave.disk import READS
from verification.interleave.scenarios import FIVE_FILES, LOG, Run, Scenario, table
from verification.interleave.schedule import Bench, ScheduleOutcome
from verification.interleave.scheduler import NEVER
from verification.interleave.strategies import Exhaustive


def append_and_sync(run: Run) -> None:
    """A write, and two syncs of another thread."""
    run.thread("loop", lambda: run.life.append([20]))
    run.thread("flusher", run.life.sync, run.life.sync)


def cut_and_keep(run: Run) -> None:
    """A truncation over the end of a file, and a round of housekeeping, which makes the next
    one."""
    run.life.append([200])
    run.thread("keeper", run.life.keep)
    run.thread("writer", lambda: run.life.truncate(0))


def cut_and_settle(run: Run) -> None:
    """The mark is settled while the log is cut and grows again."""
    life = run.life
    life.append([20])
    life.keep()  # the next files are there
    life.sync()
    run.thread("writer", lambda: life.truncate(3), lambda: life.append([90, 20, 20, 20]), life.sync)
    run.thread("keeper", life.keep)


def cut_and_repair(run: Run) -> None:
    """A repair, while the log behind it is cut and written again."""
    life = run.life
    life.damage(0)
    run.thread("writer", lambda: life.truncate(1), lambda: life.append([90]))
    run.thread("repair", lambda: life.put_back(0))


def cut_and_read(run: Run) -> None:
    """A reader in the middle of what is cut."""
    run.thread("writer", lambda: run.life.truncate(2))
    run.thread("reader", lambda: run.life.read(3, 4000))


def repair_and_read(run: Run) -> None:
    """A damaged entry is read while its sound copy takes its place."""
    life = run.life
    life.damage(0)
    run.thread("repair", lambda: life.put_back(0))
    run.thread("reader", lambda: life.read(0, 1), lambda: life.read(1, 1))


def rows_and_checkpoint(run: Run) -> None:
    """Rows come on one thread while another one makes them durable twice."""
    rows = table(run)
    run.thread("checkpoint", rows.sync, rows.sync)
    run.thread("loop", lambda: rows.append(2))


def retention_and_read(run: Run) -> None:
    """The file in front of an entry goes while that entry is read."""
    run.thread("reader", lambda: run.life.read(2, 1))
    run.thread("house", lambda: run.life.retain(Index(2)))


TINY: Final = (
    Scenario("an append and two syncs", LOG, append_and_sync, tiny=3),
    Scenario("a cut and housekeeping", LOG, cut_and_keep, tiny=8),
    Scenario("a cut and a settled mark", LOG, cut_and_settle, index_synced=True, tiny=6),
    Scenario("a cut and a repair", LOG, cut_and_repair, tiny=8),
    Scenario("a cut and a read", LOG, cut_and_read, tiny=6, passed=12),
    Scenario("a repair and a read", LOG, repair_and_read, tiny=8, places=READS),
    Scenario("rows and two checkpoints", LOG, rows_and_checkpoint, tiny=5),
    Scenario(
        "retention and a read", FIVE_FILES, retention_and_read, RETAINED, tiny=12, places=READS
    ),
)


def every_schedule(
    bench: Bench, scenario: Scenario, preemptions: int, seed: int = 0
) -> Iterator[ScheduleOutcome]:
    """All schedules with no more preemptions than that, each to its end."""
    strategy = Exhaustive(preemptions)
    more = True
    while more:
        yield bench.run(scenario, seed, strategy, NEVER)
        more = strategy.advance()
