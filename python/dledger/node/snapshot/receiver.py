"""Fetching another node's state, for a node that needs entries of which no member has a copy.

It is fetched from the leader, written to new files and checked. Only when all of it is there and
durable does the node stop, let the new files take the place of the old ones
(`dledger.storage.recovery.snapshot_install`), and start again on them: there is one way in which
files become a node, and a crash at any point leaves one state or the other.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from dledger.checksum import crc32
from dledger.errors import CorruptEntry, CorruptStore, DiskFull, StorageError
from dledger.node.context import NodeContext, NodePart
from dledger.node.snapshot.image import ImageHead, Unpacker
from dledger.node.snapshot.sender import PIECE_BYTES, SnapshotSender
from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.snapshot import InstallMessage, SnapshotRequest, SnapshotResponse
from dledger.storage.recovery.snapshot_install import Staging
from dledger.types import NO_INDEX, Index, NodeId

logger = logging.getLogger(__name__)

ASK_MS: Final = 2_000
"""How long the leader has to answer before it is asked again."""
PATIENCE: Final = 5
"""Unanswered questions after which this state is given up."""
TICK_S: Final = 0.2


@dataclass(slots=True)
class Fetch:
    """One state on its way here."""

    leader: NodeId
    unpacker: Unpacker
    index: Index = NO_INDEX
    offset: int = 0
    size: int = 0
    deadline_ms: int = 0
    asked: int = 0
    busy: bool = False
    """A piece is being written."""


class SnapshotReceiver(NodePart):
    """The states that one node fetches and gives. Runs on the node's loop; disk work goes to a
    reader's thread."""

    def __init__(
        self,
        context: NodeContext,
        *,
        sender: SnapshotSender,
        is_enough: Callable[[ImageHead], bool],
        on_fetched: Callable[[Unpacker], None],
    ) -> None:
        """``is_enough`` says whether the head of a state alone is needed. ``on_fetched`` is told
        when the needed part is there and sound; `given_up` is the answer if it is of no use any
        more."""
        super().__init__(context)
        self._sender = sender
        self._is_enough = is_enough
        self._on_fetched = on_fetched
        self._fetch: Fetch | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._stopped = False

    def stop(self) -> None:
        """No more questions and answers. The fetched files stay for their installation."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()

    # --- fetching ---------------------------------------------------------------------------------

    def wanted(self, leader: NodeId) -> None:
        """``leader`` no longer has the entries that this node needs: fetch its state, if that is
        not under way."""
        if self._stopped or self._ready_loop.failed:
            return
        if self._fetch is not None:
            if self._fetch.leader == leader or self._fetch.busy:
                return
            self.given_up(f"{leader} leads now")
        try:
            staging = Staging(
                self._node.directory, self._context.disk, segment_bytes=self._group.segment_bytes
            )
        except StorageError as error:
            self._failed(error)
            return
        self._fetch = fetch = Fetch(leader, Unpacker(staging))
        logger.warning(
            "%s needs what its own files do not hold: the state of %s is fetched",
            self._node_id,
            leader,
        )
        self._ask(fetch)
        if self._timer is None:
            self._timer = self._loop.call_later(TICK_S, self._tick)

    def _tick(self) -> None:
        self._timer = None
        fetch = self._fetch
        if self._stopped or self._ready_loop.failed or fetch is None:
            return
        self._timer = self._loop.call_later(TICK_S, self._tick)
        if not fetch.busy and self._now_ms() >= fetch.deadline_ms:
            if fetch.asked >= PATIENCE:
                self.given_up(f"{fetch.leader} does not answer")
            else:
                self._ask(fetch)

    def _ask(self, fetch: Fetch) -> None:
        fetch.asked += 1
        fetch.deadline_ms = self._now_ms() + ASK_MS
        self._peers.send(
            SnapshotRequest(
                group=self._raft.tag,
                local_id=self._node_id,
                remote_id=fetch.leader,
                last_included_index=fetch.index,
                offset=fetch.offset,
                max_bytes=min(PIECE_BYTES, self._group.push_batch_bytes),
            )
        )

    def on_message(self, message: InstallMessage) -> None:
        """Take a peer's question or answer."""
        is_ours = message.group == self._raft.tag and message.remote_id == self._node_id
        if not is_ours or message.local_id not in self._members.ids or self._stopped:
            return
        if isinstance(message, SnapshotRequest):
            self._sender.serve(message)
        else:
            self._answered(message)

    def _answered(self, answer: SnapshotResponse) -> None:
        fetch = self._fetch
        if (
            fetch is None
            or fetch.busy
            or answer.local_id != fetch.leader
            or answer.offset != fetch.offset
        ):
            return
        if answer.code is not Code.SUCCESS:
            if answer.last_included_index == fetch.index:
                self.given_up(f"{fetch.leader} says {answer.code.name}")
            return
        if fetch.index not in {NO_INDEX, answer.last_included_index}:
            return
        if not answer.data or crc32(answer.data) != answer.crc:
            self.given_up(f"what {fetch.leader} sent does not match its checksum")
            return
        fetch.index, fetch.size, fetch.busy = answer.last_included_index, answer.size, True
        fetch.offset += len(answer.data)
        future = self._ready_loop.on_reader(self._take, fetch, answer.data)
        future.add_done_callback(lambda done: self._taken(fetch, done))

    @staticmethod
    def _take(fetch: Fetch, data: bytes) -> None:
        """On a reader's thread."""
        fetch.unpacker.feed(data)
        if fetch.offset >= fetch.size:
            fetch.unpacker.check()

    def _taken(self, fetch: Fetch, done: asyncio.Future[None]) -> None:
        if done.cancelled() or self._stopped or self._ready_loop.failed:
            return
        fetch.busy, fetch.asked = False, 0
        error, head = done.exception(), fetch.unpacker.head
        if error is not None:
            self._failed(error)
        elif fetch.offset >= fetch.size or (head is not None and self._is_enough(head)):
            self._on_fetched(fetch.unpacker)
        elif not self._ready_loop.failed:
            self._ask(fetch)

    def given_up(self, why: str) -> None:
        """This state is of no use: remove it. Another one is fetched when the leader, or damage,
        asks for it again."""
        fetch, self._fetch = self._fetch, None
        if fetch is None:
            return
        logger.warning("the state of %s is not taken over: %s", fetch.leader, why)
        try:
            fetch.unpacker.staging.drop()
        except StorageError as error:
            self._ready_loop.fail(error)

    def _failed(self, error: BaseException) -> None:
        if isinstance(error, CorruptStore | CorruptEntry | DiskFull):
            self.given_up(str(error))
        else:
            self._ready_loop.fail(error)

    def status(self) -> dict[str, Any] | None:
        """For the node's status; None when nothing is fetched."""
        fetch = self._fetch
        if fetch is None:
            return None
        return {
            "from": str(fetch.leader),
            "as_of": fetch.index,
            "bytes": fetch.offset,
            "of": fetch.size,
        }
