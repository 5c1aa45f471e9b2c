"""The leader, the topics, the state of this node: requests that read the node's own state."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from dledger.catalog.access.acls import CONSUMERS, TOPIC
from dledger.catalog.topics.partition import RAW
from dledger.errors import TopicNotFound
from dledger.net import Connection
from dledger.node.access.authorizer import Authorizer
from dledger.node.context import NodeContext, NodePart
from dledger.node.handlers.offsets import LinearizableReads
from dledger.node.proposals.proposal_queue import BETWEEN_S
from dledger.protocol.messages.acl_decisions import AclDecisionRequest, AclDecisionResponse
from dledger.protocol.messages.client import (
    GroupRequest,
    GroupResponse,
    MetadataRequest,
    MetadataResponse,
    SchemasRequest,
    SchemasResponse,
    StatusRequest,
    StatusResponse,
    TopicInfo,
    TransferRequest,
    TransferResponse,
)
from dledger.protocol.messages.codes import Code
from dledger.raft.state.ready import TransferDone
from dledger.types import NodeId, Role

OF_EVERYBODY: Final = (
    *("node_id", "group", "members", "role", "term", "leader_id"),
    *("member_roles", "member_racks"),  # by which a reader finds the nearest one
    *("begin_index", "clock"),  # which nodes ask one another for
)
"""Values of the status that each client is told that is admitted."""


class MetadataHandler(NodePart):
    """Metadata, consumer groups, status and transfers."""

    def __init__(
        self, context: NodeContext, linearizable: LinearizableReads, *, access: Authorizer
    ) -> None:
        super().__init__(context)
        self._linearizable = linearizable
        self._access = access
        context.events.role.subscribe(lambda change: self.leadership_changed())
        context.events.transferred.subscribe(self.transferred)
        self._started_ms = self._now_ms()
        self._transfers: list[tuple[Connection, int]] = []
        self._asking: list[tuple[Connection, int, MetadataRequest]] = []
        self._between: asyncio.TimerHandle | None = None

    # --- metadata ---------------------------------------------------------------------------------

    def metadata(self, connection: Connection, request_id: int, request: MetadataRequest) -> None:
        """The leader, at once, or as soon as there is one. The leader's answer on topics is
        linearizable; a follower tells what it has applied."""

        def answer(code: Code) -> None:
            self._tell(connection, request_id, request, code)

        if (request.topics or request.all_topics) and self._raft.role is Role.LEADER:
            self._linearizable.add(answer)
        elif self._raft.leader_id is None and not self._ready_loop.failed:
            self._asking.append((connection, request_id, request))
            if self._between is None:
                self._between = self._loop.call_later(BETWEEN_S, self._tell_who_leads)
        else:
            answer(Code.SUCCESS)

    def leadership_changed(self) -> None:
        """Clients that asked while there was no leader are answered."""
        if self._raft.leader_id is not None:
            self._tell_who_leads()

    def _tell_who_leads(self) -> None:
        if self._between is not None:
            self._between.cancel()
            self._between = None
        asking, self._asking = self._asking, []
        for connection, request_id, request in asking:
            if self._raft.role is Role.LEADER:
                # one that leads since a moment has not applied yet what earlier leaders committed
                self.metadata(connection, request_id, request)
            else:
                self._tell(connection, request_id, request, Code.SUCCESS)

    def _tell(
        self, connection: Connection, request_id: int, request: MetadataRequest, code: Code
    ) -> None:
        sight = self._access.sight(connection)
        topics = sight.of(TOPIC, self._topics(request), lambda info: info.name)
        connection.send(self._metadata(topics, code), request_id)

    def _metadata(self, topics: Sequence[TopicInfo], code: Code) -> MetadataResponse:
        refusal = f"the topics cannot be told now: {code.name}; ask again"
        return MetadataResponse(
            code=code,
            message="" if code is Code.SUCCESS else refusal,
            group=self._group.group,
            node_id=self._node_id,
            leader_id=self._leader_id,
            term=self._raft.term,
            peers={str(peer): address for peer, address in self._members.addresses().items()},
            topics=tuple(topics),
            max_body_bytes=self._group.max_body_bytes,
        )

    def _topics(self, request: MetadataRequest) -> list[TopicInfo]:
        if request.all_topics:
            return self._catalog.topics()
        found: list[TopicInfo] = []
        for name in request.topics:
            with suppress(TopicNotFound):
                found.append(self._catalog.topic(name))
        return found

    # --- consumer groups --------------------------------------------------------------------------

    def consumer_group(
        self, connection: Connection, request_id: int, request: GroupRequest
    ) -> None:
        """Committed offsets of a group, or all groups' names; linearizable."""

        def serve() -> None:
            sight = self._access.sight(connection)
            answer = GroupResponse(code=Code.SUCCESS, leader_id=self._leader_id)
            if request.consumer_group:
                offsets = self._catalog.group(request.consumer_group)
                if not sight.is_whole:
                    offsets = {topic: offsets[topic] for topic in sight.of(TOPIC, offsets, str)}
                answer = replace(answer, offsets=offsets)
            else:
                groups = sight.of(CONSUMERS, self._catalog.groups(), str)
                answer = replace(answer, groups=tuple(groups))
            connection.send(answer, request_id)

        self._linearizable.answer(connection, request_id, serve, refusal=GroupResponse)

    # --- schemas ----------------------------------------------------------------------------------

    def schemas(self, connection: Connection, request_id: int, request: SchemasRequest) -> None:
        """The schemas of a typed topic; linearizable, so that none is missing that a body was
        written under."""

        def serve() -> None:
            leader = self._leader_id
            some, newest = self._catalog.schemas.behind(request.topic_id, request.after)
            if newest == RAW:
                text = self._catalog.no_topic(request.topic_id)
                if request.topic_id in self._catalog.topics_state.by_id:
                    text = f"the topic with id {request.topic_id} is raw: it has no columns"
                response = SchemasResponse(code=Code.UNKNOWN_TOPIC, message=text, leader_id=leader)
            else:
                response = SchemasResponse(
                    code=Code.SUCCESS, leader_id=leader, schemas=some, newest=newest
                )
            connection.send(response, request_id)

        self._linearizable.answer(connection, request_id, serve, refusal=SchemasResponse)

    # --- access -----------------------------------------------------------------------------------

    def acl_decision(
        self, connection: Connection, request_id: int, request: AclDecisionRequest
    ) -> None:
        """What the rules say; linearizable."""

        def serve() -> None:
            answer = self._access.decision(request)
            connection.send(replace(answer, leader_id=self._leader_id), request_id)

        self._linearizable.answer(connection, request_id, serve, refusal=AclDecisionResponse)

    # --- status -----------------------------------------------------------------------------------

    def status(self, connection: Connection, request_id: int, request: StatusRequest) -> None:
        values = self.status_values()
        if not self._access.sight(connection).has_cluster:
            values = {name: values[name] for name in OF_EVERYBODY}
        connection.send(StatusResponse(code=Code.SUCCESS, status=values), request_id)

    def status_values(self) -> dict[str, Any]:
        """Plain values by name; documented in docs/operations.md."""
        raft, recovery = self._raft, self._store.recovery
        return {
            "node_id": self._node_id,
            "group": self._group.group,
            "members": list(self._members.ids),
            "member_roles": {str(node): role.name for node, role in self._members.roles().items()},
            "member_racks": {str(node): rack for node, rack in self._members.racks().items()},
            "role": raft.role.name,
            "term": raft.term,
            "term_is_spent": raft.term_is_spent,
            "refused_terms": {
                str(node): {"term": refused.term, "messages": refused.messages}
                for node, refused in raft.refused_terms.items()
            },
            "leader_id": self._leader_id,
            "begin_index": raft.begin_index,
            "end_index": raft.end_index,
            "durable_index": raft.durable_index,
            "committed_index": raft.committed_index,
            "applied_index": self._catalog.applied_index,
            "watermarks": {str(node): index for node, index in raft.watermarks.items()},
            "bytes_used": self._store.bytes_used,
            "topics": len(self._catalog.topics()),
            "pid": self._ready_loop.environment.pid(),
            "uptime_ms": self._now_ms() - self._started_ms,
            "recovery": {
                "kept": recovery.kept,
                "cut": list(recovery.cut),
                "rebuilt": list(recovery.rebuilt),
                "faulty": len(recovery.faulty),
                "lost": recovery.lost,
            },
            **self._context.status.values(),
        }

    # --- transfer ---------------------------------------------------------------------------------

    def transfer(self, connection: Connection, request_id: int, request: TransferRequest) -> None:
        """Hand leadership over; answered when the attempt is over."""
        if self._raft.role is not Role.LEADER:
            leader = self._leader_id
            text = f"this node does not lead; ask {leader or 'again, there is no leader now'}"
            answer = TransferResponse(code=Code.NOT_LEADER, message=text, leader_id=leader)
            connection.send(answer, request_id)
        elif request.to not in self._members.ids:
            text = f"{request.to!r} is not a member; members: {', '.join(self._members.ids)}"
            answer = TransferResponse(code=Code.UNKNOWN_MEMBER, message=text)
            self._end_of_transfer(connection, request_id, request.to, answer)
        else:
            self._transfers.append((connection, request_id))
            self._ready_loop.transfer(request.to)

    def transferred(self, done: TransferDone) -> None:
        """The core ended an attempt; clients that asked for one are told."""
        waiting, self._transfers = self._transfers, []
        text = "" if done.code is Code.SUCCESS else f"{done.to} did not take over: {done.code.name}"
        answer = TransferResponse(code=done.code, message=text, leader_id=self._leader_id)
        for connection, request_id in waiting:
            self._end_of_transfer(connection, request_id, done.to, answer)

    def _end_of_transfer(
        self, connection: Connection, request_id: int, to: NodeId, answer: TransferResponse
    ) -> None:
        self._context.audit.record_request(
            connection, "transfer leadership", answer.code, answer.message, to=to
        )
        connection.send(answer, request_id)
