"""Messages: I23 nothing is said before it is durable, I21 nothing is said after a fatal error, I19
limits hold."""

from __future__ import annotations

from dledger.node.proposals.proposal_queue import CHUNK_ENTRIES
from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.entry import HEADER_SIZE, HardState
from dledger.protocol.messages.peer import (
    PeerMessage,
    PushEntryRequest,
    PushEntryResponse,
    PushType,
    VoteRequest,
    VoteResponse,
)
from dledger.protocol.messages.peer import VoteResult as Result
from dledger.raft.roles.entry_dispatcher import MAX_IN_FLIGHT
from dledger.raft.roles.leader import Leader
from verification.invariants.broken import Broken
from verification.invariants.view import WatchedNode


def check_sent(view: WatchedNode, message: PeerMessage, saved: HardState) -> None:
    """A node lets a message go; ``saved`` is what it has on its disk."""
    if view.server._error is not None:
        raise Broken("I21", f"{view} sends {message} after {view.server._error}")
    if isinstance(message, VoteRequest):
        if message.pre_vote:
            return
        if saved.term < message.term or (
            saved.term == message.term and saved.voted_for != message.local_id
        ):
            raise Broken(
                "I23", f"{view} asks for votes in term {message.term}, on its disk is {saved}"
            )
    elif isinstance(message, VoteResponse) and not message.pre_vote:
        gives, term = message.result is Result.ACCEPT, message.request_term
        if gives and saved.term == term and saved.voted_for != message.remote_id:
            raise Broken("I23", f"{view} votes for {message.remote_id}, on its disk is {saved}")
        if gives and saved.term < term:
            raise Broken("I23", f"{view} votes in term {term}, on its disk is {saved}")
    if message.term > saved.term:
        raise Broken("I23", f"{view} tells of term {message.term}, on its disk is {saved}")
    if isinstance(message, PushEntryResponse):
        _check_acknowledged(view, message)


def _check_acknowledged(view: WatchedNode, message: PushEntryResponse) -> None:
    """An entry that a follower acknowledges is on its disk (D1), unless the group was told to do
    without (flush=async)."""
    if (
        message.type is PushType.APPEND
        and message.code is Code.SUCCESS
        and message.index > view.synced()
    ):
        durable = view.store.durable
        raise Broken(
            "I23",
            f"{view} acknowledges {message.index}, on its disk is {durable}, known {view.durable}",
        )


def check_limits(view: WatchedNode) -> None:
    """I19: queues and windows of a node are within what its configuration says."""
    log, leader = view.log, view.machine.acting
    cache = log._cache
    live = len(cache) - log._head
    if live > 1 and cache[-1].end_pos - cache[log._head].pos > log._cache_bytes:
        oldest = cache[log._head].index
        if oldest <= log.durable_index:  # what is still to be written has to be kept somewhere
            raise Broken(
                "I19", f"{view} keeps {live} entries in memory, more than {log._cache_bytes} bytes"
            )
    if log._head and log._head * 4 >= len(cache):
        raise Broken(
            "I19", f"{view} keeps {log._head} entries in memory that it has given up, beside {live}"
        )
    if not isinstance(leader, Leader):
        return
    config = view.machine.config
    pending = leader.acks.pending_bytes
    # bodies are held against the limit, but entries count, with headers and the padding at the end
    # of each file
    padding = (config.pending_bytes // config.segment_bytes + 1) * config.max_body_bytes
    if (
        pending
        > config.pending_bytes + config.max_body_bytes + CHUNK_ENTRIES * HEADER_SIZE + padding
    ):
        raise Broken(
            "I19", f"{view} has {pending} bytes pending, {config.pending_bytes} are allowed"
        )
    # a push counts with the padding between its entries: less than one entry at the end of each
    # file
    most = config.push_window_bytes + 2 * max(config.push_batch_bytes, config.segment_bytes)
    for peer, dispatcher in leader.dispatchers.items():
        flying, size = len(dispatcher._in_flight), dispatcher._in_flight_bytes
        if flying > MAX_IN_FLIGHT + 1 or size > most or (flying == 0) != (size == 0):
            raise Broken("I19", f"{view} has {flying} pushes of {size} bytes in flight to {peer}")


def check_push(view: WatchedNode, message: PeerMessage) -> None:
    """I19: a push is no larger than a batch, unless one entry alone is."""
    if isinstance(message, PushEntryRequest) and len(message.entries) > 1:
        size = sum(entry.size for entry in message.entries)
        if size > view.machine.config.push_batch_bytes:
            raise Broken(
                "I19", f"{view} pushes {len(message.entries)} entries of {size} bytes at once"
            )
