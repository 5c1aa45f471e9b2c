"""Gets: messages by where they lie, by queue offset, and by key. Only what is committed is ever shown.

A question is linearizable unless it says ``stale``: this node first proves that it leads, then waits until everything
that was committed by then is applied and, where queues or index are asked, dispatched. What they say is believed only
as far as the log agrees: a message is read from its entry, whose header and checksums are verified.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from dledger.broker.consume_queues import ConsumeQueue
from dledger.catalog.catalog import Catalog
from dledger.errors import CorruptEntry, FormatError, OffsetOutOfRange
from dledger.messages.broker import (
    GetMessageRequest,
    GetMessageResponse,
    GetMessageStatus,
    QueryMessageRequest,
    QueryMessageResponse,
    ViewMessageRequest,
    ViewMessageResponse,
)
from dledger.messages.codes import Code
from dledger.messages.entry import HEADER_SIZE
from dledger.net import Connection
from dledger.rocketmq.append_hook import read_stored
from dledger.rocketmq.message import decode_message
from dledger.rocketmq.properties import keys_of
from dledger.server.driver import Driver
from dledger.server.offsets import LinearizableReads
from dledger.server.reput import ReputMessageService
from dledger.store.api import LogStore
from dledger.types import Buffer, Index, NodeId

MAX_MESSAGES: Final = 4096
MAX_BYTES: Final = 16 << 20
Question = ViewMessageRequest | GetMessageRequest | QueryMessageRequest
Answer = tuple[Any, list[Buffer]]
"""A response and its payload."""
ANSWERS: Final[dict[type[Any], type[Any]]] = {
    ViewMessageRequest: ViewMessageResponse,
    GetMessageRequest: GetMessageResponse,
    QueryMessageRequest: QueryMessageResponse,
}


class NotWritten(Exception):
    """What is asked for is committed, because the others have it, and this node's own disk does not have it yet."""


@dataclass(slots=True)
class Asked:
    """A question and who asked it."""

    connection: Connection
    request_id: int
    request: Any
    find: Callable[[Any], Answer]
    """Blocks."""

    def fail(self, code: Code, text: str, leader: str = "") -> None:
        answer = ANSWERS[type(self.request)](code=code, message=text, leader_id=NodeId(leader))
        self.connection.send(answer, self.request_id)


class Gets:
    """Answers questions for messages. Files are read on threads."""

    def __init__(
        self,
        driver: Driver,
        catalog: Catalog,
        store: LogStore,
        linearizable: LinearizableReads,
        reput: ReputMessageService,
        on_damage: Callable[[CorruptEntry], None],
    ) -> None:
        """``on_damage`` is told of an entry that cannot be read: other nodes may have it."""
        self._driver = driver
        self._catalog = catalog
        self._store = store
        self._linearizable = linearizable
        self._reput = reput
        self._on_damage = on_damage

    def view(self, connection: Connection, request_id: int, request: ViewMessageRequest, payload: memoryview) -> None:
        """The message at a physical offset."""
        self._ask(Asked(connection, request_id, request, self._view))

    def get(self, connection: Connection, request_id: int, request: GetMessageRequest, payload: memoryview) -> None:
        """Messages of a queue."""
        self._ask(Asked(connection, request_id, request, self._get))

    def query(self, connection: Connection, request_id: int, request: QueryMessageRequest, payload: memoryview) -> None:
        """Messages with a key."""
        self._ask(Asked(connection, request_id, request, self._query))

    # --- when it may be shown -----------------------------------------------------------------------------------

    def _ask(self, asked: Asked) -> None:
        if asked.request.stale:
            self._start(asked)
        else:
            self._linearizable.add(lambda code: self._proved(asked, code))

    def _proved(self, asked: Asked, code: Code) -> None:
        if code is not Code.SUCCESS:
            leader = self._driver.raft.leader_id or ""
            text = f"this node cannot tell whether it still leads ({code.name}); ask {leader or 'again'}"
            asked.fail(code, text, leader)
        elif isinstance(asked.request, ViewMessageRequest):
            self._start(asked)
        else:
            self._reput.after(self._catalog.applied_index, lambda code: self._dispatched(asked, code))

    def _dispatched(self, asked: Asked, code: Code) -> None:
        if code is Code.SUCCESS:
            self._start(asked)
        else:
            asked.fail(code, "this node's consume queues and index are behind its log; ask again")

    def _start(self, asked: Asked) -> None:
        request = asked.request
        if isinstance(request, ViewMessageRequest) and request.physical_offset >= self._store.begin.end_pos:
            finding = self._driver.on_reader(asked.find, request)
        else:
            finding = self._reput.run(asked.find, request)
        finding.add_done_callback(lambda done: self._found(asked, done))

    def _found(self, asked: Asked, done: asyncio.Future[Answer]) -> None:
        if done.cancelled():
            return
        error = done.exception()
        if error is None:
            answer, payload = done.result()
            asked.connection.send(answer, asked.request_id, payload)
        elif isinstance(error, CorruptEntry):
            self._on_damage(error)
            asked.fail(Code.CORRUPT_ENTRY, str(error))
        elif isinstance(error, FormatError):
            asked.fail(Code.CORRUPT_ENTRY, str(error))
        elif isinstance(error, NotWritten):
            asked.fail(Code.BEHIND, "this node's disk is behind what is committed; ask again")
        else:
            self._driver.fail(error)

    # --- on a thread --------------------------------------------------------------------------------------------

    def _view(self, request: ViewMessageRequest) -> Answer:
        body = self._message_at(request.physical_offset)
        if body is None:
            text = f"no committed message that is kept begins at physical offset {request.physical_offset}"
            return ViewMessageResponse(code=Code.OFFSET_OUT_OF_RANGE, message=text), []
        return ViewMessageResponse(code=Code.SUCCESS), [body]

    def _message_at(self, physical_offset: int) -> Buffer | None:
        """What is committed there now, which is all that queues and index can have; None where retention took it.

        Raises:
            NotWritten: it may be there soon, so nobody may go on behind it.
            FormatError: it is a damaged one of the old commit log.
        """
        old = self._reput.files.old
        if old is not None and physical_offset < old.divided_offset:
            return old.message(physical_offset)
        pos = physical_offset - HEADER_SIZE
        if self._store.end.end_pos <= pos < self._driver.raft.end.end_pos:
            raise NotWritten
        index = self._store.index_at(pos)
        if index is None or index > self._driver.raft.committed_index:
            return None
        try:
            (entry,) = self._store.read(index, HEADER_SIZE, Index(index + 1))
        except OffsetOutOfRange:  # retention has just taken it
            return None
        return entry.body if read_stored(entry.body, physical_offset) is not None else None

    def _get(self, request: GetMessageRequest) -> Answer:
        queue = self._reput.files.queues.get(request.topic, request.queue_id)
        if queue is None or queue.is_empty:
            return self._get_nothing(request)
        begin, end, at = queue.min_offset, queue.max_offset, request.queue_offset
        bodies: list[Buffer] = []
        if at < begin:
            status, at = GetMessageStatus.OFFSET_TOO_SMALL, begin
        elif at == end:
            status = GetMessageStatus.OFFSET_OVERFLOW_ONE
        elif at > end:
            status, at = GetMessageStatus.OFFSET_OVERFLOW_BADLY, end
        else:
            status, at, bodies = self._get_some(queue, request)
        answer = GetMessageResponse(
            code=Code.SUCCESS, status=status, next_begin_offset=at, min_offset=begin, max_offset=end
        )
        return answer, bodies

    def _get_nothing(self, request: GetMessageRequest) -> Answer:
        """This node has no message of the queue; there were some if it has a next offset."""
        end, at = self._catalog.queues.next.get((request.topic, request.queue_id), 0), request.queue_offset
        if not end:
            status, at = GetMessageStatus.NO_MATCHED_LOGIC_QUEUE, 0
        elif at < end:
            status, at = GetMessageStatus.OFFSET_TOO_SMALL, end
        elif at == end:
            status = GetMessageStatus.OFFSET_OVERFLOW_ONE
        else:
            status, at = GetMessageStatus.OFFSET_OVERFLOW_BADLY, end
        answer = GetMessageResponse(
            code=Code.SUCCESS, status=status, next_begin_offset=at, min_offset=end, max_offset=end
        )
        return answer, []

    def _get_some(
        self, queue: ConsumeQueue, request: GetMessageRequest
    ) -> tuple[GetMessageStatus, int, list[Buffer]]:
        at, size, bodies = request.queue_offset, 0, list[Buffer]()
        status = GetMessageStatus.OFFSET_FOUND_NULL
        most = min(max(request.max_messages, 1), MAX_MESSAGES)
        for unit in queue.units(at, most):
            if not unit.is_filler:
                if bodies and size + unit.size > min(request.max_bytes, MAX_BYTES):
                    break
                body = self._message_at(unit.physical_offset)
                if body is not None:
                    bodies.append(body)
                    size += len(body)
                elif not bodies:
                    status = GetMessageStatus.MESSAGE_WAS_REMOVING
                else:
                    break
            at += 1
        return (GetMessageStatus.FOUND if bodies else status), at, bodies

    def _query(self, request: QueryMessageRequest) -> Answer:
        """The index has hashes only, so each message that it names is looked at."""
        bodies: list[Buffer] = []
        size, most = 0, min(max(request.max_messages, 1), MAX_MESSAGES)
        begin, end = request.begin_ms, request.end_ms
        for place in self._reput.files.index.lookup(request.topic, request.key, begin, end):
            body = self._message_at(place)
            if body is None:
                continue
            message = decode_message(body)
            if message.topic != request.topic or request.key not in keys_of(message.property_map()):
                continue
            if not begin <= message.store_timestamp <= end:
                continue
            size += len(body)
            if len(bodies) == most or (bodies and size > MAX_BYTES):
                break
            bodies.append(body)
        return QueryMessageResponse(code=Code.SUCCESS), bodies
