"""Reads that must see everything acknowledged before they were asked: offsets, consumer groups,
topics.

A linearizable read asks the core for a read index, a heartbeat round that proves this node still
leads, and is served once that index is applied (Raft, 6.4). All reads that wait at the same time
share one round.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from dledger.errors import StorageError, TopicNotFound
from dledger.net import Connection
from dledger.node.context import NodeContext
from dledger.node.handlers.parked_requests import LongPoll, LongPolls
from dledger.protocol.messages.client import OffsetKind, OffsetsRequest, OffsetsResponse
from dledger.protocol.messages.codes import Code
from dledger.raft.state.ready import ReadDone
from dledger.types import Index, NodeId

Serve = Callable[[Code], None]


class LinearizableReads:
    """Turns any number of waiting reads into one heartbeat round after the other."""

    def __init__(self, context: NodeContext) -> None:
        self._ready_loop = context.ready_loop
        self._catalog = context.catalog
        context.events.read_done.subscribe(self.done)
        self._applied = context.events.applied
        self._loop = asyncio.get_running_loop()
        self._token = 0
        self._gathered: list[Serve] = []
        self._asked: list[Serve] = []
        self._confirmed: list[tuple[Index, list[Serve]]] = []
        self._scheduled = False

    def add(self, serve: Serve) -> None:
        """``serve(SUCCESS)`` when the applied state may be shown; another code when this node
        cannot tell."""
        self._gathered.append(serve)
        if not self._scheduled and not self._asked:
            self._scheduled = True
            self._loop.call_soon(self._ask)

    def _ask(self) -> None:
        self._scheduled = False
        if not self._gathered or self._asked:
            return
        if self._ready_loop.failed:
            self.fail_all(Code.DISK_ERROR)
            return
        self._asked, self._gathered = self._gathered, []
        self._token += 1
        self._ready_loop.read_index(self._token)

    def done(self, done: ReadDone) -> None:
        """The core's answer to a round."""
        if done.token != self._token:
            return
        asked, self._asked = self._asked, []
        if done.code is not Code.SUCCESS:
            for serve in asked:
                serve(done.code)
        elif self._catalog.applied_index >= done.index:
            for serve in asked:
                serve(Code.SUCCESS)
        else:
            if not self._confirmed:
                self._applied.subscribe(self.applied)
            self._confirmed.append((done.index, asked))
        if self._gathered and not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._ask)

    def applied(self) -> None:
        """The catalog moved on: serve the reads that waited for it."""
        while self._confirmed and self._confirmed[0][0] <= self._catalog.applied_index:
            for serve in self._confirmed.pop(0)[1]:
                serve(Code.SUCCESS)
        if not self._confirmed:
            self._applied.unsubscribe(self.applied)

    def fail_all(self, code: Code) -> None:
        waiting = [*self._asked, *self._gathered]
        for _, serves in self._confirmed:
            waiting.extend(serves)
        self._asked, self._gathered, self._confirmed = [], [], []
        for serve in waiting:
            serve(code)


class Offsets:
    """Begin, end and time offsets of whole topics."""

    def __init__(self, context: NodeContext, reads: LinearizableReads, *, polls: LongPolls) -> None:
        self._ready_loop = context.ready_loop
        self._catalog = context.catalog
        self._reads = reads
        self._polls = polls

    def ask(self, connection: Connection, request_id: int, request: OffsetsRequest) -> None:
        """Answer from the applied state: at once when stale will do, else after a read index."""
        if request.stale:
            self._serve(connection, request_id, request, Code.SUCCESS)
        else:
            self._reads.add(lambda code: self._serve(connection, request_id, request, code))

    def _serve(
        self, connection: Connection, request_id: int, request: OffsetsRequest, code: Code
    ) -> None:
        end = partial(self._end, connection, request_id, request, code)
        if (
            code is Code.SUCCESS
            and request.newer_than
            and request.wait_ms > 0
            and not self._is_newer(request)
        ):
            # An entry applied later was committed later, so it may be shown without another round.
            wants = [
                (self._catalog.topic(name).topic_id << 32 | partition, offset)
                for name, known in request.newer_than.items()
                for partition, offset in known.items()
            ]
            size = sum(map(len, request.newer_than)) + sum(map(len, request.topics))
            self._polls.hold(LongPoll(connection, wants, end, end, size), request.wait_ms)
        else:
            end()

    def _end(
        self, connection: Connection, request_id: int, request: OffsetsRequest, code: Code
    ) -> None:
        connection.send(self._answer(request, code), request_id)

    def _answer(self, request: OffsetsRequest, code: Code) -> OffsetsResponse:
        leader = self._ready_loop.raft.leader_id or NodeId("")
        if code is not Code.SUCCESS:
            text = (
                f"this node cannot tell whether it still leads ({code.name}); ask "
                f"{leader or 'again'}"
            )
            return OffsetsResponse(code=code, message=text, leader_id=leader)
        offsets: dict[str, dict[int, int]] = {}
        begins: dict[str, dict[int, int]] = {}
        log_ids: dict[str, str] = {}
        for name in request.topics:
            try:
                topic = self._catalog.topic(name)
            except TopicNotFound as error:
                return OffsetsResponse(
                    code=Code.UNKNOWN_TOPIC, message=str(error), leader_id=leader
                )
            log_ids[name] = topic.log_id
            try:
                offsets[name] = {
                    partition: self._offset(topic.topic_id, partition, request)
                    for partition in range(topic.partitions)
                }
                if request.kind is OffsetKind.EDGES:
                    of_topic = range(topic.partitions)
                    begins[name] = {
                        p: self._catalog.begin_offset(topic.topic_id, p) for p in of_topic
                    }
            except StorageError as error:
                self._ready_loop.fail(error)
                return OffsetsResponse(code=Code.DISK_ERROR, message=str(error), leader_id=leader)
        return OffsetsResponse(
            code=code, leader_id=leader, offsets=offsets, log_ids=log_ids, begins=begins
        )

    def _offset(self, topic_id: int, partition: int, request: OffsetsRequest) -> int:
        if request.kind is OffsetKind.BEGIN:
            return self._catalog.begin_offset(topic_id, partition)
        if request.kind in (OffsetKind.END, OffsetKind.EDGES):
            return self._catalog.end_offset(topic_id, partition)
        return self._catalog.offset_for_time(topic_id, partition, request.timestamp_us)

    def _is_newer(self, request: OffsetsRequest) -> bool:
        """Whether any end offset is above the one the asker knows, or a topic is not the one it
        knows."""
        for name, known in request.newer_than.items():
            try:
                topic = self._catalog.topic(name)
            except TopicNotFound:
                return True
            for partition, offset in known.items():
                if (
                    partition >= topic.partitions
                    or self._catalog.end_offset(topic.topic_id, partition) > offset
                ):
                    return True
        return False
