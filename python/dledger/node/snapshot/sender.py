"""Giving this node's state to a member that needs entries of which no member has a copy."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from dledger.checksum import crc32
from dledger.errors import CatalogLost, CorruptEntry, CorruptStore, OffsetOutOfRange, StorageError
from dledger.node.context import NodeContext, NodePart
from dledger.node.snapshot.image import Image
from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.entry import Entry
from dledger.protocol.messages.snapshot import SnapshotRequest, SnapshotResponse
from dledger.raft.roles.fill_pace import BURST_S
from dledger.token_bucket import TokenBucket
from dledger.types import NO_INDEX, Index, NodeId, Role

logger = logging.getLogger(__name__)

PIECE_BYTES: Final = 64 << 10
"""Most bytes of one answer: rows are read on the loop, which has other things to do."""
PIECES_A_SECOND: Final = 4
"""Under a limit, a piece is no larger than this part of a second's bytes: it is late, but sooner
than the member would ask again."""
KEPT_MS: Final = 10_000
"""How long an image is kept, and with it the entries that it begins with, for a member that asks
for no more of it."""


@dataclass(slots=True)
class Given:
    """The image that one member fetches."""

    image: Image
    used_ms: int


class SnapshotSender(NodePart):
    """Answers `SnapshotRequest`, on the loop that owns the catalog. Only a leader does. It need not
    have committed an entry in its term: where a bare quorum is alive, and retention took entries
    that one of it needs, it cannot before that member has the state. Its applied entries are
    committed; a member that knows more refuses it."""

    def __init__(self, context: NodeContext) -> None:
        super().__init__(context)
        self._given: dict[NodeId, Given] = {}
        self._beginning: dict[NodeId, None] = {}
        self._bucket: TokenBucket | None = None
        """Of ``catch_up_bytes_per_s``: states and entries count apart."""

    @property
    def floor(self) -> Index | None:
        """The first entry that a member that fetches an image will ask for; None when no member
        fetches one."""
        now = self._now_ms()
        for peer in [peer for peer, given in self._given.items() if now - given.used_ms > KEPT_MS]:
            del self._given[peer]
        return min((given.image.first_index for given in self._given.values()), default=None)

    def serve(self, request: SnapshotRequest) -> None:
        """Answer with a piece, or say why there is none."""
        given = self._given.get(request.local_id)
        if request.last_included_index == NO_INDEX:
            self._begin(request)
        elif given is None or given.image.index != request.last_included_index:
            self._reply(request, Code.INDEX_LESS_THAN_LOCAL_BEGIN)
        else:
            self._give(request, given)

    def _begin(self, request: SnapshotRequest) -> None:
        begin = self._store.begin_index
        if self._raft.role is not Role.LEADER:
            self._reply(request, Code.NOT_LEADER)
        elif begin > self._catalog.applied_index:
            self._reply(request, Code.LEADER_NOT_READY)
        elif request.local_id not in self._beginning:
            self._beginning[request.local_id] = None
            future = self._ready_loop.on_reader(self._store.read, begin, 1, Index(begin + 1))
            future.add_done_callback(lambda done: self._begun(request, begin, done))

    def _begun(
        self, request: SnapshotRequest, begin: Index, done: asyncio.Future[Sequence[Entry]]
    ) -> None:
        self._beginning.pop(request.local_id, None)
        if done.cancelled() or self._ready_loop.failed:
            return
        error = done.exception()
        if isinstance(error, CorruptEntry):
            self._events.damage(error)
        elif error is not None and not isinstance(error, OffsetOutOfRange):
            self._ready_loop.fail(error)
        elif error is None and begin == self._store.begin_index:
            image = Image(self._catalog, self._store.begin, first=done.result()[0])
            logger.warning(
                "%s fetches the state as of entry %d, %d bytes; the log begins at entry %d",
                request.local_id,
                image.index,
                image.size,
                begin,
            )
            given = self._given[request.local_id] = Given(image, self._now_ms())
            self._give(request, given)

    def _limit(self, peer: NodeId) -> int:
        """Bytes a second that hold for this member; 0: none do."""
        leader = self._raft.leader
        return 0 if leader is None else leader.pace.limit_of(peer, self._now_ms())

    def _give(self, request: SnapshotRequest, given: Given) -> None:
        """Give a piece, in its time."""
        given.used_ms = self._now_ms()
        size = min(max(request.max_bytes, 1), PIECE_BYTES)
        now_ms, limit = given.used_ms, self._limit(request.local_id)
        if not limit:
            self._give_now(request, given, size)
            return
        size = min(size, limit // PIECES_A_SECOND)
        if self._bucket is None or self._bucket.rate != limit:
            self._bucket = TokenBucket(limit, now_ms / 1000, burst_s=BURST_S)
        wait_s = self._bucket.wait_s(now_ms / 1000)
        self._bucket.take(size, now_ms / 1000)
        self._loop.call_later(wait_s, self._give_late, request, given, size)

    def _give_late(self, request: SnapshotRequest, given: Given, size: int) -> None:
        if self._given.get(request.local_id) is given and not self._ready_loop.failed:
            self._give_now(request, given, size)

    def _give_now(self, request: SnapshotRequest, given: Given, size: int) -> None:
        try:
            data = given.image.read(request.offset, size)
        except CatalogLost as error:
            self._ready_loop.fail(error)
        except CorruptStore as error:
            logger.info("%s has to begin with another state: %s", request.local_id, error)
            del self._given[request.local_id]
            self._reply(request, Code.INDEX_LESS_THAN_LOCAL_BEGIN)
        except StorageError as error:
            self._ready_loop.fail(error)
        else:
            self._reply(request, Code.SUCCESS, given.image, data)

    def _reply(
        self, request: SnapshotRequest, code: Code, image: Image | None = None, data: bytes = b""
    ) -> None:
        self._peers.send(
            SnapshotResponse(
                group=self._raft.tag,
                local_id=self._node_id,
                remote_id=request.local_id,
                code=code,
                last_included_index=request.last_included_index if image is None else image.index,
                offset=request.offset,
                size=0 if image is None else image.size,
                crc=crc32(data),
                data=data,
            )
        )
