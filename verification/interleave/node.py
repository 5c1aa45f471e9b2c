"""A store as a node uses it: the flusher's thread and the housekeeper's, as they are, beside the
loop and readers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from dledger.errors import CorruptEntry
from dledger.node.loop.log_writer import LogWriter
from dledger.protocol.messages.entry import MAGIC_NORMAL, HardState, LogEnd
from dledger.protocol.messages.entry_runs import stamp_all
from dledger.storage.background import BackgroundState
from dledger.types import Index, NodeId, Position, Term
from verification.disk_states.promise import require
from verification.interleave.scenarios import LOG, Run, Scenario
from verification.interleave.scheduler import Scheduler
from verification.interleave.workers import SwitchedEnvironment


class Loop:
    """The loop's thread: it makes its calls one after the other, and runs callbacks of other
    threads first."""

    def __init__(self, scheduler: Scheduler, calls: Sequence[Callable[[], object]]) -> None:
        self._scheduler = scheduler
        self._told: list[tuple[Callable[..., object], tuple[Any, ...]]] = []
        self._calls = list(calls)
        scheduler.spawn("loop", self._run, service=True)

    def __str__(self) -> str:
        return "the loop's work"

    def call_soon_threadsafe(self, callback: Callable[..., object], *args: Any) -> None:
        """See `asyncio.AbstractEventLoop`."""
        self._told.append((callback, args))
        self._scheduler.wake(self)
        self._scheduler.point("tell", self)

    def _run(self) -> None:
        while True:
            self._scheduler.point("next turn of", self)
            if self._told:
                callback, args = self._told.pop(0)
                callback(*args)
            elif self._calls:
                self._calls.pop(0)()
            else:
                self._scheduler.block(self)


class Node:
    """The calls of a node's loop on its log. The core's log has all that was asked for; the disk
    follows."""

    def __init__(self, run: Run, calls: Sequence[Callable[[Node], object]]) -> None:
        self.life = run.life
        self._scheduler = run.scheduler
        self._term = self.life.store.hard_state.term
        self._asked: list[int] = []
        """Cuts that were asked for and are not told done."""
        loop = Loop(run.scheduler, [partial(call, self) for call in calls])
        self.log_writer = LogWriter(
            self.life.store,
            loop,  # type: ignore[arg-type]
            listener=self,
            environment=SwitchedEnvironment(run.scheduler),
        )
        self.log_writer.start()
        run.at_end.append(self._all_told)

    def on_durable(self, position: Position) -> None:
        self.life.told(position.index)

    def fail(self, error: BaseException) -> None:
        raise error

    def _all_told(self) -> None:
        """All entries that were handed in are reported durable, and all cuts are reported done."""
        promise = self.life.promise
        last = len(promise.logs[0]) - 1
        require(not self._asked, f"cuts behind {self._asked} were asked for and never done")
        require(
            promise.durable == last,
            f"entry {last} was handed in, and only {promise.durable} was told durable",
        )

    def on_cut_waits(self, error: CorruptEntry) -> None:
        """A damaged entry is to be the last one: it is fetched and repaired by a reader's
        thread."""
        index = error.index
        self._scheduler.spawn("repair", lambda: self.life.put_back(Index(index), last_stays=True))

    # --- what the loop does -----------------------------------------------------------------------

    def append(self, sizes: Sequence[int]) -> None:
        """Entries behind the end of the core's log."""
        life = self.life
        log, end, size = life.log, LogEnd.after(life.log[-1]), life.settings.segment_bytes
        entries = stamp_all(end, self._term, MAGIC_NORMAL, life.bodies(sizes), size)
        life.promise = replace(life.promise, logs=((*log, *entries), *life.promise.logs[1:]))
        self.log_writer.append(entries)

    def truncate(self, after: int) -> None:
        """Cut, in the place of this call among the appends, as another leader has it, so in another
        term."""
        if after < len(self.life.log) - 1:
            self.save()
            self._asked.append(after)
            self.life.begin_cut(after)
            self.log_writer.truncate(Index(after))

    def on_truncated(self, end: LogEnd) -> None:
        self._asked.pop(0)
        if not self._asked:
            self.life.all_cut()

    def save(self) -> None:
        """The next term, with a vote."""
        life = self.life
        self._term = Term(self._term + 1)
        vote = (self._term, NodeId("n2"))
        life.promise = replace(life.promise, votes=(*life.promise.votes, vote))
        self.log_writer.save(HardState(*vote, life.committed))
        life.promise = replace(life.promise, votes=(vote,))

    def commit(self) -> None:
        """All that is durable is committed."""
        self.life.commit(max(self.life.promise.durable, self.life.committed))


def _append(sizes: Sequence[int], node: Node) -> None:
    node.append(sizes)


def _truncate(after: int, node: Node) -> None:
    node.truncate(max(after, node.life.committed))


def _calls(run: Run, cuts: bool) -> list[Callable[[Node], object]]:
    rng = run.rng
    calls: list[Callable[[Node], object]] = []
    for _ in range(rng.between(2, 5)):
        what = rng.below(8)
        if what < 5 or (what == 5 and not cuts):
            calls.append(partial(_append, run.sizes()))
        elif what == 5:
            calls.append(partial(_truncate, rng.between(2, 5)))
        elif what == 6:
            calls.append(Node.save)
        else:
            calls.append(Node.commit)
    return calls


def flushing(run: Run) -> None:
    """The loop hands in appends and saves terms; the flusher writes and syncs, the keeper keeps,
    one reads."""
    Node(run, _calls(run, cuts=False))
    run.thread("reader", *run.reads(2))


def following(run: Run) -> None:
    """As `flushing`, of a member whose log is cut now and then, behind a damaged entry too."""
    life, rng = run.life, run.rng
    after = rng.between(2, 4)
    damaged = rng.chance(300_000)
    if damaged:
        life.damage(after)
    calls = _calls(run, cuts=not damaged)
    calls.insert(rng.below(2), partial(_truncate, after))
    Node(run, calls)
    run.thread("reader", *run.reads(2))
    if rng.chance(300_000):
        run.thread("checkpoint", life.sync)


NODE_SCENARIOS = (
    Scenario("flusher", LOG, flushing, keeping=BackgroundState.THREAD),
    Scenario("flusher of a follower", LOG, following, keeping=BackgroundState.THREAD),
)
