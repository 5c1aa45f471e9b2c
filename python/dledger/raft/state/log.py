"""The log as the protocol sees it: its ends, the terms in it, and the newest entries; the store has
the rest."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from operator import attrgetter
from typing import Final

from dledger.protocol.messages.entry import LogEnd
from dledger.protocol.messages.entry_runs import NO_ENTRIES, Entries, EntryRun
from dledger.raft.state.ready import Fact, SafetyViolation
from dledger.types import NO_INDEX, NO_TERM, NOWHERE, Buffer, Index, Position, Term

UNKNOWN_POS = -1


@dataclass(frozen=True, slots=True)
class LogSummary:
    """A store's description of its log when a node starts; all of it is durable."""

    begin_index: Index = Index(0)
    end: LogEnd = LogEnd()  # noqa: RUF009 - frozen
    terms: tuple[tuple[Term, Index], ...] = ()
    """Each term in the log with its first index, in order."""
    committed: Index = NO_INDEX
    """The highest index that is known to be committed."""
    faulty: tuple[tuple[Index, Index], ...] = ()
    """First and last entry of each run that is damaged."""


class RaftLog:
    """Positions, conflicts, the durable and the committed index, and a cache of the newest entries.

    The cache is bounded by bytes of log, measured by ``pos``, so that appending and cutting cost
    nothing per entry. It keeps entries that are not durable at any size: no other copy of them may
    exist.
    """

    def __init__(self, summary: LogSummary, cache_bytes: int) -> None:
        self.begin_index = summary.begin_index
        self._reach(summary.end)
        self.durable_index = self.end_index
        self.committed_index = summary.committed
        self.faulty = summary.faulty
        """First and last entry of each run that the disk does not give back; where the log ends is
        known anyway."""
        self.generation = 0
        """Counts truncations: a sync that began before one says nothing about what was written
        after it."""
        if summary.committed > self.end_index:
            raise SafetyViolation(
                f"the log ends at {self.end_index}, but {summary.committed} is known to be "
                "committed: entries that were acknowledged are gone; restore the store, or empty "
                "it and let the node in by 'dledger admit'",
                Fact(
                    "committed_entries_lost",
                    (("end", self.end_index), ("committed", summary.committed)),
                ),
            )
        self._terms = [term for term, _ in summary.terms]
        self._firsts = [first for _, first in summary.terms]
        if self.end_index >= self.begin_index and (
            not self._terms or self._terms[-1] != self.end.position.term
        ):
            raise ValueError(
                f"the terms {summary.terms} do not lead to the log's end {self.end.position}"
            )
        self._cache: list[EntryRun] = []
        self._head = 0
        self._cache_bytes = cache_bytes
        self._last_slice: tuple[Index, Index, Entries] | None = None
        self._newest = NO_ENTRIES
        """Those that were appended last: most of the time they are asked for as a whole."""

    def _reach(self, end: LogEnd) -> None:
        self.end = end
        self.end_index = end.position.index
        self.end_is_known = end.end_pos != UNKNOWN_POS
        """False between a cut behind an entry that is not cached and ``truncated``."""

    def term_at(self, index: Index) -> Term | None:
        """Term of the entry at ``index``; NO_TERM before the first entry; None where none is
        known."""
        if index == NO_INDEX:
            return NO_TERM
        if index >= self.end_index:
            return self.end.position.term if index == self.end_index else None
        if not max(self.begin_index - 1, self._firsts[0]) <= index:
            return None
        if index >= self._firsts[-1]:
            return self._terms[-1]
        return self._terms[bisect_right(self._firsts, index) - 1]

    def known_position(self, index: Index) -> Position | None:
        """As `position_at`; None where it cannot be told any more which entry was there: retention
        took it, or what follows it."""
        term = self.term_at(index)
        return None if term is None or index < self.begin_index - 1 else Position(term, index)

    def position_at(self, index: Index) -> Position:
        term = self.term_at(index)
        if term is None:
            raise LookupError(f"no entry {index} in the log {self.begin_index}..{self.end_index}")
        return Position(term, index)

    @property
    def durable(self) -> Position:
        """The last entry that survives a crash."""
        term = self.term_at(self.durable_index)
        return NOWHERE if term is None else Position(term, self.durable_index)

    def holds(self, position: Position) -> bool:
        """Whether that very entry is in the log. An entry that retention dropped was committed, so
        it was in it. The term of a damaged one may not be known, but a leader has every committed
        one as it was."""
        if position.index < self.begin_index or self.term_at(position.index) == position.term:
            return True
        return position.index <= self.committed_index and self._is_faulty(position.index)

    def has(self, position: Position) -> bool:
        """Whether that very entry is in the log, and sound."""
        return self.term_at(position.index) == position.term and not self._is_faulty(position.index)

    def may_hold(self, position: Position) -> bool:
        """Whether that very entry is in the log, or a damaged one in its place, which cannot be
        told from it."""
        at = position.index
        return self.begin_index <= at <= self.end_index and (
            self.term_at(at) == position.term or self._is_faulty(at)
        )

    def _is_faulty(self, index: Index) -> bool:
        return any(first <= index <= last for first, last in self.faulty)

    def correct(self, index: Index, term: Term) -> None:
        """The term of an entry that was damaged is known now; call it in the order of the
        entries."""
        if not self.begin_index <= index <= self.end_index or self.term_at(index) == term:
            return
        at = bisect_left(self._terms, term)
        if at < len(self._terms) and self._terms[at] == term:
            self._firsts[at] = min(self._firsts[at], index)
        else:
            self._terms.insert(at, term)
            self._firsts.insert(at, index)

    def first_index_of_term_at(self, index: Index) -> Index:
        return self._firsts[bisect_right(self._firsts, index) - 1]

    def last_index_at_most(self, term: Term, limit: Index) -> Index:
        """The last index up to ``limit`` whose entry's term is not above ``term``."""
        # Terms never fall along a log, so the first entry of a higher term ends the range.
        after = bisect_right(self._terms, term)
        end = self._firsts[after] - 1 if after < len(self._firsts) else self.end_index
        return Index(min(limit, end))

    def append(self, entries: Entries) -> None:
        """Put consecutive ``entries`` right behind the end."""
        runs = entries.runs
        assert runs[0].index == self.end_index + 1, f"{runs[0]} does not follow {self.end.position}"
        newest = self._terms[-1] if self._terms else NO_TERM
        for run in runs:
            if run.term != newest:
                newest = run.term
                self._terms.append(newest)
                self._firsts.append(run.index)
        self._reach(entries.end)
        self._cache += runs
        self._newest = entries
        self._evict()

    def truncate(self, after: Index) -> None:
        """Cut everything behind ``after``.

        Raises:
            SafetyViolation: that would cut a committed entry; nothing is cut (D4, D7).
        """
        if after < self.committed_index:
            raise SafetyViolation(
                f"asked to cut the log behind {after}, but {self.committed_index} is committed: "
                "this node stops and keeps its files; find the node that lost data",
                Fact("truncate_refused", (("after", after), ("committed", self.committed_index))),
            )
        keep = bisect_right(self._firsts, after)
        del self._terms[keep:], self._firsts[keep:]
        last = self.cached(after, Index(after + 1)) if after >= self.begin_index else None
        if last:
            self._reach(last.runs[-1].end)
        elif after == NO_INDEX:
            self._reach(LogEnd())
        else:
            self._reach(
                LogEnd(Position(self._terms[-1] if keep else NO_TERM, after), UNKNOWN_POS, 0)
            )
        at = max(self._head, bisect_right(self._cache, after, self._head, key=_first))
        kept = self._cache[self._head : at]
        if kept and kept[-1].last > after:
            kept[-1] = kept[-1].cut(0, after + 1 - kept[-1].index)
        self._cache, self._head = kept, 0
        self.durable_index = min(self.durable_index, after)
        self.generation += 1
        self._last_slice, self._newest = None, NO_ENTRIES

    def truncated(self, end: LogEnd) -> None:
        """The store tells where the log ends after a cut."""
        ours, theirs = self.end.position, end.position
        if (
            not self.end_is_known
            and theirs.index == ours.index
            and ours.term in {theirs.term, NO_TERM}
        ):
            self._reach(end)

    def persisted(self, position: Position) -> bool:
        """Everything up to ``position`` is durable; False when that says nothing new or that entry
        was cut."""
        # A sync may end after its entries were cut and others took their indexes. Term and index
        # together name one entry, so a result for a cut one is told apart.
        if position.index <= self.durable_index or self.term_at(position.index) != position.term:
            return False
        self.durable_index = position.index
        self._evict()
        return True

    def forget(self, begin_index: Index) -> None:
        """Retention dropped the entries before ``begin_index``; only committed ones may go."""
        if begin_index <= self.begin_index:
            return
        assert begin_index <= self.committed_index + 1, (
            f"retention took uncommitted entries before {begin_index}"
        )
        self.begin_index = begin_index
        gone = bisect_right(self._firsts, begin_index - 1) - 1
        if gone > 0:
            del self._terms[:gone], self._firsts[:gone]
        while self._head < len(self._cache) and self._cache[self._head].last < begin_index:
            self._head += 1
        if self._head < len(self._cache) and (run := self._cache[self._head]).index < begin_index:
            self._cache[self._head] = run.cut(begin_index - run.index, len(run))
        if self._newest.first_index < begin_index:
            self._newest = NO_ENTRIES
        self._compact()

    def cached(self, begin: Index, end_exclusive: Index) -> Entries | None:
        """The entries [begin, end_exclusive), or None when one of them is not in memory."""
        cache, newest = self._cache, self._newest
        if begin == newest.first_index and end_exclusive == newest.last_index + 1:
            return newest
        if self._head == len(cache) or begin < cache[self._head].index:
            return None
        if begin >= end_exclusive or begin > self.end_index:
            return NO_ENTRIES
        at = self._run_at(begin)
        stop = bisect_left(cache, end_exclusive, at, key=_first)
        runs = cache[at:stop]
        first, last = runs[0], runs[-1]
        if last.last >= end_exclusive:
            runs[-1] = last.cut(0, end_exclusive - last.index)
        if first.index < begin:
            runs[0] = runs[0].cut(begin - first.index, len(runs[0]))
        return Entries(tuple(runs))

    def _run_at(self, index: int) -> int:
        """Where in the cache the run is that holds this entry, which is not before the first."""
        cache = self._cache
        if cache[-1].index <= index:  # most of the time
            return len(cache) - 1
        return bisect_right(cache, index, self._head, key=_first) - 1

    def cached_bodies(self, indexes: Iterable[int]) -> list[Buffer | None]:
        """The body of each of these entries, None of one that is not in memory."""
        cache, found = self._cache, []
        first = cache[self._head].index if self._head < len(cache) else self.end_index + 1
        for index in indexes:
            body = None
            if first <= index <= self.end_index:
                run = cache[self._run_at(index)]
                body = run.body(index - run.index)
            found.append(body)
        return found

    def slice(self, begin: Index, max_bytes: int) -> Entries | None:
        """Entries from ``begin`` on, at most ``max_bytes`` but at least one; None when they are not
        in memory.

        Followers that are equally far get the very same ones, so that they need be encoded only
        once.
        """
        last, newest = self._last_slice, self._newest
        if begin == newest.first_index and newest.span <= max_bytes:
            return newest
        if last is not None and last[0] == begin and last[1] == self.end_index:
            return last[2]
        if self._head == len(self._cache) or begin < self._cache[self._head].index:
            return None
        at = self._run_at(begin)
        first = self._cache[at]
        if first.index < begin:
            first = first.cut(begin - first.index, len(first))
        limit = first.pos + max_bytes
        stop = bisect_left(self._cache, limit, at + 1, key=_pos)
        runs = [first, *self._cache[at + 1 : stop]]
        last_run = runs[-1]
        if last_run.end_pos > limit:
            fitting = bisect_right(last_run.starts, limit - last_run.pos) - 1
            if fitting or len(runs) == 1:
                runs[-1] = last_run.cut(0, max(1, fitting))
            else:
                del runs[-1]
        entries = Entries(tuple(runs))
        self._last_slice = (begin, self.end_index, entries)
        return entries

    def check(self) -> None:
        """Raise AssertionError if a promise is broken. Tests call it after every step."""
        assert self.committed_index <= self.end_index, (
            f"committed {self.committed_index} of {self.end}"
        )
        assert self.durable_index <= self.end_index, f"durable {self.durable_index} of {self.end}"
        assert self.begin_index <= self.committed_index + 1, f"begins at {self.begin_index}"
        assert self._terms == sorted(set(self._terms)), f"terms go back: {self._terms}"
        assert self._firsts == sorted(set(self._firsts)), f"first indexes go back: {self._firsts}"
        runs = self._cache[self._head :]
        live = [index for run in runs for index in range(run.index, run.last + 1)]
        assert live == list(range(self.end_index + 1 - len(live), self.end_index + 1)), (
            f"cache has a gap: {live}"
        )

    def _evict(self) -> None:
        cache, head = self._cache, self._head
        floor_pos = self.end.end_pos - self._cache_bytes
        if head < len(cache) and cache[head].pos < floor_pos and self.end_is_known:
            # Three bounds: the bytes to keep, the first run with an entry that is not durable, and
            # one run, so that the cache always ends with the log's last entry.
            not_durable = bisect_right(cache, self.durable_index, head, key=_last)
            self._head = min(
                bisect_left(cache, floor_pos, head, key=_pos), not_durable, len(cache) - 1
            )
            self._compact()

    def _compact(self) -> None:
        """Evicted entries keep their memory until a quarter of the list is evicted, so that this is
        cheap."""
        if self._head * 4 >= len(self._cache):
            del self._cache[: self._head]
            self._head = 0


_first: Final = attrgetter("index")
_last: Final = attrgetter("last")
_pos: Final = attrgetter("pos")
