"""Logs: I2 a leader only appends, I3 they match, I14 nothing committed is cut, I15 only retention
takes the front."""

from __future__ import annotations

from collections.abc import Sequence

from dledger.protocol.messages.entry import Entry
from dledger.types import Role
from verification.invariants.broken import Broken
from verification.invariants.truth import Truth
from verification.invariants.view import WatchedNode


class Logs:
    """Follows every node's log entry by entry."""

    def __init__(self, truth: Truth) -> None:
        self._truth = truth

    def started(self, view: WatchedNode) -> None:
        """I3: a recovered log is a log that was written, and I7: all of it that was durable is
        there."""
        end = view.end
        if end.position.index >= 0 and end.position.index >= view.begin:
            chain = self._truth.chain_at(end.position.index, end.position.term)
            if chain != end.chain_crc:
                raise Broken(
                    "I3",
                    f"{view} comes back with an end that was never written: {end}, known {chain}",
                )
        memory = view.memory
        if end.position.index < memory.durable:
            raise Broken(
                "I7",
                f"{view} comes back with a log up to {end.position.index}; {memory.durable} was "
                f"durable",
            )
        for index in (memory.durable, memory.ever_committed):
            if index <= memory.durable and index >= max(view.begin, memory.log.begin):
                before, now = memory.log.at(index), view.terms.at(index)
                if before is not None and before != now and not self._is_damaged(view, index):
                    raise Broken(
                        "I7",
                        f"{view} comes back with entry {index} of term {now}; it was of {before}",
                    )
        if view.begin < memory.begin:
            raise Broken(
                "I15", f"{view} comes back with a log from {view.begin} on, after {memory.begin}"
            )

    @staticmethod
    def _is_damaged(view: WatchedNode, index: int) -> bool:
        """The term of a damaged entry may not be known, save the last one's, which the end of the
        log tells."""
        faults = view.store.recovery.faulty
        return index < view.end.position.index and any(
            fault.first <= index <= fault.last for fault in faults
        )

    def cut(self, view: WatchedNode, after: int) -> None:
        """The log was cut behind ``after``: never at or below what this node knew to be committed,
        in any life."""
        if view.role is Role.LEADER and view.machine.role is Role.LEADER:
            raise Broken("I2", f"{view} leads term {view.term} and cuts its log behind {after}")
        known = max(view.committed, view.memory.ever_committed)
        if after < known:
            raise Broken("I14", f"{view} cuts behind {after}; it knew {known} to be committed")
        first = after + 1
        if first <= view.terms.last and self._truth.is_committed(first, view.terms.at(first)):
            raise Broken("I14", f"{view} cuts entry {first}, which is committed")
        view.terms.truncate(after)

    def appended(self, view: WatchedNode, entries: Sequence[Entry]) -> None:
        """I3, and that indexes have no gap and terms never go back."""
        terms, truth = view.terms, self._truth
        for entry in entries:
            if entry.index != terms.last + 1:
                raise Broken("I3", f"{view} puts entry {entry.index} behind {terms.last}")
            if terms.terms and entry.term < terms.terms[-1]:
                raise Broken(
                    "I3",
                    f"{view} puts entry {entry.index} of term {entry.term} behind "
                    f"{terms.terms[-1]}",
                )
            truth.write(view.name, entry)
            terms.append(entry.index, entry.index, entry.term)

    def changed(self, view: WatchedNode) -> None:
        """The end is another one: it is what the effects said."""
        log = view.log
        is_shorter = log.generation != view.generation or log.end_index < view.end.position.index
        still_leads = (
            view.role is Role.LEADER
            and view.machine.role is Role.LEADER
            and view.machine.term == view.term
        )
        if is_shorter and still_leads:
            raise Broken(
                "I2", f"{view} leads term {view.term}, its log goes from {view.end} to {log.end}"
            )
        if log.durable_index > log.end_index:
            raise Broken(
                "I3", f"{view} calls {log.durable_index} durable, its log ends at {log.end_index}"
            )
        view.end, view.generation = log.end, log.generation

    def settled(self, view: WatchedNode) -> None:
        """After the effects of a call: the log is as its entries and cuts make it."""
        end = view.log.end_index
        if view.terms.last != end:
            raise Broken("I3", f"{view} has a log up to {end}; its effects make {view.terms.last}")

    def began(self, view: WatchedNode) -> None:
        """I15: the front goes forward only, over committed entries only, and the first one that
        stays is committed too: no cut goes back into what is gone."""
        begin = view.log.begin_index
        if begin < view.begin or begin > view.log.committed_index or begin > view.store.begin_index:
            raise Broken(
                "I15",
                f"{view} begins at {begin} after {view.begin}, its store at "
                f"{view.store.begin_index}, committed is {view.log.committed_index}",
            )
        view.begin = view.terms.begin = begin
