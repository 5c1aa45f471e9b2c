"""Commits: I6 they only go forward and count durable entries, I7 a committed entry is durable on a
majority.

Their effects: I5 all nodes apply the same, I10 an acknowledged record is there, I11 offsets have no
gaps, I16 a producer's batches are there once and in order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from dledger.catalog.results import CommandResult, DataResult
from dledger.checksum import crc32
from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.entry import MAGIC_NORMAL, Entry
from dledger.raft.state.quorum_ack_checker import quorum_size
from dledger.records.body.header import BodyHeader, BodyKind, Flag, decode_header
from dledger.types import NodeId, Role
from verification.invariants.broken import Broken
from verification.invariants.truth import Truth
from verification.invariants.view import Memory, WatchedNode

Result = DataResult | CommandResult | None


class Commits:
    """Follows the commit indexes of all nodes."""

    def __init__(self, truth: Truth) -> None:
        self._truth = truth

    def started(self, view: WatchedNode) -> None:
        """I6: a node starts with no commit index above that of the group."""
        if view.committed > self._truth.committed_index:
            raise Broken(
                "I6",
                f"{view} starts with commit {view.committed}; {self._truth.committed_index} is "
                f"known",
            )
        view.memory.ever_committed = max(view.memory.ever_committed, view.committed)

    def moved(
        self, view: WatchedNode, views: Mapping[str, WatchedNode], memories: Mapping[str, Memory]
    ) -> None:
        """A node's commit index is another one."""
        index, truth = view.log.committed_index, self._truth
        if index < view.committed:
            raise Broken("I6", f"{view} goes back from commit {view.committed} to {index}")
        if index > view.terms.last:
            raise Broken("I6", f"{view} calls {index} committed, its log ends at {view.terms.last}")
        if index > truth.committed_index:
            self._new(view, index, views, memories)
        term = view.terms.at(index)
        if term is not None and term != truth.term_of(index):
            raise Broken(
                "I6",
                f"{view} calls its entry {index} of term {term} committed, not "
                f"{truth.term_of(index)}",
            )
        view.committed = index
        view.memory.ever_committed = max(view.memory.ever_committed, index)

    def _new(
        self,
        view: WatchedNode,
        index: int,
        views: Mapping[str, WatchedNode],
        memories: Mapping[str, Memory],
    ) -> None:
        """A node is the first one to commit up to this index."""
        machine, term = view.machine, view.terms.at(index)
        if machine.role is not Role.LEADER and view.role is not Role.LEADER:
            raise Broken("I6", f"{view} commits {index} before any leader, as {machine.role.name}")
        if term != machine.term:
            raise Broken(
                "I6", f"{view} commits {index} of term {term} by counting in term {machine.term}"
            )
        admission = machine.admission
        voters = machine.voters
        holders = [
            name
            for name in voters
            if _holds(
                index,
                term,
                views.get(name),
                memories[name],
                partial(admission.counts, NodeId(name)),
            )
        ]
        if len(holders) < quorum_size(len(voters)):
            raise Broken(
                "I7",
                f"{view} commits {index}, which is durable on {holders} only, of {voters}",
            )
        self._truth.commit(view.name, index, view.terms)


def _holds(
    index: int,
    term: int | None,
    view: WatchedNode | None,
    memory: Memory,
    counted: Callable[[int], bool],
) -> bool:
    """Whether that entry is on the node's disk for sure; a node that is down has what it had when
    it went.

    A disk counts while the committing leader counts its incarnation (``counted``), and so does one
    that was lost or is away: it is one of the minority of disks that a group may lose. Its node
    said that it had the entry while it had it, and the leader cannot know whether the disk was lost
    just before there was a majority or just after.
    """
    if view is not None:
        has = index < view.begin or (index <= view.synced() and view.terms.at(index) == term)
        if has and counted(view.machine.admission.membership.incarnation):
            return True
    elif index <= memory.durable and memory.log.at(index) == term:
        return True
    return any(
        index <= other.durable and other.log.at(index) == term and counted(other.incarnation)
        for other in memory.others
    )


class Offsets:
    """One partition as the committed log makes it."""

    __slots__ = ("next", "producers")

    def __init__(self) -> None:
        self.next = 0
        self.producers: dict[tuple[int, int], list[int]] = {}
        """(producer id, epoch) -> base offset of each of its batches, by sequence."""


class Applied:
    """The results of the committed entries when the first node applied them; all other nodes must
    come to the same."""

    def __init__(self, truth: Truth) -> None:
        self._truth = truth
        self.results: list[Result] = []
        self.partitions: dict[tuple[int, int], Offsets] = {}
        """By topic id and partition."""
        self.topic_ids: dict[str, list[int]] = {}
        self._epochs: dict[int, int] = {}

    def applied(self, view: WatchedNode, entry: Entry, result: Result) -> None:
        """A node has applied an entry."""
        index, truth = entry.index, self._truth
        if index > view.log.committed_index or index > truth.committed_index:
            raise Broken("I12", f"{view} applies {index}; committed is {view.log.committed_index}")
        known = truth.chain_at(index, truth.committed[index])
        if known != entry.chain_crc or entry.term != truth.committed[index]:
            raise Broken("I5", f"{view} applies another entry {index} than the committed one")
        if entry.verified and crc32(entry.body) != entry.body_crc:
            raise Broken("I5", f"{view} applies entry {index} with other bytes than were written")
        if index > len(self.results):
            raise Broken(
                "I5", f"{view} applies {index} before anybody has applied {len(self.results)}"
            )
        if index < len(self.results):
            if self.results[index] != result:
                raise Broken(
                    "I5",
                    f"{view} makes {result} of entry {index}; another made {self.results[index]}",
                )
            return
        self.results.append(result)
        self._first(view, entry, result)

    def _first(self, view: WatchedNode, entry: Entry, result: Result) -> None:
        if isinstance(result, CommandResult):
            self._learn_topics(view)
            if result.code is Code.SUCCESS and result.result.get("repeated") is False:
                self._committed(view, entry.index, result.result)
        elif result is not None and result.code is Code.SUCCESS and entry.magic == MAGIC_NORMAL:
            header = decode_header(entry.body)
            if header.kind is BodyKind.DATA and not header.flags & Flag.STAGED:
                self._batch(view, entry.index, header, result.base_offset)

    def _learn_topics(self, view: WatchedNode) -> None:
        for name, info in view.catalog.topics_state.by_name.items():
            known = self.topic_ids.setdefault(name, [])
            if info.topic_id not in known:
                known.append(info.topic_id)

    def _batch(self, view: WatchedNode, index: int, header: BodyHeader, base: int) -> None:
        offsets = self.partitions.setdefault((header.topic_id, header.partition), Offsets())
        if header.producer_id:
            if header.producer_epoch < self._epochs.get(header.producer_id, 0):
                raise Broken(
                    "I16", f"{view} takes {header} in entry {index} of a session that was fenced"
                )
            self._epochs[header.producer_id] = header.producer_epoch
            bases = offsets.producers.setdefault((header.producer_id, header.producer_epoch), [])
            if header.sequence < len(bases):
                if bases[header.sequence] != base:
                    raise Broken(
                        "I16", f"{view}: entry {index} repeats {header} at {base}, it was {bases}"
                    )
                return
            if header.sequence > len(bases):
                raise Broken(
                    "I16", f"{view}: entry {index} has {header}, {len(bases)} is the next sequence"
                )
            bases.append(base)
        if base != offsets.next:
            raise Broken(
                "I11",
                f"{view} gives entry {index} offset {base} where {offsets.next} is next: {header}",
            )
        offsets.next = base + header.count

    def _committed(self, view: WatchedNode, index: int, result: Mapping[str, Any]) -> None:
        """A transaction gets its offsets."""
        total = 0
        for topic, spans in result["offsets"].items():
            for partition, (start, end) in spans.items():
                offsets = self.partitions.setdefault(
                    (self.topic_ids[topic][-1], partition), Offsets()
                )
                if start != offsets.next or end < start:
                    raise Broken(
                        "I11",
                        f"{view}: entry {index} gives [{start}, {end}), {offsets.next} is next",
                    )
                offsets.next = end
                total += end - start
        if total != result["records"]:
            raise Broken(
                "I11",
                f"{view}: entry {index} commits {result['records']} records with {total} offsets",
            )

    def acknowledged(self, topic: str, partition: int, start: int, end: int) -> None:
        """I10: a client was told that its records have these offsets, so the committed log has
        them."""
        known = [
            self.partitions.get((topic_id, partition)) for topic_id in self.topic_ids.get(topic, ())
        ]
        if not any(offsets is not None and 0 <= start < end <= offsets.next for offsets in known):
            ends = [offsets.next for offsets in known if offsets is not None]
            raise Broken(
                "I10",
                f"acknowledged {topic}/{partition} [{start}, {end}); the committed log ends at "
                f"{ends}",
            )
