"""The calls that every store refuses, independent of the place of the log."""

from __future__ import annotations

from dledger.errors import CorruptStore
from dledger.protocol.messages.entry import (
    HardState,
)
from dledger.types import Index


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
