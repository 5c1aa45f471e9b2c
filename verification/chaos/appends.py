"""Appends that are under way, and the errors of those that began while none may fail."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from dledger.errors import DLedgerError
from dledger.testing.checkers.history import OpenOperation

KEPT: Final = 10_000
"""Errors."""


class Appends:
    """Of all clients of a run.

    Args:
        now_s: the run's clock.
    """

    def __init__(self, now_s: Callable[[], float]) -> None:
        self.now_s = now_s
        self.calm = False
        """No client does anything that makes another one's appends fail."""
        self._open: dict[OpenOperation, float] = {}
        self._errors: list[tuple[float, str]] = []

    def begun(self, call: OpenOperation) -> None:
        """It is sent now."""
        self._open[call] = self.now_s()

    def ended(self, call: OpenOperation, error: DLedgerError | None = None) -> None:
        """It was answered, or given up."""
        began_s = self._open.pop(call)
        if error is not None:
            now_s = self.now_s()
            text = f"{type(error).__name__} after {now_s - began_s:.2f} s: {error}"
            self._errors.append((began_s, text))
            del self._errors[:-KEPT]

    def all_ended(self, until_s: float) -> bool:
        """Whether none that began by then is under way."""
        return all(began_s > until_s for began_s in self._open.values())

    def errors(self, since_s: float, until_s: float) -> list[str]:
        """Of those that began in this time, whenever they were told."""
        return [text for began_s, text in self._errors if since_s <= began_s <= until_s]
