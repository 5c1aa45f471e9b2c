"""Adding, promoting, demoting and removing members, by requests that the leader checks.

See `dledger.raft.roles.member_change` for what the leader refuses, and why.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from dledger.config import nearest
from dledger.net import Connection
from dledger.net.address import split_address
from dledger.node.context import NodeContext, NodePart
from dledger.node.proposals.proposal_queue import ProposalQueue
from dledger.node.proposals.version_rule import refused_by_version
from dledger.protocol.messages.catalog_commands import ChangeMembers
from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.member_requests import (
    AlterMemberRequest,
    AlterMemberResponse,
    MemberAction,
)
from dledger.protocol.messages.membership import Member, MemberRole
from dledger.raft.roles.member_change import MembersRefused, Refusal
from dledger.raft.state.ready import RoleChange
from dledger.types import NO_INDEX, Index, NodeId, Role

Members = tuple[Member, ...]
SOON: Final = {
    *(Refusal.NOOP_NOT_COMMITTED, Refusal.UNDER_WAY, Refusal.HANDING_OVER, Refusal.NO_GROUP_ID),
    *(Refusal.NOT_CAUGHT_UP, Refusal.NOT_HEARD),
}
"""Refusals that go away by themselves, or when the learner gets on."""


class NotPossible(Exception):
    """What was asked for contradicts the list."""


@dataclass(slots=True, eq=False)
class ChangeWait:
    """A client that waits for a change of members to be committed."""

    connection: Connection
    request_id: int
    request: AlterMemberRequest
    index: Index
    timer: asyncio.TimerHandle = field(init=False)


class MemberChanges(NodePart):
    """Answers `AlterMemberRequest`."""

    def __init__(self, context: NodeContext, proposals: ProposalQueue) -> None:
        super().__init__(context)
        self._proposals = proposals
        self._waiting: list[ChangeWait] = []
        context.events.committed.subscribe(self._committed)
        context.events.role.subscribe(self._role_changed)

    def stop(self) -> None:
        for wait in list(self._waiting):
            self._answer(wait, Code.TERM_CHANGED, "this node stops; ask again")

    def alter(self, connection: Connection, request_id: int, request: AlterMemberRequest) -> None:
        """Propose the list that the request leads to, and answer when it is committed."""
        raft = self._raft
        if raft.role is not Role.LEADER:
            text = f"this node does not lead; ask {raft.leader_id or 'again, there is no leader'}"
            self._reply(connection, request_id, request, Code.NOT_LEADER, text)
            return
        if not self._proposals.caught_up:
            text = "the new leader is still catching up; ask again"
            self._reply(connection, request_id, request, Code.LEADER_NOT_READY, text)
            return
        listed = self._listed()
        try:
            wanted = altered(listed, request, raft.heard)
            if wanted != listed:
                raft.check_members(wanted, self._now_ms())
                self._check_links(wanted)
        except NotPossible as error:
            self._reply(connection, request_id, request, Code.UNEXPECTED_ARGUMENT, str(error))
            return
        except MembersRefused as error:
            code = Code.LEADER_NOT_READY if error.reason in SOON else Code.UNEXPECTED_ARGUMENT
            self._reply(connection, request_id, request, code, str(error))
            return
        if wanted != listed:
            command = ChangeMembers(after=raft.membership.index, members=wanted)
            refusal = refused_by_version(command, self._context, caught_up=True)
            if refusal is not None:
                self._reply(connection, request_id, request, refusal.code, refusal.message)
                return
            self._ready_loop.feed(raft.propose_members, wanted, self._now_ms())
        index = raft.change.index if raft.change is not None else NO_INDEX
        wait = ChangeWait(connection, request_id, request, index)
        late, text = Code.WAIT_QUORUM_ACK_TIMEOUT, "no quorum has acknowledged it in time"
        wait.timer = self._loop.call_later(
            request.timeout_ms / 1000, self._answer, wait, late, text
        )
        self._waiting.append(wait)
        self._committed(raft.committed_index)

    def _listed(self) -> Members:
        """The newest list; one like it where no entry has one yet."""
        known, addresses = self._raft.membership, self._members.addresses()
        if self._raft.members:
            return self._raft.members
        return tuple(
            Member(node, *split_address(addresses[node]), MemberRole.VOTER, known.of(node) or 0)
            for node in self._members.ids
        )

    def _check_links(self, wanted: Members) -> None:
        """A voter whose connection has ended is away, although it was heard a moment ago."""
        voters = [member.id for member in wanted if member.role is MemberRole.VOTER]
        reached = self._peers.connected()
        away = [voter for voter in voters if voter != self._node_id and not reached.get(voter)]
        if 2 * len(away) >= len(voters):
            raise MembersRefused(Refusal.NO_LIVE_MAJORITY, f"{', '.join(away)} would be away")

    def _committed(self, index: Index) -> None:
        for wait in [wait for wait in self._waiting if wait.index <= index]:
            self._answer(wait, Code.SUCCESS)

    def _role_changed(self, change: RoleChange) -> None:
        if change.role is not Role.LEADER:
            for wait in list(self._waiting):
                self._answer(wait, Code.TERM_CHANGED, "another node leads; ask again")

    def _answer(self, wait: ChangeWait, code: Code, text: str = "") -> None:
        self._waiting.remove(wait)
        wait.timer.cancel()
        self._reply(wait.connection, wait.request_id, wait.request, code, text)

    def _reply(
        self,
        connection: Connection,
        request_id: int,
        request: AlterMemberRequest,
        code: Code,
        text: str = "",
    ) -> None:
        event = f"{request.action.name.lower()} member"
        self._context.audit.record_request(connection, event, code, text, node=request.node_id)
        answer = AlterMemberResponse(code=code, message=text, leader_id=self._leader_id)
        connection.send(answer, request_id)


def altered(listed: Members, request: AlterMemberRequest, heard: Mapping[NodeId, int]) -> Members:
    """The list that a request leads to; the same one where it is so already.

    Raises:
        NotPossible: it contradicts the list.
    """
    node = request.node_id
    known = next((member for member in listed if member.id == node), None)
    if request.action is MemberAction.ADD:
        return _added(listed, request, known)
    if request.action is MemberAction.REMOVE:
        return tuple(member for member in listed if member.id != node)
    if known is None:
        ids = [str(member.id) for member in listed]
        raise NotPossible(
            f"{node!r} is not a member{nearest(node, ids)}; members: {', '.join(ids)}"
        )
    if request.action is MemberAction.PROMOTE:
        if known.role is MemberRole.VOTER:
            return listed
        other = replace(known, role=MemberRole.VOTER, incarnation=heard.get(node, 0))
    else:
        if known.role is not MemberRole.VOTER:
            return listed
        other = replace(known, role=MemberRole.LEARNER)
    return tuple(other if member is known else member for member in listed)


def _added(listed: Members, request: AlterMemberRequest, known: Member | None) -> Members:
    where = request.host, request.port
    taken = next((member for member in listed if (member.host, member.port) == where), None)
    if known is None and taken is not None:
        raise NotPossible(f"{taken.id} is at {request.host}:{request.port} already")
    if known is None:
        role = MemberRole.OBSERVER if request.role is MemberRole.OBSERVER else MemberRole.LEARNER
        new = Member(request.node_id, request.host, request.port, role, 0, request.rack)
        return (*listed, new)
    if (known.host, known.port) != where:
        raise NotPossible(
            f"{known.id} is a member already, at {known.host}:{known.port}: remove it first, or "
            "choose another id"
        )
    if (known.role is MemberRole.OBSERVER) is not (request.role is MemberRole.OBSERVER):
        raise NotPossible(f"{known.id} is a member already, as {known.role.name.lower()}")
    return listed
