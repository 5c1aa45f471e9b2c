"""The follower's side of replication: its answers to a leader's heartbeats and pushes."""

from __future__ import annotations

from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.entry import MAGIC_NOOP, LogEnd
from dledger.protocol.messages.entry_runs import Entries, bodies_are_sound, count_following
from dledger.protocol.messages.peer import PushEntryRequest, PushEntryResponse, PushType
from dledger.raft.roles.snapshot_install import install_mode
from dledger.raft.state.raft_state import RaftState
from dledger.raft.state.ready import Fact, Install, SafetyViolation
from dledger.types import NO_INDEX, NO_TERM, Index, NodeId


class Follower:
    """Follows one leader in one term.

    ``matched_index`` is how far this log is known to be the leader's. It is what an acknowledgement
    and a commit index are limited by: the tail behind it may be another leader's.
    """

    def __init__(self, core: RaftState, now_ms: int) -> None:
        self.core = core
        self.matched_index = core.log.committed_index
        self._acknowledged = NO_INDEX
        self._patience_ms = core.draw(core.config.election_ms)
        self._turn_ms = 0
        """When it is this node's turn to ask for votes after the leader's connection ended."""
        core.heard_leader_ms = now_ms
        core.leader_is_gone = False

    def deadline_ms(self) -> int:
        patience_ms = self.core.heard_leader_ms + self._patience_ms
        return min(patience_ms, self._turn_ms) if self.core.leader_is_gone else patience_ms

    def tick(self, now_ms: int) -> None:
        """Without a sign of the leader for too long, ask for votes; the term stays until a pre-vote
        passes."""
        if now_ms >= self.deadline_ms():
            is_gone = self.core.leader_is_gone
            self.core.out.fact(
                "leader_lost",
                leader=str(self.core.leader_id),
                term=self.core.term,
                gone=int(is_gone),
            )
            self.core.become_candidate(self.core.term, now_ms, 0)
            self.core.campaign(now_ms, again_soon=is_gone)

    def leader_gone(self, now_ms: int) -> None:
        """The connection from the leader has ended: do not wait for it any longer than for one's
        turn to ask.

        A hint, not a proof: a node that still hears the leader refuses the pre-vote, and so does
        the leader itself, so a leader with a quorum is not disturbed. A message from it on another
        connection takes the hint back.
        """
        core = self.core
        if core.leader_is_gone or not core.config.takeover_ms:
            return
        core.leader_is_gone = True
        self._turn_ms = now_ms + self._wait_for_turn()
        core.out.fact("leader_gone", leader=str(core.leader_id), term=core.term)

    def _wait_for_turn(self) -> int:
        """One follower after the other, the preferred ones first, so that they do not split the
        votes. The half step before the first one is for the leader to come back, and for the others
        to notice too."""
        core, step = self.core, self.core.config.takeover_ms
        if not core.writable:
            return core.draw(core.config.election_ms)
        if core.me not in core.voters:
            return core.draw(core.config.election_ms)
        order = [one for one in core.config.preferred_leaders if one in core.voters]
        order = list(dict.fromkeys((*order, *core.voters)))
        turn = [member for member in order if member != core.leader_id].index(core.me)
        return turn * step + step // 2 + core.dice(max(1, step // 2))

    def on_persisted(self, now_ms: int) -> None:
        """More of the log is durable: say so, but never twice the same."""
        if min(self.matched_index, self.core.log.durable_index) > self._acknowledged:
            self._acknowledge()

    def on_push(self, request: PushEntryRequest) -> None:
        """Carry out a push of this node's leader, which was checked before (D6)."""
        if request.type is PushType.COMMIT:
            self._commit(request)
        elif request.type is PushType.INSTALL_SNAPSHOT:
            self._install(request)
        elif not self.core.log.holds(request.previous):
            self._refuse(request, request.previous.index)
        elif request.type is PushType.COMPARE:
            self._match(request.previous.index, request)
            self._answer(request, Code.SUCCESS, request.previous.index)
            self._acknowledge()
        else:
            self._take(request)

    def _commit(self, request: PushEntryRequest) -> None:
        if self.core.log.holds(request.previous):
            self._match(request.previous.index, request)
        self._answer(request, Code.SUCCESS, self.core.log.committed_index)

    def _install(self, request: PushEntryRequest) -> None:
        """The leader has nothing before ``previous``, which is committed: does this log reach up to
        there?"""
        first = request.previous
        if first.index > request.commit_index:
            self.core.out.fact("malformed_push", leader=request.local_id, push=str(request))
        elif self.core.log.holds(first):
            self._answer(request, Code.SUCCESS, first.index)
        elif install_mode(self.core, first) is not None:
            self.core.out.install = Install(request.leader_id, first)
            self._answer(request, Code.INCONSISTENT_STATE, first.index)

    def _match(self, index: Index, request: PushEntryRequest) -> None:
        # Entries behind ``matched_index`` may be those of a former leader, so the commit index of
        # this leader says nothing about them.
        self.matched_index = max(self.matched_index, index)
        self.core.commit_to(min(request.commit_index, self.matched_index))

    def _take(self, request: PushEntryRequest) -> None:
        """APPEND and TRUNCATE: take the entries that are new. Only TRUNCATE cuts, and only entries
        that differ.

        TRUNCATE shows the leader's own entry behind ``previous``. So one that comes late or twice,
        when its cut was made and the place filled long ago, cuts nothing: the entry it shows is
        there.
        """
        log, entries = self.core.log, Entries.of(request.entries)
        if not entries.runs or not _well_formed(request, entries):
            self.core.out.fact("malformed_push", leader=request.local_id, push=str(request))
            return
        # Log matching: two logs with the same last entry of the overlap have the same ones before
        # it, so that entry alone tells whether they differ. ``holds`` answered for ``previous``
        # already.
        begin, last = entries.first_index, entries.last_index
        overlap = min(log.end_index, last)
        if overlap >= begin and not log.holds(entries[overlap - begin].position):
            first = next(entry.index for entry in entries if not log.holds(entry.position))
            if request.type is not PushType.TRUNCATE:
                self._refuse(request, first)
                return
            self._cut(Index(first - 1), request.leader_id)
        new = entries if begin > log.end_index else entries[log.end_index + 1 - begin :]
        # A full disk still takes the few bytes by which a term opens.
        is_new = bool(new.runs)
        if is_new and not (self.core.writable or all(run.magic == MAGIC_NOOP for run in new.runs)):
            self._answer(request, Code.DISK_FULL, request.previous.index)
            return
        if is_new and not self._sound(new):
            self.core.out.fact("damaged_push", leader=request.local_id, push=str(request))
            return
        if is_new:
            self.core.append(new)
        self._match(last, request)
        if request.type is PushType.TRUNCATE:
            self._answer(request, Code.SUCCESS, request.previous.index)
        if not is_new:
            self._acknowledge()

    def _cut(self, after: Index, leader_id: NodeId) -> None:
        core = self.core
        core.out.fact(
            "truncate", after=after, end=core.log.end_index, term=core.term, leader=leader_id
        )
        core.log.truncate(after)
        core.admission.cut(after)
        core.out.truncate_to = after

    def _sound(self, entries: Entries) -> bool:
        """Whether the entries are as the leader stamped them, and in their places (D3)."""
        end, behind = self.core.log.end, entries
        if not self.core.log.end_is_known:
            end, behind = LogEnd.after(entries[0]), entries[1:]
        if count_following(end, behind, self.core.config.segment_bytes) < len(behind):
            return False
        behind.follows = end
        return bodies_are_sound(entries)

    def _refuse(self, request: PushEntryRequest, index: Index) -> None:
        """INCONSISTENT_STATE at ``index``, with the fields by which the leader steps back over a
        whole term.

        Raises:
            SafetyViolation: the leader's entry there contradicts a committed entry.
        """
        log = self.core.log
        if index <= log.committed_index:
            raise SafetyViolation(
                f"leader {request.leader_id} of term {request.term} contradicts entry {index}, "
                f"but everything up to {log.committed_index} is committed: this node stops and "
                "keeps its files; find the node that lost it",
                Fact(
                    "committed_entry_contradicted",
                    (("index", index), ("committed", log.committed_index)),
                ),
            )
        if index <= log.end_index:
            self._answer(request, Code.INCONSISTENT_STATE, index, with_term=True)
        else:
            self._answer(request, Code.INCONSISTENT_STATE, index)

    def _acknowledge(self) -> None:
        core = self.core
        assert core.leader_id is not None
        # A matched entry may be in the page cache only, and a durable one may be a former leader's.
        # Only entries that are both count as this follower's promise.
        self._acknowledged = min(self.matched_index, core.log.durable_index)
        core.send(
            PushEntryResponse(
                group=core.tag,
                local_id=core.me,
                remote_id=core.leader_id,
                term=core.term,
                type=PushType.APPEND,
                code=Code.SUCCESS,
                index=self._acknowledged,
                begin_index=core.log.begin_index,
                end_index=core.log.end_index,
                incarnation=core.admission.membership.incarnation,
                is_watched=core.is_watched,
            )
        )

    def _answer(
        self, request: PushEntryRequest, code: Code, index: Index, *, with_term: bool = False
    ) -> None:
        core, log = self.core, self.core.log
        core.send(
            PushEntryResponse(
                **core.header(request.local_id),
                type=request.type,
                code=code,
                index=index,
                begin_index=log.begin_index,
                end_index=log.end_index,
                x_term=(log.term_at(index) or NO_TERM) if with_term else NO_TERM,
                x_index=log.first_index_of_term_at(index) if with_term else NO_INDEX,
                incarnation=core.admission.membership.incarnation,
                is_watched=core.is_watched,
            )
        )


def _well_formed(request: PushEntryRequest, entries: Entries) -> bool:
    """Indexes without a gap behind ``previous``, terms that never go back nor beyond the
    leader's."""
    index, term = request.previous.index, request.previous.term
    for run in entries.runs:
        if run.index != index + 1 or run.term < term:
            return False
        index, term = run.last, run.term
    return term <= request.term
