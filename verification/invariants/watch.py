"""The one observer of a simulated group: holds what was seen of every node, and calls the
invariants of each family."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ParamSpec

from dledger.catalog.results import CommandResult
from dledger.config import GroupConfig
from dledger.protocol.messages.entry import Entry
from dledger.protocol.messages.peer import PeerMessage, VoteRequest, VoteResponse
from dledger.protocol.wire import decode_command
from dledger.raft.state.ready import IDLE, Ready
from dledger.records.body.header import BODY_HEADER_SIZE
from dledger.testing.checkers.history import Operation
from dledger.testing.checkers.verdict import Verdict
from dledger.types import NodeId
from verification.invariants.at_rest import AtRest
from verification.invariants.broken import Broken
from verification.invariants.commands import Commands
from verification.invariants.commit import Applied, Commits, Result
from verification.invariants.consumed import Consumed
from verification.invariants.election import Elections
from verification.invariants.ends import Healing, check_clients, check_equal
from verification.invariants.logs import Logs
from verification.invariants.members import Members
from verification.invariants.messages import check_limits, check_push, check_sent
from verification.invariants.reads import ReadIndexes
from verification.invariants.retention import Retention
from verification.invariants.storage import Storage
from verification.invariants.truth import Truth
from verification.invariants.view import Memory, WatchedNode
from verification.invariants.writers import Writers

if TYPE_CHECKING:
    from dledger.node.node import NodeServer

P = ParamSpec("P")


class Watch:
    """Told of everything that happens to a group; raises `Broken` at the first promise that is.

    ``broken`` keeps that error, because a task or thread of the program under test may swallow what
    is raised in it: the caller looks there after each event.
    """

    def __init__(self, group: GroupConfig, now_ms: Callable[[], int]) -> None:
        """``now_ms``: the time of the simulation, not that of any node."""
        self.broken: Broken | None = None
        self._now_ms = now_ms
        self.truth = truth = Truth()
        self.views: dict[str, WatchedNode] = {}
        """Nodes that are up."""
        self.memories: dict[str, Memory] = {node_id: Memory() for node_id in group.members}
        self._lives: dict[str, int] = {}
        self.elections = Elections(truth)
        self.logs = Logs(truth)
        self.members = Members(truth, group.members)
        self.commits = Commits(truth)
        self.applied_log = Applied(truth)
        self.reads = ReadIndexes(truth)
        self.storage = Storage(truth)
        self.at_rest = AtRest(truth)
        self.retention = Retention()
        self.commands = Commands()
        self.writers = Writers()
        self.consumed = Consumed(follows_catalogs=True)
        self.healing = Healing(truth, group.election_ms)

    # --- lives of nodes ---------------------------------------------------------------------------

    def started(self, node_id: NodeId, server: NodeServer) -> WatchedNode:
        """A node's raft and catalog are made from its disk, and have had no event since. See
        `wiring.attach`."""
        with self:
            life = self._lives[node_id] = self._lives.get(node_id, 0) + 1
            view = self.views[node_id] = WatchedNode(node_id, life, server, self.memories[node_id])
            self.elections.started(view)
            self.logs.started(view)
            self.commits.started(view)
            self.storage.started(view)
            self.at_rest.ends(view)
            self.members.changed(view, self.views.values())
            if view.catalog.applied_index >= 0:
                self.commands.check(view)
                self.writers.check(view)
        return view

    def ended(self, node_id: NodeId) -> None:
        """A node's life is over, in any way; durable entries have to be there when it comes
        back."""
        view = self.views.pop(node_id, None)
        if view is not None:
            memory = view.memory
            memory.durable, memory.log, memory.begin = view.synced(), view.terms.copy(), view.begin
            # A committed entry that was in memory only is gone, and the one whose place it took may
            # be there again.
            memory.ever_committed = min(memory.ever_committed, memory.durable)
            memory.incarnation = view.machine.admission.membership.incarnation

    def lost_disk(self, node_id: NodeId) -> None:
        """A fault took the disk of a node that is down, or put an older one in its place: it owes
        nothing."""
        memory = Memory()
        memory.since = self.members.newest
        self.exchanged(node_id, memory)

    def exchanged(self, node_id: NodeId, memory: Memory) -> Memory:
        """A node that is down has another disk, with this ``memory``. Returns the memory of the
        former disk."""
        former = self.memories[node_id]
        memory.others = (former, *(other for other in former.others if other is not memory))
        self.memories[node_id] = memory
        return former

    # --- what happens -----------------------------------------------------------------------------

    def after_event(self, node_id: NodeId) -> None:
        """One callback of this node, or one piece of its background work, is over."""
        self.observer(node_id)()

    def observer(self, node_id: NodeId) -> Callable[[], None]:
        """`after_event` of this node, to be called very often."""
        views, look, healing = self.views, self.look, self.healing

        def after_event() -> None:
            view = views.get(node_id)
            if view is None:
                return
            try:
                look(view)
                if healing.due_ms is not None:
                    healing.look(self._now_ms(), views.values())
            except Broken as broken:
                self._keep(broken)
                raise

        return after_event

    def look(self, view: WatchedNode) -> None:
        """Compare a node with what it was when last looked at; most of the time nothing is
        another."""
        machine, log = view.machine, view.log
        if machine.term != view.term or log.end is not view.end:
            self.members.of_this_group(view)
        if (
            machine.term != view.term
            or machine.role is not view.role
            or machine.voted_for != view.voted_for
        ):
            self.elections.changed(view)
        if log.end is not view.end or log.generation != view.generation:
            self.logs.changed(view)
            check_limits(view)
        if log.durable_index != view.durable:
            self._durable(view)
        if log.committed_index != view.committed:
            self.commits.moved(view, self.views, self.memories)
            self.elections.committed(view, self.views.values())
        if log.begin_index != view.begin:
            self.logs.began(view)
        if view.catalog.applied_index != view.applied:
            self.reads.applied(view)
        if machine.admission.membership is not view.membership:
            self.members.changed(view, self.views.values())
        if view.server._error is not None:
            self.storage.failed(view)

    @staticmethod
    def _durable(view: WatchedNode) -> None:
        """D1: the core counts on no more than the store has synced."""
        index = view.log.durable_index
        if index > view.store.durable.index and not view.lazy:
            raise Broken(
                "I7", f"{view} takes {index} for durable, its store has synced {view.store.durable}"
            )
        view.durable = index

    def ready(self, view: WatchedNode, ready: Ready) -> None:
        """A call of the core has these effects, and none of them was carried out yet."""
        if ready is IDLE:
            return
        try:
            if view.server._error is not None:
                raise Broken("I21", f"{view} goes on after {view.server._error}")
            if ready.truncate_to is not None:
                self.logs.cut(view, ready.truncate_to)
            if ready.append:
                self.logs.appended(view, ready.append)
                self.retention.written(ready.append[-1].index, self._now_ms())
            self.look(view)
            self.logs.settled(view)
            if ready.messages:
                for message in ready.messages:
                    check_push(view, message)
                check_limits(view)
            for done in ready.reads:
                self.reads.answered(view, done)
            for fact in ready.facts:
                self.members.fact(view, fact, self.memories)
        except Broken as broken:
            self._keep(broken)
            raise

    def check(self, check: Callable[P, None], *told: P.args, **how: P.kwargs) -> None:
        """Carry out a check of one of the families, and keep the promise that it finds broken."""
        with self:
            check(*told, **how)

    def sent(self, source: NodeId, target: NodeId, message: PeerMessage) -> None:
        """A node lets a message to another go."""
        view = self.views.get(source)
        if view is None:
            return
        try:
            if message.remote_id != target:
                raise Broken(
                    "I23", f"{view} sends to {target} what is for {message.remote_id}: {message}"
                )
            saved, memory = view.store.hard_state, view.memory
            check_sent(view, message, saved)
            if isinstance(message, VoteRequest | VoteResponse):
                self.elections.sent(view, message)
            if saved.term > memory.saved_term:
                memory.saved_term = saved.term
        except Broken as broken:
            self._keep(broken)
            raise

    def applied(self, view: WatchedNode, entry: Entry, result: Result) -> None:
        """A node's catalog has taken an entry."""
        is_first = entry.index == len(self.applied_log.results)
        try:
            self.applied_log.applied(view, entry, result)
            if is_first and isinstance(result, CommandResult):
                now_ms = self._now_ms()
                written_ms = self.retention.first_written_ms(entry.index, now_ms)
                self.commands.applied(view, entry, result, written_ms, now_ms)
                self.writers.applied(view, entry, result)
                command = decode_command(entry.body[BODY_HEADER_SIZE:])
                self.consumed.applied(view, command, result, now_ms)
        except Broken as broken:
            self._keep(broken)
            raise

    def retained(self, view: WatchedNode, begin: int, *, is_tight: bool = False) -> None:
        """A node's store has let the entries before ``begin`` go; its disk was tight or not."""
        with self:
            self.retention.retained(
                view, begin, self.views, self.memories, self._now_ms(), is_tight=is_tight
            )

    # --- the end ----------------------------------------------------------------------------------

    def healed(self) -> None:
        """From now on a majority of nodes is up and can talk, and clients write (I25)."""
        self.healing.healed(self._now_ms())

    def hurt(self) -> None:
        """Faults begin again."""
        self.healing.hurt()

    def finish(self, history: Sequence[Operation] = (), *, equal: bool = True) -> Verdict:
        """The end of the seed: all faults are over, and no call is under way any more.

        Args:
            history: the calls of the clients, and their answers.
            equal: whether the nodes had time to become equal.
        """
        with self:
            if equal:
                check_equal(list(self.views.values()), self.truth, self.applied_log, self.storage)
                for view in self.views.values():
                    self.commands.check(view)
                    self.writers.check(view)
            return check_clients(history)

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Broken):
            self._keep(error)

    def _keep(self, broken: Broken) -> None:
        """The first one counts. A method that is called for nearly every event calls this itself;
        all others run ``with self``."""
        if self.broken is None:
            self.broken = broken
