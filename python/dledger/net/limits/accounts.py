"""Who shares the turns and the memory of a node: principals, however many connections each has.

Turns and bytes are counted by account: a principal, or an address where nobody is known behind it.
Shares are made only while several principals are connected. In a group without users there is one,
so that connections share as they always did.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from dledger.types import ANONYMOUS, Principal

HALF: Final = 2
"""Where nothing is free, the accounts have equal parts of this part of all."""


def account_of(principal: Principal, host: str) -> str:
    """The account of a connection that has said hello."""
    return host if principal == ANONYMOUS else principal


class Accounts:
    """The principals at one node, and what their accounts have.

    Attributes:
        connected: the number of connections of each principal.
        held: bytes of requests without an answer, of each account that has any.
        are_many: whether several principals are connected, so that none may have all.
    """

    def __init__(self) -> None:
        self.connected: Counter[Principal] = Counter()
        self.held: dict[str, int] = {}
        self.are_many = False

    def enter(self, principal: Principal) -> None:
        """One of its connections has begun."""
        self.connected[principal] += 1
        self.are_many = len(self.connected) > 1

    def leave(self, principal: Principal) -> None:
        """One of its connections has ended."""
        self.connected[principal] -= 1
        if not self.connected[principal]:
            del self.connected[principal]
        self.are_many = len(self.connected) > 1

    def hold(self, account: str, size: int) -> None:
        """So many bytes more; negative: fewer."""
        held = self.held.get(account, 0) + size
        if held:
            self.held[account] = held
        elif account in self.held:
            del self.held[account]

    def share(self, limit: int, used: int, sharers: int) -> int:
        """How much one account may have of a memory in which all have ``used``: all of it where one
        principal is connected; else as much as is free, so that there is always room for one that
        comes, and for each of ``sharers`` a part even where nothing is free."""
        if not self.are_many:
            return limit
        return max(limit - used, limit // (HALF * max(1, sharers)))
