"""The program's callbacks for changes of its partitions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dledger.client.protocol.consuming.settings import TopicPartition
from dledger.client.protocol.consuming.state import ShareChange, ShareChangeKind

OnChange = Callable[[list[TopicPartition]], Any]
"""Takes the partitions that a consumer was given, is to give back, or has lost."""


@dataclass(frozen=True, slots=True)
class Callbacks:
    """See `Client.consumer`."""

    on_assigned: OnChange | None = None
    on_revoked: OnChange | None = None
    on_lost: OnChange | None = None

    def tell(self, change: ShareChange) -> Any:
        """Call the one for a change; what it returns. Who has none for lost partitions hears of
        them as of revoked ones."""
        callback = {
            ShareChangeKind.ASSIGNED: self.on_assigned,
            ShareChangeKind.REVOKED: self.on_revoked,
            ShareChangeKind.LOST: self.on_lost or self.on_revoked,
        }[change.kind]
        return None if callback is None else callback(change.places)
