"""States that clients copy out of this node: each is as of one applied entry, which is committed,
and keeps the log and the topic index that it is about."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from dledger.errors import CatalogLost, CorruptEntry, CorruptStore, OffsetOutOfRange, StorageError
from dledger.net import Connection
from dledger.node.context import NodeContext, NodePart
from dledger.node.snapshot.image import Image
from dledger.protocol.messages.backup import (
    OpenBackupRequest,
    OpenBackupResponse,
    ReadBackupImageRequest,
    ReadBackupImageResponse,
    ReadBackupLogRequest,
    ReadBackupLogResponse,
)
from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.entry import Entry, LogEnd
from dledger.types import Index

MAX_VIEWS: Final = 4
"""Each has a catalog's snapshot in memory."""
KEPT_MS: Final = 60_000
"""How long a view is kept of which nothing is read."""
LOG_BYTES: Final = 4 << 20
IMAGE_BYTES: Final = 256 << 10
"""Most bytes of one answer: rows are read on the loop, which has other things to do."""
GONE: Final = "the state that was to be copied is not kept any more"


@dataclass(slots=True)
class BackupView:
    """The state that one client copies."""

    connection: Connection
    image: Image
    used_ms: int


class Backups(NodePart):
    """Answers the requests of a backup, in any role of this node. Runs on the loop that owns the
    catalog; the log is read by the readers' threads."""

    def __init__(self, context: NodeContext) -> None:
        super().__init__(context)
        self._views: dict[int, BackupView] = {}
        self._next = 0
        self._opening = 0
        context.status.add(lambda: {"backups": len(self._views)})

    @property
    def floor(self) -> Index | None:
        """The first entry that a view is about; None when there is none."""
        self._drop_unused()
        return min((view.image.first_index for view in self._views.values()), default=None)

    def forget(self, connection: Connection) -> None:
        """A client's connection has ended, and so have its views."""
        for number in [n for n, view in self._views.items() if view.connection is connection]:
            del self._views[number]

    def _drop_unused(self) -> None:
        oldest_ms = self._now_ms() - KEPT_MS
        for number in [n for n, view in self._views.items() if view.used_ms < oldest_ms]:
            del self._views[number]

    # --- opening ----------------------------------------------------------------------------------

    def open(self, connection: Connection, request_id: int, request: OpenBackupRequest) -> None:
        """Answer with a view of the state as it is now."""
        self._drop_unused()
        begin = self._store.begin_index
        refuse = partial(self._refuse_view, connection, request_id)
        if self._group.commit_log != "topics":
            text = "of a group with commit_log=rocketmq only its store is copied: 'dledger export'"
            refuse(Code.UNSUPPORTED, text)
        elif begin > self._catalog.applied_index:
            refuse(Code.LEADER_NOT_READY, f"{self._node_id} has applied no entry of its log yet")
        elif len(self._views) + self._opening >= MAX_VIEWS:
            text = f"{MAX_VIEWS} backups are under way at {self._node_id}: name another node"
            refuse(Code.LIMIT_REACHED, text)
        else:
            self._opening += 1
            future = self._ready_loop.on_reader(self._store.read, begin, 1, Index(begin + 1))
            future.add_done_callback(
                lambda done: self._opened(connection, request_id, self._store.begin, done)
            )

    def _refuse_view(
        self, connection: Connection, request_id: int, code: Code, message: str
    ) -> None:
        self._context.audit.record_request(connection, "back up", code, message)
        connection.send(OpenBackupResponse(code=code, message=message), request_id)

    def _opened(
        self,
        connection: Connection,
        request_id: int,
        begin: LogEnd,
        done: asyncio.Future[Sequence[Entry]],
    ) -> None:
        self._opening -= 1
        if done.cancelled() or self._ready_loop.failed:
            return
        error = done.exception()
        if error is not None or begin.position.index + 1 != self._store.begin_index:
            code, text = self._why(error)
            self._refuse_view(connection, request_id, code, text)
            return
        (first,) = done.result()
        image = Image(self._catalog, begin, first=first)
        self._next += 1
        self._views[self._next] = BackupView(connection, image, self._now_ms())
        known = self._raft.membership
        self._context.audit.record_request(
            connection, "back up", Code.SUCCESS, "", index=image.index
        )
        answer = OpenBackupResponse(
            code=Code.SUCCESS,
            view=self._next,
            group=self._group.group,
            group_id=known.group_id,
            ancestors=known.ancestors,
            members=self._raft.voters,
            segment_bytes=self._group.segment_bytes,
            index_file_bytes=self._group.index_file_bytes,
            index=image.index,
            term=self._raft.term,
            begin_index=first.index,
            begin_pos=begin.end_pos,
            begin_chain=begin.chain_crc,
            end_pos=self._store.end.end_pos,
            image_bytes=image.size,
            time_ms=self._environment.wall_us() // 1000,
        )
        connection.send(answer, request_id)

    # --- reading ----------------------------------------------------------------------------------

    def _view(self, connection: Connection, number: int) -> BackupView | None:
        view = self._views.get(number)
        if view is None or view.connection is not connection:  # a number is no right to it
            return None
        view.used_ms = self._now_ms()
        return view

    def read_log(
        self, connection: Connection, request_id: int, request: ReadBackupLogRequest
    ) -> None:
        """Answer with entries of a view's log."""
        view = self._view(connection, request.view)
        if view is None or not view.image.first_index <= request.first <= view.image.index:
            answer = ReadBackupLogResponse(code=Code.OFFSET_OUT_OF_RANGE, message=GONE)
            connection.send(answer, request_id)
            return
        size, end = min(max(request.max_bytes, 1), LOG_BYTES), Index(view.image.index + 1)
        held = self._raft.log.cached(request.first, Index(request.first + 1)) or ()
        future = self._ready_loop.on_reader(self._entries, held, request.first, size, end)
        future.add_done_callback(lambda done: self._read(connection, request_id, done))

    def _entries(
        self, held: Sequence[Entry], first: Index, size: int, end: Index
    ) -> Sequence[Entry]:
        """On a reader's thread. The newest entries may be in memory only: a node applies what the
        others have made durable, be its own disk ever so slow."""
        return self._store.read(first, size, end) or held

    def _read(
        self, connection: Connection, request_id: int, done: asyncio.Future[Sequence[Entry]]
    ) -> None:
        if done.cancelled() or self._ready_loop.failed:
            return
        if (error := done.exception()) is not None:
            code, text = self._why(error)
            answer = ReadBackupLogResponse(code=code, message=text)
        elif entries := done.result():
            answer = ReadBackupLogResponse(code=Code.SUCCESS, entries=tuple(entries))
        else:
            text = f"{self._node_id} has not written that far yet"
            answer = ReadBackupLogResponse(code=Code.BEHIND, message=text)
        connection.send(answer, request_id)

    def _why(self, error: BaseException | None) -> tuple[Code, str]:
        """The answer for a failed read of the log; None: retention was faster."""
        if error is None or isinstance(error, OffsetOutOfRange):
            return Code.OFFSET_OUT_OF_RANGE, GONE
        if isinstance(error, CorruptEntry):
            self._events.damage(error)
            text = f"{error}; it is fetched from another node: ask again, or name another node"
            return Code.CORRUPT_ENTRY, text
        self._ready_loop.fail(error)
        return Code.DISK_ERROR, str(error)

    def read_image(
        self, connection: Connection, request_id: int, request: ReadBackupImageRequest
    ) -> None:
        """Answer with bytes of a view's image."""
        view = self._view(connection, request.view)
        answer = ReadBackupImageResponse(code=Code.OFFSET_OUT_OF_RANGE, message=GONE)
        if view is not None:
            size = min(max(request.max_bytes, 1), IMAGE_BYTES)
            try:
                data = view.image.read(request.offset, size)
            except CatalogLost as error:
                self._ready_loop.fail(error)
                return
            except CorruptStore as error:
                del self._views[request.view]
                text = f"{GONE}: a topic of it was deleted ({error})"
                answer = ReadBackupImageResponse(code=Code.OFFSET_OUT_OF_RANGE, message=text)
            except StorageError as error:
                self._ready_loop.fail(error)
                return
            else:
                answer = ReadBackupImageResponse(code=Code.SUCCESS, data=data)
        connection.send(answer, request_id)
