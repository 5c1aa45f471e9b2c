"""Raft nodes that do what a script says, one input at a time; what they do is text.

A script is blocks of commands, a line of dashes, and what they print, as in etcd's data-driven
tests. Nothing happens by itself: messages lie in a pool until they are delivered or dropped, and
time goes on only where a node is ticked. Dice always show 0, so that a script prints the same each
time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import MISSING, dataclass, field, fields
from enum import Enum
from typing import Any

from dledger.config import GroupConfig
from dledger.protocol.messages.entry import MAGIC_NOOP, Entry
from dledger.protocol.messages.entry_runs import Entries
from dledger.protocol.messages.membership import Membership
from dledger.protocol.messages.peer import PeerMessage
from dledger.raft import RaftNode, Ready
from dledger.raft.state.ready import SafetyViolation
from dledger.raft.state.saved_state import RaftOptions, SavedState
from dledger.types import Index, NodeId, Position
from tests.raft.raft_harness import SimDisk, acceptance, admit_body, change_of

HIDDEN = {"group", "local_id", "remote_id", "incarnation", "members_index"}
BEATS = {"HeartBeatRequest", "HeartBeatResponse"}


@dataclass
class Member:
    """A process and its disk."""

    disk: SimDisk = field(default_factory=SimDisk)
    node: RaftNode | None = None
    holds_syncs: bool = False


class Interaction:
    """A group under a script."""

    def __init__(self) -> None:
        self._members: dict[NodeId, Member] = {}
        self._pool: list[PeerMessage] = []
        self._cut: set[frozenset[NodeId]] = set()
        self._now_ms = 0
        self._lines: list[str] = []
        self._config = GroupConfig(members=(NodeId("n0"),))

    def run(self, command: str) -> list[str]:
        """Carry a line out; what it prints."""
        name, *arguments = command.split()
        self._lines = []
        call: Callable[..., None] = getattr(self, f"do_{name.replace('-', '_')}")
        call(*arguments)
        return self._lines or ["ok"]

    # --- commands ---------------------------------------------------------------------------------

    def do_add_nodes(self, count: str, *settings: str) -> None:
        """``add-nodes 3 [setting=1 ...]``: a group whose members are known from the beginning."""
        names = tuple(NodeId(f"n{number}") for number in range(int(count)))
        given = {name: int(value) for name, _, value in (one.partition("=") for one in settings)}
        sizes: dict[str, Any] = {"segment_bytes": 1 << 16, "max_body_bytes": 4096, **given}
        self._config = GroupConfig(members=names, **sizes)
        self._members = {name: Member() for name in names}
        for name in names:
            self._start(name)

    def do_found_nodes(self, count: str) -> None:
        """``found-nodes 3``: nodes with empty disks, each an incarnation, that have to found the
        group."""
        self.do_add_nodes(count)
        for number, (name, member) in enumerate(self._members.items(), 1):
            member.disk.membership = Membership(number)
            self._start(name)

    def do_campaign(self, name: str) -> None:
        """``campaign n0``: its patience is at an end."""
        node = self._node(name)
        self._now_ms = max(self._now_ms, node.deadline_ms())
        self._call(NodeId(name), node.tick(self._now_ms))

    def do_beat(self, name: str) -> None:
        """``beat n0``: the leader's next heartbeat, and all that it brings about but heartbeats."""
        self._now_ms = max(self._now_ms, self._node(name).deadline_ms())
        self.do_tick(name)
        self.do_stabilize()

    def do_wait(self, millis: str) -> None:
        """``wait 50``: time goes on; no node is ticked."""
        self._now_ms += int(millis)

    def do_tick(self, *names: str) -> None:
        """``tick n0``: it sees what time it is."""
        for name in names:
            self._call(NodeId(name), self._node(name).tick(self._now_ms))

    def do_propose(self, name: str, *bodies: str) -> None:
        """``propose n0 a b``: two entries."""
        self._propose(name, [body.encode() for body in bodies])

    def do_admit(self, leader: str, member: str) -> None:
        """``admit n0 n2``: the incarnation of n2 that has answered n0 counts from now on."""
        node = self._node(leader)
        incarnation = node.heard[NodeId(member)]
        self._propose(leader, [admit_body(NodeId(member), incarnation, node.membership.index)])

    def _propose(self, name: str, bodies: list[bytes]) -> None:
        node = self._node(name)
        code = acceptance(node, sum(map(len, bodies)))
        self._say(f"{name}: {code.name}")
        if code.name == "SUCCESS":
            self._call(NodeId(name), node.propose(bodies, self._now_ms))

    def do_deliver(self, way: str, kind: str = "") -> None:
        """``deliver n0->n1 [Vote]``: the first such message."""
        self._pool.remove(message := self._first(way, kind))
        self._deliver(message)

    def do_drop(self, way: str, kind: str = "") -> None:
        """``drop n0->n1 [Push]``: all such messages are lost."""
        gone = [one for one in self._pool if self._is(one, way, kind)]
        self._pool = [one for one in self._pool if not self._is(one, way, kind)]
        for message in gone:
            self._say(f"lost: {self._text(message)}")

    def do_stabilize(self, *quiet: str) -> None:
        """``stabilize [quiet]``: deliver all messages, and those that they cause. Heartbeats are
        not shown."""
        for _ in range(1000):
            if not self._pool:
                break
            self._deliver(self._pool.pop(0))
        self._lines = ["ok"] if quiet else [one for one in self._lines if not _is_beat(one)]

    def do_isolate(self, name: str) -> None:
        """``isolate n0``: what it sends, and what is sent to it, is lost."""
        self._cut |= {frozenset({NodeId(name), other}) for other in self._members}

    def do_heal(self) -> None:
        """``heal``: no link is cut any more."""
        self._cut.clear()

    def do_crash(self, name: str) -> None:
        """``crash n0``: the process dies; what was not synced is lost."""
        member = self._members[NodeId(name)]
        member.node = None
        del member.disk.entries[member.disk.durable :]
        self._pool = [one for one in self._pool if name not in {one.local_id, one.remote_id}]

    def do_restart(self, name: str) -> None:
        """``restart n0``: it starts from its disk."""
        self._start(NodeId(name))

    def do_replace(self, name: str, incarnation: str) -> None:
        """``replace n2 7``: another machine with an empty disk is in its place."""
        self._members[NodeId(name)] = Member(SimDisk(membership=Membership(int(incarnation))))
        self._start(NodeId(name))

    def do_hold_syncs(self, name: str) -> None:
        """``hold-syncs n0``: its disk writes, and syncs nothing."""
        self._members[NodeId(name)].holds_syncs = True

    def do_sync(self, name: str) -> None:
        """``sync n0``: its disk syncs again."""
        self._members[NodeId(name)].holds_syncs = False
        self._sync(NodeId(name))

    def do_transfer(self, name: str, to: str) -> None:
        """``transfer n0 n1``: n0 hands the leadership over."""
        self._call(NodeId(name), self._node(name).transfer(NodeId(to), self._now_ms))

    def do_read_index(self, name: str, token: str) -> None:
        """``read-index n0 7``: a linearizable read."""
        self._call(NodeId(name), self._node(name).read_index(int(token), self._now_ms))

    def do_forget(self, name: str, begin: str) -> None:
        """``forget n0 5``: retention takes all in front of entry 5."""
        self._node(name).forget(Index(int(begin)))

    def do_status(self, *names: str) -> None:
        """``status [n0]``: what each node is."""
        for name in names or tuple(self._members):
            node = self._members[NodeId(name)].node
            self._say(f"{name}: down" if node is None else f"{name}: {_status(node)}")

    def do_log(self, *names: str) -> None:
        """``log [n0]``: the entries of each disk."""
        for name in names or tuple(self._members):
            disk = self._members[NodeId(name)].disk
            self._say(f"{name}: {_entries(disk.entries)} durable {disk.durable}")

    # --- inside -----------------------------------------------------------------------------------

    def _say(self, line: str) -> None:
        self._lines.append(line)

    def _node(self, name: str) -> RaftNode:
        node = self._members[NodeId(name)].node
        assert node is not None, f"{name} is down"
        return node

    def _start(self, name: NodeId) -> None:
        member = self._members[name]
        disk = member.disk
        disk.durable = len(disk.entries)
        saved = SavedState(disk.hard_state, disk.summary(), disk.membership)
        member.node = RaftNode(
            self._config,
            name,
            saved=saved,
            dice=lambda n: 0,
            now_ms=self._now_ms,
            options=RaftOptions(change_of=change_of),
        )

    def _call(self, name: NodeId, ready: Ready) -> None:
        """Carry out what a node returns, in order, and print it."""
        member = self._members[name]
        disk = member.disk
        if ready.hard_state is not None:
            disk.hard_state = ready.hard_state
        if ready.membership is not None:
            disk.membership = ready.membership
        if ready.truncate_to is not None:
            self._say(f"{name} cuts behind {ready.truncate_to}")
            disk.truncate(ready.truncate_to)
            self._node(name).truncated(disk.end)
        if ready.append:
            self._say(f"{name} writes {_entries(ready.append)}")
            disk.append(ready.append)
        for fact in ready.facts:
            self._say(f"{name} notes {fact}")
        if ready.role is not None:
            led = "" if ready.role.leader_id is None else f", leader {ready.role.leader_id}"
            self._say(f"{name} is {ready.role.role.name} of term {ready.role.term}{led}")
        for message in ready.messages:
            if frozenset({name, message.remote_id}) not in self._cut:
                self._pool.append(message)
        self._tell(name, ready)
        for load in ready.load:
            found = [one for one in disk.entries if one.index >= load.begin_index]
            few = [one for one in found if one.end_pos <= found[0].pos + load.max_bytes]
            self._call(name, self._node(name).loaded(load.peer, few or found[:1], self._now_ms))
        if ready.append and not member.holds_syncs:
            self._sync(name)

    def _tell(self, name: NodeId, ready: Ready) -> None:
        if ready.committed is not None:
            self._say(f"{name} commits up to {ready.committed}")
        for done in ready.finished:
            self._say(f"{name} answers {done.first} to {done.last}: {done.code.name}")
        for read in ready.reads:
            self._say(f"{name} answers read {read.token}: {read.code.name} at {read.index}")
        if ready.transfer is not None:
            self._say(f"{name} transferred to {ready.transfer.to}: {ready.transfer.code.name}")
        if ready.install is not None:
            self._say(f"{name} needs a snapshot of {ready.install.leader_id}")

    def _sync(self, name: NodeId) -> None:
        member = self._members[name]
        if member.disk.entries and member.disk.durable < len(member.disk.entries):
            member.disk.durable = len(member.disk.entries)
            position = member.disk.end.position
            self._call(name, self._node(name).persisted(position, self._now_ms))

    def _deliver(self, message: PeerMessage) -> None:
        self._say(self._text(message))
        node = self._members[message.remote_id].node
        if node is not None:
            try:
                self._call(message.remote_id, node.step(message, self._now_ms))
            except SafetyViolation as violation:
                self._say(f"{message.remote_id} halts: {violation.fact}")

    def _is(self, message: PeerMessage, way: str, kind: str) -> bool:
        sender, _, receiver = way.partition("->")
        return (message.local_id, message.remote_id) == (sender, receiver) and type(
            message
        ).__name__.startswith(kind)

    def _first(self, way: str, kind: str) -> PeerMessage:
        found = [message for message in self._pool if self._is(message, way, kind)]
        assert found, f"no {kind or 'message'} {way}; there are {list(map(self._text, self._pool))}"
        return found[0]

    def _text(self, message: PeerMessage) -> str:
        shown = [
            f"{one.name}={_value(value)}"
            for one in fields(message)
            if one.name not in HIDDEN
            and (one.default is MISSING or getattr(message, one.name) != one.default)
            and (value := getattr(message, one.name)) not in ((), "", message.local_id)
        ]
        head = f"{message.local_id}->{message.remote_id} {type(message).__name__}"
        return " ".join([head, *shown])


def _is_beat(line: str) -> bool:
    return line.split()[1] in BEATS


def _status(node: RaftNode) -> str:
    return (
        f"{node.role.name} term {node.term} leader {node.leader_id} log [{node.begin_index}, "
        f"{node.end_index}] durable {node.durable_index} committed {node.committed_index}"
        f" voted {node.hard_state.voted_for}"
    )


def _entries(entries: Iterable[Entry]) -> str:
    return "[" + ", ".join(map(_entry, entries)) + "]"


def _entry(entry: Entry) -> str:
    body = "NOOP" if entry.magic == MAGIC_NOOP else bytes(entry.body).decode()
    return f"{entry.index}@{entry.term} {body}"


def _value(value: Any) -> str:
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, Position):
        return f"{value.index}@{value.term}"
    if isinstance(value, tuple | Entries):
        return _entries(value)
    return str(value)
