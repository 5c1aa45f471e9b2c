"""A proposal: requests on their way into the log, and their answers."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from dledger.catalog.results import CommandResult
from dledger.errors import ProtocolError
from dledger.net import Connection
from dledger.protocol.messages.catalog_commands import Command
from dledger.protocol.messages.client import AppendResponse, ExecuteResponse
from dledger.protocol.messages.codes import Code
from dledger.protocol.wire import encode_command
from dledger.raft.raft_node import RaftNode
from dledger.records.body.header import (
    BODY_HEADER_SIZE,
    BodyHeader,
    BodyKind,
    decode_header,
    encode_header,
    record_count,
)
from dledger.records.body.unpacked_size import MAX_RECORDS, check_sizes
from dledger.types import NO_INDEX, NO_TERM, Buffer, Index, NodeId, Role, Term

PROPOSAL_BYTES: Final = 512
"""About the memory of a waiting request, beside its body."""
COMMAND_HEADER: Final = encode_header(BodyHeader(BodyKind.COMMAND))
MESSAGES: Final = {
    Code.NOT_LEADER: "this node does not lead; ask {leader}",
    Code.LEADER_PENDING_FULL: "the leader has as many uncommitted bytes as pending_bytes allows; "
    "ask again",
    Code.LEADER_TRANSFERRING: "leadership is being handed over; ask again",
    Code.LEADER_NOT_READY: "the new leader is still catching up; ask again",
    Code.DISK_FULL: "the leader's disk is over disk_full_ratio or below disk_reserve_bytes; free "
    "space there",
    Code.TERM_CHANGED: "leadership changed before the entry was committed; it may still be",
    Code.WAIT_QUORUM_ACK_TIMEOUT: "no quorum has acknowledged the entry in time; it may still be "
    "committed",
    Code.UNKNOWN_TOPIC: "no such topic or partition",
    Code.PRODUCER_FENCED: "a newer session of this producer took over",
}


@dataclass(slots=True)
class Proposal:
    """Writes of one connection that wait for entries, one each, that are neighbours.
    ``connection`` is None for the node's own commands.

    There is more than one only of appends that came together and whose bodies are batches like the
    first (see `plain_batches`).
    """

    connection: Connection | None
    request_ids: Sequence[int]
    """Of those that are not answered yet."""
    bodies: Sequence[Buffer]
    """Empty once the core has them."""
    size: int
    """Bytes of the bodies of those that are not answered yet."""
    deadline_ms: int
    header: BodyHeader | None = None
    """Of the first body of appends; None for a command."""
    command: Command | None = None
    is_reset: bool = False
    """See `ExecuteRequest.reset`."""
    term: Term = NO_TERM
    first: Index = NO_INDEX
    """The entry that the first of them waits for."""
    asked_s: float = 0.0
    """When it came, by `Environment.now_s`, where the node times appends."""
    held: bool = False
    """Counted in ``held_bytes``."""
    is_claimed: bool = False
    """A command that the quotas have let pass."""
    stamped_in: Term | None = None
    """The term that was led, with all that earlier leaders committed, when a command got its time;
    None: none was."""


def append_header(bodies: Sequence[Buffer], max_body_bytes: int) -> BodyHeader | CommandResult:
    """The header of the first of appends that came together, or why they may not be proposed."""
    try:
        header = decode_header(bodies[0])
        if header.kind is not BodyKind.DATA:
            return CommandResult(Code.MALFORMED, "append: commands go through ExecuteRequest")
        for body in bodies:  # a batch that no reader could read is not taken
            if (count := record_count(body)) > MAX_RECORDS:
                raise ValueError(f"{count} records in a batch, which has {MAX_RECORDS} at most")
            if header.codec:
                check_sizes(body[BODY_HEADER_SIZE:], header.codec, count)
    except (ValueError, IndexError, struct.error) as error:
        return CommandResult(Code.MALFORMED, f"append: {error}")
    if (size := max(map(len, bodies))) > max_body_bytes:
        text = f"a body of {size} bytes is over max_body_bytes {max_body_bytes}"
        return CommandResult(Code.RECORD_TOO_LARGE, f"{text}; send smaller batches")
    return header


def command_body(command: Command, max_body_bytes: int) -> bytes | CommandResult:
    """The body of a command, or why it may not be proposed."""
    try:
        body = COMMAND_HEADER + encode_command(command)
    except ProtocolError as error:
        return CommandResult(Code.MALFORMED, str(error))
    if len(body) > max_body_bytes:
        text = f"a command of {len(body)} bytes is over max_body_bytes {max_body_bytes}"
        return CommandResult(Code.RECORD_TOO_LARGE, text)
    return body


def answer_to(
    proposal: Proposal,
    code: Code,
    message: str,
    *,
    raft: RaftNode,
    base_offset: int,
    result: CommandResult | None,
) -> AppendResponse | ExecuteResponse:
    """The answer for the client that waits; one that is no success names the leader, as far as this
    node knows it."""
    leader = NodeId("")
    if code is not Code.SUCCESS:
        leader = raft.leader_id or leader
        message = message or MESSAGES.get(code, code.name).format(leader=leader or "another node")
        if raft.role is not Role.LEADER and leader == "":
            message = message.replace("ask another node", "there is no leader now; ask again")
    if proposal.command is None:
        return AppendResponse(code=code, message=message, leader_id=leader, base_offset=base_offset)
    values = result.result if result is not None else {}
    return ExecuteResponse(code=code, message=message, leader_id=leader, result=values)
