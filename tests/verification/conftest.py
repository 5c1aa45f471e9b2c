"""A group of three nodes that consist of nothing but the fields at which the invariants look."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from dledger.config import GroupConfig
from dledger.protocol.messages.entry import MAGIC_NORMAL, Entry, HardState, LogEnd
from dledger.protocol.messages.entry_runs import Entries, stamp_all
from dledger.raft.state.incarnations import Admission
from dledger.raft.state.log import LogSummary, RaftLog
from dledger.raft.state.ready import Ready
from dledger.storage.log.segments import SegmentFiles
from dledger.types import NO_INDEX, Buffer, Index, NodeId, Role, Term
from verification.disk.memory_store import owned
from verification.invariants.view import WatchedNode
from verification.invariants.watch import Watch

MEMBERS = (NodeId("n0"), NodeId("n1"), NodeId("n2"))


class FakeNode:
    """One node: everything may be set to anything."""

    def __init__(self, name: NodeId, config: GroupConfig, entries: tuple[Entry, ...] = ()) -> None:
        end = LogEnd.after(entries[-1]) if entries else LogEnd()
        terms: dict[Term, Index] = {}
        for entry in entries:
            terms.setdefault(entry.term, entry.index)
        term = end.position.term
        self.log = RaftLog(LogSummary(Index(0), end, tuple(terms.items()), NO_INDEX), 1 << 20)
        self.machine = SimpleNamespace(
            term=term,
            role=Role.CANDIDATE,
            voted_for=None,
            config=config,
            quorum=2,
            acting=None,
            me=name,
            voters=MEMBERS,
            peers=tuple(one for one in MEMBERS if one != name),
            joins=False,
            admission=Admission(name, Admission.of_all(MEMBERS), log=RaftLog(LogSummary(), 0)),
        )
        self.store = SimpleNamespace(
            durable=end.position,
            hard_state=HardState(term),
            begin_index=Index(0),
            terms=tuple(terms.items()),
            end=end,
            installed_index=NO_INDEX,
            recovery=SimpleNamespace(faulty=()),
        )
        self.catalog = SimpleNamespace(
            transactions=SimpleNamespace(writers=SimpleNamespace(find=lambda name: None, most=0)),
            applied_index=NO_INDEX,
            partitions={},
            topics_state=SimpleNamespace(by_name={}),
            snapshot=lambda: b"",
            consumer_groups=SimpleNamespace(by_name={}),
            version=SimpleNamespace(active=0),
            settings=SimpleNamespace(values={}),
            group_list=SimpleNamespace(members=()),
            digest=lambda: 0,
        )
        self.disk = SimpleNamespace(operations=0)
        self.server: Any = SimpleNamespace(
            raft=SimpleNamespace(_machine=self.machine, log=self.log),
            store=self.store,
            catalog=self.catalog,
            node=SimpleNamespace(flush="sync", joins=False),
            _error=None,
            _disk=self.disk,
        )
        self.name = name
        self.view: WatchedNode = None  # type: ignore[assignment]


class FakeGroup:
    """The nodes, up and in step with what the watch was told."""

    def __init__(self) -> None:
        self.config = GroupConfig(members=MEMBERS)
        self.now_ms = 0
        self.watch = Watch(self.config, lambda: self.now_ms)
        self.nodes = {name: self.start(name) for name in MEMBERS}

    def start(
        self,
        name: str,
        entries: tuple[Entry, ...] = (),
        faulty: tuple[int, ...] = (),
        **changed: Any,
    ) -> FakeNode:
        """A node comes up with these entries, those from the first to the last of ``faulty``
        damaged; ``changed`` are fields of its machine."""
        node = FakeNode(NodeId(name), self.config, entries)
        if faulty:
            node.store.recovery.faulty = (SimpleNamespace(first=faulty[0], last=faulty[1]),)
        for field, value in changed.items():
            setattr(node.machine, field, value)
        node.view = self.watch.started(node.name, node.server)
        return node

    def entries(self, term: int, count: int = 1, after: LogEnd | None = None) -> tuple[Entry, ...]:
        """Well made entries behind ``after``."""
        bodies, size = [b"body"] * count, self.config.segment_bytes
        made = stamp_all(after or LogEnd(), Term(term), MAGIC_NORMAL, bodies, size)
        return tuple(map(owned, made))

    def look(self, name: str) -> None:
        self.watch.after_event(NodeId(name))

    def ready(self, name: str, **effects: Any) -> None:
        """A call of the node's core has these effects."""
        self.watch.ready(self.nodes[NodeId(name)].view, Ready(**effects))

    def save(self, name: str, term: int, voted_for: str | None = None) -> None:
        """The node has this term and vote on its disk."""
        vote = NodeId(voted_for) if voted_for else None
        self.nodes[NodeId(name)].store.hard_state = HardState(Term(term), vote)

    def role(
        self, name: str, role: Role, term: int, voted_for: str | None = None, *, saved: bool = True
    ) -> None:
        """The node changes its role."""
        machine = self.nodes[NodeId(name)].machine
        machine.role, machine.term = role, Term(term)
        machine.voted_for = NodeId(voted_for) if voted_for else None
        if saved:
            self.save(name, term, voted_for)
        self.look(name)

    def lead(self, name: str, term: int) -> None:
        self.role(name, Role.LEADER, term, name)

    def append(self, entries: tuple[Entry, ...], *names: str) -> None:
        """The nodes take entries, and have them on their disks."""
        for name in names:
            node = self.nodes[NodeId(name)]
            node.log.append(Entries.of(entries))
            self.ready(name, append=entries)
            node.store.durable = node.log.end.position
            node.store.end = node.log.end
            node.log.durable_index = node.log.end_index
            self.look(name)

    def cut(self, name: str, after: int) -> None:
        self.nodes[NodeId(name)].log.truncate(Index(after))
        self.ready(name, truncate_to=Index(after))

    def count(self, name: str, index: int, **changed: int) -> None:
        """The node takes these incarnations for those that count, by that entry; the others are as
        they were founded."""
        bound = {NodeId(member): changed.get(member, 0) for member in self.nodes}
        self.nodes[NodeId(name)].machine.admission.bind(Index(index), bound.items())

    def lose_disk(self, name: str) -> None:
        self.watch.ended(NodeId(name))
        self.watch.lost_disk(NodeId(name))

    def on_disks(self, *names: str, term: int = 1) -> tuple[Entry, ...]:
        """n0 leads that term, and its first two entries are on the disks of these nodes."""
        self.lead("n0", term)
        entries = self.entries(term, 2)
        self.append(entries, *names)
        return entries

    def commit(self, name: str, index: int) -> None:
        self.nodes[NodeId(name)].log.committed_index = Index(index)
        self.look(name)

    def replicate(self, term: int = 1, count: int = 3, leader: str = "n0") -> tuple[Entry, ...]:
        """A leader of ``term`` puts entries on all disks and all commit them."""
        self.lead(leader, term)
        entries = self.entries(term, count, self.nodes[NodeId(leader)].log.end)
        self.append(entries, *MEMBERS)
        for name in (leader, *MEMBERS):
            self.commit(name, entries[-1].index)
        return entries


@pytest.fixture
def marked_only_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """A write marks its file unsynced before it begins, and not again when it has ended."""

    def pwritev(files: SegmentFiles, offset: int, buffers: Sequence[Buffer]) -> None:
        with files._lock:
            files._dirty.add(offset - offset % files.file_size)
        files.file(offset).pwritev(buffers, offset % files.file_size)

    monkeypatch.setattr(SegmentFiles, "pwritev", pwritev)


@pytest.fixture
def group() -> FakeGroup:
    return FakeGroup()
