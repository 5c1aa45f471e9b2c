"""A group of nodes in one process, with a clock, a network and disks that obey a seed.

Chaos: messages are lost, doubled, delayed and so reordered; links are cut; connections end and open
again for no reason; syncs are slow; nodes crash between any two effects, lose what was not synced
(any part of it), and come back.

Checked after every step (facts of Raft's paper, figure 3, and of DLedger made safe):
- election safety: one leader a term;
- one vote per node and term, over restarts; saved before it is sent;
- log matching: an (index, term) has one content and one history, by the chained checksum;
- leader completeness: a new leader holds all that was ever committed;
- state machine safety: one entry at a committed index, for ever;
- durability: what commits is on the disks of a quorum, what is acknowledged is on that disk;
- no commit index goes back, nothing below one is cut;
- a linearizable read is not older than anything acknowledged before it was asked.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dledger.config import GroupConfig
from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.entry import Entry, HardState, LogEnd, chain_is_sound
from dledger.protocol.messages.membership import Change, Membership
from dledger.protocol.messages.peer import (
    MemberRequest,
    MemberResponse,
    PeerMessage,
    PushEntryResponse,
    PushType,
    VoteRequest,
    VoteResponse,
    VoteResult,
)
from dledger.raft import LogSummary, RaftNode, Ready
from dledger.raft.state.saved_state import RaftOptions, SavedState
from dledger.types import NO_INDEX, Index, NodeId, Role, Term
from tests.raft.raft_bench import summary_of


def members(count: int) -> tuple[NodeId, ...]:
    return tuple(NodeId(f"n{i}") for i in range(count))


def admit_body(node: NodeId, incarnation: int, after: int) -> bytes:
    """An entry that admits another incarnation of ``node``."""
    return b"admit %s %d %d" % (node.encode(), incarnation, after)


def change_of(entry: Entry) -> Change | None:
    """What `admit_body` says; the core is told so."""
    if bytes(entry.body[:6]) != b"admit ":
        return None
    node, incarnation, after = bytes(entry.body).decode().split()[1:]
    return Change(entry.position, Index(int(after)), NodeId(node), int(incarnation))


def acceptance(node: RaftNode, size: int) -> Code:
    """Whether ``size`` bytes may be proposed to a node now; NOT_LEADER where it does not lead."""
    return Code.NOT_LEADER if node.leader is None else node.leader.can_accept(size)


class Crash(Exception):
    """The process died in the middle of its effects."""


@dataclass
class SimDisk:
    """What a node's disk holds; only the first ``durable`` entries survive a crash for sure."""

    entries: list[Entry] = field(default_factory=list)
    durable: int = 0
    hard_state: HardState = field(default_factory=HardState)
    membership: Membership | None = None

    def append(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            previous = self.entries[-1] if self.entries else None
            assert entry.index == len(self.entries), f"{entry} written at {len(self.entries)}"
            assert chain_is_sound(entry, previous.chain_crc if previous else 0), (
                f"{entry} breaks the chain"
            )
            own = replace(entry, header=bytes(entry.header), body=bytes(entry.body))
            self.entries.append(own)

    def truncate(self, after: Index) -> None:
        del self.entries[after + 1 :]
        self.durable = min(self.durable, after + 1)

    @property
    def end(self) -> LogEnd:
        return LogEnd.after(self.entries[-1]) if self.entries else LogEnd()

    def summary(self) -> LogSummary:
        return summary_of(self.entries, self.hard_state.commit_hint)


@dataclass(frozen=True)
class Chaos:
    """How bad the world is; chances per message or effect, times in milliseconds."""

    loss: float = 0.0
    double: float = 0.0
    delay_ms: int = 2
    long_delay: float = 0.0
    sync_ms: int = 5
    crash: float = 0.0
    cut: float = 0.0
    reset: float = 0.0
    """A message is lost with its connection, which is open again a little later."""


@dataclass
class Member:
    """One simulated process: the node while it lives, and its disk."""

    disk: SimDisk = field(default_factory=SimDisk)
    node: RaftNode | None = None
    life: int = 0
    is_syncing: bool = False
    woken: tuple[int, int] = (-1, -1)
    """Deadline and life for which a tick is queued."""


class World:
    """See the head of this file."""

    def __init__(
        self,
        count: int = 3,
        seed: int = 0,
        chaos: Chaos | None = None,
        cache_bytes: int = 4096,
        disks: Sequence[SimDisk] = (),
        **settings: Any,
    ) -> None:
        """``disks``: what the nodes find when they start, in order; empty ones for the rest."""
        self.random = random.Random(seed)
        self.chaos = chaos or Chaos()
        defaults = {"segment_bytes": 1 << 20, "max_body_bytes": 4096}
        defaults |= {"push_batch_bytes": 600, "push_window_bytes": 2000}
        self.config = GroupConfig(members=members(count), **(defaults | settings))
        self.cache_bytes = cache_bytes
        self.now_ms = 0
        self.members = {member: Member() for member in self.config.members}
        for state, disk in zip(self.members.values(), disks, strict=False):
            state.disk = disk
        self.cuts: set[tuple[NodeId, NodeId]] = set()
        self.counts: Counter[str] = Counter()
        self.facts: list[tuple[NodeId, str]] = []
        self.finished: list[tuple[NodeId, object]] = []
        self.reads: dict[int, tuple[Code, Index]] = {}
        self.transfers: list[tuple[NodeId, object]] = []
        self.leaders: dict[Term, NodeId] = {}
        self.committed: list[tuple[Term, int]] = []
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._order = 0
        self._votes: dict[tuple[Term, NodeId, int], NodeId] = {}
        self._disks: list[tuple[NodeId, SimDisk]] = []
        """Of machines that were replaced, and of those in their places: what each acknowledged was
        durable."""
        self._contents: dict[tuple[Index, Term], int] = {}
        self._promised = NO_INDEX
        self._read_floor: dict[int, Index] = {}
        self._token = 0
        for member in self.members:
            self.start(member)

    # ---- what a test does

    def told(self, member: NodeId) -> tuple[GroupConfig, RaftOptions]:
        """What a process is started with."""
        return self.config, RaftOptions(cache_bytes=self.cache_bytes, change_of=change_of)

    def quorum_of(self, member: NodeId) -> int:
        """How many disks must have an entry that this node takes for committed."""
        return len(self.members) // 2 + 1

    def start(self, member: NodeId) -> None:
        state = self.members[member]
        state.life += 1
        state.is_syncing = False
        state.disk.durable = len(state.disk.entries)  # recovery rewrites and syncs the tail (D15)
        config, options = self.told(member)
        state.node = RaftNode(
            config,
            member,
            saved=SavedState(state.disk.hard_state, state.disk.summary(), state.disk.membership),
            dice=self.random.randrange,
            now_ms=self.now_ms,
            options=options,
        )
        self._wake(member)
        for other in self.members:
            self._tell(other, member, is_lost=False)
            self._tell(member, other, is_lost=False)

    def crash(self, member: NodeId, *, is_noticed: bool = True) -> None:
        """Kill a process; of what was not synced any first part survives. ``is_noticed``: the
        others see its connections end, as they do unless the whole machine has gone."""
        state, disk = self.members[member], self.members[member].disk
        state.node = None
        state.life += 1
        keep = self.random.randint(disk.durable, len(disk.entries))
        self.counts["entries lost in a crash"] += len(disk.entries) - keep
        self.counts["crashes"] += 1
        del disk.entries[keep:]
        for other in self.members if is_noticed else ():
            self._tell(other, member, is_lost=True)

    def reset(self, sender: NodeId, receiver: NodeId) -> None:
        """The connection from ``sender`` ends, and another one is open soon."""
        self.counts["resets"] += 1
        self._tell(receiver, sender, is_lost=True)
        back_ms = self.random.randint(20, 60)
        self.after(back_ms, lambda: self._tell(receiver, sender, is_lost=False))
        self.after(back_ms, lambda: self._tell(sender, receiver, is_lost=False))

    def _tell(self, member: NodeId, peer: NodeId, *, is_lost: bool) -> None:
        """A node hears of the connection with ``peer``, if there can be one."""

        def tell(node: RaftNode) -> Ready:
            return (
                node.peer_lost(peer, self.now_ms) if is_lost else node.peer_found(peer, self.now_ms)
            )

        if member != peer and (is_lost or (peer, member) not in self.cuts):
            self.after(self.random.randint(0, 2), lambda: self.call(member, tell))

    def cut(self, one: NodeId, other: NodeId) -> None:
        self.cuts |= {(one, other), (other, one)}

    def others(self, member: NodeId) -> list[NodeId]:
        return [other for other in self.members if other != member]

    def isolate(self, member: NodeId) -> None:
        for other in self.others(member):
            self.cut(member, other)

    def heal(self) -> None:
        self.cuts.clear()

    def mend(self) -> None:
        """All faults end, and all nodes that are down come up."""
        self.heal()
        self.chaos = Chaos()
        for name, state in self.members.items():
            if state.node is None:
                self.start(name)

    def node(self, member: NodeId) -> RaftNode:
        node = self.members[member].node
        assert node is not None, f"{member} is down"
        return node

    @property
    def leader(self) -> NodeId | None:
        """The living leader of the highest term."""
        leading = [
            (m.node.term, name)
            for name, m in self.members.items()
            if m.node and m.node.role is Role.LEADER
        ]
        return max(leading)[1] if leading else None

    def acknowledged(self, leader: NodeId, member: NodeId) -> Index:
        """How far ``member`` counts for the commits of ``leader``."""
        acting: Any = self.node(leader)._machine.acting
        return acting.acks.watermarks[member]

    def call(self, member: NodeId, call: Callable[[RaftNode], Ready]) -> None:
        """Give a node an input and carry out what it returns."""
        state = self.members[member]
        if state.node is None:
            return
        try:
            self._carry_out(member, call(state.node))
        except Crash:
            self.crash(member)
            self.after(
                self.random.randint(50, 3000),
                lambda: self.start(member) if state.node is None else None,
            )
            return
        self._wake(member)
        self.check(member)

    def propose(self, member: NodeId, *bodies: bytes) -> bool:
        if acceptance(self.node(member), sum(map(len, bodies))) is not Code.SUCCESS:
            return False
        self.call(member, lambda node: node.propose(bodies, self.now_ms))
        return True

    def admit(self, leader: NodeId, member: NodeId) -> Index | None:
        """Have the incarnation of ``member`` that answered ``leader`` admitted, as
        `server.admission` does; the entry, or None when it may not be now."""
        node = self.node(leader)
        incarnation = node.heard.get(member)
        if node.change is not None or not self.is_open(leader) or incarnation is None:
            return None
        if node.membership.of(member) == incarnation:
            return None
        return (
            node.end_index
            if self.propose(leader, admit_body(member, incarnation, node.membership.index))
            else None
        )

    def replace(self, member: NodeId, incarnation: int) -> SimDisk:
        """The machine dies and another one with an empty disk takes its place; the disk of the
        former."""
        before, new = self.members[member].disk, SimDisk(membership=Membership(incarnation))
        self._disks += [(member, before), (member, new)]
        self.put(member, new)
        return before

    def put(self, member: NodeId, disk: SimDisk) -> None:
        """The machine with this disk takes the place of the member's."""
        if self.members[member].node is not None:
            self.crash(member)
        self.members[member].disk = disk
        self.start(member)

    def restart(self, *names: NodeId) -> None:
        """All these processes are killed, if they live, and then started."""
        for name in names:
            if self.members[name].node is not None:
                self.crash(name)
        for name in names:
            self.start(name)

    def read(self, member: NodeId) -> int:
        self._token += 1
        token = self._token
        self._read_floor[token] = self._promised
        self.call(member, lambda node: node.read_index(token, self.now_ms))
        return token

    def after(self, delay_ms: int, call: Callable[[], None]) -> None:
        self._order += 1
        heapq.heappush(self._queue, (self.now_ms + delay_ms, self._order, call))

    def step(self) -> bool:
        """Let the next thing happen."""
        if not self._queue:
            return False
        at_ms, _, call = heapq.heappop(self._queue)
        self.now_ms = max(self.now_ms, at_ms)
        call()
        return True

    def run(self, duration_ms: int) -> None:
        end_ms = self.now_ms + duration_ms
        while self._queue and self._queue[0][0] <= end_ms:
            self.step()
        self.now_ms = end_ms

    def run_until(self, condition: Callable[[], bool], limit_ms: int = 20_000) -> None:
        end_ms = self.now_ms + limit_ms
        while not condition():
            if not self._queue or self._queue[0][0] > end_ms:
                raise AssertionError(f"not within {limit_ms} ms: {self}")
            self.step()

    def elect(self) -> NodeId:
        """Wait for a leader whose term is open."""
        self.run_until(lambda: self.leader is not None and self.is_open(self.leader))
        assert self.leader is not None
        return self.leader

    def is_open(self, member: NodeId) -> bool:
        node = self.node(member)
        return node.role is Role.LEADER and node.committed_index >= node.noop_index

    def settled(self) -> bool:
        """Whether all living nodes have the same, completely committed log."""
        nodes = [m.node for m in self.members.values() if m.node]
        ends = {(node.end, node.committed_index) for node in nodes}
        return len(ends) == 1 and nodes[0].committed_index == nodes[0].end_index

    def __str__(self) -> str:
        lines = [f"t={self.now_ms}"]
        for name, member in self.members.items():
            node = member.node
            lines.append(
                f"{name} {node.role.name} t{node.term} end {node.end.position} durable "
                f"{node.durable_index} committed {node.committed_index}"
                if node
                else f"{name} down"
            )
        return "\n".join(lines)

    # ---- carrying out

    def _carry_out(self, member: NodeId, ready: Ready) -> None:
        state = self.members[member]
        assert state.node is not None
        disk, node = state.disk, state.node
        self.facts.extend((member, str(fact)) for fact in ready.facts)
        if ready.hard_state is not None:
            self._may_crash()
            assert ready.hard_state.term >= disk.hard_state.term, "term goes back"
            disk.hard_state = ready.hard_state
        if ready.membership is not None:
            self._may_crash()
            disk.membership = ready.membership
        if ready.truncate_to is not None:
            self._may_crash()
            assert ready.truncate_to >= disk.hard_state.commit_hint, "cut below a known commit"
            self.counts["entries cut"] += len(disk.entries) - ready.truncate_to - 1
            disk.truncate(ready.truncate_to)
            node.truncated(disk.end)
        if ready.append:
            self._may_crash()
            disk.append(ready.append)
            self._note_contents(ready.append)
            self._sync(member)
        for message in ready.messages:
            self._may_crash()
            self._post(member, message)
        if ready.committed is not None:
            self._note_commit(member, ready.committed)
        for finished in ready.finished:
            self.finished.append((member, finished))
            if finished.code is Code.SUCCESS:
                self._promised = max(self._promised, finished.last)
        for read in ready.reads:
            self.reads[read.token] = (read.code, read.index)
            if read.code is Code.SUCCESS:
                assert read.index >= self._read_floor[read.token], "stale read"
                self.counts["reads"] += 1
        if ready.transfer is not None:
            self.transfers.append((member, ready.transfer))
        for load in ready.load:
            self.counts["loads"] += 1
            entries, size = [], 0
            for entry in disk.entries[load.begin_index :]:
                if entries and size + entry.size > load.max_bytes:
                    break
                entries.append(entry)
                size += entry.size
            life = state.life
            self.after(
                self.random.randint(0, 3),
                lambda load=load, entries=tuple(entries), life=life: (
                    self.call(member, lambda node: node.loaded(load.peer, entries, self.now_ms))
                    if self.members[member].life == life
                    else None
                ),
            )

    def _may_crash(self) -> None:
        if self.random.random() < self.chaos.crash:
            raise Crash

    def _sync(self, member: NodeId) -> None:
        """One fdatasync at a time; it covers what was written when it began."""
        state = self.members[member]
        if state.is_syncing or state.node is None:
            return
        state.is_syncing = True
        life, generation = state.life, state.node.generation
        count, position = len(state.disk.entries), state.disk.end.position

        def done() -> None:
            if state.life != life or state.node is None:
                return
            state.is_syncing = False
            if state.node.generation == generation:
                state.disk.durable = max(state.disk.durable, count)
                self.call(member, lambda node: node.persisted(position, self.now_ms, generation))
            if state.node is not None and state.disk.durable < len(state.disk.entries):
                self._sync(member)

        self.after(self.random.randint(0, self.chaos.sync_ms), done)

    def _wake(self, member: NodeId) -> None:
        state = self.members[member]
        node, life = state.node, state.life
        if node is None:
            return
        deadline_ms = node.deadline_ms()

        def tick() -> None:
            if (
                state.life == life
                and state.node is not None
                and state.node.deadline_ms() <= self.now_ms
            ):
                self.call(member, lambda node: node.tick(self.now_ms))

        if state.woken != (deadline_ms, life):
            state.woken = (deadline_ms, life)
            self.after(max(0, deadline_ms - self.now_ms), tick)

    def _post(self, sender: NodeId, message: PeerMessage) -> None:
        self._check_message(sender, message)
        chaos, receiver = self.chaos, message.remote_id
        self.counts["messages"] += 1
        if (sender, receiver) in self.cuts or self.random.random() < chaos.loss:
            self.counts["messages lost"] += 1
            return
        if self.random.random() < chaos.reset:
            self.reset(sender, receiver)
            return
        copies = 2 if self.random.random() < chaos.double else 1
        for _ in range(copies):
            delay_ms = self.random.randint(0, chaos.delay_ms)
            if self.random.random() < chaos.long_delay:
                delay_ms += self.random.randint(0, 3000)
            self.after(
                delay_ms, lambda: self.call(receiver, lambda node: node.step(message, self.now_ms))
            )

    # ---- checks

    def check(self, member: NodeId) -> None:
        node = self.members[member].node
        if node is None:
            return
        node.check()
        if node.role is Role.LEADER and self.leaders.get(node.term) != member:
            assert node.term not in self.leaders, f"two leaders in term {node.term}"
            self.leaders[node.term] = member
            if self.committed:
                last = Index(len(self.committed) - 1)
                assert node.term_at(last) == self.committed[last][0], (
                    f"{member} leads without entry {last}"
                )

    def _check_message(self, sender: NodeId, message: PeerMessage) -> None:
        disk = self.members[sender].disk
        is_pre = isinstance(message, VoteRequest) and message.pre_vote
        if isinstance(message, MemberRequest | MemberResponse):
            return
        if not is_pre and not isinstance(message, VoteResponse):
            assert message.term <= disk.hard_state.term, "sent before the term was saved"
        if (
            isinstance(message, VoteResponse)
            and message.result is VoteResult.ACCEPT
            and not message.pre_vote
        ):
            assert disk.hard_state.voted_for == message.remote_id, "vote sent before it was saved"
            voter = (message.request_term, sender, message.incarnation)
            first = self._votes.setdefault(voter, message.remote_id)
            assert first == message.remote_id, (
                f"{sender} voted twice in term {message.request_term}"
            )
        if isinstance(message, VoteRequest) and not message.pre_vote:
            first = self._votes.setdefault((message.term, sender, message.incarnation), sender)
            assert first == sender, f"{sender} voted twice in term {message.term}"
        is_ack = isinstance(message, PushEntryResponse) and message.type is PushType.APPEND
        if is_ack and message.code is Code.SUCCESS:
            assert message.index < disk.durable, (
                f"{sender} acknowledged {message.index} before it was durable (D1)"
            )

    def _note_contents(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            first = self._contents.setdefault((entry.index, entry.term), entry.chain_crc)
            assert first == entry.chain_crc, f"two entries are {entry}"

    def _note_commit(self, member: NodeId, index: Index) -> None:
        entries = self.members[member].disk.entries
        quorum = self.quorum_of(member)
        for entry in entries[len(self.committed) : index + 1]:
            disks = [*self._disks, *((name, state.disk) for name, state in self.members.items())]
            holders = {
                name
                for name, disk in disks
                if disk.durable > entry.index
                and disk.entries[entry.index].chain_crc == entry.chain_crc
            }
            assert len(holders) >= quorum, f"{entry} is committed on {holders}"
            self.committed.append((entry.term, entry.chain_crc))
        for entry in entries[max(0, index - 20) : index + 1]:
            assert self.committed[entry.index] == (entry.term, entry.chain_crc), (
                f"{entry} was committed otherwise"
            )


def new_group(count: int = 3, *arguments: Any, **settings: Any) -> World:
    """New directories, each with its incarnation: 100 and on."""
    disks = [SimDisk(membership=Membership(100 + number)) for number in range(count)]
    return World(count, *arguments, disks=disks, **settings)


def led(world: World) -> tuple[Any, ...]:
    """The group once it has a leader: it, the leader, and each other member."""
    leader = world.elect()
    return world, leader, *world.others(leader)


def check_seeds(run_world: Callable[[int], World], seeds: int, bites: dict[str, int]) -> None:
    """Run so many worlds. ``bites``: what must have happened at least so often in all of them, for
    a fault that never comes proves nothing."""
    totals: Counter[str] = Counter()
    for seed in range(seeds):
        try:
            totals.update(run_world(seed).counts)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
    for what, least in bites.items():
        assert totals[what] >= least, f"{what}: {totals}"
