"""The one answer of an append that goes out as several batches."""

from __future__ import annotations

from dledger.client.protocol.results import Appended, Promise
from dledger.errors import DLedgerError, OutcomeUnknown


class Gathered:
    """The promise of each of the parts of an append; the last one to be kept or broken decides the
    whole. Told by one thread alone.

    It is broken where one part is, and definitely only if none was written.
    """

    def __init__(self, whole: Promise, topic: str, *, parts: int) -> None:
        self._whole = whole
        self._topic = topic
        self._left = parts
        self._parts: list[Appended] = []
        self._error: DLedgerError | None = None

    def set_result(self, part: Appended, /) -> None:
        """A part is written."""
        self._parts.append(part)
        self._told()

    def set_exception(self, error: DLedgerError, /) -> None:
        """A part is not written, or perhaps."""
        if self._error is None or self._error.definite:
            self._error = error
        self._told()

    def _told(self) -> None:
        self._left -= 1
        if self._left:
            return
        if self._error is None:
            found = ((part.partition, part.start, part.end) for part in self._parts)
            self._whole.set_result(Appended.of(self._topic, found))
        elif self._parts and self._error.definite:
            error = OutcomeUnknown(
                f"append to {self._topic!r}: a part of it was written, but: {self._error}"
            )
            error.__cause__ = self._error
            self._whole.set_exception(error)
        else:
            self._whole.set_exception(self._error)
