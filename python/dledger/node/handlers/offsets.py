"""Reads that must see everything acknowledged before they were asked: offsets, consumer groups,
topics.

A linearizable read asks the core for a read index, a heartbeat round that proves this node still
leads, and is served once that index is applied (Raft, 6.4). All reads that wait at the same time
share one round.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from dledger.errors import StorageError, TopicNotFound
from dledger.net import Connection
from dledger.node.context import NodeContext, NodePart
from dledger.node.handlers.parked_requests import LongPoll, LongPolls
from dledger.protocol.messages.client import (
    OffsetKind,
    OffsetsRequest,
    OffsetsResponse,
    TopicInfo,
)
from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.shared_offsets import (
    SharedOffsetsRequest,
    SharedOffsetsResponse,
)
from dledger.raft.state.ready import ReadDone
from dledger.types import Index

Serve = Callable[[Code], None]


class LinearizableReads(NodePart):
    """Turns any number of waiting reads into one heartbeat round after the other."""

    def __init__(self, context: NodeContext) -> None:
        super().__init__(context)
        context.events.read_done.subscribe(self.done)
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

    def answer(
        self,
        connection: Connection,
        request_id: int,
        serve: Callable[[], None],
        *,
        refusal: type[Any],
    ) -> None:
        """``serve()`` when the applied state may be shown; where this node cannot tell, the request
        gets a ``refusal``, a response with code, message and leader."""

        def decided(code: Code) -> None:
            if code is Code.SUCCESS:
                serve()
                return
            leader = self._leader_id
            text = f"this node cannot tell whether it still leads ({code.name}); ask "
            response = refusal(code=code, message=text + (leader or "again"), leader_id=leader)
            connection.send(response, request_id)

        self.add(decided)

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
                self._events.applied.subscribe(self.applied)
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
            self._events.applied.unsubscribe(self.applied)

    def fail_all(self, code: Code) -> None:
        waiting = [*self._asked, *self._gathered]
        for _, serves in self._confirmed:
            waiting.extend(serves)
        self._asked, self._gathered, self._confirmed = [], [], []
        for serve in waiting:
            serve(code)


class Offsets(NodePart):
    """Begin, end and time offsets of whole topics."""

    def __init__(self, context: NodeContext, reads: LinearizableReads, *, polls: LongPolls) -> None:
        super().__init__(context)
        self._reads = reads
        self._polls = polls

    def ask(self, connection: Connection, request_id: int, request: OffsetsRequest) -> None:
        """Answer from the applied state: at once when stale will do, else after a read index."""
        serve = partial(self._serve, connection, request_id, request)
        if request.stale:
            serve()
        else:
            self._reads.answer(connection, request_id, serve, refusal=OffsetsResponse)

    def shared(
        self, connection: Connection, request_id: int, request: SharedOffsetsRequest
    ) -> None:
        """How far this group has the records of an ancestor."""

        def serve() -> None:
            connection.send(self._shared(request), request_id)

        self._reads.answer(connection, request_id, serve, refusal=SharedOffsetsResponse)

    def _shared(self, request: SharedOffsetsRequest) -> SharedOffsetsResponse:
        leader, known = self._leader_id, self._raft.membership
        shared = dict(known.ancestors).get(request.group_id)
        if shared is None and request.group_id not in ("", known.group_id):
            text = f"the group {known.group_id} is no copy of the group {request.group_id}"
            return SharedOffsetsResponse(code=Code.UNKNOWN_GROUP, message=text, leader_id=leader)
        offsets: dict[str, dict[int, int]] = {}
        log_ids: dict[str, str] = {}
        for name in request.topics:
            with suppress(TopicNotFound):
                topic = self._catalog.topic(name)
                try:
                    offsets[name] = (
                        self._catalog.edges(topic)[1]
                        if shared is None
                        else self._catalog.ends_as_of(topic, shared)
                    )
                except StorageError as error:
                    self._ready_loop.fail(error)
                    return SharedOffsetsResponse(code=Code.DISK_ERROR, message=str(error))
                log_ids[name] = topic.log_id
        return SharedOffsetsResponse(
            code=Code.SUCCESS, leader_id=leader, offsets=offsets, log_ids=log_ids
        )

    def _serve(self, connection: Connection, request_id: int, request: OffsetsRequest) -> None:
        def end() -> None:
            connection.send(self._answer(request), request_id)

        if request.newer_than and request.wait_ms > 0 and not self._is_newer(request):
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

    def _answer(self, request: OffsetsRequest) -> OffsetsResponse:
        leader = self._leader_id
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
                first, end = self._catalog.edges(topic)
                if request.kind is OffsetKind.EDGES:
                    begins[name] = first
                offsets[name] = self._offsets(topic, first, end, request)
            except StorageError as error:
                self._ready_loop.fail(error)
                return OffsetsResponse(code=Code.DISK_ERROR, message=str(error), leader_id=leader)
        return OffsetsResponse(
            code=Code.SUCCESS, leader_id=leader, offsets=offsets, log_ids=log_ids, begins=begins
        )

    def _offsets(
        self,
        topic: TopicInfo,
        begins: dict[int, int],
        ends: dict[int, int],
        request: OffsetsRequest,
    ) -> dict[int, int]:
        if request.kind is OffsetKind.BEGIN:
            return begins
        if request.kind in (OffsetKind.END, OffsetKind.EDGES):
            return ends
        find, time_us = self._catalog.offset_for_time, request.timestamp_us
        return {number: find(topic.topic_id, number, time_us) for number in ends}

    def _is_newer(self, request: OffsetsRequest) -> bool:
        """Whether any end offset is above the one the asker knows, or a topic is not the one it
        knows."""
        for name, known in request.newer_than.items():
            try:
                topic = self._catalog.topic(name)
            except TopicNotFound:
                return True
            first, end_of = topic.topic_id << 32, self._catalog.partitions.end_of
            for partition, offset in known.items():
                if partition >= topic.partitions or end_of(first | partition) > offset:
                    return True
        return False
