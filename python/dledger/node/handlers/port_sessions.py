"""Connections that have said hello: the member or the principal of each one.

The first frames of a connection are those of the handshake. What comes after them is a session's,
and `dledger.node.handlers.request_router` hands it out.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from dledger.errors import ProtocolError
from dledger.net import Connection, Listener
from dledger.net.limits.accounts import account_of
from dledger.net.limits.connection_slots import TooMany
from dledger.net.limits.turns import Pace, Turns
from dledger.node.access.client_quotas import Budget, ClientQuotas, Counts
from dledger.node.access.traffic import Traffic
from dledger.node.context import NodeContext, NodePart
from dledger.node.peers.handshake import Gate, Visit
from dledger.node.peers.logins import Login, LoginPauses
from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.hello import HelloProof, HelloRequest, HelloResponse
from dledger.types import NodeId, Principal

HELLOS: Final = 4
"""Hellos that are answered in `HELLOS_S` of clients that must prove a secret: the node proves it to
each of them first."""
HELLOS_S: Final = 0.004
LOOK_MS: Final = 1000
"""Between two looks at logins, while no user changes."""


class NoMember(ProtocolError):
    """A connection is closed because its node was removed from the group."""


class LoginOver(ProtocolError):
    """A connection is closed because its login would be refused by now."""


@dataclass(slots=True)
class PortSession:
    """The member or client at the other side of a connection that has said hello."""

    peer: NodeId | None
    """The member that has opened it; None: a client has."""
    principal: Principal
    login: Login | None = None
    """Of a user that proved itself by a password or a token."""
    takes_notices: bool = False
    """It knows what a `ThrottleNotice` is."""
    budget: Budget | None = None
    """Its principal's rates at this node; None: it has none."""
    counts_for: str = ""
    """The name under which `Traffic` has a client's bytes."""


class PausedLogin:
    """The context of a connection whose proof has to wait."""


class PortSessions(NodePart):
    """Answers the first frames of connections, and knows those that were taken."""

    def __init__(
        self, context: NodeContext, gate: Gate, *, resume: Callable[[Connection], None]
    ) -> None:
        """``resume``: read on from a connection that had to wait."""
        super().__init__(context)
        self._gate = gate
        self._quotas = ClientQuotas(context, resume=resume)
        self.traffic = Traffic()
        context.status.add(self._principals)
        self.listener: Listener | None = None
        """The port, once it is open."""
        self.clients: dict[Connection, None] = {}
        """Connections of clients, oldest first."""
        self.hellos = Turns[Connection](
            Pace(HELLOS, HELLOS_S), on_wait=Connection.pause_reading, on_done=resume
        )
        """Connections that wait for the answer to their hello."""
        self._pauses = LoginPauses()
        self._look_ms = 0
        """When to look at logins."""
        context.catalog.users.on_change = self._users_changed
        self._peer_connections: dict[NodeId, set[Connection]] = {}
        context.events.member_left.subscribe(self._member_left)
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
        visit: Visit | PausedLogin | None = connection.context
        if isinstance(visit, PausedLogin):
            raise ProtocolError(f"{type(message).__name__} before the proof was answered")
        if visit is not None:
            self._proof(connection, request_id, message, visit)
        elif self._gate.wants_proof(message) or message.authentication:
            self.hellos.ask(
                connection, partial(self._answer_hello, connection, request_id, message)
            )
        else:
            self._answer_hello(connection, request_id, message)

    def _answer_hello(self, connection: Connection, request_id: int, message: HelloRequest) -> None:
        answer = self._gate.answer(message, connection.shown)
        if answer.proof_wanted:
            connection.context = Visit(message, answer)
            connection.send(answer, request_id)
        else:
            self._end_of_hello(connection, request_id, message, answer)

    def _proof(self, connection: Connection, request_id: int, message: Any, visit: Visit) -> None:
        if not isinstance(message, HelloProof):
            raise ProtocolError(f"{type(message).__name__} where a proof belongs")
        if not visit.hello.authentication:
            answer = self._gate.proved(visit, message)
            self._end_of_hello(connection, request_id, visit.hello, answer)
            return
        who = connection.host, visit.hello.authentication.partition(b",r=")[0]
        wait_ms = self._pauses.wait_ms(who, self._now_ms())
        log_in = partial(self._log_in, connection, request_id, message, visit=visit, who=who)
        if wait_ms:
            connection.context = PausedLogin()  # nothing else is said meanwhile
            self._loop.call_later(wait_ms / 1000, log_in)
        else:
            log_in()

    def _log_in(
        self,
        connection: Connection,
        request_id: int,
        message: HelloProof,
        *,
        visit: Visit,
        who: Hashable,
    ) -> None:
        """Look at a user's proof."""
        if connection.closing or self._closed:
            return
        answer, login = self._gate.logged_in(visit, message)
        self._pauses.judged(who, self._now_ms(), is_right=answer.code is not Code.ACCESS_DENIED)
        self._end_of_hello(connection, request_id, visit.hello, answer, login)

    def _end_of_hello(
        self,
        connection: Connection,
        request_id: int,
        hello: HelloRequest,
        answer: HelloResponse,
        login: Login | None = None,
    ) -> None:
        """The last word, and a place for a connection that is taken. One of a client is refused
        where there is none."""
        assert self.listener is not None
        places, peer = self.listener.places, NodeId(hello.node_id)
        principal = self._gate.principal(hello, connection.shown)
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
            self._gate.supporting[peer] = hello
            connection.context = PortSession(peer, principal)
            places.seat_member(peer, connection)
            self._peer_connections.setdefault(peer, set()).add(connection)
            self._ready_loop.peer_found(peer)
            self._events.member_taken(peer)
        else:
            connection.send(answer, request_id)
            connection.context = session = PortSession(
                None, principal, login, takes_notices=hello.takes_notices
            )
            places.seat_client(connection)
            connection.belong_to(account_of(principal, connection.host))
            self._context.accounts.enter(principal)
            self.clients[connection] = None
            self._quotas.begin(connection, session)
            session.counts_for = self.traffic.begin(principal, connection)
            self.used_ms = self._now_ms()

    def end_member(self, member: NodeId, reason: str) -> None:
        """Close all connections of a member, which are not to be taken any more."""
        if self.listener is not None:
            self.listener.places.end_member(member, ProtocolError(reason))

    @property
    def throttled(self) -> Counts:
        """As `ClientQuotas` has it."""
        return self._quotas.throttled

    def _principals(self) -> dict[str, Any]:
        moved = self.traffic.moved().items()
        return {"principals": {name: one._asdict() for name, one in moved}}

    def is_paused(self, connection: Connection) -> bool:
        """Whether the principal at the other side has overdrawn its quotas."""
        session: PortSession | Visit | None = connection.context
        return (
            isinstance(session, PortSession)
            and session.budget is not None
            and session.budget.is_paused
        )

    def _users_changed(self) -> None:
        self._look_ms = 0
        self._want_certificates()

    def _want_certificates(self) -> None:
        """A client without a certificate may be a user, unless there is none for sure."""
        if self.listener is not None:
            has_none = not self._catalog.users.by_name and self._gate.logins.is_current()
            self.listener.want_certificates(has_none)

    def tick(self, now_ms: int) -> None:
        """See `MaintenanceTask`. Connections end whose user was removed, or whose token is over."""
        if now_ms < self._look_ms:
            return
        self._look_ms = now_ms + LOOK_MS
        self._want_certificates()
        for connection in list(self.clients):
            session: PortSession = connection.context
            if session.login is not None and not self._gate.logins.holds(session.login):
                self._end_login(connection, session)

    def _end_login(self, connection: Connection, session: PortSession) -> None:
        text = "the user was removed, has another password, or the token is over"
        self._context.audit.record(
            "disconnect", principal=session.principal, address=connection.peer_name, refused=text
        )
        connection.give_way(LoginOver(text))

    def _member_left(self, peer: NodeId) -> None:
        """Who is a member no more has nothing to say to the group, and no part in its version."""
        self._gate.supporting.pop(peer, None)
        for connection in list(self._peer_connections.get(peer, ())):
            connection.give_way(NoMember(f"{peer} is not a member any more"))

    def ended(self, connection: Connection) -> bool:
        """The connection has ended; whether it was a client's."""
        self.hellos.forget(connection)
        session: PortSession | Visit | None = connection.context
        if isinstance(session, PortSession) and session.peer is not None:
            others = self._peer_connections[session.peer]
            others.remove(connection)
            if not others and not self._closed and session.peer in self._members.ids:
                self._ready_loop.peer_lost(session.peer)
        elif connection in self.clients:
            del self.clients[connection]
            self._quotas.end(connection, connection.context)
            self.traffic.end(connection.context.counts_for, connection)
            self._context.accounts.leave(connection.context.principal)
            self.used_ms = self._now_ms()
            return True
        return False
