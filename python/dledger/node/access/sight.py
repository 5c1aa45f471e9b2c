"""The part of a group that a principal may describe: answers that list things show no more."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from dledger.catalog.access.acls import CLUSTER, DESCRIBE, Acls

T = TypeVar("T")


class Sight:
    """What one principal sees; without rules, everything."""

    def __init__(self, principal: str = "", acls: Acls | None = None) -> None:
        self._principal = principal
        self._acls = acls

    @property
    def is_whole(self) -> bool:
        """Whether nothing is hidden, so that an answer can stay as it is."""
        return self._acls is None

    @property
    def has_cluster(self) -> bool:
        """Whether it sees how the nodes do."""
        return self.shows(CLUSTER, "")

    def shows(self, resource_type: str, name: str) -> bool:
        """Whether it sees the resource of this type and name."""
        acls = self._acls
        return acls is None or acls.decide(self._principal, DESCRIBE, resource_type, name).allowed

    def of(self, resource_type: str, items: Iterable[T], name: Callable[[T], str]) -> list[T]:
        """The items that it sees; ``name`` tells that of each."""
        if self._acls is None:
            return list(items)
        return [item for item in items if self.shows(resource_type, name(item))]


EVERYTHING = Sight()
