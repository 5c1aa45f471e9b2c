"""The check of each request of a client by the rules of its group, before any part sees it.

A node knows the rules that it has applied. Only a leader that has applied what earlier leaders
committed knows all of them: once there are rules, any other node sends on to it whoever asks for
what the leader alone does, and whoever it would not let pass itself.

A request that waits, as a fetch of what is not there yet, was checked when it came: when rules
change, all that wait are answered with nothing (`LongPolls.give_up_all`), so that their clients ask
again.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from typing import Any

from dledger.catalog.access.acls import (
    CLUSTER,
    DESCRIBE,
    EVERYBODY,
    TOPIC,
    is_trusted,
    malformed_asking,
)
from dledger.errors import ProtocolError
from dledger.net import Connection
from dledger.node.access.operations import PAYLOADS, REQUESTS, Need
from dledger.node.access.sight import EVERYTHING, Sight
from dledger.node.context import NodePart
from dledger.protocol.messages.acl_decisions import AclDecisionRequest, AclDecisionResponse
from dledger.protocol.messages.client import LeaderResponse, MetadataRequest
from dledger.protocol.messages.codes import Code
from dledger.protocol.wire.message_numbers import KINDS, MESSAGES
from dledger.records.body.header import plain_batches
from dledger.types import Principal, Role

MAX_SHOWN = 255
"""Characters of a name in a denial."""


class Authorizer(NodePart):
    """Lets requests pass, or answers them."""

    @property
    def is_on(self) -> bool:
        """Whether there is anything to check: without, nobody need be asked."""
        return self._catalog.access_is_checked

    def refuses(
        self, connection: Connection, request_id: int, request: Any, payload: memoryview
    ) -> bool:
        """Whether a request is not let pass; then it is answered.

        Raises:
            ProtocolError: it is none of a client's, or malformed.
        """
        principal = self._checked(connection)
        if principal is None:
            return False
        kind = type(request)
        needs: Iterable[Need]
        if (row := REQUESTS.get(kind)) is not None:
            needs = row(request, self._catalog)
        elif (row_of_payload := PAYLOADS.get(kind)) is not None:
            needs = row_of_payload(payload, self._catalog)
        else:
            raise ProtocolError(f"a client sent {kind.__name__}")
        if self._is_for_leader(request):
            self._send_on(connection, (request_id,), request)
            return True
        missing = self._missing(principal, needs)
        if missing is None:
            return False
        if kind is MetadataRequest and self._raft.role is not Role.LEADER:
            return False  # it is told who leads, and of no topic that is hidden
        self._deny(connection, (request_id,), request, principal, missing)
        return True

    def admitted(
        self,
        connection: Connection,
        request: Any,
        request_ids: Sequence[int],
        bodies: Sequence[memoryview],
    ) -> tuple[Sequence[int], Sequence[memoryview]]:
        """Those of appends that came together that are let pass; the others are answered."""
        principal = self._checked(connection)
        if principal is None:
            return request_ids, bodies
        if self._is_for_leader(request):
            self._send_on(connection, request_ids, request)
            return (), ()
        row, at = PAYLOADS[type(request)], 0
        passed: list[int] = []
        while at < len(bodies):
            stop = at + (len(plain_batches(bodies, at)) or 1) if len(bodies) > 1 else 1
            missing = self._missing(principal, row(bodies[at], self._catalog))
            if missing is None:
                passed.extend(range(at, stop))
            else:
                self._deny(connection, request_ids[at:stop], request, principal, missing)
            at = stop
        if len(passed) == len(bodies):
            return request_ids, bodies
        return [request_ids[at] for at in passed], [bodies[at] for at in passed]

    def sight(self, connection: Connection) -> Sight:
        """The part of the group that the client of a connection sees."""
        principal = self._checked(connection) if self.is_on else None
        return EVERYTHING if principal is None else Sight(principal, self._catalog.acls)

    def decision(self, request: AclDecisionRequest) -> AclDecisionResponse:
        """What the rules say to something that a principal might ask for."""
        who, operation, kind = request.principal, request.operation, request.resource_type
        text = ""
        if is_trusted(who):
            who, text = EVERYBODY, "the owner of a group and its nodes may do everything"
        elif not self.is_on:
            text = "there are no rules, so everybody who is admitted may do everything"
        if wrong := malformed_asking(who, operation, kind):
            return AclDecisionResponse(code=Code.MALFORMED, message=wrong)
        if text:
            return AclDecisionResponse(code=Code.SUCCESS, message=text, allowed=True)
        decision = self._catalog.acls.decide(who, operation, kind, request.resource)
        return AclDecisionResponse(
            code=Code.SUCCESS,
            message="" if decision.rule else "no rule allows it",
            allowed=decision.allowed,
            rules=() if decision.rule is None else (decision.rule,),
        )

    # ---- decisions

    def _checked(self, connection: Connection) -> Principal | None:
        """The principal that rules hold for; None: this is the owner, or a node, which could as
        well write what it likes into the log."""
        principal: Principal = connection.context.principal
        return None if is_trusted(principal) else principal

    def _missing(self, principal: Principal, needs: Iterable[Need]) -> Need | None:
        """The first that the rules do not allow."""
        decide = self._catalog.acls.decide
        for need in needs:
            operation, resource_type, resource, _ = need
            if not decide(principal, operation, resource_type, resource).allowed:
                return need
        return None

    @property
    def _is_settled(self) -> bool:
        """Whether this node leads, and has applied what earlier leaders committed: it knows of
        every rule."""
        raft = self._raft
        leader = raft.leader if raft.role is Role.LEADER else None
        return leader is not None and self._catalog.applied_index >= leader.noop_index

    def _is_for_leader(self, request: Any) -> bool:
        """Whether the answer has to come from a node that knows every rule, and this is none."""
        if self._is_settled or getattr(request, "stale", False):
            return False
        return issubclass(_answer_to(request), LeaderResponse)

    # ---- answers

    def _deny(
        self,
        connection: Connection,
        request_ids: Sequence[int],
        request: Any,
        principal: Principal,
        need: Need,
    ) -> None:
        if not self._is_settled:
            self._send_on(connection, request_ids, request)
            return
        code, text = self._denial(principal, need)
        self._context.audit.record(
            "authorize",
            principal=principal,
            address=connection.peer_name,
            refused=text,
            request=type(request).__name__,
            operation=need.operation,
            resource=f"{need.resource_type} {need.resource}".strip(),
        )
        for request_id in request_ids:
            connection.send(_answer_to(request)(code=code, message=text), request_id)

    def _send_on(self, connection: Connection, request_ids: Sequence[int], request: Any) -> None:
        """Let the asker ask the leader, or again where that is this node."""
        kind, leader = _answer_to(request), self._leader_id
        text = f"only the leader knows each rule of access; ask {leader or 'again'}"
        if not issubclass(kind, LeaderResponse):
            answer = kind(code=Code.BEHIND, message=text)
        else:
            leads = self._raft.role is Role.LEADER
            code = Code.LEADER_NOT_READY if leads else Code.NOT_LEADER
            answer = kind(code=code, message=text, leader_id=leader)
        for request_id in request_ids:
            connection.send(answer, request_id)

    def _denial(self, principal: Principal, need: Need) -> tuple[Code, str]:
        """The same for a topic that is not there: by its name the missing rule, and by its id that
        there is none, where its name may not be known."""
        decide = self._catalog.acls.decide
        if need.topic_id >= 0 and not decide(principal, DESCRIBE, TOPIC, need.resource).allowed:
            return Code.UNKNOWN_TOPIC, self._catalog.no_topic(need.topic_id)
        return Code.ACCESS_DENIED, denial(principal, need)


def _answer_to(request: Any) -> type[Any]:
    """The class of its answer."""
    return MESSAGES[KINDS[type(request)] + 1]


def denial(principal: str, need: Need) -> str:
    """The text for a principal that may not do something, with the rule that would let it."""
    name = need.resource
    if need.resource_type == CLUSTER:
        name = ""
    elif not name or len(name) > MAX_SHOWN or not name.isprintable():
        name = "NAME"
    what = shlex.join(filter(None, (principal, need.operation, need.resource_type, name)))
    done = f"{need.operation} {need.resource_type} {name}".strip()
    more = " (to read, write, alter or delete brings it along)"
    return (
        f"{principal} may not {done}: who may change the rules can allow it, with "
        f"'dledger acl add allow {what}'{more if need.operation == DESCRIBE else ''}, or learn "
        f"what is against it, with 'dledger acl test {what}'"
    )
