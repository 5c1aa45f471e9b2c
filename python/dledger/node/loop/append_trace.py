"""Spans of a node's entries: append, and below it fsync and commit."""

from __future__ import annotations

import sys
from collections import deque
from dataclasses import dataclass
from typing import Any, Final

from dledger.protocol.messages.entry_runs import Entries
from dledger.raft.raft_node import RaftNode
from dledger.tracing import API, tracer
from dledger.types import Index, NodeId

MOST_OPEN: Final = 10_000
"""Entries that wait for a quorum come in no more groups with spans than that."""


@dataclass(slots=True)
class _Group:
    """Entries that were written together."""

    last: Index
    append: Any
    commit: Any
    fsync: Any


class AppendTrace:
    """One span for the entries of each write, from there until they are committed; below it one
    until they are on this node's disk, and one until a quorum has them."""

    def __init__(self, node_id: NodeId, tracer: Any) -> None:
        self._node_id = node_id
        self._tracer = tracer
        self._open: deque[_Group] = deque()
        self._unsynced: deque[_Group] = deque()

    @staticmethod
    def of(raft: RaftNode) -> AppendTrace | None:
        """That of a node whose program has set a tracer provider before it started."""
        found = tracer()
        return AppendTrace(raft.node_id, found) if found is not None else None

    def written(self, entries: Entries) -> None:
        """They go to the log writer now."""
        if len(self._open) >= MOST_OPEN:
            return
        first, count = entries.first_index, len(entries)
        about = {"dledger.node": self._node_id, "dledger.index": first, "dledger.entries": count}
        append = self._tracer.start_span("append", attributes=about)
        inside = sys.modules[API].set_span_in_context(append)
        fsync, commit = (self._tracer.start_span(name, inside) for name in ("fsync", "commit"))
        group = _Group(Index(first + count - 1), append, commit, fsync)
        self._open.append(group)
        self._unsynced.append(group)

    def durable(self, index: Index) -> None:
        """This node's disk has all entries up to there."""
        while self._unsynced and self._unsynced[0].last <= index:
            self._unsynced.popleft().fsync.end()

    def committed(self, index: Index) -> None:
        """A quorum has them."""
        while self._open and self._open[0].last <= index:
            group = self._open.popleft()
            group.commit.end()
            group.append.end()

    def cut(self, end: Index) -> None:
        """The entries behind ``end`` are gone: they were not committed."""
        while self._open and self._open[-1].last > end:
            group = self._open.pop()
            if self._unsynced and self._unsynced[-1] is group:
                self._unsynced.pop().fsync.end()
            for span in (group.commit, group.append):
                span.set_status(sys.modules[API].StatusCode.ERROR, "cut off the log")
                span.end()
