"""How much each principal sends to a node and gets from it, as its connections count anyway.

Another thread, which serves metrics, reads it. So what is known of a principal is one value that is
replaced as a whole: a sum that fell for a moment would look like a node that was restarted.
"""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol

from dledger.types import Principal

MOST_NAMES: Final = 100
"""Principals that have a name of their own here, the first ones since the start; all others
together are `OTHER`."""
OTHER: Final = "other"


class Counting(Protocol):
    """A connection, which counts its bytes without those of TLS."""

    received: int
    handed: int


class MovedBytes(NamedTuple):
    """Bytes since the node's start, and open connections."""

    connections: int
    received: int
    sent: int


class _Of(NamedTuple):
    received: int = 0
    sent: int = 0
    open: tuple[Counting, ...] = ()


class Traffic:
    """The bytes of clients by principal."""

    def __init__(self) -> None:
        self._by_name: dict[str, _Of] = {}

    def _name(self, principal: Principal) -> str:
        if principal in self._by_name or len(self._by_name) < MOST_NAMES:
            return principal
        return OTHER

    def begin(self, principal: Principal, connection: Counting) -> str:
        """One of its connections was taken; the name under which it counts, for `end`."""
        name = self._name(principal)
        of = self._by_name.get(name, _Of())
        self._by_name[name] = of._replace(open=(*of.open, connection))
        return name

    def end(self, name: str, connection: Counting) -> None:
        """It has ended."""
        of = self._by_name[name]
        self._by_name[name] = _Of(
            of.received + connection.received,
            of.sent + connection.handed,
            tuple(one for one in of.open if one is not connection),
        )

    def moved(self) -> dict[str, MovedBytes]:
        """By name."""
        return {
            name: MovedBytes(
                len(of.open),
                of.received + sum(one.received for one in of.open),
                of.sent + sum(one.handed for one in of.open),
            )
            for name, of in list(self._by_name.items())
        }
