"""How an invariant says that it does not hold."""

from __future__ import annotations


class Broken(BaseException):
    """A promise of the design is broken. No `except` of the program under test may catch it.

    ``invariant`` is its number in the list in `verification.invariants`, e.g. ``I3``.
    """

    def __init__(self, invariant: str, text: str) -> None:
        super().__init__(f"{invariant}: {text}")
        self.invariant = invariant
        self.text = text
