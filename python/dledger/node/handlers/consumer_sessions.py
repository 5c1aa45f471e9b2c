"""The sessions of consumer groups' members, by the leader's own clock.

A member lives while the leader hears its heartbeats. None of them is written into the log: the
leader keeps the time of each member's last one, and when that is a session time-out ago it lets the
group say, by an entry, that the member has left. A leader that is new in its term has heard nobody
yet, and gives each member a whole time-out.

A heartbeat is answered when a round of the group has shown that this node still leads. So an answer
means: no other leader was there before the heartbeat was sent, and neither this one nor a later one
ends the session within its time-out. By that a member that hears nothing more knows, by its own
clock, when it has to stop, before its partitions can be given to another.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from dledger.net import Connection
from dledger.node.context import NodeContext, NodePart
from dledger.node.handlers.offsets import LinearizableReads
from dledger.node.proposals.proposal_queue import ProposalQueue
from dledger.protocol.messages.catalog_commands import LeaveGroup
from dledger.protocol.messages.client import ExecuteRequest
from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.group_heartbeat import GroupHeartbeatRequest, GroupHeartbeatResponse
from dledger.types import Role, Term

AGAIN_MS: Final = 10_000
"""Time that an entry has to be committed before another one is proposed for the same member."""
Place = tuple[str, str]
"""A group and a member of it."""


class ConsumerSessions(NodePart):
    """Answers heartbeats, and ends the sessions of members that send none (a
    `MaintenanceTask`)."""

    def __init__(
        self, context: NodeContext, proposals: ProposalQueue, *, linearizable: LinearizableReads
    ) -> None:
        super().__init__(context)
        self._proposals = proposals
        self._linearizable = linearizable
        self._term: Term | None = None
        """In which this node led when it last looked."""
        self._deadlines: dict[Place, int] = {}
        self._ending: dict[Place, int] = {}
        """Members whose end is proposed, and until when that is waited for. Their heartbeats are
        answered no more: they would count on a session that is about to end."""

    def heartbeat(
        self, connection: Connection, request_id: int, request: GroupHeartbeatRequest
    ) -> None:
        """Answer when it is sure that this node led when the heartbeat came."""
        serve = partial(self._serve, connection, request_id, request)
        self._linearizable.answer(connection, request_id, serve, refusal=GroupHeartbeatResponse)

    def _serve(
        self, connection: Connection, request_id: int, request: GroupHeartbeatRequest
    ) -> None:
        connection.send(self._answer(request), request_id)

    def _answer(self, request: GroupHeartbeatRequest) -> GroupHeartbeatResponse:
        name, member_id = request.consumer_group, request.member_id
        group = self._catalog.consumer_groups.by_name.get(name)
        member = None if group is None else group.membership.members.get(member_id)
        if group is None or member is None:
            text = f"group {name!r} has no member {member_id}: its session has ended"
            return self._refused(Code.UNKNOWN_CONSUMER, text)
        if member.is_replaced:
            text = (
                f"another consumer has joined group {name!r} as instance {member.instance_id!r}: "
                f"two programs must not use one instance_id at a time"
            )
            return self._refused(Code.CONSUMER_FENCED, text)
        if not self._leads() or (name, member_id) in self._ending:
            return self._refused(Code.LEADER_NOT_READY, f"{member_id} may be ended: ask again")
        self._deadlines[name, member_id] = self._now_ms() + member.session_ms
        membership = group.membership
        answer = GroupHeartbeatResponse(
            code=Code.SUCCESS,
            leader_id=self._leader_id,
            epoch=membership.epoch,
            changed_at=membership.changed_at,
        )
        if request.known_at == membership.changed_at:
            return answer
        assigned = membership.assigned_to(member_id)
        topic_ids = {key >> 32 for key in assigned}
        return GroupHeartbeatResponse(
            code=Code.SUCCESS,
            leader_id=self._leader_id,
            epoch=membership.epoch,
            changed_at=membership.changed_at,
            is_settled=membership.is_settled(member_id),
            assigned=assigned,
            revoked=tuple(key for key in membership.owned_by(member_id) if key not in assigned),
            topics=tuple(map(self._catalog.topic_by_id, sorted(topic_ids))),
        )

    def _refused(self, code: Code, text: str) -> GroupHeartbeatResponse:
        return GroupHeartbeatResponse(code=code, message=text, leader_id=self._leader_id)

    def _leads(self) -> bool:
        """Whether this node leads, and has applied what earlier leaders committed. In another term
        than before it has heard from nobody."""
        raft = self._raft
        leads = raft.role is Role.LEADER and self._proposals.caught_up
        term = raft.term if leads else None
        if term != self._term:
            self._term = term
            self._deadlines.clear()
            self._ending.clear()
        return leads

    def tick(self, now_ms: int) -> None:
        """See `MaintenanceTask`."""
        if not self._leads():
            return
        known: dict[Place, int] = {}
        for name, group in self._catalog.consumer_groups.with_members.items():
            over: list[str] = []
            for member in group.membership.members.values():
                place = name, member.member_id
                known[place] = self._deadlines.get(place, now_ms + member.session_ms)
                if known[place] <= now_ms and self._ending.get(place, now_ms) <= now_ms:
                    over.append(member.member_id)
                    self._ending[place] = now_ms + AGAIN_MS
            if over:
                command = LeaveGroup(consumer_group=name, member_ids=tuple(over))
                self._proposals.execute(None, 0, ExecuteRequest(command=command))
        self._deadlines = known
        if self._ending:
            self._ending = {place: at for place, at in self._ending.items() if place in known}
