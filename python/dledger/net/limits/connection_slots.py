"""The places of connections: for those that have not said hello, for clients in all and by address,
and for members.

Clients give way to one another, never members to clients: a new client takes the place of the ones
that have been idle longest, which open a connection again when they need one. Only where all are
busy is the new one refused.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Final, Protocol

from dledger.errors import ProtocolError
from dledger.net.limits.by_address import ByAddress, HasAddress

if TYPE_CHECKING:
    from dledger.net.connections.connection import Connection
    from dledger.net.limits.patience import Patience

BATCH: Final = 16
"""One in so many places is freed at a time, so that a flood does not make each newcomer look at
all."""
BUSY_S: Final = 1.0
"""A connection without a request for less than this counts as busy."""
MOST_OF_A_MEMBER: Final = 16
"""A member has one; more are left from connections that it has lost and this side has not."""


class TooMany(ProtocolError):
    """There is no place for this connection."""


class GaveWay(ProtocolError):
    """An idle connection was closed; its client opens another one when it needs it."""


class Newcomer(HasAddress, Protocol):
    """One that has not said hello: a connection, or one that begins when its TLS handshake is
    done."""

    opened_at: float

    def fail(self, error: Exception) -> None: ...


class Places:
    """The places of one listener."""

    def __init__(self, patience: Patience) -> None:
        self.patience = patience
        self._unknown: ByAddress[Newcomer] = ByAddress()
        self._clients: ByAddress[Connection] = ByAddress()
        self._members: dict[Hashable, dict[Newcomer, None]] = {}

    @property
    def clients(self) -> int:
        return len(self._clients)

    def open(self, connection: Newcomer) -> None:
        """One that has not said hello. Where there are too many, the one that has waited longest
        goes, of the address that has most of them: members say hello at once."""
        self._unknown.add(connection)
        if len(self._unknown) > self.patience.max_unknown:
            oldest = next(iter(self._unknown.largest()))
            self._unknown.discard(oldest)
            oldest.fail(
                TooMany(f"over {self.patience.max_unknown} connections that have not said hello")
            )

    def close(self, connection: Newcomer) -> None:
        """It has ended."""
        if not (self._unknown.discard(connection) or self._clients.discard(connection)):
            for connections in self._members.values():
                connections.pop(connection, None)

    def refusal(self, connection: Connection) -> str:
        """Make room for a client; why there is none, or nothing."""
        patience, here = self.patience, self._clients.crowds.get(connection.host, {})
        if len(here) >= patience.max_per_address and not self._make_room(here):
            return (
                f"over {patience.max_per_address} busy connections from {connection.host}: "
                "max_connections_per_address of the node"
            )
        is_full = len(self._clients) >= patience.max_connections
        if is_full and not self._make_room(self._clients.largest()):
            return f"over {patience.max_connections} busy connections: max_connections of the node"
        return ""

    def _make_room(self, crowd: dict[Connection, None]) -> bool:
        """Close the longest idle ones of this crowd; whether there were any."""
        now_s = next(iter(crowd)).now_s()
        for connection in crowd:
            connection.look_idle(now_s)
        idle = sorted(
            (c for c in crowd if c.idle_since + BUSY_S <= now_s), key=lambda c: c.idle_since
        )
        for connection in idle[: max(1, len(crowd) // BATCH)]:
            self.close(connection)
            connection.give_way(GaveWay("others wanted its place, and it was idle longest"))
        return bool(idle)

    def seat_client(self, connection: Connection) -> None:
        self._unknown.discard(connection)
        self._clients.add(connection)

    def seat_member(self, member: Hashable, connection: Connection) -> None:
        """A member of the group always has a place; the one it had longest goes where it seems to
        have many."""
        self._unknown.discard(connection)
        connection.become_member()
        seats = self._members.setdefault(member, {})
        seats[connection] = None
        if len(seats) > MOST_OF_A_MEMBER:
            oldest = next(iter(seats))
            del seats[oldest]
            oldest.fail(TooMany(f"over {MOST_OF_A_MEMBER} connections of member {member}"))

    def end_member(self, member: Hashable, error: Exception) -> None:
        """Close all connections of a member."""
        for connection in list(self._members.get(member, ())):
            connection.fail(error)

    def sweep(self, now_s: float) -> None:
        """Close those that never say hello, and clients that have asked nothing for too long."""
        patience = self.patience
        for crowd in list(self._unknown.crowds.values()):
            for connection in [c for c in crowd if now_s - c.opened_at > patience.hello_s]:
                connection.fail(ProtocolError(f"no hello within {patience.hello_s:g} s"))
        for clients in list(self._clients.crowds.values()):
            for client in list(clients):
                client.look_idle(now_s)
                if patience.idle_s and client.idle_since + patience.idle_s <= now_s:
                    client.give_way(GaveWay(f"nothing was asked for {patience.idle_s:g} s"))
