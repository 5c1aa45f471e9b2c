"""The other nodes of the group: links to them, and a question now and then."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from dledger.config import GroupConfig, NodeConfig
from dledger.errors import AccessDenied, ConfigError, Unavailable, WrongGroup
from dledger.net import FrameLimits, PeerLink
from dledger.net.connections.blocking import Lost
from dledger.net.connections.rpc import Rpc
from dledger.node.events import NodeEvents
from dledger.node.peers.handshake import Gate
from dledger.protocol.messages.client import StatusRequest, StatusResponse
from dledger.protocol.messages.group_version import lacking
from dledger.protocol.messages.peer import PeerMessage
from dledger.protocol.messages.repair import RepairMessage
from dledger.protocol.messages.snapshot import InstallMessage
from dledger.types import NodeId

ASK_S: Final = 2.0


def frame_limits(group: GroupConfig) -> FrameLimits:
    """The largest frames that the settings of a group allow: one push of a full batch and one body
    more."""
    return FrameLimits(payload_bytes=group.push_batch_bytes + group.max_body_bytes + (1 << 20))


class Peers:
    """One outgoing link to each other member."""

    def __init__(
        self,
        group: GroupConfig,
        node: NodeConfig,
        *,
        addresses: Callable[[], dict[NodeId, str]],
        gate: Gate,
        events: NodeEvents,
    ) -> None:
        """``gate``: also has this node's certificates."""
        self._addresses = addresses
        self._limits = limits = frame_limits(group)
        self._gate = gate
        unsent = 2 * group.push_window_bytes + group.max_body_bytes

        def link(peer: NodeId) -> PeerLink:
            def changed(is_open: bool) -> None:
                if is_open:
                    events.peer_found(peer)

            return PeerLink(
                lambda: addresses()[peer],
                lambda: gate.to_peer(peer),
                limits=limits,
                max_bytes=unsent,
                on_change=changed,
                tls=gate.connects,
            )

        self.links = {peer: link(peer) for peer in group.members if peer != node.node_id}

    def start(self) -> None:
        for link in self.links.values():
            link.start()

    def send(self, message: PeerMessage | RepairMessage | InstallMessage) -> None:
        """The message may be lost: the core repeats those that matter."""
        self.links[message.remote_id].send(message)

    def connected(self) -> dict[str, bool]:
        return {str(peer): link.connected for peer, link in self.links.items()}

    def shut_out(self) -> str:
        """The members that the group would lose if each had to prove the secret from now on; see
        `Gate.shut_out`."""
        reached = {peer for peer, link in self.links.items() if link.connected}
        return self._gate.shut_out(
            reached, {peer for peer, link in self.links.items() if link.proved}
        )

    def not_supporting(self, version: int) -> str:
        """Why a group version cannot be active, by member, with what to do; empty when each
        supports it, as its last hello of this node's life said."""
        missing = []
        for member in self.links:
            hello = self._gate.supporting.get(member)
            if hello is None:
                missing.append(
                    f"{member} has not been here since this node started, so what it supports is "
                    "not known: start it, or wait for it"
                )
            elif text := lacking(member, hello.release, hello.versions, version):
                missing.append(text)
        return "; ".join(missing)

    async def close(self) -> None:
        await asyncio.gather(*(link.close() for link in self.links.values()))

    async def status_of(self, peer: NodeId) -> dict[str, Any]:
        """The status of another node, asked as a client.

        Raises:
            Unavailable: it did not answer in time.
        """
        try:
            rpc = await Rpc.open(
                self._addresses()[peer],
                self._gate.as_client(peer),
                self._limits,
                ASK_S,
                self._gate.connects(),
            )
        except (WrongGroup, ConfigError, AccessDenied) as error:
            raise Unavailable(f"{peer}: {error}") from None
        try:
            answer, _ = await rpc.ask(StatusRequest(), (), ASK_S)
        except Lost as error:
            raise Unavailable(f"{peer} did not tell its status: {error}") from None
        finally:
            rpc.abort()
        if not isinstance(answer, StatusResponse):
            raise Unavailable(f"{peer} answered {type(answer).__name__} to a status request")
        return answer.status
