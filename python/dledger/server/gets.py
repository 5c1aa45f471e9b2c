"""Gets: messages of the commit log by where they lie. Only what is committed and applied here is ever shown."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from dledger.catalog.catalog import Catalog
from dledger.errors import CorruptEntry, OffsetOutOfRange
from dledger.messages.broker import ViewMessageRequest, ViewMessageResponse
from dledger.messages.codes import Code
from dledger.messages.entry import HEADER_SIZE, Entry
from dledger.net import Connection
from dledger.rocketmq.append_hook import read_stored
from dledger.server.driver import Driver
from dledger.server.offsets import LinearizableReads
from dledger.store.api import LogStore
from dledger.types import Index, NodeId


class Gets:
    """Answers questions for messages. Files are read on the driver's threads."""

    def __init__(
        self,
        driver: Driver,
        catalog: Catalog,
        store: LogStore,
        linearizable: LinearizableReads,
        on_damage: Callable[[CorruptEntry], None],
    ) -> None:
        """``on_damage`` is told of an entry that cannot be read: other nodes may have it."""
        self._on_damage = on_damage
        self._driver = driver
        self._catalog = catalog
        self._store = store
        self._linearizable = linearizable

    def view(self, connection: Connection, request_id: int, request: ViewMessageRequest, payload: memoryview) -> None:
        """The message at a physical offset."""

        def serve(code: Code) -> None:
            if code is not Code.SUCCESS:
                leader = self._driver.raft.leader_id or NodeId("")
                text = f"this node cannot tell whether it still leads ({code.name}); ask {leader or 'again'}"
                connection.send(ViewMessageResponse(code=code, message=text, leader_id=leader), request_id)
                return
            reading = self._driver.on_reader(self._entry_at, request.physical_offset, self._catalog.applied_index)
            reading.add_done_callback(lambda done: self._viewed(connection, request_id, request, done))

        if request.stale:
            serve(Code.SUCCESS)
        else:
            self._linearizable.add(serve)

    def _viewed(
        self, connection: Connection, request_id: int, request: ViewMessageRequest, done: asyncio.Future[Entry | None]
    ) -> None:
        if done.cancelled():
            return
        error = done.exception()
        entry = None if error is not None else done.result()
        if entry is not None:
            connection.send(ViewMessageResponse(code=Code.SUCCESS), request_id, [entry.body])
        elif error is None or isinstance(error, OffsetOutOfRange):
            text = f"no committed message that is kept begins at physical offset {request.physical_offset}"
            connection.send(ViewMessageResponse(code=Code.OFFSET_OUT_OF_RANGE, message=text), request_id)
        elif isinstance(error, CorruptEntry):
            self._on_damage(error)
            connection.send(ViewMessageResponse(code=Code.CORRUPT_ENTRY, message=str(error)), request_id)
        else:
            self._driver.fail(error)

    def _entry_at(self, physical_offset: int, applied: Index) -> Entry | None:
        """The entry with the message there, if it is applied. On a reader's thread."""
        pos = physical_offset - HEADER_SIZE
        index = self._store.index_at(pos)
        if index is None or index > applied:
            return None
        entry = self._store.read(index, HEADER_SIZE, Index(index + 1))[0]
        return entry if read_stored(entry.body, physical_offset) is not None else None
