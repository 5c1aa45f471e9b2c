"""The requests that have no answer yet: the memory that they hold, the entries that they wait for,
and how they are answered."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace

from dledger.catalog.results import CommandResult
from dledger.net import Connection
from dledger.node.audit.audited_commands import audited
from dledger.node.context import NodeContext, NodePart
from dledger.node.proposals.proposal import PROPOSAL_BYTES, Proposal, answer_to
from dledger.node.proposals.timestamps import TIMED
from dledger.protocol.messages.catalog_commands import Command
from dledger.protocol.messages.codes import Code
from dledger.types import Index


class Unanswered(NodePart):
    """Counts the proposals that are not answered yet, and answers them."""

    def __init__(self, context: NodeContext) -> None:
        super().__init__(context)
        self._accounts = context.accounts
        self.held_bytes = 0
        """Bytes of requests that are not answered yet."""
        self.commands = 0
        """Commands of clients that are not answered yet."""
        self.timed = 0
        """Commands among those that wait which begin or end a time-out."""

    def is_too_much(self, account: str, limit: int) -> bool:
        """Whether this account's requests without an answer are more than its share of ``limit``
        bytes; of an account alone, all of them."""
        accounts, held = self._accounts, self.held_bytes
        mine = accounts.held.get(account, 0) if accounts.are_many else held
        return mine > accounts.share(limit, held, len(accounts.held))

    def hold(self, size: int, connection: Connection) -> None:
        """Count these bytes of a request that waits elsewhere; negative when it is answered."""
        self.held_bytes += size
        self._accounts.hold(connection.account, size)
        if size < 0:
            self._events.relieved()

    def hold_proposal(self, proposal: Proposal) -> None:
        """Count a proposal until it is answered."""
        proposal.held = True
        size = proposal.size + PROPOSAL_BYTES * len(proposal.request_ids)
        self.held_bytes += size
        if proposal.connection is not None:
            self._accounts.hold(proposal.connection.account, size)
        if proposal.command is not None:
            self._count(proposal, proposal.command, 1)

    def let_go(self, proposal: Proposal) -> None:
        """Count it no more; that `relieved` is told is the caller's."""
        if proposal.held:
            proposal.held = False
            size = proposal.size + PROPOSAL_BYTES * len(proposal.request_ids)
            self.held_bytes -= size
            if proposal.connection is not None:
                self._accounts.hold(proposal.connection.account, -size)
            if proposal.command is not None:
                self._count(proposal, proposal.command, -1)

    def _count(self, proposal: Proposal, command: Command, by: int) -> None:
        self.commands += by * (proposal.connection is not None)
        self.timed += by * isinstance(command, TIMED)

    def answer(
        self,
        proposal: Proposal,
        code: Code,
        message: str = "",
        *,
        base_offset: int = -1,
        result: CommandResult | None = None,
    ) -> None:
        """Answer all requests of a proposal, and count it no more."""
        if proposal.held:
            self.let_go(proposal)
            self._events.relieved()
        if proposal.connection is not None:
            if proposal.command is not None:
                self._audit(proposal, proposal.command, code, message)
            raft = self._ready_loop.raft
            answer = answer_to(
                proposal, code, message, raft=raft, base_offset=base_offset, result=result
            )
            for request_id in proposal.request_ids:
                proposal.connection.send(answer, request_id)

    def _audit(self, proposal: Proposal, command: Command, code: Code, message: str) -> None:
        row = audited(command, is_reset=proposal.is_reset)
        if row is not None and proposal.connection is not None:
            details = {name: getattr(command, name) for name in row.details}
            self._context.audit.record_request(
                proposal.connection, row.event, code, message, **details
            )


class WaitingProposals:
    """Proposals in the order of their entries."""

    def __init__(self) -> None:
        self._queue: deque[Proposal] = deque()

    def __bool__(self) -> bool:
        return bool(self._queue)

    def __iter__(self) -> Iterator[Proposal]:
        return iter(self._queue)

    def __len__(self) -> int:
        """How many requests wait."""
        return sum(len(proposal.request_ids) for proposal in self._queue)

    def put(self, proposal: Proposal) -> None:
        """Its entries lie behind those of all others."""
        self._queue.append(proposal)

    @property
    def first(self) -> Proposal | None:
        """The proposal that waits for the first entry of all."""
        return self._queue[0] if self._queue else None

    def take(self, count: int, size: int = 0) -> Proposal:
        """Take out the first ``count`` requests, of ``size`` bytes, of the first proposal; the
        others wait on by themselves."""
        proposal = self._queue[0]
        if count == len(proposal.request_ids):
            return self._queue.popleft()
        ids = proposal.request_ids
        part = replace(proposal, request_ids=ids[:count], size=size)
        proposal.request_ids, proposal.first = ids[count:], Index(proposal.first + count)
        proposal.size -= size
        return part

    def take_all(self, is_meant: Callable[[Proposal], bool]) -> list[Proposal]:
        """Take out the proposals that are meant."""
        taken = [proposal for proposal in self._queue if is_meant(proposal)]
        if taken:
            self._queue = deque(one for one in self._queue if not is_meant(one))
        return taken
