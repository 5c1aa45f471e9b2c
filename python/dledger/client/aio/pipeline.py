"""Appends of one producer or stage on a connection of their own: many in flight, in order, over
changes of leader."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any, Final

from dledger.client.aio.transport import AsyncTransport
from dledger.client.protocol.appending import APPEND
from dledger.client.protocol.client_state import ATTEMPT_MS, LIMITS, ClientState
from dledger.client.protocol.operations.transaction_requests import OpenedProducer, init_producer
from dledger.client.protocol.session import ProducerSession
from dledger.client.protocol.writing.in_flight_window import InFlightWindow, Item
from dledger.errors import (
    AccessDenied,
    ConfigError,
    DLedgerError,
    TransactionError,
    Unavailable,
    WrongGroup,
)
from dledger.net import Connection, Handlers, connect
from dledger.net.connections.blocking import Lost
from dledger.net.connections.handshake import Greeting, LoginRefused
from dledger.net.connections.patience import ThrottlePause
from dledger.net.connections.tls import CertificateRefused
from dledger.protocol.messages.client import AppendResponse, MetadataRequest, MetadataResponse
from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.hello import HelloResponse
from dledger.protocol.messages.throttling import ThrottleNotice

LOOK_S: Final = 0.5
"""Time between two checks for batches whose time is over."""
CLOSED: Final = "closed before it was answered"
HELLO_ID: Final = 0xFFFFFFFF
MEMBERS_ID: Final = 0xFFFFFFFE


class Pipeline:
    """Drives a `InFlightWindow` under asyncio. Everything runs on one loop."""

    def __init__(
        self,
        core: ClientState,
        transport: AsyncTransport,
        *,
        window: InFlightWindow,
        open_session: Callable[[], Awaitable[ProducerSession]],
    ) -> None:
        self._core = core
        self._transport = transport
        self.window = window
        self.on_answers: Callable[[], None] | None = None
        """Called when answers have come, and now and then: the time to push more."""
        self._open_session = open_session
        self._connection: Connection | None = None
        self._address = ""
        self._greeting: Greeting | None = None
        self._hello: asyncio.Future[None] | None = None
        self._progress_ms = 0.0
        self._pause_of_node = ThrottlePause()
        self._pause_of_node.on_notice = core.throttled
        self._pause_ms = 0.0
        self._wake = asyncio.Event()
        self._closing = False
        self._tells_members = False
        """What came is no answer to a batch."""
        self._fresh = False
        """A batch was pushed since the last check."""
        self._asleep = False
        """No timer looks for late batches: none has been under way for a while."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    def push(self, *items: Item) -> None:
        """More batches; their ``done`` is called on this loop."""
        self._fresh = True
        for item in items:
            self.window.push(item)
        self._pump()

    def _pump(self) -> None:
        """Send the batches that can be sent now."""
        window, connection = self.window, self._connection
        if connection is None or self._hello is not None:
            self._wake.set()
            return
        if not window.unanswered:
            self._progress_ms = self._core.environment.now_ms()
        while (item := window.next()) is not None:
            connection.send(APPEND, item.tag, (item.header, item.payload))
        if self._asleep or (not window.unanswered and not window.empty):
            self._wake.set()

    async def close(self) -> None:
        """Wait until every batch is answered or given up, then close the connection."""
        self._closing = True
        self._wake.set()
        await asyncio.wait((self._task,))  # a cancelled caller does not end it

    def cancel(self) -> None:
        """End now; unanswered batches fail."""
        self._task.cancel()
        self.window.fail_all(Unavailable(CLOSED))  # a task that has not begun yet would not do it

    async def _run(self) -> None:
        window = self.window
        try:
            while True:
                self._wake.clear()
                if self.on_answers is not None:
                    self.on_answers()
                window.expire(self._core.environment.now_ms())
                if window.empty and self._closing:
                    return
                if not window.empty and await self._ready():
                    self._pump()
                await self._look()
        finally:
            self._drop()
            window.fail_all(Unavailable(CLOSED))

    async def _look(self) -> None:
        """Wait for something to do, and give up a connection that says nothing."""
        if self.window.empty and not self._closing and not self._fresh:
            self._asleep = True
            await self._wake.wait()
            self._asleep = False
        self._fresh = False
        self._ask_for_members()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LOOK_S):
                await self._wake.wait()
        if (
            self.window.unanswered
            and self._core.environment.now_ms() - self._progress_ms > ATTEMPT_MS
        ):
            self._core.routes.failed(self._address)
            self._drop()

    def _ask_for_members(self) -> None:
        """Now and then, on the connection that there is; see `Routes.wants_members`."""
        connection, now_ms = self._connection, self._core.environment.now_ms()
        if connection is None or self._hello is not None:
            return
        if self._core.routes.wants_members(now_ms):
            connection.send(MetadataRequest(), MEMBERS_ID)

    async def _ready(self) -> bool:
        """Whether there is a connection to the leader, a session, and nothing that has to wait."""
        window, routes = self.window, self._core.routes
        if window.again:
            if window.unanswered:
                return False
            await self._pause()
            if routes.leader != self._address:
                self._drop()
            window.resume()
        try:
            if self._connection is None:
                await self._connect()
            if window.needs_session:
                window.opened(await self._open_session())
        except (Unavailable, Lost):
            self._wake.set()
            await self._pause()
            return False
        except DLedgerError as error:
            window.fail_all(error)
            return False
        return self._connection is not None

    async def _pause(self) -> None:
        config = self._core.config
        if self._pause_ms:
            await asyncio.sleep(self._pause_ms * (0.5 + self._core.environment.fraction()) / 1000)
        self._pause_ms = min(max(2 * self._pause_ms, config.retry_min_ms), config.retry_max_ms)

    async def _connect(self) -> None:
        """One attempt to find the leader and open a connection to it."""
        routes = self._core.routes
        if routes.leader is None:
            address = routes.next_address()
            rpc = await self._transport.rpc(address)
            answer, _ = await rpc.ask(MetadataRequest(), (), 1.0)
            routes.learned(answer)
            if routes.leader is None:
                raise Unavailable(f"{address}: knows no leader")
        address = routes.leader
        patience_s = self._core.config.connect_timeout_ms / 1000
        handlers = Handlers(
            on_frame=self._answered, on_batch_end=self._batch_ended, on_close=self._closed
        )
        self._hello = asyncio.get_running_loop().create_future()
        self._greeting = self._core.greeting()
        try:
            connection = await connect(address, handlers, LIMITS, patience_s, tls=self._core.tls)
            self._connection, self._address = connection, address
            connection.send(self._greeting.hello, HELLO_ID)
            async with asyncio.timeout(patience_s):
                await self._hello
        except (AccessDenied, ConfigError) as error:
            self._drop()
            if isinstance(error, CertificateRefused | LoginRefused) and not routes.is_refused(
                address
            ):
                routes.failed(address)
                raise Unavailable(str(error)) from None
            raise
        except (Unavailable, WrongGroup, TimeoutError) as error:
            routes.failed(address)
            self._drop()
            raise Unavailable(f"{address}: {error or 'no answer in time'}") from None
        finally:
            self._hello = None

    def _answered(
        self, connection: Connection, request_id: int, message: Any, payload: memoryview
    ) -> None:
        if connection is not self._connection:
            return
        if isinstance(message, AppendResponse):
            if message.code is Code.SUCCESS:
                self._pause_ms = 0.0
            elif message.code is Code.NOT_LEADER:
                self._core.routes.redirected(self._address, message.leader_id)
            self.window.answered(request_id, message.code, message.message, message.base_offset)
        elif isinstance(message, ThrottleNotice):
            self._pause_of_node.begin(message)
        elif isinstance(message, MetadataResponse):
            self._core.routes.learned(message)
            self._tells_members = True
        elif (
            isinstance(message, HelloResponse)
            and self._hello is not None
            and not self._hello.done()
        ):
            self._greeted(connection, message)

    def _greeted(self, connection: Connection, message: HelloResponse) -> None:
        assert self._greeting is not None
        assert self._hello is not None
        try:
            words = self._greeting.answered(message, connection.peer_nodes)
        except DLedgerError as error:
            self._hello.set_exception(error)
            return
        if words is not None:
            connection.send(words, HELLO_ID)
        else:
            self._hello.set_result(None)

    def _batch_ended(self, connection: Connection) -> None:
        # a node that has announced a pause is not silent before its end
        if not self._tells_members:
            now_ms = self._core.environment.now_ms()
            self._progress_ms = now_ms + 1000 * self._pause_of_node.left_s()
        self._tells_members = False
        if self.on_answers is not None:
            self.on_answers()
        window = self.window
        if not window.unanswered and (self._closing or not window.empty):
            self._wake.set()

    def _closed(self, connection: Connection, error: Exception | None) -> None:
        if connection is not self._connection:
            return
        self._core.routes.failed(self._address)
        self._drop()
        if self._hello is not None and not self._hello.done():
            self._hello.set_exception(Unavailable("the node closed the connection"))

    def _drop(self) -> None:
        connection, self._connection, self._address = self._connection, None, ""
        if connection is not None:
            connection.abort()
        self.window.lost()
        self._wake.set()


def producer_pipeline(
    core: ClientState, transport: AsyncTransport, opened: OpenedProducer
) -> Pipeline:
    """The pipeline of a producer, whose first session is open."""

    def open_session() -> Awaitable[ProducerSession]:
        return transport.run(init_producer(core, opened.name))

    window = InFlightWindow(f"append to {opened.info.name!r}")
    window.opened(opened.session)
    return Pipeline(core, transport, window=window, open_session=open_session)


def stage_pipeline(
    core: ClientState, transport: AsyncTransport, stage_id: int, what: str
) -> Pipeline:
    """The pipeline of a stage, which is its only session; ``what`` names it in errors."""

    async def no_session() -> ProducerSession:
        raise TransactionError(f"{what}: the stage is gone")

    window = InFlightWindow(what, ProducerSession(stage_id, 0))
    return Pipeline(core, transport, window=window, open_session=no_session)
