"""Adding, promoting, demoting, removing and moving members, by requests that the leader checks.

See `dledger.raft.roles.member_change` for what the leader refuses, and why.

A leader that is to be removed, or to vote no more, first lets another voter lead, and sends the
client there (Raft dissertation, 4.2.2 and 3.10): that costs appends as little as any planned change
of leaders. It goes on as a member, so that it hears who leads, and tells its own clients. Where
nobody takes over it changes the list itself, and hands over at the commit; but then it has no part
in the group any more, and nobody tells it who leads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, Final

from dledger.net import Connection
from dledger.net.address import split_address
from dledger.node.context import NodeContext, NodePart
from dledger.node.handlers.altered_members import Members, NotPossible, altered
from dledger.node.handlers.member_places import MemberPlaces
from dledger.node.handlers.offsets import LinearizableReads
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
from dledger.raft.roles.member_change import MembersRefused, Refusal, standings
from dledger.raft.state.ready import RoleChange, TransferDone
from dledger.types import Index, Role

SOON: Final = {
    *(Refusal.NOOP_NOT_COMMITTED, Refusal.UNDER_WAY, Refusal.HANDING_OVER, Refusal.NO_GROUP_ID),
    *(Refusal.NOT_CAUGHT_UP, Refusal.NOT_HEARD),
}
"""Refusals that go away by themselves, or when the learner gets on."""


STOPS: Final = "this node stops; ask again"
LOOKED_FOR: Final = {MemberAction.ADD, MemberAction.READDRESS}
"""Before these a node is looked for at the address."""


@dataclass(frozen=True, slots=True)
class AskedChange:
    """A client's request."""

    connection: Connection
    request_id: int
    request: AlterMemberRequest


@dataclass(slots=True, eq=False)
class ChangeWait:
    """A client that waits for a change of members to be committed."""

    asked: AskedChange
    index: Index
    timer: asyncio.TimerHandle = field(init=False)


class MemberChanges(NodePart):
    """Answers `AlterMemberRequest`."""

    def __init__(
        self,
        context: NodeContext,
        proposals: ProposalQueue,
        *,
        places: MemberPlaces,
        linearizable: LinearizableReads,
    ) -> None:
        super().__init__(context)
        self._proposals = proposals
        self._places = places
        self._linearizable = linearizable
        self._waiting: list[ChangeWait] = []
        self._looking: set[asyncio.Task[None]] = set()
        self._handing_over: list[AskedChange] = []
        """They wait for another leader, which then makes the change."""
        context.events.committed.subscribe(self._committed)
        context.events.role.subscribe(self._role_changed)
        context.events.transferred.subscribe(self._transferred)
        context.status.add(self.status)

    def stop(self) -> None:
        for task in self._looking:
            task.cancel()
        for wait in list(self._waiting):
            self._answer(wait, Code.TERM_CHANGED, STOPS)
        handing_over, self._handing_over = self._handing_over, []
        for asked in handing_over:
            self._reply(asked, Code.TERM_CHANGED, STOPS)

    def status(self) -> dict[str, Any]:
        """For the node's status; see docs/operations.md."""
        leader, listed = self._raft.leader, self._raft.members
        addresses = self._members.addresses()
        standing = {} if leader is None else standings(leader, self._now_ms())
        return {
            "end_pos": self._store.end.end_pos,
            "member_addresses": {str(node): place for node, place in addresses.items()},
            "replacing": {str(one.id): one.replaces for one in listed if one.replaces},
            "standings": {str(node): asdict(one) for node, one in standing.items()},
        }

    def alter(self, connection: Connection, request_id: int, request: AlterMemberRequest) -> None:
        """Propose the list that the request leads to, and answer when it is committed."""
        asked = AskedChange(connection, request_id, request)
        with self._refusing(asked):
            wanted = self._wanted(request)
            if wanted is not None and self._is_left_out(wanted):
                self._handing_over.append(asked)
                self._ready_loop.transfer(None)
                return
            if wanted is None or request.action not in LOOKED_FOR:
                self._carry_out(asked, wanted)
                return
            task = self._loop.create_task(self._look(asked))
            self._looking.add(task)
            task.add_done_callback(self._looking.discard)

    def _is_left_out(self, wanted: Members) -> bool:
        """Whether this node, which leads, is a voter and would be none."""
        voters = {member.id for member in wanted if member.role is MemberRole.VOTER}
        return self._node_id in self._raft.voters and self._node_id not in voters

    def _transferred(self, done: TransferDone) -> None:
        """Another node leads, which the clients are told; or none has taken over."""
        leader = self._raft.leader
        if leader is not None and leader.transfers.ongoing is not None:
            return  # that was another one, which was refused beside this one
        handing_over, self._handing_over = self._handing_over, []
        for asked in handing_over:
            with self._refusing(asked):
                self._carry_out(asked, self._wanted(asked.request))

    async def _look(self, asked: AskedChange) -> None:
        """See first who is at the address. Meanwhile the list may become another one."""
        with self._refusing(asked):
            await self._places.check(asked.request)
            self._carry_out(asked, self._wanted(asked.request))

    @contextmanager
    def _refusing(self, asked: AskedChange) -> Iterator[None]:
        """A change that is not possible is answered so."""
        try:
            yield
        except NotPossible as error:
            self._reply(asked, error.code, str(error))

    def _wanted(self, request: AlterMemberRequest) -> Members | None:
        """The list to propose; None where it is so already.

        Raises:
            NotPossible: with the reason.
        """
        raft = self._raft
        if raft.role is not Role.LEADER:
            text = f"this node does not lead; ask {raft.leader_id or 'again, there is no leader'}"
            raise NotPossible(text, Code.NOT_LEADER)
        if not self._proposals.caught_up:
            text = "the new leader is still catching up; ask again"
            raise NotPossible(text, Code.LEADER_NOT_READY)
        listed = self._listed()
        wanted = altered(listed, request, raft.heard)
        # addresses of settings are each node's own: one that was asked for comes into the log
        is_told = bool(raft.members) or request.action is not MemberAction.READDRESS
        if wanted == listed and is_told:
            return None
        try:
            raft.check_members(wanted, self._now_ms())
            self._check_links(wanted)
        except MembersRefused as error:
            code = Code.LEADER_NOT_READY if error.reason in SOON else Code.UNEXPECTED_ARGUMENT
            raise NotPossible(str(error), code) from None
        command = ChangeMembers(after=raft.membership.index, members=wanted)
        refusal = refused_by_version(command, self._context, caught_up=True)
        if refusal is not None:
            raise NotPossible(refusal.message, refusal.code)
        return wanted

    def _carry_out(self, asked: AskedChange, wanted: Members | None) -> None:
        """Propose this list, if there is one, and answer when the newest one is committed."""
        raft = self._raft
        if wanted is not None:
            self._ready_loop.feed(raft.propose_members, wanted, self._now_ms())
        if raft.change is None:
            self._linearizable.add(partial(self._is_so, asked))
            return
        late, text = Code.WAIT_QUORUM_ACK_TIMEOUT, "no quorum has acknowledged it in time"
        wait = ChangeWait(asked, raft.change.index)
        timeout_s = asked.request.timeout_ms / 1000
        wait.timer = self._loop.call_later(timeout_s, self._answer, wait, late, text)
        self._waiting.append(wait)
        self._committed(raft.committed_index)

    def _is_so(self, asked: AskedChange, code: Code) -> None:
        """The list was so already. ``code``: whether this node led then, or a later leader may have
        changed it: who is told that a node was removed may empty its directory."""
        text = "" if code is Code.SUCCESS else "this node cannot tell whether it still leads"
        self._reply(asked, code, text)

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
        for wait in tuple(self._waiting):
            if wait.index <= index:
                self._answer(wait, Code.SUCCESS)

    def _role_changed(self, change: RoleChange) -> None:
        if change.role is not Role.LEADER:
            for wait in list(self._waiting):
                self._answer(wait, Code.TERM_CHANGED, "another node leads; ask again")

    def _answer(self, wait: ChangeWait, code: Code, text: str = "") -> None:
        self._waiting.remove(wait)
        wait.timer.cancel()
        self._reply(wait.asked, code, text)

    def _reply(self, asked: AskedChange, code: Code, text: str = "") -> None:
        connection, request = asked.connection, asked.request
        event = f"{request.action.name.lower()} member"
        self._context.audit.record_request(connection, event, code, text, node=request.node_id)
        answer = AlterMemberResponse(code=code, message=text, leader_id=self._leader_id)
        connection.send(answer, asked.request_id)
