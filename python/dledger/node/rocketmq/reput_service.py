"""ReputMessageService: committed messages go from the log into this node's consume queues and
index, on every node.

It follows the commit, which a change of roles neither stops nor sets back, so a follower's files
are as good as the leader's. The core's cache has the newest committed entries; older ones are read
from the store. One thread owns the files; questions for them are asked there too, one after the
other.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, ParamSpec, TypeVar

from dledger.errors import CorruptEntry, CorruptStore, DiskFull, OffsetOutOfRange, StorageError
from dledger.node.context import NodeContext
from dledger.node.rocketmq.dispatched import Dispatched
from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.entry import Entry
from dledger.storage.recovery.open_files import StoreSettings
from dledger.types import NO_INDEX, Index

logger = logging.getLogger(__name__)

CHUNK_ENTRIES: Final = 2048
"""Entries put at once, so that a question need not wait long for the thread."""
READ_BYTES: Final = 4 << 20
PAUSE_S: Final = 0.5
"""Pause before a failed step is tried again: an entry that is being repaired, a disk that is
full."""
BEHIND_MS: Final = 2_000
"""Longest wait of a question for queues and index to come up to the applied entries."""
P = ParamSpec("P")
R = TypeVar("R")


@dataclass(slots=True, eq=False)
class Waiter:
    """A caller that wants an entry to be dispatched."""

    index: Index
    serve: Callable[[Code], None]
    timer: asyncio.TimerHandle | None = None


class NodeReputService:
    """Keeps one node's queues and index up with the commit. Runs on the node's loop."""

    def __init__(self, context: NodeContext) -> None:
        self._settings = context.current
        self._ready_loop = context.ready_loop
        self._store = context.store
        self._damage = context.events.damage
        context.events.committed.subscribe(self.committed)
        context.status.add(self.status)
        self.files = Dispatched(context.node.directory, context.environment.wall_ms)
        """Belongs to the thread while that is busy; see `run`."""
        self.dispatched_index = NO_INDEX
        """Everything up to this entry is in queues and index."""
        self._committed = NO_INDEX
        self._begin_index = Index(0)
        self._thread = ThreadPoolExecutor(1, "dledger-reput")
        self._loop = asyncio.get_running_loop()
        self._busy = True
        self._stopped = False
        self._anew = False
        self._timer: asyncio.TimerHandle | None = None
        self._waiters: dict[Waiter, None] = {}

    # --- dispatch ---------------------------------------------------------------------------------

    def start(self, committed: Index) -> None:
        """Recover queues and index, then go on with the committed entries."""
        self._committed = committed
        self._work(self.files.open, self._store)

    def committed(self, index: Index) -> None:
        """Everything up to this entry is committed."""
        self._committed = max(self._committed, index)
        if not self._busy:
            self._next()

    def _next(self) -> None:
        self._timer = None
        begin, end = self.dispatched_index + 1, self._committed + 1
        if self._busy or self._stopped or self._ready_loop.failed:
            return
        has_moved = self._store.begin_index > self._begin_index
        if begin >= end and not has_moved and not self.files.is_behind:
            return
        end = min(end, begin + CHUNK_ENTRIES)
        entries = self._ready_loop.raft.log.cached(Index(begin), Index(end)) if begin < end else ()
        self._work(self._turn, Index(begin), entries, Index(end))

    def _work(self, function: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
        self._busy = True
        self.run(self._unless_failed, partial(function, *args, **kwargs)).add_done_callback(
            self._turned
        )

    def _unless_failed(self, function: Callable[[], None]) -> None:
        """On the thread. A function that waits when the node fails is not called any more (D2)."""
        if not self._ready_loop.failed:
            function()

    def _turn(self, begin: Index, entries: Sequence[Entry] | None, end: Index) -> None:
        """On the thread."""
        files, store = self.files, self._store
        if files.is_behind:
            files.put_old(READ_BYTES)
        else:
            if entries is None:
                entries = tuple(store.read(begin, READ_BYTES, end))
            if entries:
                files.put(entries)
        if store.begin_index > self._begin_index:
            self._begin_index = store.begin_index
            files.delete_before(store.begin.end_pos)
        many = files.unsaved >= self._settings.node.checkpoint_entries
        if many or files.unsaved_bytes >= self._settings.node.checkpoint_bytes:
            files.save(store.durable.index)

    def _turned(self, done: asyncio.Future[None]) -> None:
        self._busy = False
        if self._stopped or self._ready_loop.failed or done.cancelled():
            return
        error = done.exception()
        is_corrupt = isinstance(error, CorruptStore)
        if error is None:
            self._anew = False
            self.dispatched_index = Index(self.files.next_index - 1)
            self._wake()
            self._loop.call_soon(self._next)
        elif isinstance(error, OffsetOutOfRange) or (is_corrupt and not self._anew):
            self._anew = True
            self._work(self.files.start_anew, self._store, str(error))
        elif isinstance(error, CorruptEntry | DiskFull):
            if isinstance(error, CorruptEntry):
                self._damage(error)
            else:
                logger.warning("consume queues and index wait: %s", error)
            self._timer = self._timer or self._loop.call_later(PAUSE_S, self._next)
        else:
            self._ready_loop.fail(error)

    async def retain_old(self, settings: StoreSettings, now_ms: int) -> bool:
        """Let expired files of an old commit log go; whether some of it is left."""
        try:
            return await self.run(self.files.retain_old, self._store, settings, now_ms)
        except StorageError as error:
            self._ready_loop.fail(error)
            return True

    async def stop(self, *, clean: bool) -> None:
        """No more messages are put. Returns when the files are closed, and, where ``clean``,
        durable and marked so."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
        for waiter in list(self._waiters):
            self._end(waiter, Code.BEHIND)
        try:
            await self.run(self.files.close, self._store.durable.index, clean=clean)
        finally:
            self._thread.shutdown(wait=False)

    # --- questions --------------------------------------------------------------------------------

    def run(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> asyncio.Future[R]:
        """Carry out something with the files, on their thread."""
        return self._loop.run_in_executor(self._thread, partial(function, *args, **kwargs))

    def after(self, index: Index, serve: Callable[[Code], None]) -> None:
        """``serve(SUCCESS)`` when everything up to ``index`` is in queues and index, BEHIND when
        that takes long."""
        if self.dispatched_index >= index or self._stopped:
            serve(Code.BEHIND if self._stopped else Code.SUCCESS)
            return
        waiter = Waiter(index, serve)
        waiter.timer = self._loop.call_later(BEHIND_MS / 1000, self._end, waiter, Code.BEHIND)
        self._waiters[waiter] = None

    def _wake(self) -> None:
        for waiter in [waiter for waiter in self._waiters if waiter.index <= self.dispatched_index]:
            self._end(waiter, Code.SUCCESS)

    def _end(self, waiter: Waiter, code: Code) -> None:
        if waiter.timer is not None:
            waiter.timer.cancel()
        del self._waiters[waiter]
        waiter.serve(code)

    def status(self) -> dict[str, Any]:
        """Values for the node's status."""
        values: dict[str, Any] = {"dispatched_index": self.dispatched_index}
        old = self.files.old
        if old is not None:
            values["old_commit_log"] = {
                "min_offset": old.min_offset,
                "divided_offset": old.divided_offset,
                "fingerprint": old.fingerprint,
            }
        return values
