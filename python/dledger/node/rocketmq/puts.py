"""Puts: from a client's messages to places in the log, and back with the answer when they are
committed and applied.

The work of RocketMQ's append hook in DLedgerCommitLog happens here, right before the core stamps
the entries: both run on the node's loop, so no other proposal can come between, and the core puts
an entry where `place` says. The physical offset of a message is its entry's position and the 48
bytes of the entry's header. The queue offset comes from the table of all messages before it in the
log (`dledger.catalog.topics.queues`), which is settled when this leader has applied everything that
earlier leaders committed; until then it takes no messages.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from ipaddress import AddressValueError, IPv4Address
from typing import Final

from dledger.catalog.topics.queues import Settled
from dledger.errors import CorruptStore, FormatError
from dledger.net import Connection
from dledger.node.context import NodeContext
from dledger.node.proposals.proposal import MESSAGES
from dledger.node.proposals.proposal_queue import CHUNK_BYTES, ProposalQueue
from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.entry import HEADER_SIZE, Entry, place
from dledger.protocol.messages.rocketmq import (
    MAX_PUT_MESSAGES,
    PutMessageRequest,
    PutMessageResponse,
)
from dledger.raft.state.ready import Finished
from dledger.rocketmq.format.append_hook import Unplaced, check_messages, write_place
from dledger.rocketmq.format.hosts import Host
from dledger.types import NO_TERM, Index, NodeId, Role, Term

SWEEP_S: Final = 0.1


def store_host(address: str) -> Host:
    """The store host of messages: the address where this node serves, with IP 0.0.0.0 where that is
    not an IPv4 address but a name or an IPv6 one, for which a message need not have room."""
    host, _, port = address.rpartition(":")
    try:
        return Host(IPv4Address(host).packed, int(port))
    except AddressValueError:
        return Host(bytes(4), int(port))


@dataclass(slots=True, eq=False)
class Put:
    """One request. Its messages get the entries ``first`` to ``last``."""

    connection: Connection
    request_id: int
    view: memoryview
    messages: list[Unplaced]
    deadline_ms: int
    size: int
    term: Term = NO_TERM
    first: Index = Index(-1)
    last: Index = Index(-1)
    store_ms: int = 0
    store_host: str = ""
    queue_offsets: list[int] = field(default_factory=list)
    physical_offsets: list[int] = field(default_factory=list)


class Puts:
    """Gathers the puts of one pass of the loop into one proposal, and answers each when its last
    entry is applied."""

    def __init__(self, context: NodeContext, proposals: ProposalQueue) -> None:
        self._context = context
        self._segment_bytes = context.group.segment_bytes
        self._max_body_bytes = context.group.max_body_bytes
        self._ready_loop = context.ready_loop
        self._environment = context.environment
        self._catalog = context.catalog
        self._proposals = proposals
        context.events.applied.subscribe(self.applied)
        context.events.given_up.subscribe(self.given_up)
        self._loop = asyncio.get_running_loop()
        self._gathered: list[Put] = []
        self._gathered_bytes = 0
        self._waiting: deque[Put] = deque()
        self._settled: Settled | None = None
        self._settled_term = NO_TERM
        self._timer: asyncio.TimerHandle | None = None

    @property
    def waiting(self) -> int:
        return len(self._waiting) + len(self._gathered)

    # --- requests ---------------------------------------------------------------------------------

    def put(
        self,
        connection: Connection,
        request_id: int,
        request: PutMessageRequest,
        payload: memoryview,
    ) -> None:
        """Check the messages and put them into this pass's proposal."""
        view = memoryview(bytearray(payload)) if payload.readonly else payload
        deadline = self._environment.now_ms() + request.timeout_ms
        put = Put(connection, request_id, view, [], deadline, len(view))
        try:
            put.messages = check_messages(view, MAX_PUT_MESSAGES)
        except FormatError as error:
            self._reply(put, Code.MALFORMED, f"put: {error}")
            return
        largest = max(message.size for message in put.messages)
        if largest > self._max_body_bytes:
            text = f"a message of {largest} bytes is over max_body_bytes {self._max_body_bytes}"
            self._reply(put, Code.RECORD_TOO_LARGE, text)
            return
        self._gathered.append(put)
        self._gathered_bytes += put.size
        self._proposals.unanswered.hold(put.size, put.connection)
        if len(self._gathered) == 1:
            self._loop.call_soon(self._propose)
        elif self._gathered_bytes >= CHUNK_BYTES:
            self._propose()

    def _propose(self) -> None:
        """One proposal for the gathered puts that the core takes; the rest is answered."""
        gathered, self._gathered, self._gathered_bytes = self._gathered, [], 0
        # Queue offsets are settled when everything that earlier leaders committed is applied.
        accepted = self._proposals.accepted(
            gathered, self._answer, is_ready=self._proposals.caught_up
        )
        if not accepted:
            return
        settled = self._settle()
        store_ms = settled.store_ms = max(settled.store_ms, self._environment.wall_ms())
        host = store_host(self._context.members.addresses_of(self._context.node_id)[0])
        end_pos = self._ready_loop.raft.end.end_pos
        encoded, shown = host.encode(), str(host)
        for put in accepted:
            put.store_ms, put.store_host = store_ms, shown
            end_pos = self._place(put, settled, end_pos, encoded)
        bodies = [put.view[m.at : m.at + m.size] for put in accepted for m in put.messages]
        try:
            ready = self._ready_loop.raft.propose(bodies, self._environment.now_ms())
            self._note(accepted, ready.append)
        except Exception as error:
            self._ready_loop.fail(error)
            for put in accepted:
                self._answer(put, Code.DISK_ERROR)
            return
        self._waiting.extend(accepted)
        if self._timer is None:
            self._timer = self._loop.call_later(SWEEP_S, self._sweep)
        self._ready_loop.carry_out(ready)

    def _settle(self) -> Settled:
        """The queue offsets as of the log's end. The messages applied now are all that the log had
        when this term's first entry came, so this leader begins there; from then on it counts its
        own puts."""
        term = self._ready_loop.raft.term
        if self._settled is None or self._settled_term != term:
            self._settled, self._settled_term = Settled(self._catalog.queues), term
        return self._settled

    def _place(self, put: Put, settled: Settled, end_pos: int, host: bytes) -> int:
        """The append hook, for the messages of one request; where the log ends behind them."""
        view, store_ms, segment_bytes = put.view, put.store_ms, self._segment_bytes
        for message in put.messages:
            size = message.size
            physical = place(end_pos, HEADER_SIZE + size, segment_bytes) + HEADER_SIZE
            offset = settled.take(message.topic, message.queue_id) if message.has_unit else 0
            write_place(view, message, offset, physical, store_ms, host)
            put.queue_offsets.append(offset)
            put.physical_offsets.append(physical)
            end_pos = physical + size
        return end_pos

    def _note(self, accepted: list[Put], entries: Sequence[Entry]) -> None:
        """Which entries the core has made of the requests, and that they lie where the messages
        say.

        Raises:
            CorruptStore: they do not; nothing was sent or written.
        """
        at = 0
        for put in accepted:
            mine = entries[at : at + len(put.messages)]
            at += len(mine)
            put.term, put.first, put.last = mine[-1].term, mine[0].index, mine[-1].index
            if [entry.pos + HEADER_SIZE for entry in mine] != put.physical_offsets:
                raise CorruptStore(
                    f"entries {put.first} to {put.last} do not lie where their messages say"
                )

    # --- answers ----------------------------------------------------------------------------------

    def applied(self) -> None:
        """The catalog moved on: puts that wait for that are answered."""
        waiting, applied = self._waiting, self._catalog.applied_index
        while waiting and waiting[0].last <= applied:
            put = waiting.popleft()
            if self._ready_loop.raft.term_at(put.last) != put.term:
                self._answer(put, Code.TERM_CHANGED)
            else:
                self._answer(put, Code.SUCCESS)

    def given_up(self, finished: Finished) -> None:
        """Raft waits no more for the quorum of a range."""
        code = Code.TERM_CHANGED if finished.code is Code.EXPIRED_TERM else finished.code
        self._drop(lambda put: finished.first <= put.last and put.first <= finished.last, code)

    def _sweep(self) -> None:
        """Answer those whose own time is over."""
        self._timer = None
        now = self._environment.now_ms()
        self._drop(lambda put: put.deadline_ms <= now, Code.WAIT_QUORUM_ACK_TIMEOUT)
        if self._waiting and not self._ready_loop.failed:
            self._timer = self._loop.call_later(SWEEP_S, self._sweep)

    def _drop(self, wanted: Callable[[Put], bool], code: Code) -> None:
        dropped = [put for put in self._waiting if wanted(put)]
        if dropped:
            self._waiting = deque(put for put in self._waiting if not wanted(put))
            for put in dropped:
                self._answer(put, code)

    def fail_all(self, code: Code) -> None:
        """The node stops: every put gets an answer. ``code`` is an indefinite one."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting = [*self._waiting, *self._gathered]
        self._waiting.clear()
        self._gathered.clear()
        for put in waiting:
            self._answer(put, code)

    def _answer(self, put: Put, code: Code) -> None:
        self._proposals.unanswered.hold(-put.size, put.connection)
        self._reply(put, code)

    def _reply(self, put: Put, code: Code, message: str = "") -> None:
        if code is Code.SUCCESS:
            answer = PutMessageResponse(
                code=code,
                physical_offsets=tuple(put.physical_offsets),
                queue_offsets=tuple(put.queue_offsets),
                store_timestamp=put.store_ms,
                store_host=put.store_host,
            )
        else:
            raft = self._ready_loop.raft
            leader = raft.leader_id or NodeId("")
            message = message or MESSAGES.get(code, code.name).format(
                leader=leader or "another node"
            )
            if raft.role is not Role.LEADER and leader == "":
                message = message.replace("ask another node", "there is no leader now; ask again")
            answer = PutMessageResponse(code=code, leader_id=leader)
            answer = replace(answer, message=f"{answer.status.name}: {message}")
        put.connection.send(answer, put.request_id)
