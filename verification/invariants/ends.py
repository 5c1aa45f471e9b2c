"""The end of a seed: I24 all live nodes are equal, I25 the group works again soon after healing,
I26 the history."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dledger.testing.checkers.history import Operation
from dledger.testing.checkers.verdict import Verdict, check_history
from dledger.types import Role
from verification.invariants.broken import Broken
from verification.invariants.commit import Applied
from verification.invariants.storage import Storage
from verification.invariants.truth import Truth
from verification.invariants.view import WatchedNode

ELECTIONS = 10
"""Election time-outs after which a healed group has a leader and commits."""


class Healing:
    """I25: from the moment at which a majority can talk again, to the next commit."""

    def __init__(self, truth: Truth, election_ms: int) -> None:
        self._truth = truth
        self._limit_ms = ELECTIONS * 2 * election_ms
        """A follower's time-out is drawn from [election_ms, 2 * election_ms)."""
        self.due_ms: int | None = None
        """When a commit that is waited for must have come."""
        self._committed = -1

    def healed(self, now_ms: int) -> None:
        """Faults are over for a majority; clients go on asking."""
        self.due_ms, self._committed = now_ms + self._limit_ms, self._truth.committed_index

    def hurt(self) -> None:
        """Faults begin again."""
        self.due_ms = None

    def look(self, now_ms: int, views: Iterable[WatchedNode]) -> None:
        """Check that the group has committed an entry in time."""
        if self.due_ms is None:
            return
        if self._truth.committed_index > self._committed:
            self.due_ms = None
        elif now_ms > self.due_ms:
            roles = {view.name: (view.machine.role.name, view.machine.term) for view in views}
            raise Broken(
                "I25",
                f"nothing committed in {self._limit_ms} ms since the group was healed: {roles}",
            )


def check_equal(
    views: Sequence[WatchedNode], truth: Truth, applied: Applied, storage: Storage
) -> None:
    """I24: every live node has committed and applied all, leads or follows the one leader, and has
    the same bytes."""
    leaders = {view.name: view.machine.term for view in views if view.machine.role is Role.LEADER}
    newest = max(leaders.values(), default=None)
    if newest is None:
        raise Broken("I24", "nobody leads at the end")
    digests: dict[int, str] = {}
    for view in views:
        if (
            view.log.committed_index != truth.committed_index
            or view.catalog.applied_index != truth.committed_index
        ):
            raise Broken(
                "I24",
                f"at the end {view} has committed {view.log.committed_index} and applied "
                f"{view.catalog.applied_index}, {truth.committed_index} is committed",
            )
        if view.machine.term != newest:
            raise Broken("I24", f"at the end {view} is in term {view.machine.term}, {leaders} lead")
        digests.setdefault(view.catalog.digest(), view.name)
        storage.read_all(view)
    if len(digests) > 1:
        raise Broken("I24", f"the catalogs of {sorted(digests.values())} differ at the end")
    for (topic_id, partition), offsets in applied.partitions.items():
        for view in views:
            found = view.catalog.partitions.get(topic_id << 32 | partition)
            if found is not None and found.next_offset != offsets.next:
                raise Broken(
                    "I11", f"{view} ends {found.name} at {found.next_offset}, not {offsets.next}"
                )


def check_clients(history: Sequence[Operation]) -> Verdict:
    """I26, and with it I10, I13 and I16 as clients see them: the history is that of a linearizable
    log."""
    verdict = check_history(history)
    if verdict.findings:
        raise Broken("I26", "\n".join(str(finding) for finding in verdict.findings[:5]))
    return verdict
