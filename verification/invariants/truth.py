"""The state that all nodes together have shown so far: the one log that they must agree on."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from dledger.protocol.messages.entry import Entry
from dledger.types import NO_INDEX, NO_TERM, Term
from verification.invariants.broken import Broken


class Terms:
    """Which term each entry of a log has: runs of equal terms, as `LogStore.terms` has them."""

    __slots__ = ("begin", "firsts", "last", "terms")

    def __init__(self, pairs: Iterable[tuple[int, int]], begin: int, last: int) -> None:
        """``pairs``: each term with its first index; ``begin``, ``last``: first and last index of
        the log."""
        self.terms = []
        self.firsts = []
        for term, first in pairs:
            self.terms.append(term)
            self.firsts.append(first)
        self.begin = begin
        self.last = last

    def at(self, index: int) -> int | None:
        """The term of an entry; NO_TERM before the first; None when it is not in the log, or not
        any more."""
        if index == NO_INDEX:
            return NO_TERM
        if index > self.last or not self.firsts or index < self.firsts[0]:
            return None
        return self.terms[bisect_right(self.firsts, index) - 1]

    def append(self, first: int, last: int, term: int) -> None:
        """Entries of one term, right behind the end."""
        if not self.terms or self.terms[-1] != term:
            self.terms.append(term)
            self.firsts.append(first)
        self.last = last

    def truncate(self, after: int) -> None:
        keep = bisect_right(self.firsts, after)
        del self.terms[keep:], self.firsts[keep:]
        self.last = min(self.last, after)

    def copy(self) -> Terms:
        return Terms(zip(self.terms, self.firsts, strict=True), self.begin, self.last)


class Written:
    """An entry that some node took into its log."""

    __slots__ = ("body_crc", "chain_crc", "end_pos", "pos")

    def __init__(self, entry: Entry) -> None:
        self.chain_crc = entry.chain_crc
        self.body_crc = entry.body_crc
        self.pos = entry.pos
        self.end_pos = entry.end_pos


class Truth:
    """Every entry that was ever written anywhere, and the committed log.

    An entry's chainCrc sums up its own header, its body's checksum and everything before it, so two
    logs are equal up to an entry if and only if they have the same chainCrc there.
    """

    def __init__(self) -> None:
        self.written: dict[tuple[int, int], Written] = {}
        """By (index, term)."""
        self.committed: list[int] = []
        """Term of each entry that some node has called committed, by index."""

    @property
    def committed_index(self) -> int:
        return len(self.committed) - 1

    def write(self, who: str, entry: Entry) -> None:
        """I3: entries with the same index and term are the same, and so is everything before
        them."""
        key = (entry.index, entry.term)
        known = self.written.get(key)
        if known is None:
            self.written[key] = Written(entry)
        elif known.chain_crc != entry.chain_crc or known.body_crc != entry.body_crc:
            raise Broken(
                "I3",
                f"{who} has another entry {entry.index} of term {entry.term} than was seen before",
            )

    def term_of(self, index: int) -> int | None:
        """Term of the committed entry; None when none is known."""
        return self.committed[index] if 0 <= index < len(self.committed) else None

    def is_committed(self, index: int, term: int | None) -> bool:
        return term is not None and self.term_of(index) == term

    def commit(self, who: str, index: int, terms: Terms) -> None:
        """A leader has everything up to ``index`` committed; ``terms`` are those of its log."""
        for at in range(len(self.committed), index + 1):
            term = terms.at(at)
            if term is None:
                raise Broken("I6", f"{who} calls {index} committed, but has no entry {at}")
            self.committed.append(term)

    def chain_at(self, index: int, term: Term | int) -> int | None:
        """chainCrc of an entry that was seen."""
        known = self.written.get((index, term))
        return None if known is None else known.chain_crc
