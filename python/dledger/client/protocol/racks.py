"""What a client that says where it stands knows of its group's racks, and of the nodes that it
leaves alone for a time. Pure; threads may share it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

LOOK_MS: Final = 60_000
"""How often a client asks where the members stand."""
LOOK_AGAIN_MS: Final = 5000
"""The same, when nobody told."""
ASIDE_MS: Final = (5000, 60_000)
"""How long a node is left alone that did not answer or was behind; twice as long each time, up to
the second one."""


class Racks:
    """The racks of the members that serve reads. Without a rack of the client's own it does
    nothing, and all nodes are equal."""

    def __init__(self, own: str) -> None:
        self.own = own
        self.changes = 0
        """How often the group was another one than before, by its racks."""
        self._of: dict[str, str] = {}
        self._next_look_ms: float | None = None
        self._aside: dict[str, tuple[float, int]] = {}
        """Address -> until when, and how long that is."""

    def is_due(self, now_ms: float) -> bool:
        """Whether the group is to be asked where its members stand."""
        return bool(self.own) and (self._next_look_ms is None or now_ms >= self._next_look_ms)

    def looks(self, now_ms: float) -> None:
        """It is asked now: others who share the client need not."""
        self._next_look_ms = now_ms + LOOK_AGAIN_MS

    def learned(
        self, racks: Mapping[str, str], addresses: Mapping[str, str], now_ms: float
    ) -> None:
        """A node has told the racks of those that serve reads, by their ids, and all addresses."""
        found = {place: racks[node] for node, place in addresses.items() if node in racks}
        self.changes += found != self._of
        self._of = found
        self._next_look_ms = now_ms + LOOK_MS

    def is_same(self, address: str) -> bool:
        """Whether that node stands in the client's rack."""
        return bool(self.own) and self._of.get(address) == self.own

    def put_aside(self, address: str, now_ms: float) -> None:
        """The node did not answer well."""
        if self.own:
            least, most = ASIDE_MS
            _, before = self._aside.get(address, (0, 0))
            pause = min(max(2 * before, least), most)
            self._aside[address] = now_ms + pause, pause

    def worked(self, address: str, now_ms: float) -> None:
        """It did. One that does so for a while again has nothing against it any more: a node that
        is cut off answers well, too, until that is noticed."""
        if self._aside and (known := self._aside.get(address)) is not None:
            until, pause = known
            if now_ms >= until + 2 * pause:
                self._aside.pop(address, None)

    def is_aside(self, address: str, now_ms: float) -> bool:
        until, _ = self._aside.get(address, (now_ms, 0))
        return until > now_ms
