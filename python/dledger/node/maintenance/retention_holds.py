"""Retention holds, of consumer groups and of members that are behind: the files they keep, and
telling the operator."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from dledger.catalog.clients.consumer_groups import Hold
from dledger.catalog.state_machine import Catalog
from dledger.node.context import CurrentSettings
from dledger.storage.api import Held
from dledger.types import NO_INDEX, Index, NodeId

logger = logging.getLogger(__name__)

TELL_MS: Final = 10_000
"""A member that is behind for less is not worth a word."""


class RetentionHolds:
    """The leader's view; the other members keep the same files as the leader."""

    def __init__(self, settings: CurrentSettings, catalog: Catalog) -> None:
        self._settings = settings
        self._catalog = catalog
        self._holds: list[Hold] = []
        self._bytes = 0
        self._told: tuple[str, ...] = ()

    def look(self) -> Held | None:
        """The hold of now; None when no group holds a file."""
        self._holds = self._catalog.consumer_groups.holds()
        if not self._holds:
            self._bytes, self._told = 0, ()
            return None
        return Held(
            Index(self._holds[0].index),
            self._settings.node.hold_retention_ms,
            self._settings.node.hold_retention_bytes,
        )

    def rest(self) -> None:
        """Another member leads."""
        self._holds, self._bytes, self._told = [], 0, ()

    def tell(self, held: Held, gone_before: Index) -> None:
        """Report the outcome. Entries below ``gone_before`` were deleted just now."""
        for hold in self._holds:
            if hold.index < gone_before:
                logger.error(
                    "retention: consumer group %r held back %s/%d from offset %d on, and records "
                    "behind that may be gone: hold_retention_ms, hold_retention_bytes or the "
                    "disk's level allows no more",
                    hold.group,
                    hold.topic,
                    hold.partition,
                    hold.offset,
                )
        self._bytes = held.bytes
        blocking = tuple(hold.group for hold in self._holds) if held.bytes else ()
        if blocking != self._told:
            self._told = blocking
            for hold in self._holds if held.bytes else ():
                logger.warning(
                    "retention: consumer group %r holds back expired files (%d bytes together): "
                    "it has processed %s/%d "
                    "only up to offset %d; 'dledger groups %s --release' lets them go",
                    hold.group,
                    held.bytes,
                    hold.topic,
                    hold.partition,
                    hold.offset,
                    hold.group,
                )

    def status(self) -> dict[str, Any]:
        return {
            "held_bytes": self._bytes,
            "holds": [
                {
                    "group": h.group,
                    "topic": h.topic,
                    "partition": h.partition,
                    "offset": h.offset,
                    "entry": h.index,
                }
                for h in self._holds
            ],
        }


class Laggards:
    """The leader's view of members that have not got all of the log. Each gets the rest from there,
    or else the state that it came to."""

    def __init__(self, settings: CurrentSettings) -> None:
        self._settings = settings
        self._marks: dict[NodeId, Index] = {}
        self._since_ms: dict[NodeId, int] = {}
        """Members that hold expired files back, and since when this leader sees that, in monotonic
        ms."""
        self._bytes = 0
        self._told: set[NodeId] = set()
        self._left: set[NodeId] = set()
        """Members that need entries that are gone."""

    def look(self, watermarks: Mapping[NodeId, Index]) -> Held | None:
        """The hold of now for the others, whose durable logs match as far as ``watermarks`` says;
        None without any."""
        self._marks = dict(watermarks)
        self._since_ms = {peer: ms for peer, ms in self._since_ms.items() if peer in self._marks}
        if not self._marks:
            return None
        node = self._settings.node
        max_bytes = node.member_retention_bytes or node.retention_bytes
        max_ms = node.member_retention_ms
        return Held(Index(min(self._marks.values()) + 1), max_ms, max_bytes)

    def rest(self) -> None:
        """Another member leads."""
        self._bytes = 0
        self._marks.clear()
        self._since_ms.clear()
        self._told.clear()
        self._left.clear()

    def tell(self, held: Held, begin: Index, now_ms: int) -> None:
        """Report the outcome. The log begins at ``begin`` now."""
        self._bytes = held.bytes
        holding = {peer for peer, mark in self._marks.items() if held.bytes and mark < held.last}
        self._since_ms = {peer: self._since_ms.get(peer, now_ms) for peer in holding}
        told = {peer for peer in holding if now_ms - self._since_ms[peer] >= TELL_MS}
        for peer in sorted(told - self._told):
            logger.warning(
                "retention: expired files (%d bytes) stay for %s, which %s; they go after "
                "member_retention_ms, over member_retention_bytes, or at disk_warn_ratio",
                held.bytes,
                peer,
                _known(self._marks[peer]),
            )
        self._told = told
        left = {peer for peer, mark in self._marks.items() if NO_INDEX < mark < begin - 1}
        for peer in sorted(left - self._left):
            logger.warning(
                "retention: %s has entries up to %d only, and the log begins at %d: it will take "
                "over the leader's state",
                peer,
                self._marks[peer],
                begin,
            )
        self._left = left

    def status(self, now_ms: int) -> dict[str, Any]:
        return {
            "member_bytes": self._bytes,
            "members": [
                {"node": str(peer), "entry": self._marks[peer] + 1, "for_ms": now_ms - since}
                for peer, since in sorted(self._since_ms.items())
            ],
        }


def _known(mark: Index) -> str:
    return "this leader has not heard" if mark == NO_INDEX else f"has entries up to {mark} only"
