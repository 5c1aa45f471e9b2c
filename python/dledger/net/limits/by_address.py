"""Connections by the address that they come from, or by their account, so that none takes the
places or the turns of others by opening many of them."""

from __future__ import annotations

from typing import Any, Generic, Protocol, TypeVar


class HasAddress(Protocol):
    """A connection, of which only the address of the other side counts here."""

    host: str


class HasAccount(Protocol):
    """A connection, of which only its account counts here (`dledger.net.limits.accounts`)."""

    account: str


A = TypeVar("A")


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

    def _name(self, connection: Any) -> str:
        name: str = connection.host
        return name

    def add(self, connection: A) -> None:
        """Behind all others of its address."""
        self.crowds.setdefault(self._name(connection), {})[connection] = None
        self._count += 1

    def discard(self, connection: Any) -> bool:
        """Whether it was there."""
        name = self._name(connection)
        crowd = self.crowds.get(name, {})
        if connection not in crowd:
            return False
        del crowd[connection]
        if not crowd:
            del self.crowds[name]
        self._count -= 1
        return True

    def first(self) -> A:
        """The one whose turn it is."""
        return next(iter(next(iter(self.crowds.values()))))

    def take_first(self) -> A:
        """Remove it; its address is behind all others then."""
        connection = self.first()
        self.take(connection)
        return connection

    def take(self, connection: A) -> None:
        """Remove this one; its address is behind all others then."""
        self.discard(connection)
        name = self._name(connection)
        if crowd := self.crowds.pop(name, None):
            self.crowds[name] = crowd

    def largest(self) -> dict[A, None]:
        """The connections of the address that has most of them."""
        return max(self.crowds.values(), key=len)


class ByAccount(ByAddress[A]):
    """The same by their accounts, which do not change while they are here."""

    def _name(self, connection: Any) -> str:
        name: str = connection.account
        return name
