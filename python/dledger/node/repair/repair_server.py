"""Entries for members that have damaged ones."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from dledger.errors import CorruptEntry, OffsetOutOfRange
from dledger.node.context import NodeContext, NodePart
from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.entry import Entry
from dledger.protocol.messages.repair import RepairRequest, RepairResponse
from dledger.types import Index

MAX_SERVING: Final = 2
"""Requests that are answered at a time; more are dropped and come again."""


class RepairServer(NodePart):
    """Answers `RepairRequest` with stored entries, in any role of this node."""

    def __init__(self, context: NodeContext) -> None:
        super().__init__(context)
        self._serving = 0
        self._stopped = False

    def stop(self) -> None:
        """No more answers."""
        self._stopped = True

    def serve(self, request: RepairRequest) -> None:
        """Answer with the entries that are asked for, or say why there are none."""
        last = min(request.last, self._raft.end_index)
        if request.first > last:
            self._reply(request, Code.INDEX_OUT_OF_RANGE)
        elif request.first < self._store.begin_index:
            self._reply(request, Code.INDEX_LESS_THAN_LOCAL_BEGIN)
        elif self._serving < MAX_SERVING:
            self._serving += 1
            size = min(max(request.max_bytes, 0), self._group.push_batch_bytes)
            future = self._ready_loop.on_reader(
                self._store.read, request.first, size, Index(last + 1)
            )
            future.add_done_callback(lambda done: self._read(request, done))

    def _read(self, request: RepairRequest, done: asyncio.Future[Sequence[Entry]]) -> None:
        self._serving -= 1
        if done.cancelled() or self._stopped:
            return
        error = done.exception()
        if error is None:
            entries = tuple(done.result())
            self._reply(request, Code.SUCCESS if entries else Code.INDEX_OUT_OF_RANGE, entries)
        elif isinstance(error, OffsetOutOfRange):
            self._reply(request, Code.INDEX_LESS_THAN_LOCAL_BEGIN)
        elif isinstance(error, CorruptEntry):
            self._reply(request, Code.CORRUPT_ENTRY)
            self._events.damage(error)
        else:
            self._ready_loop.fail(error)

    def _reply(self, request: RepairRequest, code: Code, entries: tuple[Entry, ...] = ()) -> None:
        self._peers.send(
            RepairResponse(
                group=self._raft.tag,
                local_id=self._node_id,
                remote_id=request.local_id,
                first=request.first,
                last=request.last,
                code=code,
                entries=entries,
            )
        )
