"""Connections that have said hello: the member or the principal of each one.

The first frames of a connection are those of the handshake. What comes after them is a session's,
and `dledger.node.handlers.request_router` hands it out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from dledger.errors import ProtocolError
from dledger.net import Connection, Listener
from dledger.net.limits.accounts import account_of
from dledger.net.limits.connection_slots import TooMany
from dledger.net.limits.turns import Pace, Turns
from dledger.node.access.client_quotas import Budget, ClientQuotas
from dledger.node.context import NodeContext, NodePart
from dledger.node.peers.handshake import Gate, Visit
from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.hello import HelloProof, HelloRequest, HelloResponse
from dledger.types import NodeId, Principal

HELLOS: Final = 4
"""Hellos that are answered in `HELLOS_S` of clients that must prove a secret: the node proves it to
each of them first."""
HELLOS_S: Final = 0.004


@dataclass(slots=True)
class PortSession:
    """The member or client at the other side of a connection that has said hello."""

    peer: NodeId | None
    """The member that has opened it; None: a client has."""
    principal: Principal
    takes_notices: bool = False
    """It knows what a `ThrottleNotice` is."""
    budget: Budget | None = None
    """Its principal's rates at this node; None: it has none."""


class PortSessions(NodePart):
    """Answers the first frames of connections, and knows those that were taken."""

    def __init__(
        self, context: NodeContext, gate: Gate, *, resume: Callable[[Connection], None]
    ) -> None:
        """``resume``: read on from a connection that had to wait."""
        super().__init__(context)
        self._gate = gate
        self._quotas = ClientQuotas(context, resume=resume)
        self.listener: Listener | None = None
        """The port, once it is open."""
        self.clients: dict[Connection, None] = {}
        """Connections of clients, oldest first."""
        self.hellos = Turns[Connection](
            Pace(HELLOS, HELLOS_S), on_wait=Connection.pause_reading, on_done=resume
        )
        """Connections that wait for the answer to their hello."""
        self._peer_connections: Counter[NodeId] = Counter()
        self._closed = False
        self.used_ms = self._now_ms()
        """When a client was last seen."""

    def close(self) -> None:
        """The port is being closed."""
        self._closed = True
        self.hellos.close()

    def greet(self, connection: Connection, request_id: int, message: Any) -> None:
        """A frame of a connection that has no session yet.

        Raises:
            ProtocolError: it does not belong there.
        """
        visit: Visit | None = connection.context
        if visit is not None:
            self._proof(connection, request_id, message, visit)
        elif self._gate.wants_proof(message):
            self.hellos.ask(
                connection, partial(self._answer_hello, connection, request_id, message)
            )
        else:
            self._answer_hello(connection, request_id, message)

    def _answer_hello(self, connection: Connection, request_id: int, message: HelloRequest) -> None:
        answer = self._gate.answer(message, connection.peer_nodes)
        if answer.proof_wanted:
            connection.context = Visit(message, answer)
            connection.send(answer, request_id)
        else:
            self._end_of_hello(connection, request_id, message, answer)

    def _proof(self, connection: Connection, request_id: int, message: Any, visit: Visit) -> None:
        if not isinstance(message, HelloProof):
            raise ProtocolError(f"{type(message).__name__} where a proof of the secret belongs")
        self._end_of_hello(connection, request_id, visit.hello, self._gate.proved(visit, message))

    def _end_of_hello(
        self, connection: Connection, request_id: int, hello: HelloRequest, answer: HelloResponse
    ) -> None:
        """The last word, and a place for a connection that is taken. One of a client is refused
        where there is none."""
        assert self.listener is not None
        places, peer = self.listener.places, NodeId(hello.node_id)
        principal = self._gate.principal(hello, connection.peer_users)
        if answer.code is not Code.SUCCESS:
            connection.send(answer, request_id)
            self.listener.refuse(connection, answer.message)
            self._context.audit.record(
                "authenticate",
                principal=principal,
                address=connection.peer_name,
                refused=answer.message,
            )
        elif not peer and (full := self._quotas.refusal(principal) or places.refusal(connection)):
            connection.send(HelloResponse(code=Code.LEADER_PENDING_FULL, message=full), request_id)
            connection.give_way(TooMany(full))
        elif peer:
            connection.send(answer, request_id)
            connection.context = PortSession(peer, principal)
            places.seat_member(peer, connection)
            self._peer_connections[peer] += 1
            self._ready_loop.peer_found(peer)
        else:
            connection.send(answer, request_id)
            connection.context = session = PortSession(None, principal, hello.takes_notices)
            places.seat_client(connection)
            connection.belong_to(account_of(principal, connection.host))
            self._context.accounts.enter(principal)
            self.clients[connection] = None
            self._quotas.begin(connection, session)
            self.used_ms = self._now_ms()

    def is_paused(self, connection: Connection) -> bool:
        """Whether the principal at the other side has overdrawn its quotas."""
        session: PortSession | Visit | None = connection.context
        return (
            isinstance(session, PortSession)
            and session.budget is not None
            and session.budget.is_paused
        )

    def ended(self, connection: Connection) -> bool:
        """The connection has ended; whether it was a client's."""
        self.hellos.forget(connection)
        session: PortSession | Visit | None = connection.context
        if isinstance(session, PortSession) and session.peer is not None:
            self._peer_connections[session.peer] -= 1
            if not self._peer_connections[session.peer] and not self._closed:
                self._ready_loop.peer_lost(session.peer)
        elif connection in self.clients:
            del self.clients[connection]
            self._quotas.end(connection, connection.context)
            self._context.accounts.leave(connection.context.principal)
            self.used_ms = self._now_ms()
            return True
        return False
