"""The other nodes of the group: links to them, and a question now and then."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, Final

from dledger.config import GroupConfig, NodeConfig
from dledger.errors import DLedgerError, Unavailable
from dledger.messages.client import HelloRequest, HelloResponse, StatusRequest, StatusResponse
from dledger.messages.install import InstallMessage
from dledger.messages.peer import PeerMessage
from dledger.messages.repair import RepairMessage
from dledger.net import Connection, Handlers, Limits, PeerLink, connect
from dledger.net.tls import client_context
from dledger.types import NodeId

ASK_S: Final = 2.0


class Peers:
    """One outgoing link to each other member."""

    def __init__(
        self,
        group: GroupConfig,
        node: NodeConfig,
        addresses: Callable[[], dict[NodeId, str]],
        limits: Limits,
        on_found: Callable[[NodeId], None],
    ) -> None:
        """``on_found`` is told whenever a link is open anew."""
        self._group = group
        self._addresses = addresses
        self._limits = limits
        self._tls = tls = client_context(node.tls)
        hello = HelloRequest(group=group.group, node_id=node.node_id)
        unsent = 2 * group.push_window_bytes + group.max_body_bytes

        def link(peer: NodeId) -> PeerLink:
            def changed(is_open: bool) -> None:
                if is_open:
                    on_found(peer)

            return PeerLink(
                lambda: addresses()[peer], hello, limits=limits, max_bytes=unsent, on_change=changed, tls=tls
            )

        self._links = {peer: link(peer) for peer in group.members if peer != node.node_id}

    def start(self) -> None:
        for link in self._links.values():
            link.start()

    def send(self, message: PeerMessage | RepairMessage | InstallMessage) -> None:
        """May be lost: the core says again what matters."""
        self._links[message.remote_id].send(message)

    def flush(self) -> None:
        """Let go of what was sent now, instead of at the end of the loop's turn."""
        for link in self._links.values():
            link.flush()

    def connected(self) -> dict[str, bool]:
        return {str(peer): link.connected for peer, link in self._links.items()}

    async def close(self) -> None:
        await asyncio.gather(*(link.close() for link in self._links.values()))

    async def status_of(self, peer: NodeId) -> dict[str, Any]:
        """The status of another node, asked as a client.

        Raises:
            Unavailable: it did not answer in time.
        """
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()

        def on_frame(connection: Connection, request_id: int, message: Any, payload: memoryview) -> None:
            if answer.done():
                return
            if isinstance(message, StatusResponse):
                answer.set_result(message.status)
            elif not isinstance(message, HelloResponse):
                answer.set_exception(Unavailable(f"{peer} answered {type(message).__name__} to a status request"))

        def on_close(connection: Connection, error: Exception | None) -> None:
            if not answer.done():
                answer.set_exception(Unavailable(f"{peer} closed the connection"))

        handlers = Handlers(on_frame=on_frame, on_close=on_close)
        connection = await connect(self._addresses()[peer], handlers, self._limits, ASK_S, tls=self._tls)
        try:
            connection.send(HelloRequest(group=self._group.group), 1)
            connection.send(StatusRequest(), 2)
            async with asyncio.timeout(ASK_S):
                return await answer
        except TimeoutError:
            raise Unavailable(f"{peer} did not tell its status within {ASK_S:g} s") from None
        finally:
            connection.close()
            with contextlib.suppress(DLedgerError, asyncio.CancelledError):
                if answer.done():
                    answer.exception()
