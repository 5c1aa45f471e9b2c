"""The audit log in the group's topic: each node sends its lines to the leader, which appends them.

A node sends the lines that its catalog does not show in the topic, again and again, as a producer
whose sequence numbers count them: so each is written once, whichever leaders it was sent to, and no
answer is needed. The producer's name is drawn for each life of a node, and a session is opened only
where the leader's catalog has none, so that none is ever fenced by another one.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from dledger.catalog.results import CommandResult
from dledger.config import AUDIT_TOPIC
from dledger.node.audit.backlog import Backlog
from dledger.node.context import NodeContext, NodePart
from dledger.node.peers.handshake import Gate
from dledger.node.proposals.proposal import append_header
from dledger.node.proposals.proposal_queue import ProposalQueue
from dledger.node.proposals.reserved import PRODUCERS
from dledger.protocol.messages.audit import AuditLines
from dledger.protocol.messages.catalog_commands import Command, CreateTopic, InitProducer
from dledger.protocol.messages.client import AppendRequest, ExecuteRequest
from dledger.records.body.keyed_record import encode_keyed_record
from dledger.types import NodeId, Role

logger = logging.getLogger(__name__)

BATCH_LINES: Final = 512
BATCH_BYTES: Final = 256 << 10
"""Of lines that are sent together."""
MOST_LINE_BYTES: Final = 512 << 10
"""A frame's header, in which they are sent, has twice as many."""
BODY_BYTES: Final = 512
"""Of an entry's body, those beside the line."""
AGAIN_MS: Final = 1000
"""Until lines that are not seen in the topic are sent again."""
PREPARE_MS: Final = 200
"""The same while there is no topic or session yet."""
MAKE_MS: Final = 10_000
"""Time that a command of the leader's own has to be committed before it is proposed again."""
FIRST_VERSION: Final = 1
"""Nodes that support this group version know `AuditLines`."""
DESCRIPTION: Final = "the group's audit log: a line of JSON for each event, by the node in the key"


class _Place(NamedTuple):
    """Where a node's lines go: numbers begin anew in each one."""

    topic_id: int
    producer_id: int
    epoch: int


class AuditTopic(NodePart):
    """Sends this node's lines, and appends those of all where this node leads."""

    def __init__(self, context: NodeContext, proposals: ProposalQueue, *, gate: Gate) -> None:
        super().__init__(context)
        self._proposals = proposals
        self._gate = gate
        self._producer = PRODUCERS + context.environment.unique()
        most = min(MOST_LINE_BYTES, context.group.max_body_bytes - BODY_BYTES)
        self._backlog = Backlog(most, gap=context.audit.gap)
        self._place: _Place | None = None
        self._written = 0
        """Lines that `_place` has."""
        self._again_ms = 0
        self._sent_to: NodeId | None = None
        self._make_again_ms: dict[str, int] = {}
        """When a topic or a session may be proposed again, by name."""
        context.events.role.subscribe(lambda change: self._make_again_ms.clear())
        if context.node.audit_topic:
            context.audit.backlog = self._backlog
            context.status.add(self._status)

    def _status(self) -> dict[str, Any]:
        return {"audit_topic": {"waiting": self.waiting, "lost": self._backlog.lost}}

    @property
    def waiting(self) -> int:
        """Lines that are not in the topic yet, as far as this node knows."""
        self._forget_written()
        return len(self._backlog)

    def close(self) -> None:
        """The node ends, or begins anew on other files: close the audit log."""
        self._context.audit.close()
        if self.waiting:
            logger.warning(
                "topic %s lacks %d lines of %s's audit log, which were written at its end, or "
                "while no leader took them: %s has them",
                AUDIT_TOPIC,
                len(self._backlog),
                self._node_id,
                "its file" if self._node.audit_files else "this log",
            )

    # ---- this node's lines

    def tick(self, now_ms: int) -> None:
        """See `MaintenanceTask`."""
        self._backlog.tell_missing()
        if not self._backlog:
            return
        self._forget_written()
        leader = self._raft.leader_id
        if leader is None or (now_ms < self._again_ms and leader == self._sent_to):
            return
        bodies = self._bodies()
        self._sent_to, self._again_ms = leader, now_ms + (AGAIN_MS if bodies else PREPARE_MS)
        if leader == self._node_id:
            self._append(self._producer, bodies)
        elif self._understands(leader):
            self._peers.send(
                AuditLines(
                    group=self._raft.tag,
                    local_id=self._node_id,
                    remote_id=leader,
                    producer=self._producer,
                    bodies=bodies,
                )
            )

    def _understands(self, leader: NodeId) -> bool:
        """Whether its release knows the message; one that does not would close the connection."""
        hello = self._gate.supporting.get(leader)
        return hello is not None and hello.versions[1] >= FIRST_VERSION

    def _find(self, producer: str) -> _Place | None:
        info = self._catalog.topics_state.by_name.get(AUDIT_TOPIC)
        session = self._catalog.producers.by_name.get(producer)
        if info is None or session is None:
            return None
        return _Place(info.topic_id, session.producer_id, session.epoch)

    def _forget_written(self) -> None:
        """Let go of the lines that are in the topic, as this node's catalog has it."""
        place = self._find(self._producer)
        if place != self._place:
            self._place, self._written = place, 0
        if place is None:
            return
        session = self._catalog.producers.sessions[place.producer_id]
        window = session.windows.get(place.topic_id << 32)
        written = 0 if window is None else window.next_sequence
        if written > self._written:
            self._backlog.written(written - self._written)
            self._written, self._again_ms = written, 0

    def _bodies(self) -> tuple[bytes, ...]:
        """Of the next lines; none where their place is not there yet."""
        place = self._place
        if place is None:
            return ()
        return tuple(
            encode_keyed_record(
                self._node_id.encode(),
                line.text,
                topic_id=place.topic_id,
                time_us=line.time_us,
                producer_id=place.producer_id,
                epoch=place.epoch,
                sequence=self._written + number,
            )
            for number, line in enumerate(self._backlog.first(BATCH_LINES, BATCH_BYTES))
        )

    # ---- those of all, at the leader

    def on_message(self, message: AuditLines) -> None:
        """Another node's lines."""
        is_meant = message.group == self._raft.tag and message.remote_id == self._node_id
        if is_meant and message.producer.startswith(PRODUCERS):
            self._append(message.producer, message.bodies)

    def _append(self, producer: str, bodies: Sequence[bytes]) -> None:
        """What cannot be written now comes again."""
        if self._raft.role is not Role.LEADER or not self._proposals.caught_up:
            return
        place = self._find(producer)
        if place is None:
            self._prepare(producer)
        elif all(self._belongs(body, place) for body in bodies):
            request = AppendRequest(timeout_ms=self._group.ack_timeout_ms)
            for number, body in enumerate(bodies):
                self._proposals.append(None, request, (number,), (body,))

    def _belongs(self, body: bytes, place: _Place) -> bool:
        header = append_header((body,), self._group.max_body_bytes)
        return (
            not isinstance(header, CommandResult)
            and (header.topic_id, header.partition) == (place.topic_id, 0)
            and header.producer_id == place.producer_id
        )

    def _prepare(self, producer: str) -> None:
        catalog = self._catalog
        if AUDIT_TOPIC not in catalog.topics_state.by_name:
            log_id = self._environment.unique()
            settings = {"description": DESCRIPTION}
            topic = CreateTopic(name=AUDIT_TOPIC, log_id=log_id, settings=settings, if_absent=True)
            self._make(AUDIT_TOPIC, topic)
        if producer not in catalog.producers.by_name:
            self._make(producer, InitProducer(producer_name=producer))

    def _make(self, name: str, command: Command) -> None:
        now_ms = self._now_ms()
        if now_ms < self._make_again_ms.get(name, 0):
            return
        self._make_again_ms = {
            known: at_ms for known, at_ms in self._make_again_ms.items() if at_ms > now_ms
        }
        self._make_again_ms[name] = now_ms + MAKE_MS
        self._proposals.execute(None, 0, ExecuteRequest(command=command))
