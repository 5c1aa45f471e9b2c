"""Gets: messages by place, by queue offset, and by key. Only committed messages are ever shown.

A question is linearizable unless it says ``stale``: this node first proves that it leads, then
waits until everything that was committed by then is applied and, where queues or index are asked,
dispatched. Their answer is believed only as far as the log agrees: a message is read from its
entry, whose header and checksums are verified.

Committed means applied here. The core knows of a commit sooner, while the files may still have at
the same place the entries that another leader's will replace: they are cut when a sync that is
under way is done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from dledger.errors import CorruptEntry, FormatError, OffsetOutOfRange
from dledger.net import Connection
from dledger.node.context import NodeContext
from dledger.node.handlers.offsets import LinearizableReads
from dledger.node.rocketmq.reput_service import NodeReputService
from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.entry import HEADER_SIZE
from dledger.protocol.messages.rocketmq import (
    GetMessageRequest,
    GetMessageResponse,
    GetMessageStatus,
    QueryMessageRequest,
    QueryMessageResponse,
    ViewMessageRequest,
    ViewMessageResponse,
)
from dledger.rocketmq.format.append_hook import read_stored
from dledger.rocketmq.format.message import decode_message
from dledger.rocketmq.store.consume_queue import ConsumeQueue
from dledger.types import NO_INDEX, Buffer, Index, NodeId

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


class QueueBehind(Exception):
    """The message is committed, because the others have it, but this node has not applied it, or
    its own disk or queues do not have it yet."""


@dataclass(slots=True)
class Asked:
    """A question and its client."""

    connection: Connection
    request_id: int
    request: Any
    applied: Index = NO_INDEX
    """The last applied index when this was decided; `next_offset` is of the same time."""
    next_offset: int = 0
    """The offset of the next message of the queue that is asked for."""
    size: int = 0
    """Most bytes that its answer may have."""

    def fail(self, code: Code, text: str, leader: str = "") -> None:
        answer = ANSWERS[type(self.request)](code=code, message=text, leader_id=NodeId(leader))
        self.connection.send(answer, self.request_id)


class Gets:
    """Answers questions for messages. Files are read on threads."""

    def __init__(
        self, context: NodeContext, linearizable: LinearizableReads, *, reput: NodeReputService
    ) -> None:
        self._ready_loop = context.ready_loop
        self._catalog = catalog = context.catalog
        self._store = context.store
        self._linearizable = linearizable
        self._reput = reput
        self._damage = context.events.damage
        self._finders: dict[type[Any], Callable[[Asked], Answer]] = {
            ViewMessageRequest: self._view,
            GetMessageRequest: self._get,
            QueryMessageRequest: self._query,
        }
        """They block."""
        is_ahead = catalog.applied_index > context.raft.committed_index
        self._needs = catalog.applied_index if is_ahead else NO_INDEX
        """The catalog is that of another node, and of entries up to this one that are still on
        their way here."""

    # --- when it may be shown ---------------------------------------------------------------------

    def ask(
        self, connection: Connection, request_id: int, request: Question, payload: memoryview
    ) -> None:
        """The message at a physical offset, messages of a queue, or those with a key."""
        asked, raft = Asked(connection, request_id, request), self._ready_loop.raft
        if self._needs > min(raft.committed_index, raft.durable_index):
            asked.fail(
                Code.BEHIND, f"this node's log is on its way to entry {self._needs}; ask again"
            )
        elif asked.request.stale:
            self._note(asked)
            self._start(asked)
        else:
            self._linearizable.add(lambda code: self._proved(asked, code))

    def _proved(self, asked: Asked, code: Code) -> None:
        if code is not Code.SUCCESS:
            leader = self._ready_loop.raft.leader_id or ""
            text = (
                f"this node cannot tell whether it still leads ({code.name}); ask "
                f"{leader or 'again'}"
            )
            asked.fail(code, text, leader)
        elif isinstance(asked.request, ViewMessageRequest):
            self._start(asked)
        else:
            self._note(asked)
            self._reput.after(asked.applied, lambda code: self._dispatched(asked, code))

    def _note(self, asked: Asked) -> None:
        """The state to answer from: when a thread looks, there may be more in the catalog than in
        its files."""
        request, catalog = asked.request, self._catalog
        asked.applied = catalog.applied_index
        if isinstance(request, GetMessageRequest):
            asked.next_offset = catalog.queues.next.get((request.topic, request.queue_id), 0)

    def _dispatched(self, asked: Asked, code: Code) -> None:
        if code is Code.SUCCESS:
            self._start(asked)
        else:
            asked.fail(code, "this node's consume queues and index are behind its log; ask again")

    def _start(self, asked: Asked) -> None:
        asked.connection.outflow.ask(asked.connection, partial(self._find, asked))

    def _find(self, asked: Asked) -> None:
        request = asked.request
        if self._ready_loop.failed:
            return
        asked.size = min(max(getattr(request, "max_bytes", MAX_BYTES), 0), MAX_BYTES)
        asked.connection.outflow.begin(asked.size)
        find, begin_pos = self._finders[type(request)], self._store.begin.end_pos
        if isinstance(request, ViewMessageRequest) and request.physical_offset >= begin_pos:
            finding = self._ready_loop.on_reader(find, asked)
        else:
            finding = self._reput.run(find, asked)
        finding.add_done_callback(lambda done: self._found(asked, done))

    def _found(self, asked: Asked, done: asyncio.Future[Answer]) -> None:
        asked.connection.outflow.end(asked.connection, asked.size)
        if done.cancelled():
            return
        error = done.exception()
        if error is None:
            answer, payload = done.result()
            asked.connection.send(answer, asked.request_id, payload)
        elif isinstance(error, CorruptEntry | FormatError):
            if isinstance(error, CorruptEntry):
                self._damage(error)
            asked.fail(Code.CORRUPT_ENTRY, str(error))
        elif isinstance(error, QueueBehind):
            asked.fail(Code.BEHIND, "this node is behind what is committed; ask again")
        else:
            self._ready_loop.fail(error)

    # --- on a thread ------------------------------------------------------------------------------

    def _view(self, asked: Asked) -> Answer:
        physical_offset = asked.request.physical_offset
        body = self._message_at(physical_offset)
        if body is None:
            text = f"no committed message that is kept begins at physical offset {physical_offset}"
            return ViewMessageResponse(code=Code.OFFSET_OUT_OF_RANGE, message=text), []
        return ViewMessageResponse(code=Code.SUCCESS), [body]

    def _message_at(self, physical_offset: int, *, is_known: bool = False) -> Buffer | None:
        """The committed message there; None where there is none, or retention took it.

        Args:
            is_known: queues or index say that a committed message begins there.

        Raises:
            QueueBehind: it may be there soon, so no caller may go on behind it.
            FormatError: it is a damaged one of the old commit log.
        """
        old = self._reput.files.old
        if old is not None and physical_offset < old.divided_offset:
            return old.message(physical_offset)
        store, pos = self._store, physical_offset - HEADER_SIZE
        # before the store is asked: it cuts nothing up to there any more
        applied = self._catalog.applied_index
        index = store.index_at(pos)
        if index is None or index > applied:
            end_pos = self._ready_loop.raft.end.end_pos  # -1 while it is being cut
            is_on_its_way = store.end.end_pos <= pos and not 0 <= end_pos <= pos
            if is_on_its_way or (is_known and pos >= store.begin.end_pos):
                raise QueueBehind
            return None
        try:
            (entry,) = store.read(index, HEADER_SIZE, Index(index + 1))
        except OffsetOutOfRange:  # retention has just taken it
            return None
        return entry.body if read_stored(entry.body, physical_offset) is not None else None

    def _get(self, asked: Asked) -> Answer:
        request: GetMessageRequest = asked.request
        files = self._reput.files
        queue = files.queues.get(request.topic, request.queue_id)
        lags = files.is_behind or files.next_index <= asked.applied
        at, bodies = request.queue_offset, list[Buffer]()
        if queue is not None and not queue.is_empty:
            begin, end = queue.min_offset, queue.max_offset
        elif asked.next_offset and lags:  # its messages may still come
            raise QueueBehind
        else:  # it never had one, or they are gone
            begin = end = asked.next_offset
        if not end:
            status, at = GetMessageStatus.NO_MATCHED_LOGIC_QUEUE, 0
        elif at < begin:
            status, at = GetMessageStatus.OFFSET_TOO_SMALL, begin
        elif at == end:
            status = GetMessageStatus.OFFSET_OVERFLOW_ONE
        elif at > end:
            if lags and at <= asked.next_offset:
                raise QueueBehind
            status, at = GetMessageStatus.OFFSET_OVERFLOW_BADLY, end
        else:
            assert queue is not None
            status, at, bodies = self._get_some(queue, request)
        answer = GetMessageResponse(
            code=Code.SUCCESS, status=status, next_begin_offset=at, min_offset=begin, max_offset=end
        )
        return answer, bodies

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
                try:
                    body = self._message_at(unit.physical_offset, is_known=True)
                except QueueBehind:
                    if bodies:
                        break
                    raise
                if body is not None:
                    bodies.append(body)
                    size += len(body)
                elif not bodies:
                    status = GetMessageStatus.MESSAGE_WAS_REMOVING
                else:
                    break
            at += 1
        return (GetMessageStatus.FOUND if bodies else status), at, bodies

    def _query(self, asked: Asked) -> Answer:
        """The index has hashes only, so each message that it names is looked at."""
        request: QueryMessageRequest = asked.request
        bodies: list[Buffer] = []
        size, most = 0, min(max(request.max_messages, 1), MAX_MESSAGES)
        begin, end = request.begin_ms, request.end_ms
        for place in self._reput.files.index.lookup(request.topic, request.key, begin, end):
            body = self._message_at(place, is_known=True)
            if body is None:
                continue
            message = decode_message(body)
            is_wanted = message.has_key(request.topic, request.key)
            if not is_wanted or not begin <= message.store_timestamp <= end:
                continue
            size += len(body)
            if len(bodies) == most or (bodies and size > MAX_BYTES):
                break
            bodies.append(body)
        return QueryMessageResponse(code=Code.SUCCESS), bodies
