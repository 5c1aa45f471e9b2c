"""Warnings that strangers can cause: one line for each reason and address in a while, and how many
there were."""

from __future__ import annotations

import logging
from collections.abc import Callable

from dledger.logs.repeats import Repeats


class Seldom:
    """Lines of one logger; ``now_s`` is a clock that does not go back."""

    def __init__(self, log: logging.Logger, now_s: Callable[[], float]) -> None:
        self._log = log
        self._repeats = Repeats(now_s, rest=("", ""))

    def warn(self, address: str, text: str) -> None:
        """Log that a connection of ``address`` (``host:port``) was closed because of ``text``, or
        count it. Texts are of one kind when their first two words are the same."""
        if self._repeats.is_told((address.rpartition(":")[0], " ".join(text.split()[:2]))):
            self._log.warning("connection from %s closed: %s", address, text)

    def sweep(self) -> None:
        """Tell the warnings that were only counted; called now and then."""
        for (host, reason), more, seconds in self._repeats.over():
            self._log.warning(
                "%d more connections%s closed in %d s: %s",
                more,
                f" from {host}" if host else "",
                seconds,
                f"{reason} ..." if reason else "of many kinds",
            )
