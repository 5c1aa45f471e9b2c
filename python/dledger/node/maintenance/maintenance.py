"""Housekeeping: time-outs, disk level, retention, checkpoints, and the end of a node that nobody
uses."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, NamedTuple

from dledger.catalog.state_machine import Catalog
from dledger.config import NodeConfig
from dledger.errors import ConfigError, DiskFull, StorageError, Unavailable
from dledger.node.handlers.peers import Peers
from dledger.node.handlers.request_router import RequestRouter
from dledger.node.loop.applier import Applier
from dledger.node.loop.proposals import ProposalQueue
from dledger.node.loop.ready_loop import ReadyLoop
from dledger.node.maintenance.retention_holds import Laggards, RetentionHolds
from dledger.node.snapshot.checkpoint import Checkpoints
from dledger.protocol.messages.catalog_commands import Expire
from dledger.protocol.messages.client import ExecuteRequest
from dledger.storage.api import DiskLevel, Held, LogStore
from dledger.types import Index, Role

logger = logging.getLogger(__name__)

TICK_S: Final = 0.1
"""Short enough that not much more than half of the default disk_reserve_bytes can be written
between two looks."""
RETAIN_MS: Final = 2_000
FULL_RETRY_MS: Final = 1_000
"""After a checkpoint for which there was no room."""
EXPIRE_MS: Final = 10_000
"""Time that an Expire command has to be committed before another one is proposed for the same
time-out."""
FIRST_COMPARE_MS: Final = 5_000
COMPARE_MS: Final = 60_000
"""How often a follower compares its wall clock with the leader's."""


class Waiting(NamedTuple):
    """For whom expired files are kept."""

    groups: Held | None
    members: Held | None


class Maintenance:
    """Looks after one node, ten times a second."""

    def __init__(
        self,
        node: NodeConfig,
        driver: ReadyLoop,
        store: LogStore,
        catalog: Catalog,
        applier: Applier,
        writes: ProposalQueue,
        front: RequestRouter,
        peers: Peers,
        checkpoints: Checkpoints,
        wanted: Callable[[], Index | None],
        on_idle: Callable[[], None],
        retain_old: Callable[[int], Awaitable[bool]],
    ) -> None:
        """``wanted``: the first entry that a member needs which is being given this node's state.
        ``on_idle`` is called when nobody has used the node for ``idle_timeout_ms``.
        ``retain_old(now)`` lets go of what is expired in front of the log, and says whether
        something is left there."""
        self._node = node
        self._driver = driver
        self._environment = driver.environment
        self._store = store
        self._catalog = catalog
        self._applier = applier
        self._writes = writes
        self.clocks = writes.clocks
        self._front = front
        self._peers = peers
        self._checkpoints = checkpoints
        self._wanted = wanted
        self._on_idle = on_idle
        self._retain_old = retain_old
        self._loop = asyncio.get_running_loop()
        self.holds = RetentionHolds(node, catalog)
        """Which consumer groups hold retention back."""
        self.laggards = Laggards(node)
        """Which members do."""
        self._level = DiskLevel.OK
        self._retain_ms = 0
        self._expire_ms = 0
        self._expire_due = 0
        self._compare_ms = self._environment.now_ms() + FIRST_COMPARE_MS
        self._trimmed = False
        self._checkpoint_pos = -1
        self._checkpoint_ms = 0
        """Not before then is the next checkpoint tried."""
        self._saving: asyncio.Future[None] | None = None
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._timer: asyncio.TimerHandle | None = None

    @property
    def disk_level(self) -> DiskLevel:
        return self._level

    def start(self) -> None:
        self._tick()

    async def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for task in self._tasks:
            task.cancel()
        if self._saving is not None:
            await asyncio.wait([self._saving])

    def _tick(self) -> None:
        if self._driver.failed:
            return
        self._timer = self._loop.call_later(TICK_S, self._tick)
        now = self._environment.now_ms()
        self._writes.sweep()
        self._mind_clocks(now)
        self.check_disk()
        self._expire(now)
        self._trim_catalog()
        if now >= self._checkpoint_ms and self._is_checkpoint_due():
            self.checkpoint()
        if now >= self._retain_ms and (self._node.retention_ms or self._node.retention_bytes):
            self._retain_ms = now + RETAIN_MS
            self._begin(self._retain())
        if self._is_idle(now):
            self._on_idle()

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)

    def status(self) -> dict[str, Any]:
        return {
            "disk_level": self._level.name,
            "clock": self.clocks.status(),
            "retention": self.holds.status() | self.laggards.status(self._environment.now_ms()),
        }

    # --- disk level -------------------------------------------------------------------------------

    def check_disk(self) -> None:
        """Refuse writes while the disk is full; the core then also looks for another leader
        (D12)."""
        try:
            level = self._store.disk_level()
        except StorageError as error:
            self._driver.fail(error)
            return
        if self._driver.flusher.is_full:
            level = DiskLevel.FULL
        if level == self._level:
            return
        log = logger.info if level is DiskLevel.OK else logger.warning
        log("disk level is %s, was %s; %s", level.name, self._level.name, self._node.directory)
        self._level = level
        self._driver.set_writable(level is not DiskLevel.FULL)

    # --- clocks -----------------------------------------------------------------------------------

    def _mind_clocks(self, now: int) -> None:
        """Notice a jump of the wall clock, and one that is far off."""
        self.clocks.now_ms()
        if self._driver.raft.role is Role.LEADER:
            self.clocks.leads()
        elif now >= self._compare_ms:
            self._compare_ms = now + COMPARE_MS
            self._begin(self._compare())

    async def _compare(self) -> None:
        asked_ms = self._environment.now_ms()
        wall = (await self._leaders_status()).get("clock", {}).get("wall_ms")
        if isinstance(wall, int):
            self.clocks.compare(wall, asked_ms)

    async def _leaders_status(self) -> dict[str, Any]:
        """Empty when it cannot be told."""
        leader = self._driver.raft.leader_id
        if leader is None or leader == self._node.node_id:
            return {}
        try:
            return await self._peers.status_of(leader)
        except (Unavailable, ConfigError, LookupError) as error:
            logger.debug("%s does not tell its status: %s", leader, error)
            return {}

    # --- expiry -----------------------------------------------------------------------------------

    def _expire(self, now: int) -> None:
        """Catalog time is what stages and sessions expire by, once the leader has written it into
        the log."""
        if self._driver.raft.role is not Role.LEADER or not self._writes.caught_up:
            return
        due = self._catalog.next_expiry_ms()
        if due is None or (due == self._expire_due and now < self._expire_ms):
            return
        if due <= self.clocks.now_ms():
            self._expire_due, self._expire_ms = due, now + EXPIRE_MS
            # it is stamped there
            self._writes.execute(None, 0, ExecuteRequest(command=Expire(time_ms=0)))

    # --- retention --------------------------------------------------------------------------------

    def _trim_catalog(self) -> None:
        """After a restart, once everything known is applied: begin offsets are where the log
        begins."""
        if not self._trimmed and self._applier.applied_index >= self._driver.raft.committed_index:
            self._trimmed = True
            if self._store.begin_index > 0:
                self._drop_before(self._store.begin_index)

    def _drop_before(self, begin: Index) -> None:
        try:
            self._catalog.drop_before(begin)
        except StorageError as error:
            self._driver.fail(error)

    async def _retain(self) -> None:
        """Let expired files go. Only the leader knows what every member has, so only the leader
        decides, and waits for those that are behind as long as the settings allow; the others keep
        what it keeps. What is in front of the log goes first; each node has its own of that."""
        if await self._retain_old(self.clocks.wall_ms()):
            return
        raft = self._driver.raft
        limit = min(
            # the first entry that stays is committed: no cut goes back into what is gone
            raft.committed_index - 1,
            self._applier.applied_index,
            self._checkpoints.oldest_index,
            self._catalog.retention_floor() - 1,
        )
        wanted, held = self._wanted(), Waiting(None, None)
        if wanted is not None:
            limit = min(limit, wanted - 1)
        if raft.role is Role.LEADER:
            marks = raft.watermarks
            limit = min(limit, marks.pop(self._node.node_id))
            held = Waiting(self.holds.look(), self.laggards.look(marks))
        else:
            self.holds.rest()
            self.laggards.rest()
            begin = (await self._leaders_status()).get("begin_index")
            limit = min(limit, begin - 1 if isinstance(begin, int) else -1)
        if limit >= self._store.begin_index and not self._driver.failed:
            now_ms = self.clocks.wall_ms()
            self._driver.flusher.run(lambda: self._delete(Index(limit), now_ms, held))

    def _delete(self, limit: Index, now_ms: int, held: Waiting) -> None:
        """On the flusher's thread."""
        before = self._store.begin_index
        begin = self._store.retain(limit, now_ms, held=[each for each in held if each is not None])
        self._loop.call_soon_threadsafe(self._deleted, before, begin, held)

    def _deleted(self, before: Index, begin: Index, held: Waiting) -> None:
        if held.groups is not None:
            self.holds.tell(held.groups, begin if begin > before else Index(0))
        if held.members is not None:
            self.laggards.tell(held.members, begin, self._environment.now_ms())
        if begin == before:
            return
        logger.info("retention: entries %d to %d are gone", before, begin - 1)
        self._driver.raft.forget(begin)
        self._drop_before(begin)

    # --- checkpoints ------------------------------------------------------------------------------

    def _checkpoint_base(self) -> int:
        """Log position of the last checkpoint; of the first applied entry while there is none."""
        if self._checkpoint_pos < 0:
            self._checkpoint_pos = self._applier.applied_pos
        return self._checkpoint_pos

    def _is_checkpoint_due(self) -> bool:
        """Whether a restart would replay more than the settings allow, in bytes or in entries."""
        replayed = self._applier.applied_index - self._checkpoints.index
        grown = self._applier.applied_pos - self._checkpoint_base()
        return grown >= self._node.checkpoint_bytes or replayed >= self._node.checkpoint_entries

    def checkpoint(self) -> asyncio.Future[None] | None:
        """Save the catalog on a thread; None when that is under way or there is nothing new."""
        index = self._catalog.applied_index
        if self._saving is not None or index <= self._checkpoints.index or self._driver.failed:
            return None
        data = self._catalog.snapshot()
        pos = self._applier.applied_pos
        self._store.note_commit(index)
        self._saving = self._driver.on_reader(self._checkpoints.save, data, index, self._store)
        self._saving.add_done_callback(lambda done: self._saved(index, pos, done))
        return self._saving

    def _saved(self, index: Index, pos: int, done: asyncio.Future[None]) -> None:
        self._saving = None
        if done.cancelled():
            return
        try:
            done.result()
            self._catalog.saved(self._checkpoints.oldest_index)
        except DiskFull as error:
            self._no_room(error)
        except Exception as error:
            self._driver.fail(error)
        else:
            if self._checkpoints.index < index:  # the log is slower than the catalog
                self._checkpoint_ms = self._environment.now_ms() + FULL_RETRY_MS
                return
            self._checkpoint_pos = pos
            logger.debug("catalog saved as of entry %d", index)

    def _no_room(self, error: DiskFull) -> None:
        """The last checkpoint still counts: a restart has more to replay, and retention less to
        delete."""
        logger.warning("the catalog is not saved: %s", error)
        self._checkpoint_ms = self._environment.now_ms() + FULL_RETRY_MS

    # --- idle -------------------------------------------------------------------------------------

    def _is_idle(self, now: int) -> bool:
        timeout = self._node.idle_timeout_ms
        if not timeout or self._front.clients or now - self._front.used_ms < timeout:
            return False
        return not process_lives(self._node.parent_pid)


def process_lives(pid: int) -> bool:
    """Whether a process with this number is there; none has number 0."""
    if pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
