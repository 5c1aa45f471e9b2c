"""The places of connections: for those that have not said hello, for clients in all and by address,
and for members.

Clients give way to one another, never members to clients: a new client takes the place of the ones
that have been idle longest, which open a connection again when they need one. Only where all are
busy is the new one refused.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Any, Final, Protocol

from dledger.errors import ProtocolError

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


class Newcomer(Protocol):
    """One that has not said hello: a connection, or one that begins when its TLS handshake is
    done."""

    host: str
    opened_at: float

    def fail(self, error: Exception) -> None: ...


class Places:
    """The places of one listener."""

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self._unknown: dict[str, dict[Newcomer, None]] = {}
        """By address, in the order in which they came."""
        self._waiting = 0
        self._clients: dict[str, dict[Connection, None]] = {}
        self._seated = 0
        self._members: dict[Hashable, dict[Newcomer, None]] = {}

    @property
    def clients(self) -> int:
        return self._seated

    def open(self, connection: Newcomer) -> None:
        """One that has not said hello. Where there are too many, the one that has waited longest
        goes, of the address that has most of them: members say hello at once."""
        self._unknown.setdefault(connection.host, {})[connection] = None
        self._waiting += 1
        if self._waiting > self._patience.max_unknown:
            crowd = max(self._unknown.values(), key=len)
            oldest = next(iter(crowd))
            self._forget(self._unknown, oldest)
            oldest.fail(
                TooMany(f"over {self._patience.max_unknown} connections that have not said hello")
            )

    def _forget(self, places: dict[str, dict[Any, None]], connection: Newcomer) -> bool:
        crowd = places.get(connection.host)
        if crowd is None or connection not in crowd:
            return False
        del crowd[connection]
        if not crowd:
            del places[connection.host]
        if places is self._unknown:
            self._waiting -= 1
        else:
            self._seated -= 1
        return True

    def close(self, connection: Newcomer) -> None:
        """It has ended."""
        if not (self._forget(self._unknown, connection) or self._forget(self._clients, connection)):
            for connections in self._members.values():
                connections.pop(connection, None)

    def refusal(self, connection: Connection) -> str:
        """Make room for a client; why there is none, or nothing."""
        patience, here = self._patience, self._clients.get(connection.host, {})
        if len(here) >= patience.max_per_address and not self._make_room(here):
            return (
                f"over {patience.max_per_address} busy connections from {connection.host}: "
                "max_connections_per_address of the node"
            )
        if self._seated >= patience.max_connections:
            crowd = max(self._clients.values(), key=len)
            if not self._make_room(crowd):
                return (
                    f"over {patience.max_connections} busy connections: max_connections of the node"
                )
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
        self._forget(self._unknown, connection)
        self._clients.setdefault(connection.host, {})[connection] = None
        self._seated += 1

    def seat_member(self, member: Hashable, connection: Connection) -> None:
        """A member of the group always has a place; the one it had longest goes where it seems to
        have many."""
        self._forget(self._unknown, connection)
        connection.become_member()
        seats = self._members.setdefault(member, {})
        seats[connection] = None
        if len(seats) > MOST_OF_A_MEMBER:
            oldest = next(iter(seats))
            del seats[oldest]
            oldest.fail(TooMany(f"over {MOST_OF_A_MEMBER} connections of member {member}"))

    def sweep(self, now_s: float) -> None:
        """Close those that never say hello, and clients that have asked nothing for too long."""
        patience = self._patience
        for crowd in list(self._unknown.values()):
            for connection in [c for c in crowd if now_s - c.opened_at > patience.hello_s]:
                connection.fail(ProtocolError(f"no hello within {patience.hello_s:g} s"))
        for clients in list(self._clients.values()):
            for client in list(clients):
                client.look_idle(now_s)
                if patience.idle_s and client.idle_since + patience.idle_s <= now_s:
                    client.give_way(GaveWay(f"nothing was asked for {patience.idle_s:g} s"))
