"""The calls that every store refuses, independent of the place of the log."""

from __future__ import annotations

from collections.abc import Sequence

from dledger.errors import CorruptStore
from dledger.protocol.messages.entry import Entry, HardState, LogEnd, chain_is_sound, place
from dledger.types import Index, Term


def check_append(
    end: LogEnd, entries: Sequence[Entry], segment_bytes: int, current_term: Term
) -> None:
    """Entries must continue the log in index, term, pos and chain of checksums, and be of no term
    that the hard state has not got to; else nothing may be written.

    Raises:
        CorruptStore: which entry does not, and how.
    """
    if entries and entries[-1].term > current_term:
        raise CorruptStore(
            f"entry {entries[-1].index} is of term {entries[-1].term}, but the hard state says "
            f"term {current_term}: "
            "the hard state is saved before entries of its term are written; nothing was written"
        )
    index, term = end.position.index, end.position.term
    pos, chain = end.end_pos, end.chain_crc
    for entry in entries:
        size = entry.size
        due = place(pos, size, segment_bytes)
        if entry.index != index + 1 or entry.pos != due or entry.term < term:
            raise CorruptStore(
                f"entry {entry.index} of term {entry.term} at pos {entry.pos} does not continue "
                f"the log: entry "
                f"{index + 1} at {due}, of term {term} or a later one, is due; nothing was written"
            )
        if not chain_is_sound(entry, chain) or (chain and not entry.verified):
            raise CorruptStore(
                f"entry {entry.index}: its chainCrc does not continue that of the entry before "
                "it, so it belongs to another log; nothing was written"
            )
        index, term, pos, chain = entry.index, entry.term, due + size, entry.chain_crc


def check_truncate(after: Index, commit: Index, begin_index: Index, where: object) -> None:
    """An entry at or below a known commit is never cut (D4, D7).

    Raises:
        CorruptStore: it would be, or ``after`` is not kept any more.
    """
    if after < commit:
        raise CorruptStore(
            f"{where}: asked to cut everything behind entry {after}, but entry {commit} is "
            "committed. A committed entry is never cut: this node stops, and its log must be "
            "compared with the other nodes' (dledger verify)"
        )
    if after < begin_index - 1:
        raise CorruptStore(
            f"{where}: asked to cut behind entry {after}, but the log begins at entry {begin_index}"
        )


def check_hard_state(old: HardState, new: HardState) -> None:
    """Terms never go back and a vote is never changed within its term.

    Raises:
        CorruptStore: they would.
    """
    if new.term < old.term:
        raise CorruptStore(f"the term would go back from {old.term} to {new.term}")
    if new.term == old.term and old.voted_for is not None and new.voted_for != old.voted_for:
        raise CorruptStore(
            f"a second vote in term {new.term}: for {new.voted_for} after {old.voted_for}"
        )
