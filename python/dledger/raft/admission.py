"""Who counts: votes and acknowledgements only of the incarnations that the group was founded with or has admitted.

The rule, with its reasons:

- A node counts another one, and takes part in elections itself, only by the `Membership` that it has on its disk.
- That changes in one way: an entry ``Admit``, proposed by a leader whose NOOP is committed, and taken when it is
  applied. The new incarnation is not counted for that entry, so a quorum without it holds everything that was ever
  committed, and whoever the former incarnation voted for without success cannot win any more: it lacks that entry,
  which that quorum has. The new incarnation votes from when it knows of the entry: by applying it, from another member,
  or by a catalog that it took over. It need not have what comes before it: without one of that quorum nobody wins.
- The first `Membership` comes from `dledger.raft.founding`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from dledger.messages.membership import Membership
from dledger.types import NO_INDEX, Index, NodeId


class Admission:
    """One node's view. `take` returns what must be durable before anything that follows from it is sent."""

    def __init__(self, me: NodeId, membership: Membership) -> None:
        self.me = me
        self.membership = membership
        self._unsaved = False

    @staticmethod
    def of_all(members: Iterable[NodeId]) -> Membership:
        """Everybody has incarnation 0 and counts; for a core alone, without a store."""
        return Membership(0, NO_INDEX, tuple((member, 0) for member in members))

    @property
    def incarnation(self) -> int:
        return self.membership.incarnation

    @property
    def is_admitted(self) -> bool:
        """Whether this very node may vote and stand."""
        return self.membership.of(self.me) == self.membership.incarnation

    def counts(self, node: NodeId, incarnation: int) -> bool:
        return self.membership.of(node) == incarnation

    def bind(self, index: Index, bound: Iterable[tuple[NodeId, int]]) -> None:
        """From now on these count."""
        self._set(replace(self.membership, index=index, bound=tuple(sorted(bound))))

    def renew(self, incarnation: int) -> None:
        """This node is not what it was."""
        self._set(replace(self.membership, incarnation=incarnation))

    def _set(self, membership: Membership) -> None:
        self._unsaved |= membership != self.membership
        self.membership = membership

    def take(self) -> Membership | None:
        """What is to be saved, once."""
        unsaved, self._unsaved = self._unsaved, False
        return self.membership if unsaved else None
