"""The shell around the raft core: feeds it inputs and carries out the effects that it returns, in
the order of its contract."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, ParamSpec, Protocol, TypeVar

from dledger.environment import REAL, Environment
from dledger.errors import CorruptEntry, OffsetOutOfRange
from dledger.node.events import NodeEvents
from dledger.node.loop.append_trace import AppendTrace
from dledger.node.loop.log_writer import LogWriter
from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.entry import LogEnd
from dledger.protocol.messages.peer import PeerMessage
from dledger.raft.raft_node import RaftNode
from dledger.raft.state.ready import IDLE, Load, Ready
from dledger.storage.api import LogStore
from dledger.types import Index, NodeId, Position

logger = logging.getLogger(__name__)

READERS: Final = 2
"""Threads that read entries which are not in memory: for followers, clients and the catalog."""
P = ParamSpec("P")
R = TypeVar("R")


class Link(Protocol):
    """The link to another member."""

    def send(self, message: PeerMessage) -> None:
        """Queue a message. It may be lost: the core repeats those that matter."""

    def flush(self) -> None:
        """Send the queued messages now, not at the end of the loop's turn."""


class ReadyLoop:
    """Owns the core on one loop. Every input goes through `feed` or one of the methods above it."""

    def __init__(
        self,
        raft: RaftNode,
        store: LogStore,
        *,
        links: Mapping[NodeId, Link],
        events: NodeEvents,
        lazy: bool = False,
        environment: Environment = REAL,
    ) -> None:
        """``lazy``: an entry counts as durable when it is written (``flush=async``)."""
        self.raft = raft
        self.failed = False
        self.environment = environment
        self._now_ms = environment.now_ms
        self._store = store
        self.links = links
        self._events = events
        events.peer_found.subscribe(self.peer_found)
        events.watched.subscribe(raft.set_watched)
        self._loop = asyncio.get_running_loop()
        self.log_writer = LogWriter(
            store, self._loop, listener=self, lazy=lazy, environment=environment
        )
        self._readers = ThreadPoolExecutor(READERS, "dledger-reader")
        self._trace = trace = AppendTrace.of(raft)
        if trace is not None:
            events.committed.subscribe(trace.committed)
            events.cut.subscribe(trace.cut)
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        self._cuts = 0  # asked for and not carried out
        self._committed: Index | None = None  # to be told after them

    def start(self) -> None:
        self.log_writer.start()
        self._arm()

    async def stop(self) -> None:
        """No more inputs; returns when everything given to the disk is durable and no read is under
        way."""
        if self._timer is not None:
            self._timer.cancel()
        self.failed = True
        await self.log_writer.stop()
        await self._loop.run_in_executor(None, self._readers.shutdown)

    def fail(self, error: BaseException) -> None:
        """The first error that this node cannot go on with."""
        if not self.failed:
            self.failed = True
            self.log_writer.abandon()
            self._events.fatal(error)

    def on_reader(
        self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs
    ) -> asyncio.Future[R]:
        """Run a read of the store on a thread."""
        return self._loop.run_in_executor(self._readers, partial(function, *args, **kwargs))

    # --- inputs -----------------------------------------------------------------------------------

    def step(self, message: PeerMessage) -> None:
        self.feed(self.raft.step, message, self._now_ms())

    def peer_lost(self, peer: NodeId) -> None:
        self.feed(self.raft.peer_lost, peer, self._now_ms())

    def peer_found(self, peer: NodeId) -> None:
        self.feed(self.raft.peer_found, peer, self._now_ms())

    def read_index(self, token: int) -> None:
        self.feed(self.raft.read_index, token, self._now_ms())

    def transfer(self, to: NodeId | None) -> None:
        self.feed(self.raft.transfer, to, self._now_ms())

    def set_writable(self, writable: bool) -> None:
        self.feed(self.raft.set_writable, writable, self._now_ms())

    def on_durable(self, position: Position) -> None:
        """The log writer has synced everything up to there."""
        if self._trace is not None:
            self._trace.durable(position.index)
        self.feed(self.raft.persisted, position, self._now_ms())

    def on_cut_waits(self, error: CorruptEntry) -> None:
        """The log writer cannot cut before this entry is repaired."""
        if not self.failed:
            self._events.cut_waits(error)

    def on_truncated(self, end: LogEnd) -> None:
        """The log writer has cut the log."""
        self.raft.truncated(end)
        self._events.cut(end.position.index)
        self._cuts -= 1
        if self._committed is not None and not self._cuts and not self.failed:
            index, self._committed = self._committed, None
            self._events.committed(index)

    def _tick(self) -> None:
        self._timer, now_ms = None, self._now_ms()
        deadline_ms = self.raft.deadline_ms()
        if now_ms >= deadline_ms:
            self.feed(self.raft.tick, now_ms)
        elif not self.failed:
            self._set_timer(deadline_ms, now_ms)

    def feed(self, call: Callable[..., Ready], *args: Any) -> None:
        """One input of the core, and its effects."""
        if self.failed:
            return
        try:
            ready = call(*args)
        except Exception as error:
            self.fail(error)
            return
        self.carry_out(ready)

    # --- effects ----------------------------------------------------------------------------------

    def carry_out(self, ready: Ready) -> None:
        """Save, cut, send, write, then tell. Messages need not wait for the write: no node counts
        an entry on this disk before the disk has reported it (D1)."""
        if ready is not IDLE:
            try:
                if ready.hard_state is not None:
                    self.log_writer.save(ready.hard_state)
                if ready.membership is not None:
                    self.log_writer.save_membership(ready.membership)
                if ready.members is not None:  # before messages, which new ones may get
                    self._events.members(ready.members)
                if ready.truncate_to is not None:
                    self._cuts += 1
                    self.log_writer.truncate(ready.truncate_to)
                if ready.committed is not None and not ready.append.runs:
                    # a client's answer goes out before the peers' news
                    self._commit(ready.committed)
                    if self.failed:  # a committed entry could not be applied
                        return
                for message in ready.messages:
                    if (link := self.links.get(message.remote_id)) is not None:
                        link.send(message)
                if ready.append.runs:
                    if ready.messages:  # the followers write while this node does
                        for link in self.links.values():
                            link.flush()
                    if self._trace is not None:
                        self._trace.written(ready.append)
                    self.log_writer.append(ready.append)
            except Exception as error:
                self.fail(error)
                return
            for fact in ready.facts:
                logger.debug("%s", fact)
                self._events.fact(fact)
            for load in ready.load:
                self._load(load)
            if ready.install is not None:
                self._events.install(ready.install)
            if ready.role is not None:
                self._events.role(ready.role)
            if ready.committed is not None and ready.append.runs:
                self._commit(ready.committed)
            for finished in ready.finished:
                if finished.code is not Code.SUCCESS:  # what is committed is answered when applied
                    self._events.given_up(finished)
            for done in ready.reads:
                self._events.read_done(done)
            if ready.transfer is not None:
                self._events.transferred(ready.transfer)
        if self._timer is None or self.raft.deadline_ms() < self._timer_ms:
            self._arm()

    def _commit(self, index: Index) -> None:
        """Tell, but not while the store still has entries that are to be cut: it would take them
        for the committed ones."""
        if self._cuts:
            self._committed = index
        else:
            self._events.committed(index)

    def _arm(self) -> None:
        """Wake when the core wants its next tick. A timer that is early is set again when it fires,
        which is cheaper than moving it with every message."""
        if self.failed:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._set_timer(self.raft.deadline_ms(), self._now_ms())

    def _set_timer(self, deadline_ms: int, now_ms: int) -> None:
        self._timer_ms = deadline_ms
        wait_ms = deadline_ms - now_ms if deadline_ms > now_ms else 0
        self._timer = self._loop.call_later(wait_ms / 1000, self._tick)

    def _load(self, load: Load) -> None:
        """Read entries for a follower that is behind the cache."""
        done = self.on_reader(self._store.read, load.begin_index, load.max_bytes)
        done.add_done_callback(lambda future: self._loaded(load, future))

    def _loaded(self, load: Load, done: asyncio.Future[Any]) -> None:
        if done.cancelled():
            return
        error = done.exception()
        if error is None:
            self.feed(self.raft.loaded, load.peer, done.result(), self._now_ms())
        elif isinstance(error, CorruptEntry | OffsetOutOfRange):
            logger.error(
                "cannot send entries from %d on to %s: %s", load.begin_index, load.peer, error
            )
            if isinstance(error, CorruptEntry):
                self._events.damage(error)
            self.feed(self.raft.loaded, load.peer, (), self._now_ms())
        else:
            self.fail(error)
