"""Whether the right node is at the address that a change of members names."""

from __future__ import annotations

from typing import Any

from dledger.errors import AccessDenied, ConfigError, Unavailable, WrongGroup
from dledger.net.address import join_address
from dledger.node.context import NodeContext, NodePart
from dledger.node.handlers.altered_members import NotPossible
from dledger.node.peers.handshake import Gate
from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.member_requests import AlterMemberRequest, MemberAction
from dledger.protocol.messages.membership import MemberRole


class MemberPlaces(NodePart):
    """Asks the nodes at new addresses who they are."""

    def __init__(self, context: NodeContext, gate: Gate) -> None:
        super().__init__(context)
        self._gate = gate

    async def check(self, request: AlterMemberRequest) -> None:
        """One that is added and replaces nobody need not run yet.

        Raises:
            NotPossible: another node is there, or one that cannot be what it shall be; by
                LEADER_NOT_READY, none yet.
        """
        node, place = request.node_id, join_address(request.host, request.port)
        is_new = request.action is MemberAction.ADD
        # a new node need not know of this one, but only of those that its --peers name
        greeting = self._gate.as_client(node, named=not is_new)
        try:
            status = await self._peers.status_at(place, greeting)
        except Unavailable as error:
            if is_new and not request.replaces:
                return
            join = " --join" if is_new else ""
            text = f"{node} does not answer there: start it with dledger serve{join} ({error})"
            raise NotPossible(text, Code.LEADER_NOT_READY) from None
        except (WrongGroup, ConfigError, AccessDenied) as error:
            raise NotPossible(str(error)) from None
        assert greeting.welcome is not None
        if text := self._gate.other_version(greeting.welcome):
            raise NotPossible(f"{place}: {text}")
        theirs, own = greeting.welcome.group_id, self._raft.membership.group_id
        if theirs and own and theirs != own:
            raise NotPossible(
                f"{node} at {place} is of another group, {theirs}, and this one is {own}: start it "
                "on an empty directory"
            )
        if is_new:
            if status.get("disk_level") == "FULL":
                raise NotPossible(f"{place}: the disk of {node} is full: make room there first")
        else:
            self._check_disk(request, place, status)

    def _check_disk(self, request: AlterMemberRequest, place: str, status: dict[str, Any]) -> None:
        """A voter that has moved has its disk with it: the group counts what is there."""
        node, own = request.node_id, status.get("admission", {}).get("incarnation")
        if self._members.roles().get(node) is not MemberRole.VOTER:
            return
        if own != self._raft.membership.of(node):
            raise NotPossible(
                f"{node} answers at {place}, but with another directory than the group counts: "
                f"start it with its own, or replace it: dledger members replace {node} NEW={place}"
            )
