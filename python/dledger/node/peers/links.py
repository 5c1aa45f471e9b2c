"""The other nodes of the group: links to them, and a question now and then."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any, Final

from dledger.config import GroupConfig, NodeConfig
from dledger.errors import DLedgerError, Unavailable
from dledger.net import FrameLimits, PeerLink
from dledger.net.connections.blocking import Lost
from dledger.net.connections.handshake import Greeting, Unlisted
from dledger.net.connections.rpc import Rpc
from dledger.node.events import NodeEvents
from dledger.node.peers.handshake import Gate
from dledger.node.peers.members import GroupMembers
from dledger.protocol.messages.audit import AuditLines
from dledger.protocol.messages.client import StatusRequest, StatusResponse
from dledger.protocol.messages.group_version import lacking
from dledger.protocol.messages.peer import PeerMessage
from dledger.protocol.messages.repair import RepairMessage
from dledger.protocol.messages.snapshot import InstallMessage
from dledger.types import NodeId

ASK_S: Final = 2.0
FAREWELL_ELECTIONS: Final = 5
"""Election times for which a removed member is still reached: longer than a leader tells it so."""


def frame_limits(group: GroupConfig) -> FrameLimits:
    """The largest frames that the settings of a group allow: one push of a full batch and one body
    more."""
    return FrameLimits(payload_bytes=group.push_batch_bytes + group.max_body_bytes + (1 << 20))


class Peers:
    """One outgoing link to each other member, as the list of members is now."""

    def __init__(
        self,
        group: GroupConfig,
        node: NodeConfig,
        *,
        members: GroupMembers,
        gate: Gate,
        events: NodeEvents,
    ) -> None:
        """``gate``: also has this node's certificates."""
        self._node_id = node.node_id
        self._members = members
        self._limits = frame_limits(group)
        self._gate = gate
        self._events = events
        self._unsent = 2 * group.push_window_bytes + group.max_body_bytes
        self._farewell_s = FAREWELL_ELECTIONS * group.election_ms / 1000
        self._leaving: dict[NodeId, asyncio.TimerHandle] = {}
        """Members that were removed, until their links are closed."""
        self._started = False
        self._closing: set[asyncio.Task[None]] = set()
        """Of links to former members."""
        self._places: dict[NodeId, str] = {}
        """The address of each member, as it was when the list was last looked at."""
        self._in_vain: dict[NodeId, int] = {}
        """Attempts since the last connection, which take the addresses of a member in turn."""
        self.links: dict[NodeId, PeerLink] = {}
        self._follow()
        events.members.subscribe(lambda listed: self._follow())

    def _link(self, peer: NodeId) -> PeerLink:
        def address() -> str:
            known = self._members.addresses_of(peer)
            if not known:
                raise LookupError(f"no address of {peer} is known")
            turn = self._in_vain.get(peer, 0)
            self._in_vain[peer] = turn + 1
            return known[turn % len(known)]

        def changed(is_open: bool) -> None:
            if is_open and peer in self.links:
                self._in_vain[peer] = 0
                self._events.peer_found(peer)

        link = PeerLink(
            address,
            lambda: self._gate.to_peer(peer),
            limits=self._limits,
            max_bytes=self._unsent,
            on_change=changed,
            tls=self._gate.connects,
        )
        link.on_refusal = partial(self._refused, peer)
        return link

    def _refused(self, peer: NodeId, error: DLedgerError) -> None:
        if isinstance(error, Unlisted):
            self._events.unlisted(peer, error.index, error.members)

    def _follow(self) -> None:
        """The list of members may be another one: links are opened, led elsewhere and, after some
        time, closed."""
        loop = asyncio.get_running_loop()
        others = [member for member in self._members.ids if member != self._node_id]
        for peer in self._leaving.keys() & set(others):
            self._leaving.pop(peer).cancel()
        for peer in self.links.keys() - set(others) - self._leaving.keys():
            self._leaving[peer] = loop.call_later(self._farewell_s, self._left, peer)
        former, self._places = self._places, self._members.addresses()
        for peer in others:
            if peer not in self.links:
                self.links[peer] = self._link(peer)
                if self._started:
                    self.links[peer].start()
            elif self._places.get(peer) != former.get(peer):
                self._in_vain[peer] = 0
                self.links[peer].reconnect()

    def _left(self, peer: NodeId) -> None:
        del self._leaving[peer]
        self._members.left(peer)
        task = asyncio.get_running_loop().create_task(self.links.pop(peer).close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
        self._events.member_left(peer)

    def start(self) -> None:
        self._started = True
        for link in self.links.values():
            link.start()

    def send(self, message: PeerMessage | RepairMessage | InstallMessage | AuditLines) -> None:
        """The message may be lost: the core repeats those that matter."""
        if (link := self.links.get(message.remote_id)) is not None:
            link.send(message)

    def connected(self) -> dict[str, bool]:
        members = self._members.ids
        return {str(peer): link.connected for peer, link in self.links.items() if peer in members}

    def refused(self) -> dict[str, str]:
        """Why the last connection of each member was not taken, or the last one to it came to
        nothing though it answers: of two that have other secrets, the one that was called may hear
        of no reason."""
        members = self._members.ids
        links = {str(one): link.refusal for one, link in self.links.items() if one in members}
        return self._gate.refused | {one: reason for one, reason in links.items() if reason}

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
        for timer in self._leaving.values():
            timer.cancel()
        await asyncio.gather(*(link.close() for link in self.links.values()), *self._closing)

    async def status_of(self, peer: NodeId) -> dict[str, Any]:
        """The status of another node, asked as a client, at each address that is known.

        Raises:
            Unavailable: it did not answer in time.
        """
        reasons = []
        for place in self._members.addresses_of(peer):
            try:
                return await self.status_at(place, self._gate.as_client(peer))
            except DLedgerError as error:
                reasons.append(str(error))
        raise Unavailable("; ".join(reasons) or f"no address of {peer} is known")

    async def status_at(self, address: str, greeting: Greeting) -> dict[str, Any]:
        """The status of the node at ``address``.

        Raises:
            Unavailable: it did not answer in time.
            WrongGroup, ConfigError, AccessDenied: it is another one, or does not take this one.
        """
        rpc = await Rpc.open(address, greeting, self._limits, ASK_S, self._gate.connects())
        try:
            answer, _ = await rpc.ask(StatusRequest(), (), ASK_S)
        except Lost as error:
            who = rpc.welcome.node_id or address
            raise Unavailable(f"{who} did not tell its status: {error}") from None
        finally:
            rpc.abort()
        if not isinstance(answer, StatusResponse):
            raise Unavailable(f"{address} answered {type(answer).__name__} to a status request")
        return answer.status
