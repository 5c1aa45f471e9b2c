"""How long a client waits for a node that has said that it takes no requests for a while."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from dledger.protocol.messages.throttling import ThrottleNotice

MOST_S: Final = 60.0
"""The longest wait on a node's word."""


class ThrottlePause:
    """The pause that a node has announced on a connection.

    Attributes:
        on_notice: is told of each, in milliseconds.
    """

    __slots__ = ("_until_s", "on_notice")

    def __init__(self) -> None:
        self.on_notice: Callable[[int], object] = int
        self._until_s = 0.0

    def begin(self, notice: ThrottleNotice) -> None:
        self._until_s = time.monotonic() + min(MOST_S, notice.throttle_ms / 1000)
        self.on_notice(notice.throttle_ms)

    def left_s(self) -> float:
        """Seconds to its end."""
        return max(0.0, self._until_s - time.monotonic()) if self._until_s else 0.0
