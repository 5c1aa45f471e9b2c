"""Which term begins at which entry: kept in memory, found at start by bisection, so that no log is
read for it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from typing import Any

from dledger.protocol.messages.entry_runs import Entries
from dledger.storage.log.segments import is_held
from dledger.types import Index, Term

Pairs = tuple[tuple[Term, Index], ...]


def find_terms(begin: Index, end: Index, term_of: Callable[[Index], Term]) -> Pairs:
    """The terms of the entries ``begin`` to ``end`` (inclusive) with their first indexes.

    Terms never fall, so equal terms at both ends of a range mean one term in all of it.
    """
    pairs: list[tuple[Term, Index]] = []
    while begin <= end:
        term = term_of(begin)
        pairs.append((term, begin))
        if term_of(end) == term:
            break
        begin = Index(
            bisect_right(range(end), term, lo=begin + 1, key=lambda at: term_of(Index(at)))
        )
    return tuple(pairs)


class TermTable:
    """The pairs, as an immutable tuple that is replaced when it changes."""

    def __init__(self, pairs: Pairs, writing: Any = None) -> None:
        """``writing``: the lock of the thread that changes the log."""
        self.pairs = pairs
        self._writing = writing

    def _replace(self, pairs: Pairs) -> None:
        assert is_held(self._writing), "the table of terms is replaced under FileStore._lock"
        self.pairs = pairs

    def append(self, entries: Entries) -> None:
        """Entries were appended, the last one of a new term."""
        last = self.pairs[-1][0] if self.pairs else None
        new: list[tuple[Term, Index]] = []
        for run in entries.runs:
            if run.term != last:
                new.append((run.term, run.index))
                last = run.term
        self._replace((*self.pairs, *new))

    def truncate(self, after: Index) -> None:
        """Everything behind ``after`` is gone."""
        self._replace(tuple(pair for pair in self.pairs if pair[1] <= after))

    def drop_front(self, begin: Index) -> None:
        """Everything in front of ``begin`` is gone."""
        older = [term for term, first in self.pairs if first <= begin]
        self._replace((*((term, begin) for term in older[-1:]), *self.pairs[len(older) :]))
