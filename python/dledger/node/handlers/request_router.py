"""The node's port: the peer or client of each connection, the handler of each request, and when a
client must wait."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from dledger.errors import ProtocolError, StorageError
from dledger.net import Connection, Handlers, Listener, Patience
from dledger.net.limits.by_address import ByAccount
from dledger.net.limits.frame_turns import CROWD, WHILE_S
from dledger.net.limits.turns import Company, Pace, Turns
from dledger.node.access.authorizer import Authorizer
from dledger.node.application import Application
from dledger.node.application import Handler as PayloadHandler
from dledger.node.context import NodeContext, NodePart
from dledger.node.handlers.backups import Backups
from dledger.node.handlers.consumer_sessions import ConsumerSessions
from dledger.node.handlers.fetches import Reads
from dledger.node.handlers.listings import Listings
from dledger.node.handlers.member_changes import MemberChanges
from dledger.node.handlers.metadata import MetadataHandler
from dledger.node.handlers.offsets import Offsets
from dledger.node.handlers.peer_messages import PeerMessages
from dledger.node.handlers.port_sessions import PortSession, PortSessions
from dledger.node.handlers.replaced_disks import Admissions
from dledger.node.peers.handshake import Gate, Visit
from dledger.node.peers.links import frame_limits
from dledger.node.proposals.proposal_queue import ProposalQueue
from dledger.protocol.messages.acl_decisions import AclDecisionRequest
from dledger.protocol.messages.backup import (
    OpenBackupRequest,
    ReadBackupImageRequest,
    ReadBackupLogRequest,
)
from dledger.protocol.messages.client import (
    AdmitRequest,
    AppendRequest,
    ExecuteRequest,
    FetchRequest,
    GroupRequest,
    ListRequest,
    MetadataRequest,
    OffsetsRequest,
    SchemasRequest,
    StatusRequest,
    TransferRequest,
)
from dledger.protocol.messages.group_heartbeat import GroupHeartbeatRequest
from dledger.protocol.messages.member_requests import AlterMemberRequest
from dledger.protocol.messages.shared_offsets import SharedOffsetsRequest
from dledger.protocol.messages.splits import SplitRequest

logger = logging.getLogger(__name__)

COMMANDS: Final = 4
"""Commands of clients that are begun in `COMMANDS_S` while another client waits for the node: each
is written, sent and applied on every node, or refused."""
COMMANDS_S: Final = 0.002
COMMANDS_UNDER_WAY: Final = 16
"""Commands of clients that wait for their entries, at most, while another client waits for the
node."""
COMMANDS_ALONE: Final = 128
"""The same while no other client does."""
COMPANY_S: Final = 0.1
"""A client that has asked for anything but a command within this time may have the next request on
its way."""

Handler = Callable[[Connection, int, Any], None]


@dataclass(frozen=True, slots=True)
class RequestHandlers:
    """The parts of a node that answer requests, and the one that lets them pass."""

    access: Authorizer
    proposals: ProposalQueue
    reads: Reads
    offsets: Offsets
    metadata: MetadataHandler
    admissions: Admissions
    member_changes: MemberChanges
    listings: Listings
    sessions: ConsumerSessions
    backups: Backups
    peer_messages: PeerMessages
    application: Application

    def by_request(self) -> dict[type[Any], Handler]:
        """Which part answers which request."""
        return {
            FetchRequest: self.reads.fetch,
            OffsetsRequest: self.offsets.ask,
            SharedOffsetsRequest: self.offsets.shared,
            SplitRequest: self.reads.split,
            MetadataRequest: self.metadata.metadata,
            GroupRequest: self.metadata.consumer_group,
            SchemasRequest: self.metadata.schemas,
            StatusRequest: self.metadata.status,
            TransferRequest: self.metadata.transfer,
            AdmitRequest: self.admissions.admit,
            AlterMemberRequest: self.member_changes.alter,
            ListRequest: self.listings.ask,
            AclDecisionRequest: self.metadata.acl_decision,
            GroupHeartbeatRequest: self.sessions.heartbeat,
            OpenBackupRequest: self.backups.open,
            ReadBackupLogRequest: self.backups.read_log,
            ReadBackupImageRequest: self.backups.read_image,
        }

    def by_request_with_payload(self) -> dict[type[Any], PayloadHandler]:
        """The same for requests that bring a payload."""
        return self.application.handlers()


class RequestRouter(NodePart):
    """Accepts connections and hands every request to the part that answers it."""

    def __init__(self, context: NodeContext, gate: Gate, *, handlers: RequestHandlers) -> None:
        super().__init__(context)
        proposals = handlers.proposals
        self._proposals = proposals
        self._gate = gate
        self._parts = handlers
        self._access = handlers.access
        context.events.relieved.subscribe(self.relieved)
        context.events.settings.subscribe(self._use_settings)
        context.status.add(self._status)
        self._listener: Listener | None = None
        self.port_sessions = PortSessions(context, gate, resume=self._resume)
        self._paused: ByAccount[Connection] = ByAccount()
        """Those that wait because too much of their account has no answer."""
        self._reading_on: asyncio.TimerHandle | None = None
        self._company = Company[Connection](COMPANY_S)
        self._meters = context.meters
        self._commands = Turns[Connection](
            Pace(COMMANDS, COMMANDS_S),
            on_wait=self._wait,
            on_done=self._resume,
            is_free=lambda alone: (
                proposals.unanswered.commands < (COMMANDS_ALONE if alone else COMMANDS_UNDER_WAY)
            ),
            is_alone=lambda connection: self._company.is_alone(connection, connection.now_s()),
        )
        self._use_settings()
        self._closed = False
        self._catalog_lost = context.catalog_lost
        """No client is answered: this node has lost the catalog of its log."""
        self.client_requests = 0
        """Requests of clients so far; asking for the status is none."""
        self._handlers = handlers.by_request()
        self._with_payload = handlers.by_request_with_payload()

    @property
    def port(self) -> int:
        return self._listener.port if self._listener is not None else 0

    @property
    def clients(self) -> int:
        return len(self.port_sessions.clients)

    @property
    def used_ms(self) -> int:
        """When a client was last seen."""
        return self.port_sessions.used_ms

    @property
    def connections(self) -> int:
        return len(self._listener.connections) if self._listener is not None else 0

    def _status(self) -> dict[str, Any]:
        return {
            "host": self._node.host,
            "port": self.port,
            "connections": self.connections,
            "clients": self.clients,
            "client_requests": self.client_requests,
        }

    async def open(self) -> None:
        """Listen.

        Raises:
            PortInUse: another process listens there.
        """
        self._listener = Listener(
            Handlers(
                on_open=self._on_open,
                on_frame=self._on_frame,
                on_appends=self._on_appends,
                on_close=self._on_close,
            ),
            frame_limits(self._group),
            patience=self._patience(),
            held=lambda: self._proposals.unanswered.held_bytes,
            accounts=self._context.accounts,
        )
        self._listener.outflow.on_done = self._resume
        self.port_sessions.listener = self._listener
        await self._listener.open(self._node.host, self._node.port, self._gate.accepts())
        self._listener.want_certificates(False)  # until this node knows whether there are users

    def _use_settings(self) -> None:
        self._full_bytes = min(self._node.max_client_bytes, self._group.pending_bytes // 2)
        self._little_bytes = self._full_bytes // 16
        """As long as no more is held, nobody has too much."""
        if self._listener is not None:
            self._listener.places.patience = self._patience()

    def use_certificates(self) -> None:
        """Those of the gate have changed: connections that come from now on see the new ones."""
        if self._listener is not None and (tls := self._gate.accepts()) is not None:
            self._listener.use(tls)

    def _patience(self) -> Patience:
        node = self._node
        ends_itself = bool(node.idle_timeout_ms)  # then open connections say that the node is used
        return Patience(
            max_connections=node.max_connections,
            max_per_address=node.max_connections_per_address,
            idle_s=0.0 if ends_itself else node.client_idle_ms / 1000,
            max_bytes=node.max_client_bytes,
        )

    async def close(self) -> None:
        self._closed = True
        self._commands.close()
        self.port_sessions.close()
        if self._listener is not None:
            await self._listener.close()

    def abort(self) -> None:
        """Cut every connection: requests on them are not answered (D2)."""
        self._closed = True
        self._commands.close()
        self.port_sessions.close()
        if self._listener is not None:
            for connection in list(self._listener.connections):
                connection.abort()

    # --- frames -----------------------------------------------------------------------------------

    def _on_open(self, connection: Connection) -> None:
        if self._closed:  # accepted by the kernel before the port was closed
            connection.abort()
        if self._meters is not None:
            connection.refused = self._meters.refused

    def _on_frame(
        self, connection: Connection, request_id: int, message: Any, payload: memoryview
    ) -> None:
        session: PortSession | Visit | None = connection.context
        if not isinstance(session, PortSession):
            self.port_sessions.greet(connection, request_id, message)
            return
        if session.budget is not None:
            session.budget.charge(requests=1, bytes_in=len(payload))
        if session.peer is not None:
            self._parts.peer_messages.take(session.peer, message)
        elif self._catalog_lost and type(message) is not StatusRequest:
            connection.abort()  # as if this node were down: another one answers
        elif self._access.is_on and self._access.refuses(connection, request_id, message, payload):
            self.client_requests += 1
        elif (handle := self._with_payload.get(type(message))) is not None:
            self.client_requests += 1
            if connection is not self._company.last:
                self._company.note(connection, connection.now_s())
            handle(connection, request_id, message, payload)
            if self._is_full(connection):
                self._hold_back(connection)
        elif type(message) is ExecuteRequest:
            self.client_requests += 1
            self._commands.ask(connection, partial(self._execute, connection, request_id, message))
        else:
            handler = self._handlers.get(type(message))
            if handler is None:
                raise ProtocolError(f"a client sent {type(message).__name__}")
            if handler is not self._handlers[StatusRequest]:
                self.client_requests += 1
                if connection is not self._company.last:
                    self._company.note(connection, connection.now_s())
            try:
                handler(connection, request_id, message)
                if self._is_full(connection):
                    self._hold_back(connection)
            except StorageError as error:  # the topic index may need the disk
                self._ready_loop.fail(error)

    def _on_appends(
        self,
        connection: Connection,
        message: AppendRequest,
        request_ids: Sequence[int],
        bodies: Sequence[memoryview],
    ) -> None:
        """`_on_frame` for appends that came together."""
        session: PortSession | Visit | None = connection.context
        if (
            not isinstance(session, PortSession)
            or session.peer is not None
            or self._catalog_lost
            or AppendRequest in self._with_payload
        ):
            for request_id, body in zip(request_ids, bodies, strict=True):
                self._on_frame(connection, request_id, message, body)
            return
        self.client_requests += len(request_ids)
        if session.budget is not None:
            session.budget.charge(requests=len(request_ids), bytes_in=sum(map(len, bodies)))
        if connection is not self._company.last:
            self._company.note(connection, connection.now_s())
        if self._access.is_on:
            request_ids, bodies = self._access.admitted(connection, message, request_ids, bodies)
        self._proposals.append(connection, message, request_ids, bodies)
        if self._is_full(connection):
            self._hold_back(connection)

    def _execute(self, connection: Connection, request_id: int, message: ExecuteRequest) -> None:
        if not self._closed:
            self._proposals.execute(connection, request_id, message)
            if self._is_full(connection):
                self._hold_back(connection)

    def _is_full(self, connection: Connection) -> bool:
        unanswered = self._proposals.unanswered
        return unanswered.held_bytes > self._little_bytes and unanswered.is_too_much(
            connection.account, self._full_bytes
        )

    def _hold_back(self, connection: Connection) -> None:
        """Read no further from a client while as much of its account waits for answers as may."""
        if connection not in self._paused.crowds.get(connection.account, ()):
            self._paused.add(connection)
            self._wait(connection)

    def _wait(self, connection: Connection) -> None:
        """Read no further from a client for now."""
        connection.pause_reading()
        if self._meters is not None:
            self._meters.throttled += 1

    def _resume(self, connection: Connection) -> None:
        waits = (
            connection in self._commands
            or connection in self.port_sessions.hellos
            or connection in connection.outflow
            or self.port_sessions.is_paused(connection)
        )
        if not waits and connection not in self._paused.crowds.get(connection.account, ()):
            connection.resume_reading()

    def relieved(self) -> None:
        """Held bytes have fallen: connections that were made to wait may go on."""
        if self._listener is not None and self._listener.inflow.kept_waiting:
            self._listener.inflow.relieved()
        if self._paused.crowds and self._reading_on is None:
            self._read_on()
        if self._commands.waiting:
            self._commands.go_on()

    def _read_on(self) -> None:
        """Read on from connections whose account has its share again: a few at a time, where others
        would have to wait for all that these have ready."""
        self._reading_on = None
        most = CROWD if self._context.accounts.are_many else None
        for account, crowd in tuple(self._paused.crowds.items()):
            if self._proposals.unanswered.is_too_much(account, self._full_bytes // 2):
                continue
            for connection in tuple(crowd)[:most]:
                self._paused.discard(connection)
                self._resume(connection)
            if crowd:  # these may have nothing more to ask, so that no answer would tell of room
                self._reading_on = self._loop.call_later(WHILE_S, self._read_on)

    def _on_close(self, connection: Connection, error: Exception | None) -> None:
        self._paused.discard(connection)
        self._company.forget(connection)
        self._commands.forget(connection)
        if self.port_sessions.ended(connection):
            self._parts.reads.polls.forget(connection)
            self._parts.backups.forget(connection)
        if error is not None:
            logger.debug("connection from %s lost: %s", connection.peer_name, error)
