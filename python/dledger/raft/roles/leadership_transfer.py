"""Leadership transfer: the leader waits until the transferee has everything, then tells it to take
over."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.peer import LeadershipTransferRequest, LeadershipTransferResponse
from dledger.raft.state.raft_state import RaftState
from dledger.raft.state.ready import TransferDone
from dledger.types import NodeId, Role


@dataclass(slots=True)
class Transfer:
    """A transfer that is going on. It outlives the leadership, until the next leader is known."""

    to: NodeId
    deadline_ms: int
    is_asked: bool = True
    """False: the group's preferences began it, and no caller waits for the result."""


def check_transfer(core: RaftState, to: NodeId, lag: int | None, ongoing: Transfer | None) -> Code:
    """Whether a transfer to ``to`` may begin; ``lag`` in entries, None when it was not heard
    lately."""
    if to not in core.voters:
        return Code.UNKNOWN_MEMBER
    if core.role is not Role.LEADER:
        return Code.NOT_LEADER
    if ongoing is not None:
        return Code.LEADER_TRANSFERRING
    if to != core.me and (lag is None or lag > core.config.max_transfer_lag):
        return Code.FALL_BEHIND_TOO_MUCH
    return Code.SUCCESS


def tell(core: RaftState, to: NodeId) -> None:
    """Tell the transferee, whose log is complete, to ask for votes now."""
    core.send(
        LeadershipTransferRequest(
            **core.header(to),
            take_leadership_index=core.log.end_index,
        )
    )


def on_request(core: RaftState, request: LeadershipTransferRequest, now_ms: int) -> None:
    """The leader of this term tells this node to take over.

    Appends are refused while a transfer goes on, so a request is late when this log goes on behind
    its index.
    """
    if request.term < core.term:
        code = Code.EXPIRED_TERM
    elif request.term > core.term or core.leader_id != request.local_id:
        code = Code.INCONSISTENT_LEADER
    elif core.log.end_index != request.take_leadership_index or not (
        core.log.end_is_known and core.can_lead and not core.term_is_spent
    ):
        code = Code.TAKE_LEADERSHIP_FAILED
    else:
        code = Code.SUCCESS
    core.send(LeadershipTransferResponse(**core.header(request.local_id), code=code))
    core.out.fact("take_leadership", leader=request.local_id, term=request.term, code=code.name)
    if code is Code.SUCCESS:
        core.become_candidate(core.term, now_ms)
        core.campaign(now_ms, transfer=True)


class TransferWatch:
    """Holds the one transfer of a node and tells how it ended."""

    def __init__(self, core: RaftState) -> None:
        self.core = core
        self.ongoing: Transfer | None = None

    def begin(self, to: NodeId, now_ms: int, *, is_asked: bool) -> None:
        self.ongoing = Transfer(to, now_ms + self.core.config.election_ms, is_asked)
        self.core.out.fact("transfer", to=to, term=self.core.term)

    def done(self, to: NodeId, code: Code) -> None:
        self.core.out.transfer = TransferDone(to, code)

    def look(self, now_ms: int) -> None:
        """A new leader, or the end of patience, ends the transfer; then appends are taken again."""
        transfer, core = self.ongoing, self.core
        if transfer is None:
            return
        is_replaced = core.role is not Role.LEADER and core.leader_id is not None
        if is_replaced or now_ms >= transfer.deadline_ms:
            self.end()

    def end(self) -> None:
        """The leader is known now, perhaps this node again: the caller of a transfer is told how it
        ended."""
        transfer, core = self.ongoing, self.core
        if transfer is None:
            return
        code = Code.SUCCESS if core.leader_id == transfer.to else Code.TAKE_LEADERSHIP_FAILED
        self.ongoing = None
        core.out.fact("transfer_over", to=transfer.to, code=code.name)
        if transfer.is_asked:
            self.done(transfer.to, code)


def nearest_follower(
    core: RaftState, candidates: tuple[NodeId, ...], lag: Callable[[NodeId], int | None]
) -> NodeId | None:
    """The living follower among ``candidates`` that misses the fewest entries, if few enough."""
    near = [
        (missing, peer)
        for peer in candidates
        if peer != core.me
        and (missing := lag(peer)) is not None
        and missing <= core.config.max_transfer_lag
    ]
    return min(near)[1] if near else None
