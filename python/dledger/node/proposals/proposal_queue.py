"""Proposals: from a client's request to a place in the log, and back when it is committed and
applied."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from functools import partial
from typing import Final

from dledger.catalog.results import CommandResult, DataResult
from dledger.config import AUDIT_TOPIC
from dledger.net import Connection
from dledger.node.context import NodeContext, NodePart
from dledger.node.proposals.acceptance import Acceptance
from dledger.node.proposals.clocks import Clocks
from dledger.node.proposals.command_rules import refused_command
from dledger.node.proposals.commit_window import CommitWindow
from dledger.node.proposals.fair_queue import FairQueue
from dledger.node.proposals.proposal import Proposal, append_header, command_body
from dledger.node.proposals.quotas import Quotas
from dledger.node.proposals.reserved import REFUSED_APPEND
from dledger.node.proposals.setting_changes import stamp_change
from dledger.node.proposals.timestamps import TIMED, has_time, stamp_time
from dledger.node.proposals.unanswered import Unanswered, WaitingProposals
from dledger.node.proposals.write_times import WriteTimes
from dledger.protocol.messages.catalog_commands import Admit, AlterSettings, ChangeMembers
from dledger.protocol.messages.client import AppendRequest, ExecuteRequest
from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.entry import HEADER_SIZE, Entry
from dledger.protocol.messages.entry_runs import EntryRun
from dledger.protocol.wire import pack_append_responses
from dledger.raft.state.ready import Finished
from dledger.records.body.header import plain_batches
from dledger.types import Buffer, Index, Role, Term

logger = logging.getLogger(__name__)

BETWEEN_S: Final = 0.25
"""How long a request waits for the next leader to be known, while there is none or leadership is
being handed over: mostly that takes some milliseconds, and the answer then names the node to ask at
once."""
CHUNK_ENTRIES: Final = 512
CHUNK_BYTES: Final = 1 << 20
"""So much is proposed at once, although more may have come: followers and disks work on it
meanwhile."""


class ProposalQueue(NodePart):
    """Gathers the writes of one pass of the loop into one proposal, and answers each."""

    def __init__(self, context: NodeContext) -> None:
        super().__init__(context)
        events = context.events
        self.unanswered = Unanswered(context)
        self._answer = self.unanswered.answer
        self.accepted = Acceptance(context.ready_loop, context.current)
        self.clocks = Clocks(
            context.environment,
            context.catalog,
            leads_in=self._leads_in,
            is_settled=self._nothing_timed_waits,
        )
        self.quotas = Quotas(context.current, context.catalog, now_ms=self._now_ms)
        self._times = WriteTimes.of(context)
        self._max_body_bytes = context.group.max_body_bytes
        events.given_up.subscribe(self.given_up)
        events.role.subscribe(lambda change: self.leadership_changed())
        events.transferred.subscribe(lambda done: self.leadership_changed())
        self._fair = FairQueue(context.accounts)
        self._window = CommitWindow(context.environment.now_s)
        events.committed.subscribe(self._window.committed)
        events.role.subscribe(lambda change: self._window.clear())
        events.applied.subscribe(self._go_on)
        self._gathered: list[Proposal] = []
        self._gathered_requests = 0
        self._gathered_bytes = 0
        self._is_due = False
        """The gathered ones are proposed at the end of this pass of the loop."""
        self._waiting = WaitingProposals()
        self._last_timed = Index(-1)
        """The last entry that this node wrote with such a command: it may be applied long after its
        client was told that the time is over."""
        self._sweep_ms = 0
        self._between: asyncio.TimerHandle | None = None

    @property
    def caught_up(self) -> bool:
        """Whether this leader's catalog has everything that earlier leaders committed."""
        leader = self._ready_loop.raft.leader
        return leader is None or self._catalog.applied_index >= leader.noop_index

    @property
    def waiting(self) -> int:
        return len(self._waiting) + self._gathered_requests + self._fair.requests

    def _leads_in(self) -> Term | None:
        """The term in which this node leads, with all that earlier leaders committed; None: it does
        not."""
        raft = self._ready_loop.raft
        return raft.term if raft.role is Role.LEADER and self.caught_up else None

    def _nothing_timed_waits(self) -> bool:
        """Whether this node leads so, and has no command under way that begins a time-out."""
        is_applied = self._catalog.applied_index >= self._last_timed
        return self._leads_in() is not None and not self.unanswered.timed and is_applied

    # --- requests ---------------------------------------------------------------------------------

    def append(
        self,
        connection: Connection | None,
        request: AppendRequest,
        request_ids: Sequence[int],
        bodies: Sequence[Buffer],
    ) -> None:
        """Check bodies that came together in equal requests, and gather them for this pass. Those
        of no connection are the nodes' own."""
        at, count, deadline_ms = 0, len(bodies), self._now_ms() + request.timeout_ms
        while at < count:
            stop = count if count == 1 else at + (len(plain_batches(bodies, at)) or 1)
            self._append(connection, request_ids[at:stop], bodies[at:stop], deadline_ms)
            at = stop

    def _append(
        self,
        connection: Connection | None,
        request_ids: Sequence[int],
        bodies: Sequence[Buffer],
        deadline_ms: int,
    ) -> None:
        """Gather batches that are like the first one, but for those that are refused."""
        header = append_header(bodies, self._max_body_bytes)
        proposal = Proposal(connection, request_ids, bodies, sum(map(len, bodies)), deadline_ms)
        if not isinstance(header, CommandResult):
            audit = self._catalog.topics_state.by_name.get(AUDIT_TOPIC)
            if audit is None or connection is None or header.topic_id != audit.topic_id:
                proposal.header = header
                self._gather(proposal)
                return
            header = REFUSED_APPEND
        if len(bodies) == 1:
            self._answer(proposal, header.code, header.message)
        else:
            for request_id, body in zip(request_ids, bodies, strict=True):
                self._append(connection, (request_id,), (body,), deadline_ms)

    def execute(
        self, connection: Connection | None, request_id: int, request: ExecuteRequest
    ) -> None:
        """Stamp one command, and gather it for this pass."""
        command = stamp_time(request.command, self.clocks)
        if connection is not None and isinstance(command, AlterSettings):
            principal = connection.context.principal
            command = stamp_change(command, principal, current=self._context.current)
        proposal = Proposal(
            connection,
            (request_id,),
            (),
            0,
            self._now_ms() + request.timeout_ms,
            command=command,
            is_reset=request.reset,
            stamped_in=self._leads_in(),
        )
        if connection is not None and isinstance(command, Admit | ChangeMembers):
            self._answer(
                proposal,
                Code.MALFORMED,
                "members change by requests that the leader checks, as AdmitRequest",
            )
            return
        body = command_body(command, self._max_body_bytes)
        if isinstance(body, CommandResult):
            self._answer(proposal, body.code, body.message)
        else:
            proposal.bodies, proposal.size = (body,), len(body)
            self._gather(proposal)

    def _gather(self, proposal: Proposal) -> None:
        self._gathered.append(proposal)
        if self._times is not None:
            self._times.asked(proposal)
        self.unanswered.hold_proposal(proposal)
        self._gathered_bytes += proposal.size
        self._gathered_requests += len(proposal.request_ids)
        is_much = self._gathered_requests >= CHUNK_ENTRIES or self._gathered_bytes >= CHUNK_BYTES
        # Appends that meet no other wait for no company: only they come from a socket, never from
        # within an effect of the core.
        if is_much or (proposal.command is None and not self._waiting and not self._is_due):
            self._propose()
        elif not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._propose_gathered)

    def _propose_gathered(self) -> None:
        """At the end of this pass of the loop."""
        self._is_due = False
        self._propose()

    def leadership_changed(self) -> None:
        """Another node leads, or none, or this one again: proposals that wait for that go on, in
        the loop's next turn."""
        if self._between is not None or self._fair:
            self._loop.call_soon(self._propose)

    def _go_on(self) -> None:
        """Others may have room in the log: entries are committed, or a piece had its turn."""
        if self._fair and not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._propose_gathered)

    def _waits_for_leader(self) -> bool:
        """Whether the gathered proposals are to wait, because no node can take them just now, but
        one may very soon: leadership is being handed over, or no leader is known."""
        raft = self._ready_loop.raft
        if not self._gathered or self._ready_loop.failed:
            return False
        if raft.leader is None and raft.leader_id is not None:
            return False
        if self._between is None:
            self._between = self._loop.call_later(BETWEEN_S, partial(self._propose, waited=True))
        return True

    def _propose(self, *, waited: bool = False) -> None:
        """One proposal for the gathered requests that the core takes. The others are answered, but
        for those that wait for the next leader and have not ``waited`` long enough."""
        leader = self._ready_loop.raft.leader
        is_between = leader is None or leader.can_accept(0) is Code.LEADER_TRANSFERRING
        if is_between:  # the next leader may be another node
            self._gathered[:0] = self._fair.take_all()
            if not waited and self._waits_for_leader():
                return
        if self._between is not None:
            self._between.cancel()
            self._between = None
        gathered, self._gathered = self._gathered, []
        self._gathered_bytes = self._gathered_requests = 0
        is_shared = self._context.accounts.are_many or self._fair
        if is_shared and leader is not None and not is_between:
            gathered = self._fair.in_turn(gathered, self._window.room(leader.acks.pending_bytes))
            if gathered:
                self._go_on()
        accepted: list[Proposal] = []
        bodies: list[Buffer] = []
        for proposal in self.accepted(gathered, self._answer):
            if not self._is_known(proposal):
                accepted.append(proposal)
                bodies += proposal.bodies
        if not accepted:
            return
        try:
            ready = self._ready_loop.raft.propose(bodies, self._now_ms())
        except Exception as error:
            self.quotas.drop()
            self._ready_loop.fail(error)
            for proposal in accepted:
                self._answer(proposal, Code.DISK_ERROR)
            return
        first, last = ready.append.first_index, ready.append.last_index
        term = ready.append.runs[0].term
        assert last - first + 1 == len(bodies), "an entry for each body"
        for proposal in accepted:
            proposal.bodies = ()  # the core has them as long as they are wanted
            proposal.term, proposal.first = term, first
            self._waiting.put(proposal)
            if proposal.is_claimed:
                self.quotas.place(first)
            if proposal.command is not None and isinstance(proposal.command, TIMED):
                self._last_timed = first
            if self._sweep_ms == 0 or proposal.deadline_ms < self._sweep_ms:
                self._sweep_ms = proposal.deadline_ms
            first = Index(first + len(proposal.request_ids))
        if self._times is not None:
            self._times.proposed(last)
        if self._context.accounts.are_many:
            self._window.proposed(last)
        self._ready_loop.carry_out(ready)

    def _is_known(self, proposal: Proposal) -> bool:
        """Whether the catalog has the answer already. Without one, the proposal is decided when it
        is applied."""
        if proposal.header is None:
            return self._is_stamped_too_soon(proposal) or self._is_refused(proposal)
        if not self.caught_up:
            return False
        known = self._catalog.check_append(proposal.header)
        if known is None:
            return False
        self._answer(proposal, known.code, known.message, base_offset=known.base_offset)
        return True

    def _is_stamped_too_soon(self, proposal: Proposal) -> bool:
        """Whether a command has its time from a node that did not know yet the stamps of the
        leaders before: their clocks may have been far behind, and their stages and sessions would
        be over by this time as soon as it is applied."""
        term = self._leads_in()
        if (
            proposal.command is None
            or not has_time(proposal.command)
            or (term is not None and proposal.stamped_in == term)
        ):
            return False
        self._answer(proposal, Code.LEADER_NOT_READY)
        return True

    def _is_refused(self, proposal: Proposal) -> bool:
        """Whether a command is not to be written."""
        if proposal.command is None:
            return False
        caught_up, connection = self.caught_up, proposal.connection
        principal = None if connection is None else connection.context.principal
        refusal = refused_command(
            proposal.command, self._context, caught_up=caught_up, principal=principal
        )
        if refusal is None and connection is not None:
            refusal = self.quotas.refusal(proposal.command, caught_up=caught_up)
            proposal.is_claimed = refusal is None
        if refusal is not None:
            self._answer(proposal, refusal.code, refusal.message)
        return refusal is not None

    # --- answers ----------------------------------------------------------------------------------

    def applied(self, entry: Entry, result: DataResult | CommandResult | None) -> None:
        """The catalog has applied the entry: the request that waits for it is answered."""
        if self._waiting_for(entry.index) is None:
            return
        proposal = self._waiting.take(1, len(entry.body))
        if proposal.term != entry.term or result is None:
            self._answer(proposal, Code.TERM_CHANGED)
        elif isinstance(result, CommandResult):
            self._answer(proposal, result.code, result.message, result=result)
        elif result.code is not Code.SUCCESS:
            self._answer(proposal, result.code, result.message)
        else:
            self._written(proposal, (result.base_offset,), entry.index)

    def applied_batches(self, run: EntryRun, base_offsets: Sequence[int]) -> None:
        """`applied` for a run of batches that got offsets, which begin at ``base_offsets``."""
        at = 0
        while self._waiting and at < len(base_offsets):
            index = Index(run.index + at)
            proposal = self._waiting_for(index)
            if proposal is None:
                at += 1
                continue
            count = min(len(proposal.request_ids), len(base_offsets) - at)
            size = run.starts[at + count] - run.starts[at] - count * HEADER_SIZE
            proposal = self._waiting.take(count, size)
            if proposal.term == run.term:
                self._written(proposal, base_offsets[at : at + count], index)
            else:
                self._answer(proposal, Code.TERM_CHANGED)
            at += count

    def _waiting_for(self, index: Index) -> Proposal | None:
        """The proposal whose first request waits for this entry. What still waits for one before it
        will not hear of it."""
        while (proposal := self._waiting.first) is not None and proposal.first < index:
            self._answer(self._waiting.take(len(proposal.request_ids)), Code.TERM_CHANGED)
        return proposal if proposal is not None and proposal.first == index else None

    def _written(self, proposal: Proposal, base_offsets: Sequence[int], index: Index) -> None:
        """Answer appends with their offsets; their entries begin at ``index``."""
        self.unanswered.let_go(proposal)
        if self._times is not None:
            self._times.written(proposal)
        if proposal.connection is not None:
            frames = pack_append_responses(proposal.request_ids, base_offsets, index)
            proposal.connection.send_frame((frames,), len(proposal.request_ids))

    def given_up(self, finished: Finished) -> None:
        """Raft waits no more for the quorum of a range; one that is committed `applied`
        answers."""
        code = Code.TERM_CHANGED if finished.code is Code.EXPIRED_TERM else finished.code
        first, last = finished.first, finished.last
        for proposal in self._waiting.take_all(lambda one: first <= one.first <= last):
            self._answer(proposal, code)

    def tick(self, now_ms: int) -> None:
        """Answer those whose own time is over (a `MaintenanceTask`)."""
        for late in self._fair.take_late(now_ms):
            self._answer(late, Code.LEADER_PENDING_FULL)
        if not self._waiting or now_ms < self._sweep_ms:
            return
        for late in self._waiting.take_all(lambda one: one.deadline_ms <= now_ms):
            self._answer(late, Code.WAIT_QUORUM_ACK_TIMEOUT)
        self._sweep_ms = min((proposal.deadline_ms for proposal in self._waiting), default=0)

    def fail_all(self, code: Code) -> None:
        """The node stops: every proposal gets an answer. ``code`` is an indefinite one."""
        if self._between is not None:
            self._between.cancel()
        gathered, self._gathered, self._gathered_requests = self._gathered, [], 0
        gathered[:0] = self._fair.take_all()
        for proposal in (*self._waiting.take_all(lambda one: True), *gathered):
            self._answer(proposal, code)
