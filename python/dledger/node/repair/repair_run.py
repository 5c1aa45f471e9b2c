"""One run of damaged entries while it is being repaired; see `dledger.node.repair.repairs`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from dledger.errors import CorruptEntry, OffsetOutOfRange
from dledger.protocol.messages.entry import Entry
from dledger.storage.api import Fault, LogStore
from dledger.types import Index, NodeId

AGAIN_MS: Final = 1_000
"""Pause after no member had a copy; doubled up to `dledger.node.repair.repairs.AGAIN_MOST_MS`."""


@dataclass(slots=True)
class Repair:
    """One run of damaged entries on its way to being sound."""

    fault: Fault
    asked: NodeId | None = None
    deadline_ms: int = 0
    """When the next member is asked."""
    pause_ms: int = AGAIN_MS
    refused: dict[NodeId, str] = field(default_factory=dict)
    """The answers of the members that could not help."""
    fetched: list[Entry] = field(default_factory=list)
    writing: bool = False
    examined: bool = False

    @property
    def state(self) -> str:
        if self.writing:
            return "writing"
        if self.asked is not None:
            return f"asking {self.asked}"
        words = "; ".join(f"{node}: {why}" for node, why in sorted(self.refused.items()))
        return f"no copy found ({words})" if words else "waiting"


def is_readable(store: LogStore, fault: Fault, max_bytes: int) -> bool:
    """Whether the disk gives the entries back after all, with all their checksums. Reads
    ``max_bytes`` at a time."""
    index = fault.first
    while index <= fault.last:
        try:
            found = store.read(index, max_bytes, Index(fault.last + 1))
        except (CorruptEntry, OffsetOutOfRange):
            return False
        if not found:
            return False
        index = Index(found[-1].index + 1)
    return True
