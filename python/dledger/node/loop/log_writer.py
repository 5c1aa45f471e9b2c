"""The thread that makes the log durable.

Appends and truncations are carried out in the order they were given, and one sync covers all that
gathered while the one before it was under way (group commit). A small write goes into the page
cache from the loop itself: it costs less than telling the thread about its bytes. Only the thread
waits for the device, but for the hard state, which has to be durable before anything else happens.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from dledger.environment import REAL, Environment
from dledger.errors import CorruptEntry, DiskFull
from dledger.node.meters import Meters
from dledger.protocol.messages.entry import HardState, LogEnd
from dledger.protocol.messages.entry_runs import Entries
from dledger.protocol.messages.membership import Membership
from dledger.storage.api import LogStore
from dledger.types import Index, Position

logger = logging.getLogger(__name__)

INLINE_BYTES: Final = 64 << 10
"""Writes up to this size are done on the loop when none is queued before them."""
LAZY_SYNC_MS: Final = 200
"""With ``flush=async``: the longest time that written bytes stay in the page cache only."""
FULL_RETRY_S: Final = 0.25
"""Pause before a write that found no room is tried again."""


@dataclass(frozen=True, slots=True)
class Append:
    """A job: write these entries."""

    entries: Entries


@dataclass(frozen=True, slots=True)
class Truncate:
    """A job: cut everything behind this entry."""

    after: Index


@dataclass(frozen=True, slots=True)
class Run:
    """A job: call this between two writes."""

    function: Callable[[], object]


@dataclass(frozen=True, slots=True)
class Sync:
    """A job: sync the loop's own writes."""


Job = Append | Truncate | Run | Sync
SYNC: Final = Sync()


class Owner:
    """The one thread that may touch something: the first that asks."""

    __slots__ = ("_thread",)

    def __init__(self) -> None:
        self._thread: int | None = None

    def is_me(self) -> bool:
        """Whether it is this thread."""
        me = threading.get_ident()
        if self._thread is None:
            self._thread = me
        return self._thread == me


class LogWriterListener(Protocol):
    """Hears on the loop of the outcome of the jobs."""

    def on_durable(self, position: Position) -> None:
        """Everything up to there is durable."""

    def on_truncated(self, end: LogEnd) -> None:
        """The log was cut, and ends there."""

    def on_cut_waits(self, error: CorruptEntry) -> None:
        """The log is to be cut behind a damaged entry. That is tried again until the entry is
        repaired."""

    def fail(self, error: BaseException) -> None:
        """A job failed; nothing is written any more."""


class LogWriter:
    """Writes and syncs for one store. Results are told on the loop."""

    def __init__(
        self,
        store: LogStore,
        loop: asyncio.AbstractEventLoop,
        *,
        listener: LogWriterListener,
        lazy: bool = False,
        environment: Environment = REAL,
    ) -> None:
        """``lazy`` reports written entries, not synced ones: ``flush=async``."""
        self.is_full = False
        """A write found no room: it is tried again until there is some, and nothing behind it is
        written before."""
        self.meters: Meters | None = None
        """Where syncs are timed, on a node that serves metrics."""
        self._store = store
        self._loop = loop
        self._listener = listener
        self._lazy = lazy
        # of the store's methods that belong to one thread at a time
        self._writing = threading.Lock()
        self._loops, self._threads = Owner(), Owner()
        self._now_ms, self._now_s = environment.now_ms, environment.now_s
        self._waiting: list[Job] = []  # for room on the disk, or for a repair; only the thread's
        self._cut_waits: Index | None = None  # a damaged entry that has to be repaired first
        self._queued = 0  # jobs given to the thread; only the loop counts these
        self._done = 0  # jobs it has carried out; only the thread counts these
        self._cuts = 0  # truncations asked for; only the loop counts these
        self._cuts_done = 0
        self._sync_asked = False
        self._sync_due = 0  # when the next lazy sync is due, in ms; 0: nothing to sync
        self._stopped = False
        self._failed = False  # for ever once it is set
        self._worker = environment.worker("dledger-log-writer", self._turn)
        self._put = self._worker.put

    def start(self) -> None:
        self._worker.start()

    # --- the loop's side --------------------------------------------------------------------------

    def append(self, entries: Entries) -> None:
        """Write ``entries``; the listener is told when they are on the disk.

        Raises:
            StorageError: the write failed here and now; nothing may be acknowledged any more.
        """
        assert self._loops.is_me(), "appends are given to a LogWriter by the loop alone"
        small = entries.span <= INLINE_BYTES
        if small and self._queued == self._done and self._writing.acquire(blocking=False):
            try:
                self._store.append(entries)
            except DiskFull:
                self._queue(Append(entries))
                return
            finally:
                self._writing.release()
            if self._lazy:  # not by way of the thread, which would take longer than the write
                self._loop.call_soon(self._durable, (self._store.end.position, self._cuts))
            if not self._sync_asked:
                self._sync_asked = True
                self._put(SYNC)
            return
        self._queue(Append(entries))

    def truncate(self, after: Index) -> None:
        """Cut everything behind ``after``, in its place among the appends; the listener is told the
        new end."""
        assert self._loops.is_me(), "cuts are given to a LogWriter by the loop alone"
        self._cuts += 1
        self._queue(Truncate(after))

    def save(self, state: HardState) -> None:
        """Durable on return: the next message depends on it (D5)."""
        with self._writing:
            self._store.save_hard_state(state)

    def save_membership(self, membership: Membership) -> None:
        """Durable on return, for the same reason (B27)."""
        with self._writing:
            self._store.save_membership(membership)

    def save_group_version(self, version: int, release: str) -> None:
        """Durable on return: later entries may have forms that older releases do not know."""
        with self._writing:
            self._store.save_group_version(version, release)

    def run(self, function: Callable[[], object]) -> None:
        """Carry out ``function`` on the thread, between the writes: it may change the store too."""
        self._queue(Run(function))

    def abandon(self) -> None:
        """The node has failed, here or elsewhere on its disk: waiting jobs are neither written nor
        synced any more."""
        self._failed = True

    async def stop(self) -> None:
        """Carry out and sync all that was given, then end the thread."""
        if not self._stopped:
            self._stopped = True
            await self._loop.run_in_executor(None, self._worker.join)

    def _durable(self, result: tuple[Position, int]) -> None:
        """A sync from before a cut says nothing about later writes in the same place; another
        follows."""
        assert self._loops.is_me(), "what a LogWriter has done is heard by the loop alone"
        position, cuts = result
        if cuts == self._cuts:
            self._listener.on_durable(position)

    def _queue(self, job: Job) -> None:
        self._queued += 1
        self._put(job)

    # --- the thread's side ------------------------------------------------------------------------

    def _turn(self, jobs: list[Job], last: bool) -> float | None:
        """Carry out the waiting jobs and sync them. After a failure no job is done or retried:
        after a failed sync the kernel may call the lost pages clean (D2)."""
        if self._failed:
            return None
        due = [*self._waiting, *jobs] if self._waiting else jobs
        try:
            self._carry_out(due, last)
            if self._lazy and due and not last:
                if any(job is not SYNC for job in due):
                    self._tell(self._durable, (self._store.end.position, self._cuts_done))
                self._sync_due = self._sync_due or self._now_ms() + LAZY_SYNC_MS
            if not self._lazy or last or self._now_ms() >= self._sync_due > 0:
                self._sync_due = 0
                self._sync_asked = False  # before the sync: a later write needs another one
                self._tell(self._durable, (self._sync(), self._cuts_done))
        except BaseException as error:
            self._failed = True
            self._tell(self._listener.fail, error)
            return None
        if self._waiting:
            return FULL_RETRY_S
        return max(0, self._sync_due - self._now_ms()) / 1000 if self._sync_due else None

    def _sync(self) -> Position:
        """Sync the log, and time it where the node is asked to."""
        if self.meters is None:
            return self._store.sync()
        began_s = self._now_s()
        position = self._store.sync()
        self.meters.fsync.observe(self._now_s() - began_s)
        return position

    def _carry_out(self, jobs: list[Job], last: bool) -> None:
        """The jobs in their order, up to a write that finds no room, or a cut behind a damaged
        entry: the core has gone on, so they have to follow as soon as they can. Meanwhile only jobs
        that may make room are done."""
        assert self._threads.is_me(), "a LogWriter's jobs are carried out by its thread alone"
        self._waiting = []
        for job in jobs:
            if isinstance(job, Sync):
                continue
            if isinstance(job, Truncate):
                self._supersede(job.after)
            if isinstance(job, Run):
                with self._writing:
                    job.function()
            elif self._waiting or not self._write(job, last):
                self._waiting.append(job)
                continue
            self._done += 1
        self.is_full = bool(self._waiting) and isinstance(self._waiting[0], Append)

    def _write(self, job: Append | Truncate, last: bool) -> bool:
        """Whether the job could be done now."""
        if isinstance(job, Append):
            return self._append(job.entries, last)
        return self._cut(job.after)

    def _supersede(self, after: Index) -> None:
        """A cut farther in front takes the place of one that waits for a repair, and of the writes
        behind that: the damaged entry goes as well, and the group may have no copy of it any
        more."""
        first = self._waiting[0] if self._waiting else None
        if isinstance(first, Truncate) and after < first.after:
            self._done += len(self._waiting)
            self._cuts_done += sum(isinstance(job, Truncate) for job in self._waiting)
            self._waiting.clear()

    def _cut(self, after: Index) -> bool:
        """Cut; False when the entry that would be the last one has to be repaired before: it may
        have been acknowledged, and the next one goes where it ends."""
        try:
            with self._writing:
                self._store.truncate(after)
        except CorruptEntry as error:
            if self._cut_waits != after:
                self._cut_waits = after
                self._tell(self._listener.on_cut_waits, error)
            return False
        self._cut_waits = None
        self._cuts_done += 1
        self._tell(self._listener.on_truncated, self._store.end)
        return True

    def _append(self, entries: Entries, last: bool) -> bool:
        """Write; False when there is no room now."""
        try:
            with self._writing:
                self._store.append(entries)
        except DiskFull as error:
            if last:
                raise
            if not self.is_full:
                logger.error("waiting for room: %s", error)
            return False
        return True

    def _tell(self, callback: Callable[..., None], argument: object) -> None:
        try:
            self._loop.call_soon_threadsafe(callback, argument)
        except RuntimeError:  # the loop is closed: no caller is left to tell
            logger.debug("disk result %s came after the end of the loop", argument)
