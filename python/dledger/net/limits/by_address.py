"""Connections by the address that they come from, so that no address takes the places or the turns
of others by opening many of them."""

from __future__ import annotations

from typing import Any, Generic, Protocol, TypeVar


class HasAddress(Protocol):
    """A connection, of which only the address of the other side counts here."""

    host: str


A = TypeVar("A", bound=HasAddress)


class ByAddress(Generic[A]):
    """Connections, each once. Addresses are in the order of their turns, and the connections of
    each in the order in which they came.

    Attributes:
        crowds: the connections of each address that has any.
    """

    def __init__(self) -> None:
        self.crowds: dict[str, dict[A, None]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, connection: A) -> None:
        """Behind all others of its address."""
        self.crowds.setdefault(connection.host, {})[connection] = None
        self._count += 1

    def discard(self, connection: Any) -> bool:
        """Whether it was there."""
        crowd = self.crowds.get(connection.host, {})
        if connection not in crowd:
            return False
        del crowd[connection]
        if not crowd:
            del self.crowds[connection.host]
        self._count -= 1
        return True

    def first(self) -> A:
        """The one whose turn it is."""
        return next(iter(next(iter(self.crowds.values()))))

    def take_first(self) -> A:
        """Remove it; its address is behind all others then."""
        connection = self.first()
        self.discard(connection)
        if crowd := self.crowds.pop(connection.host, None):
            self.crowds[connection.host] = crowd
        return connection

    def largest(self) -> dict[A, None]:
        """The connections of the address that has most of them."""
        return max(self.crowds.values(), key=len)
