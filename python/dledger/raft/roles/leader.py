"""The leader: heartbeats, appends, commits, reads, and handing over."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.entry import MAGIC_NOOP, Entry
from dledger.protocol.messages.entry_runs import stamp_all
from dledger.protocol.messages.peer import (
    HeartBeatRequest,
    HeartBeatResponse,
    LeadershipTransferResponse,
    PushEntryResponse,
)
from dledger.raft.roles.departures import Departures
from dledger.raft.roles.entry_dispatcher import EntryDispatcher
from dledger.raft.roles.fill_pace import FillPace
from dledger.raft.roles.fitness import Fitness
from dledger.raft.roles.leadership_transfer import (
    TransferWatch,
    check_transfer,
    nearest_follower,
    tell,
)
from dledger.raft.roles.read_index import ReadQueue
from dledger.raft.state.quorum_ack_checker import QuorumAckChecker, quorum_index
from dledger.raft.state.raft_state import RaftState
from dledger.types import Buffer, Index, NodeId

RETRY_PREFERRED: Final = 10
"""After a transfer to a preferred leader, the next one is tried no sooner than this many election
times."""


class Leader:
    """One leadership. It never cuts its log, and it counts itself only for what its own disk has
    (D1)."""

    def __init__(self, core: RaftState, transfers: TransferWatch, *, now_ms: int) -> None:
        self.core = core
        self.transfers = transfers
        end = core.log.end_index
        self.noop_index = Index(end + 1)
        self.acks = QuorumAckChecker(core.voters)
        self.reads = ReadQueue(core.voters, core.me, noop_index=self.noop_index)
        self.dispatchers: dict[NodeId, EntryDispatcher] = {}
        self.pace = FillPace(core, self.dispatchers)
        for peer in core.peers:
            self._follow(peer, now_ms)
        self._next_beat_ms = now_ms + core.config.heartbeat_ms
        self._next_preference_ms = now_ms + core.config.election_ms
        self.fitness = Fitness(core, self.dispatchers, transfers=transfers, now_ms=now_ms)
        self._lost: set[tuple[NodeId, int]] = set()
        """Incarnations that have less than they had acknowledged."""
        self._departures = Departures(core, self.dispatchers)

    def start(self, now_ms: int) -> None:
        """Open the term with a NOOP: nothing older is committed by counting, only under it
        (D13)."""
        self._append([b""], MAGIC_NOOP)
        self._acknowledge_own()
        self._beat()
        self._dispatch(now_ms)

    def deadline_ms(self) -> int:
        due, dispatchers = self._next_beat_ms, self.dispatchers
        for peer in dispatchers:
            at_ms = dispatchers[peer].due_ms
            if at_ms is not None and at_ms < due:
                due = at_ms
        return due

    def tick(self, now_ms: int) -> None:
        """Tell commits that no APPEND has carried. Once per heartbeat: beat, resend, give up late
        proposals."""
        if now_ms < self._next_beat_ms:
            self._dispatch(now_ms)
            return
        if (why := self.fitness.flaw(now_ms)) is not None:
            self.core.out.fact(why, term=self.core.term)
            self.core.become_candidate(self.core.term, now_ms)
            return
        self._next_beat_ms = now_ms + self.core.config.heartbeat_ms
        self.core.out.finished += self.acks.expire(now_ms)
        self._departures.see_off(now_ms)
        self._mind_transfer(now_ms)
        self._beat()
        for dispatcher in self.dispatchers.values():
            dispatcher.tick(now_ms)

    def stop(self) -> None:
        """Step down: the callers that wait are told now, because this node will not learn the
        outcome of their calls."""
        self.core.out.finished += self.acks.fail()
        self.core.out.reads.extend(self.reads.fail())

    def can_accept(self, size: int) -> Code:
        """SUCCESS when ``size`` more bytes may be proposed; else LEADER_TRANSFERRING, DISK_FULL or
        LEADER_PENDING_FULL."""
        if self.transfers.ongoing is not None:
            return Code.LEADER_TRANSFERRING
        if not self.core.writable:
            return Code.DISK_FULL
        pending = self.acks.pending_bytes
        if pending and pending + size > self.core.config.pending_bytes:
            return Code.LEADER_PENDING_FULL
        return Code.SUCCESS

    def propose(self, bodies: Sequence[Buffer], magic: int, now_ms: int) -> None:
        """Stamp, append and push at once; followers write at the same time as this node's own
        disk."""
        if not bodies:
            return
        first = Index(self.core.log.end_index + 1)
        size = self._append(bodies, magic)
        self.acks.wait(
            first, self.core.log.end_index, size, now_ms + self.core.config.ack_timeout_ms
        )
        self.pace.appends(now_ms)
        self._dispatch(now_ms)

    def read_index(self, token: int) -> None:
        """Begin a heartbeat round at once, unless one is open that others wait for: then the next
        one is for all."""
        if self.reads.ask(token, self.core.log.committed_index):
            self._beat()
        self._finish_reads()

    def transfer(self, to: NodeId | None, now_ms: int, *, is_asked: bool = True) -> None:
        """Hand over to ``to``, or to the follower that is nearest to the end of the log."""
        core = self.core
        if to is None:
            to = nearest_follower(core, core.peers, lambda peer: self._lag(peer, now_ms)) or core.me
            if to == core.me:
                self.transfers.done(to, Code.FALL_BEHIND_TOO_MUCH)
                return
        code = check_transfer(core, to, self._lag(to, now_ms), self.transfers.ongoing)
        if code is not Code.SUCCESS or to == core.me:
            self.transfers.done(to, code)
            return
        self.transfers.begin(to, now_ms, is_asked=is_asked)
        self._tell_transferee()

    def hand_over(self, candidates: tuple[NodeId, ...], now_ms: int) -> None:
        """Let one of ``candidates`` lead instead, if one is near; not again soon, because appends
        stop meanwhile."""
        to = nearest_follower(self.core, candidates, lambda peer: self._lag(peer, now_ms))
        if to is not None and self.transfers.ongoing is None:
            self._next_preference_ms = now_ms + RETRY_PREFERRED * self.core.config.election_ms
            self.transfer(to, now_ms, is_asked=False)

    def peer_found(self, peer: NodeId, now_ms: int) -> None:
        """Begin a heartbeat round at once: the peer may have come back with less than it had
        acknowledged, and must say so before it gets more (B30). Then ask which of the entries under
        way it has."""
        self._beat()
        self.dispatchers[peer].reconnected(now_ms)

    def on_persisted(self, now_ms: int) -> None:
        if self._acknowledge_own():
            if self.core.log.durable_index > self.core.log.committed_index:
                self._advance(now_ms)
            if self.transfers.ongoing is not None:
                self._tell_transferee()

    def on_heartbeat_response(self, response: HeartBeatResponse, now_ms: int) -> None:
        """SUCCESS counts for the quorum; TERM_NOT_READY means that the follower has just learned
        the term."""
        core = self.core
        if response.local_id not in self.dispatchers:
            return
        follower = self._follower(response.local_id, response.incarnation, now_ms)
        if response.code is Code.SUCCESS:
            follower.heard_ms = now_ms
            follower.members_index = response.members_index
            self._check_kept(follower, response, now_ms)
            # not ``follower``: `_check_kept` may have put another one in its place
            if self.dispatchers[follower.peer].counts:
                self.reads.answered(response.local_id, response.round)
                self._finish_reads()
        elif response.code is Code.TERM_NOT_READY:
            self._send_beat(response.local_id)
        elif response.code is Code.INCONSISTENT_LEADER and follower.counts:
            core.out.fact("two_leaders_in_a_term", term=core.term, follower=response.local_id)
            core.become_candidate(core.term, now_ms)

    def on_push_response(self, response: PushEntryResponse, now_ms: int) -> None:
        """Follow the follower's watermark; commit when a quorum has got further."""
        dispatcher = self.dispatchers.get(response.local_id)
        if dispatcher is None:  # it was removed
            return
        if dispatcher.incarnation != response.incarnation:
            dispatcher = self._follower(response.local_id, response.incarnation, now_ms)
        dispatcher.heard_ms = now_ms
        dispatcher.on_response(response, now_ms)
        if dispatcher.counts and self.acks.acknowledge(response.local_id, dispatcher.watermark):
            if dispatcher.watermark > self.core.log.committed_index:
                self._advance(now_ms)
            if self.transfers.ongoing is not None:
                self._tell_transferee()
        end, election_ms = self.core.log.end_index, self.core.config.election_ms
        dispatcher.catch_up.acknowledged(dispatcher.watermark, end, now_ms, election_ms)
        dispatcher.fill(now_ms)  # after the commit, which the next push then carries

    def recount(self) -> None:
        """Others count from now on; the answers of a member that does not count any more are
        void. The newest list may have other members."""
        core, now_ms = self.core, self._next_beat_ms - self.core.config.heartbeat_ms
        self.acks.set_voters(core.voters)
        self.reads.set_voters(core.voters)
        self._acknowledge_own()
        for peer in core.peers:
            if peer not in self.dispatchers:
                self._follow(peer, now_ms)
        self._departures.look(now_ms)
        for peer, follower in self.dispatchers.items():
            follower.counts = self._counts(peer, follower.incarnation)
            if follower.counts:
                # Acknowledged before it counted: its log was checked against this one all the same.
                self.acks.acknowledge(peer, follower.watermark)
            elif peer in core.voters:
                self.acks.forget(peer)
                self.reads.forget(peer)
        self._finish_reads()

    def membership_changed(self, now_ms: int) -> None:
        """Other incarnations count from now on, and their acknowledgements with them."""
        self.recount()
        self._advance(now_ms)

    def is_known(self, members_index: Index) -> bool:
        """Whether a quorum has durably saved the membership of that entry: then no quorum of the
        living has to guess."""
        knows = [d.counts and d.members_index >= members_index for d in self.dispatchers.values()]
        core = self.core
        knows.append(core.me in core.voters and core.admission.membership.index >= members_index)
        return sum(knows) >= core.quorum

    def _counts(self, peer: NodeId, incarnation: int | None) -> bool:
        known = self.core.admission.of(peer)
        return (
            known is not None
            and peer in self.core.voters
            and incarnation in {None, known}
            and (peer, incarnation) not in self._lost
        )

    def _follower(self, peer: NodeId, incarnation: int, now_ms: int) -> EntryDispatcher:
        """The dispatcher of the one that just answered; a new one when it is another incarnation
        than before, because that one's watermark says nothing about it (B27)."""
        follower = self.dispatchers[peer]
        if follower.incarnation == incarnation:
            return follower
        if follower.incarnation is not None:
            follower = self._start_over(peer, now_ms)
        follower.incarnation = incarnation
        follower.counts = self._counts(peer, incarnation)
        if not follower.counts and peer in self.core.voters:
            known = self.core.admission.membership.of(peer)
            self.core.out.fact(
                "stranger", node=peer, incarnation=incarnation, known=-1 if known is None else known
            )
        return follower

    def _start_over(self, peer: NodeId, now_ms: int) -> EntryDispatcher:
        if peer in self.core.voters:
            self.acks.forget(peer)
        return self._follow(peer, now_ms)

    def _follow(self, peer: NodeId, now_ms: int) -> EntryDispatcher:
        """Begin with a follower of which nothing is known."""
        made = self.dispatchers[peer] = EntryDispatcher(
            self.core,
            peer,
            compare_index=self.core.log.end_index,
            pace=self.pace,
            now_ms=now_ms,
        )
        return made

    def _check_kept(
        self, follower: EntryDispatcher, response: HeartBeatResponse, now_ms: int
    ) -> None:
        """An older copy of a directory may pass for the member that it was copied from (B30). It is
        found out when the answer to a beat says less than was acknowledged before that beat left:
        no late answer can do that."""
        had = follower.checked_by(response.round)
        if response.durable_index < had:
            peer, incarnation = follower.peer, response.incarnation
            self.core.out.fact("follower_lost_data", node=peer, has=response.durable_index, had=had)
            self._lost.add((peer, incarnation))
            again = self._start_over(peer, now_ms)
            again.incarnation, again.counts = incarnation, False
            self._send_beat(peer)

    def on_transfer_response(self, response: LeadershipTransferResponse) -> None:
        self.core.out.fact("transfer_answer", transferee=response.local_id, code=response.code.name)

    def loaded(self, peer: NodeId, entries: Sequence[Entry], now_ms: int) -> None:
        if peer in self.dispatchers:
            self.dispatchers[peer].loaded(entries, now_ms)

    def _append(self, bodies: Sequence[Buffer], magic: int) -> int:
        core = self.core
        begin = core.log.end
        assert core.log.end_is_known, "the caller has not told where the log ends after a cut"
        entries = stamp_all(begin, core.term, magic, bodies, core.config.segment_bytes)
        core.append(entries)
        return entries.runs[-1].end_pos - begin.end_pos

    def _dispatch(self, now_ms: int) -> None:
        for dispatcher in self.dispatchers.values():
            dispatcher.fill(now_ms)

    def _advance(self, now_ms: int) -> None:
        """Commit up to the index that a quorum has, if it is of this term: that commits all before
        it (Raft paper, 5.4.2)."""
        index, members = quorum_index(self.acks.watermarks.values()), self.core.admission.membership
        # An entry of an earlier term can be overwritten although a quorum has it (figure 8). A
        # quorum with the NOOP cannot elect a leader without it, nor without the entries before it.
        if index < self.noop_index or not self.core.commit_to(index):
            return
        self.pace.appends(now_ms)
        self.core.out.finished += self.acks.complete(index)
        if self.reads.waiting:
            self._finish_reads()
        self._dispatch(now_ms)
        if self.core.admission.membership is not members:
            self._advance(now_ms)  # one more counts now, and may have had more all along
            if self.fitness.is_leaving and self.transfers.ongoing is None:
                self.hand_over(self.core.voters, now_ms)

    def _finish_reads(self) -> None:
        self.core.out.reads.extend(self.reads.done(self.core.log.committed_index))
        if self.reads.wants_round:
            self._beat()

    def _beat(self) -> None:
        self.reads.next_round()
        for peer, follower in self.dispatchers.items():
            follower.check_in(self.reads.round)
            self._send_beat(peer)

    def _send_beat(self, peer: NodeId) -> None:
        core, incarnation = self.core, self.dispatchers[peer].incarnation
        core.send(
            HeartBeatRequest(
                **core.header(peer),
                leader_id=core.me,
                round=self.reads.round,
                lost=incarnation
                if incarnation is not None and (peer, incarnation) in self._lost
                else 0,
            )
        )

    def _acknowledge_own(self) -> bool:
        core = self.core
        return core.me in core.voters and self.acks.acknowledge(core.me, core.log.durable_index)

    def _lag(self, peer: NodeId, now_ms: int) -> int | None:
        """Entries that ``peer`` has not acknowledged; None when it was not heard lately, or does
        not count."""
        dispatcher = self.dispatchers.get(peer)
        if (
            dispatcher is None
            or not dispatcher.counts
            or now_ms - dispatcher.heard_ms > self.core.config.election_ms
        ):
            return None
        return self.core.log.end_index - dispatcher.watermark

    def _tell_transferee(self) -> None:
        transfer = self.transfers.ongoing
        if transfer is None:
            return
        log = self.core.log
        # All committed first: a waiting append is answered, not left in doubt by the change.
        to = self.dispatchers.get(transfer.to)
        if to is not None and to.watermark == log.end_index == log.committed_index:
            tell(self.core, transfer.to)

    def _mind_transfer(self, now_ms: int) -> None:
        """Go on with a transfer; begin one when another node should lead, or this node's disk
        should not."""
        core = self.core
        is_stalled = self.fitness.disk_stalls(now_ms)
        self._tell_transferee()
        if self.transfers.ongoing is not None or now_ms < self._next_preference_ms:
            return
        self._next_preference_ms = now_ms + core.config.election_ms
        if is_stalled or not core.writable or not core.can_lead:
            candidates = core.peers
        elif core.me not in core.config.preferred_leaders:
            candidates = core.config.preferred_leaders
        else:
            return
        self.hand_over(candidates, now_ms)
