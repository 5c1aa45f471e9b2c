"""Warnings that strangers can cause: one line for each reason and address in a while, and how many
there were."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

INTERVAL_S: Final = 10.0
MOST_KINDS: Final = 256
"""Reasons and addresses that are told apart at a time; the rest share one line."""


@dataclass(slots=True)
class _Kind:
    since_s: float
    more: int = 0


class Seldom:
    """Lines of one logger; ``now_s`` is a clock that does not go back."""

    def __init__(self, log: logging.Logger, now_s: Callable[[], float]) -> None:
        self._log = log
        self._now_s = now_s
        self._kinds: dict[tuple[str, str], _Kind] = {}

    def warn(self, address: str, text: str) -> None:
        """Log that a connection of ``address`` (``host:port``) was closed because of ``text``, or
        count it. Texts are of one kind when their first two words are the same."""
        kind = (address.rpartition(":")[0], " ".join(text.split()[:2]))
        if kind not in self._kinds and len(self._kinds) >= MOST_KINDS:
            kind = ("", "")
        known = self._kinds.get(kind)
        if known is None:
            self._kinds[kind] = _Kind(self._now_s())
            self._log.warning("connection from %s closed: %s", address, text)
        else:
            known.more += 1

    def sweep(self) -> None:
        """Tell the warnings that were only counted; called now and then."""
        now = self._now_s()
        for kind, known in list(self._kinds.items()):
            if now - known.since_s < INTERVAL_S:
                continue
            if known.more:
                host, reason = kind
                self._log.warning(
                    "%d more connections%s closed in %d s: %s",
                    known.more,
                    f" from {host}" if host else "",
                    round(now - known.since_s),
                    f"{reason} ..." if reason else "of many kinds",
                )
                self._kinds[kind] = _Kind(now)
            else:
                del self._kinds[kind]
