"""How a group learns for the first time which incarnations it consists of.

Once in a group's life all members have to be there. Each one that has no `Membership` asks the
others. The first of them by name founds the group when every other one has said, since this process
began to ask, that it knows of no founding either: it saves the incarnations of all, and the rest
take that over from it or from one another.

Why no group is founded twice: a leader needs a quorum that has saved the founding, so as long as
only a minority of disks is lost, one of them is there to say so. Why no late answer of a lost
founder does harm: a node that has told one incarnation of the founder that it knows nothing takes
no founding from an earlier one in that life, and in its next life it takes answers only to the
questions of that life.

The founder draws the group's id with it. A group from before there were ids gets one in the same
way: its first member draws it when every other one has said, since this process began to ask, that
it knows of none.
"""

from __future__ import annotations

from dledger.protocol.messages.membership import MemberRole, Membership
from dledger.protocol.messages.peer import MemberRequest, MemberResponse
from dledger.raft.roles.removal import Removal
from dledger.raft.state.group import drawn_name, id_in
from dledger.raft.state.raft_state import RaftState
from dledger.types import NO_INDEX, NOWHERE, NodeId, Position, Role

NEVER = 1 << 62


class Founding:
    """One node's part in it, one life long."""

    def __init__(self, core: RaftState, now_ms: int, *, removal: Removal) -> None:
        self.core = core
        self._removal = removal
        self.founder = NodeId("") if core.joins else min(core.config.members)
        self._nonce = core.dice(1 << 62)
        self._ask_ms = now_ms
        self._said: dict[NodeId, MemberResponse] = {}
        """The last answer of each other member that knows of no founding."""
        self._promised: int | None = None
        """The founder's incarnation that was told that this node knows nothing."""
        self._founders_id: str | None = None
        """The id of the group that the founder then knew to be its own; None: it knew of none, and
        may found one."""
        self._asked_by: dict[NodeId, MemberRequest] = {}
        self._without_id: set[NodeId] = set()
        """The members that have said, since this process began to ask, that they know of no id."""
        self._told = 0
        """The incarnation that the group has in this node's place, once it was told."""
        self._told_index = NO_INDEX
        """The entry of the newest list that it was told since."""
        self.settled: Membership | None = None
        """The membership that leaves nothing to ask for, but to a candidate; compared by identity,
        at every input."""

    @property
    def is_open(self) -> bool:
        return not self.core.admission.membership.founded

    @property
    def _asks(self) -> bool:
        """Whether the others may know what this node does not: without a founding, or without a
        leader that would tell whether a change in this log is committed. One that may not ask for
        votes hears from no voter that it knows too old a list, by which it does not let the leader
        in."""
        core, membership = self.core, self.core.admission.membership
        if membership is not self.settled:
            if self.is_open or core.watch.wants_id:
                return True
            self.settled = membership
        is_left = core.admission.pending is not None or not core.can_lead
        return is_left and core.role is Role.CANDIDATE

    @property
    def is_awaited(self) -> bool:
        """Whether this node was told of no founding yet, not even of one that another incarnation
        of it was part of."""
        return self.is_open and not self._told

    @property
    def missing(self) -> tuple[NodeId, ...]:
        """The members that have not said yet that they know of no founding either: as long as there
        is one, this node founds no group."""
        peers = self.core.peers if self.is_open else ()
        return tuple(peer for peer in peers if peer not in self._said)

    def deadline_ms(self) -> int:
        return self._ask_ms if self._asks else NEVER

    def tick(self, now_ms: int) -> None:
        """Ask all other members, again and again."""
        if now_ms < self._ask_ms or not self._asks:
            return
        core = self.core
        is_slow = self._told or (not self.is_open and core.admission.pending is None)
        self._ask_ms = now_ms + (core.config.election_ms if is_slow else core.config.heartbeat_ms)
        self._found()
        self._draw_id()
        for peer in core.peers:
            self.ask(peer)

    def ask(self, peer: NodeId) -> None:
        """Ask this member now, if there is anything to ask: a question sent before may be lost."""
        if self._asks:
            self._ask(peer)

    def inquire(self, peer: NodeId) -> None:
        """A voter does not know this node: perhaps it was removed, and does not know it yet."""
        if self.core.admission.membership.group_id:
            self._ask(peer)

    def _ask(self, peer: NodeId) -> None:
        core = self.core
        pending = core.admission.pending
        core.send(
            MemberRequest(
                **core.header(peer),
                incarnation=core.admission.membership.incarnation,
                nonce=self._nonce,
                change=NOWHERE if pending is None else pending.position,
            )
        )

    def on_request(self, request: MemberRequest) -> None:
        """Answer with this node's incarnation and what it knows of the founding."""
        if (self.is_open or self.core.watch.wants_id) and request.local_id == self.founder:
            self._promised = request.incarnation
            # A drawn name is known before the founding, and so says nothing of it.
            self._founders_id = None if drawn_name(self.core.config.group) else id_in(request.group)
        self._asked_by[request.local_id] = request
        self._answer(request)

    def _answer(self, request: MemberRequest) -> None:
        core = self.core
        known = core.admission.membership
        core.send(
            MemberResponse(
                **core.header(request.local_id),
                incarnation=known.incarnation,
                asked=request.incarnation,
                nonce=request.nonce,
                index=known.index,
                bound={str(member): incarnation for member, incarnation in known.bound},
                is_empty=core.log.end_index < 0 and core.term < 0,
                change=request.change,
                is_committed=self._is_committed(request.change),
                group_id=known.group_id,
                ancestors=known.ancestors,
                founders=known.members if known.listed else (),
                members=known.listed,
                former=known.former,
            )
        )

    def _is_committed(self, change: Position) -> bool:
        log = self.core.log
        is_below = NO_INDEX < change.index <= log.committed_index and log.has(change)
        return is_below or (change != NOWHERE and change == self.core.admission.membership.position)

    def on_response(self, response: MemberResponse, now_ms: int) -> None:
        """Found the group, learn that it was founded, or that a change is committed."""
        core = self.core
        if response.asked != core.admission.membership.incarnation or response.nonce != self._nonce:
            return
        pending = core.admission.pending
        if pending is not None and response.is_committed and response.change == pending.position:
            self._take_term(response, now_ms)
            if core.role is Role.CANDIDATE:
                core.out.fact("change_learned", of=response.local_id, index=pending.index)
                core.commit_to(pending.index)
        if core.watch.wants_id:
            self._learn_id(response)
        if not self.is_open:
            self._learn_members(response, now_ms)
            return
        if not response.bound:
            if response.local_id not in core.peers:
                return  # a founding has the members that all were told
            if response.group_id != drawn_name(core.config.group):
                return  # it has lost its disk, and knows the group by what it was told since
            self._said[response.local_id] = response
            self._found()
            return
        bound = {NodeId(member): incarnation for member, incarnation in response.bound.items()}
        is_promised = (
            self._promised in {None, bound.get(self.founder)}
            or response.group_id == self._founders_id
        )
        if response.index == NO_INDEX and not is_promised:
            return  # of a founder that has lost its disk since
        roles = {one.id: one.role for one in response.members}
        is_counted = bound.get(core.me) == core.admission.membership.incarnation
        if is_counted or roles.get(core.me, MemberRole.VOTER) is not MemberRole.VOTER:
            self._take_term(response, now_ms)
            self._join(response)
            core.admission.bind(
                response.index,
                bound.items(),
                listed=response.members,
                former=response.former,
            )
            core.out.fact("founding_learned", of=response.local_id)
            return
        self._join(response)
        if response.index > self._told_index:
            self._told_index, core.admission.told = response.index, response.members
        if not self._told:
            self._told = bound.get(core.me, -1)
            core.out.fact(
                "not_admitted",
                node=core.me,
                own=core.admission.membership.incarnation,
                known=self._told,
            )

    def _learn_members(self, response: MemberResponse, now_ms: int) -> None:
        """A later list may be committed than this node knows of: it may have been removed, or have
        been away so long that it knows no member of today."""
        core = self.core
        membership = core.admission.membership
        if (
            not response.members
            or response.group_id != membership.group_id
            or core.role is not Role.CANDIDATE
        ):
            return
        if response.index > membership.index:
            self._take_term(response, now_ms)
            bound = {NodeId(one): incarnation for one, incarnation in response.bound.items()}
            listed, former = response.members, response.former
            core.admission.bind(response.index, bound.items(), listed=listed, former=former)
            core.out.fact("members_learned", of=response.local_id, index=response.index)
        self._removal.told(response.local_id, response.index)

    def _take_term(self, response: MemberResponse, now_ms: int) -> None:
        """A node that counts by what it is told votes in no term from before that was committed."""
        if response.term > self.core.term:
            self.core.become_candidate(response.term, now_ms)

    def _found(self) -> None:
        core = self.core
        own_id = core.admission.membership.group_id
        has_joined = core.watch.told_without_id or own_id != drawn_name(core.config.group)
        if core.me != self.founder or self.missing or not self.is_open or has_joined:
            return
        known = {core.me: core.admission.membership.incarnation}
        known |= {peer: response.incarnation for peer, response in self._said.items()}
        empty = {peer for peer, response in self._said.items() if response.is_empty}
        if core.log.end_index < 0 and core.term < 0:
            empty.add(core.me)
        if core.quorum <= len(known) - len(empty) < len(known):
            # Files from before foundings: most members have a log, so a member without one has lost
            # it and must be admitted.
            known = {
                member: incarnation for member, incarnation in known.items() if member not in empty
            }
        core.admission.found(known.items(), self._draw(), core.config.members)
        core.out.fact(
            "founded", members=",".join(sorted(known)), group=core.admission.membership.group_id
        )
        for request in self._asked_by.values():
            self._answer(request)

    def _draw(self) -> str:
        return drawn_name(self.core.config.group) or f"{self.core.dice(1 << 62):016x}"

    def _join(self, response: MemberResponse) -> None:
        """The group exists, whether it counts this node or not: from now on it is heard."""
        core = self.core
        if core.joins and not response.founders:
            return  # not before it is in the list
        if response.group_id:
            founders = response.founders or core.config.members
            core.admission.join(response.group_id, response.ancestors, founders)
        else:
            core.watch.join_without_id()

    def _learn_id(self, response: MemberResponse) -> None:
        """Of a group from before there were ids."""
        core = self.core
        bound = {(NodeId(member), incarnation) for member, incarnation in response.bound.items()}
        if bound and bound.isdisjoint(core.admission.membership.bound):
            return  # of another group of this name, which came before ids too
        if not response.group_id:
            self._without_id.add(response.local_id)
            self._draw_id()
        elif response.local_id != self.founder or self._promised in {None, response.incarnation}:
            core.admission.join(response.group_id, response.ancestors, core.config.members)
            core.out.fact("group_id_learned", group=response.group_id, of=response.local_id)

    def _draw_id(self) -> None:
        core = self.core
        if (
            core.me != self.founder
            or not core.watch.wants_id
            or not self._without_id.issuperset(core.peers)
        ):
            return
        core.admission.join(self._draw(), (), core.config.members)
        core.out.fact("group_id_drawn", group=core.admission.membership.group_id)
        for request in self._asked_by.values():
            self._answer(request)
