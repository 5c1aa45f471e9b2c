"""Consumer groups that hold retention back: what they keep, and telling the operator of it."""

from __future__ import annotations

import logging
from typing import Any

from dledger.catalog.catalog import Catalog
from dledger.catalog.groups import Hold
from dledger.store.api import Held
from dledger.types import Index

logger = logging.getLogger(__name__)


class Holds:
    """The leader's view; the other members keep what the leader keeps."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._holds: list[Hold] = []
        self._bytes = 0
        self._told: tuple[str, ...] = ()

    def look(self) -> Held | None:
        """What is held now; None when no group holds anything."""
        self._holds = self._catalog.consumer_groups.holds()
        if not self._holds:
            self._bytes, self._told = 0, ()
            return None
        return Held(Index(self._holds[0].index))

    def rest(self) -> None:
        """Another member leads."""
        self._holds, self._bytes, self._told = [], 0, ()

    def tell(self, held: Held, gone_before: Index) -> None:
        """What became of it. Entries below ``gone_before`` were deleted just now."""
        for hold in self._holds:
            if hold.index < gone_before:
                logger.error(
                    "retention: consumer group %r held back %s/%d from offset %d on, and records behind that may be "
                    "gone: hold_retention_ms, hold_retention_bytes or the disk's level allows no more",
                    hold.group, hold.topic, hold.partition, hold.offset,
                )  # fmt: skip
        self._bytes = held.bytes
        blocking = tuple(hold.group for hold in self._holds) if held.bytes else ()
        if blocking != self._told:
            self._told = blocking
            for hold in self._holds if held.bytes else ():
                logger.warning(
                    "retention: consumer group %r holds back expired files (%d bytes together): it has processed %s/%d "
                    "only up to offset %d; 'dledger groups %s --release' lets them go",
                    hold.group, held.bytes, hold.topic, hold.partition, hold.offset, hold.group,
                )  # fmt: skip

    def status(self) -> dict[str, Any]:
        return {
            "held_bytes": self._bytes,
            "holds": [
                {"group": h.group, "topic": h.topic, "partition": h.partition, "offset": h.offset, "entry": h.index}
                for h in self._holds
            ],
        }


__all__ = ["Holds"]
