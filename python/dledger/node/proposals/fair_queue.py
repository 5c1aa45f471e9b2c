"""The queue in front of the log, by account: deficit round robin over bytes.

The log is one for all, and what is in it waits for disks in its order. So while several principals
are connected only a window of it may be without a quorum (`commit_window`). The rest waits here,
where each account has its turn (`dledger.net.limits.accounts`); one that had nothing waiting has
the next one, and where that is little it goes beside the window. A principal alone has no window.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final

from dledger.net.limits.accounts import Accounts
from dledger.node.proposals.commit_window import PIECE_BYTES
from dledger.node.proposals.proposal import PROPOSAL_BYTES, Proposal

QUANTUM_BYTES: Final = PIECE_BYTES
"""Of one account in one turn."""
BESIDE_BYTES: Final = QUANTUM_BYTES // 4
"""That may go beside a full window, of all accounts together, until it has room again. A record of
one that writes now and then would else wait for a piece of another's to be committed before it is
even on its way to the disks, which take both at once."""
OWN: Final = ""
"""The account of the node's own commands."""


class FairQueue:
    """Proposals that have no place in the log yet. Those of one account stay in their order."""

    def __init__(self, accounts: Accounts) -> None:
        self._accounts = accounts
        self._queues: dict[str, deque[Proposal]] = {}
        """The account whose turn it is comes first."""
        self._credits: dict[str, int] = {}
        """Bytes that accounts have left of a turn that was cut short, or below zero what they have
        taken beyond one: a proposal is never cut."""
        self._served: set[str] = set()
        """Accounts that have had a turn, since one of those that wait has had two."""
        self._new: list[str] = []
        """Accounts that have come in this call and have the next turns."""
        self._beside = 0
        """Bytes that went beside the full window."""

    def __bool__(self) -> bool:
        return bool(self._queues)

    def __iter__(self) -> Iterator[Proposal]:
        return (proposal for queue in self._queues.values() for proposal in queue)

    @property
    def requests(self) -> int:
        """How many wait."""
        return sum(len(proposal.request_ids) for proposal in self)

    def in_turn(self, gathered: list[Proposal], room: int) -> list[Proposal]:
        """Of these and of those that wait, the ones that have their turn now. ``room``: bytes that
        the log takes."""
        if not self._queues and not self._accounts.are_many:
            return gathered
        self._new.clear()
        for proposal in gathered:
            self._put(proposal)
        found: list[Proposal] = []
        if room > 0:
            self._beside = 0
            while self._queues and room > 0:
                room -= self._turn(room, found)
        else:
            for account in self._new:
                self._go_beside(account, found)
        if not self._queues:
            self._credits.clear()
            self._served.clear()
        return found

    def _put(self, proposal: Proposal) -> None:
        """Behind those of its account. Who asks now and then has the next turn, once a round, so
        that it is no way to more than a share (the new flows of FQ-CoDel, RFC 8290)."""
        account = OWN if proposal.connection is None else proposal.connection.account
        if account not in self._queues and account not in self._served:
            self._queues = {account: deque(), **self._queues}
            self._new.append(account)
        self._queues.setdefault(account, deque()).append(proposal)

    def _turn(self, room: int, found: list[Proposal]) -> int:
        """The turn of the next account; the bytes that it takes."""
        account = next(iter(self._queues))
        queue, taken = self._queues.pop(account), 0
        if account in self._served:
            self._served.clear()
        credit = self._credits.pop(account, 0) + QUANTUM_BYTES
        while queue and taken < min(room, credit):
            proposal = queue.popleft()
            taken += _bytes_of(proposal)
            found.append(proposal)
        is_cut_short = queue and taken < credit
        self._credits[account] = credit - taken - QUANTUM_BYTES * bool(is_cut_short)
        if is_cut_short:
            self._queues = {account: queue, **self._queues}
            return taken
        self._served.add(account)
        if queue:
            self._queues[account] = queue
        else:  # it has saved nothing for later
            self._credits[account] = min(0, credit - taken)
        return taken

    def _go_beside(self, account: str, found: list[Proposal]) -> None:
        """The turn of an account that the window has no room for, as far as it is little."""
        queue = self._queues[account]
        while queue and self._beside + _bytes_of(queue[0]) <= BESIDE_BYTES:
            self._beside += _bytes_of(queue[0])
            found.append(queue.popleft())
            self._served.add(account)
        if not queue:
            del self._queues[account]

    def take_all(self) -> list[Proposal]:
        """Those that wait; none does any more."""
        waiting = list(self)
        self._queues.clear()
        self._credits.clear()
        self._served.clear()
        return waiting

    def take_late(self, now_ms: int) -> list[Proposal]:
        """Those whose time is over."""
        late: list[Proposal] = []
        for account, queue in tuple(self._queues.items()):
            late += (one for one in queue if one.deadline_ms <= now_ms)
            if left := deque(one for one in queue if one.deadline_ms > now_ms):
                self._queues[account] = left
            else:
                del self._queues[account]
        return late


def _bytes_of(proposal: Proposal) -> int:
    return proposal.size + PROPOSAL_BYTES * len(proposal.request_ids)
