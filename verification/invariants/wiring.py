"""How the watch comes to see a node from outside: it stands between the node's parts, and changes
nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dledger.catalog.results import CommandResult, DataResult
from dledger.errors import CorruptEntry
from dledger.node.loop.ready_loop import Link
from dledger.node.node import NodeServer
from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.entry import Entry
from dledger.protocol.messages.entry_runs import EntryRun
from dledger.protocol.messages.peer import PeerMessage
from dledger.raft.state.ready import Ready
from dledger.types import Buffer, Index, NodeId, Role
from verification.invariants.reads import leads_with_quorum
from verification.invariants.retention import is_tight
from verification.invariants.view import WatchedNode
from verification.invariants.watch import Watch


class WatchedLink:
    """Tells the watch what a link is given."""

    def __init__(self, watch: Watch, view: WatchedNode, link: Link) -> None:
        self._watch = watch
        self._name = NodeId(view.name)
        self._link = link
        self.flush = link.flush

    def send(self, message: PeerMessage) -> None:
        self._watch.sent(self._name, message.remote_id, message)
        self._link.send(message)


class WatchedLinks(Mapping[NodeId, Link]):
    """A node's links, as they are at any time: they come and go with the list of members."""

    def __init__(self, watch: Watch, view: WatchedNode, links: Mapping[NodeId, Link]) -> None:
        self._watch = watch
        self._view = view
        self._links = links
        self._watched: dict[NodeId, tuple[Link, WatchedLink]] = {}

    def __getitem__(self, peer: NodeId) -> Link:
        link, known = self._links[peer], self._watched.get(peer)
        if known is None or known[0] is not link:
            known = self._watched[peer] = link, WatchedLink(self._watch, self._view, link)
        return known[1]

    def __iter__(self) -> Iterator[NodeId]:
        return iter(self._links)

    def __len__(self) -> int:
        return len(self._links)


def attach(watch: Watch, node_id: NodeId, server: NodeServer) -> None:
    """Watch a node from its first event on: call this when its parts are made and none has been
    started."""
    view = watch.started(node_id, server)
    _attach_core(watch, view, server)
    _attach_store(watch, view, server)


def _attach_core(watch: Watch, view: WatchedNode, server: NodeServer) -> None:
    parts, raft = server.parts, server.raft
    ready_loop, proposals, links = parts.ready_loop, parts.proposals, parts.ready_loop.links
    carry_out, tick, read_index = ready_loop.carry_out, raft.tick, raft.read_index
    on_applied, on_applied_batches = proposals.applied, proposals.applied_batches

    def watched_carry_out(ready: Ready) -> None:
        watch.ready(view, ready)
        if ready.role is not None and ready.role.role is Role.LEADER:
            watch.check(watch.members.elected, view, watch.memories)
        carry_out(ready)

    def watched_tick(now_ms: int) -> Ready:
        ready = tick(now_ms)
        watch.check(leads_with_quorum, view, now_ms)
        return ready

    def watched_read_index(token: int, now_ms: int) -> Ready:
        watch.reads.asked(view, token)
        return read_index(token, now_ms)

    def watched_applied(entry: Entry, result: DataResult | CommandResult | None) -> None:
        watch.applied(view, entry, result)
        on_applied(entry, result)

    def watched_applied_batches(run: EntryRun, base_offsets: Sequence[int]) -> None:
        for at, base_offset in enumerate(base_offsets):
            watch.applied(view, run.entry(at), DataResult(Code.SUCCESS, base_offset))
        on_applied_batches(run, base_offsets)

    ready_loop.carry_out = watched_carry_out  # type: ignore[method-assign]
    ready_loop.links = WatchedLinks(watch, view, links)
    raft.tick = watched_tick  # type: ignore[method-assign]
    raft.read_index = watched_read_index  # type: ignore[method-assign]
    proposals.applied = watched_applied  # type: ignore[method-assign]
    proposals.applied_batches = watched_applied_batches  # type: ignore[method-assign]


def _attach_store(watch: Watch, view: WatchedNode, server: NodeServer) -> None:
    store: Any = server.store
    checkpoints: Any = server.checkpoints
    read, read_bodies, save = store.read, store.read_bodies, checkpoints.save
    truncate, retain = store.truncate, store.retain

    def watched_read(begin: Index, max_bytes: int, end: Index | None = None) -> list[Entry]:
        try:
            entries: list[Entry] = read(begin, max_bytes, end)
        except CorruptEntry as error:
            watch.check(watch.at_rest.called_damaged, view, error)
            raise
        watch.check(watch.storage.entries, view, entries)
        return entries

    def watched_read_bodies(refs: Sequence[tuple[int, int, int]]) -> list[Buffer]:
        bodies: list[Buffer] = read_bodies(refs)
        watch.check(watch.storage.bodies, view, refs, bodies)
        return bodies

    def watched_truncate(after: Index) -> None:
        truncate(after)
        watch.check(watch.at_rest.ends, view)

    def watched_retain(*asked: Any, **how: Any) -> Index:
        before, tight = store.begin_index, is_tight(view)
        begin: Index = retain(*asked, **how)
        if begin > before:
            watch.retained(view, begin, is_tight=tight)
        return begin

    def watched_save(data: bytes, index: Index, *rest: Any) -> None:
        watch.check(watch.storage.saved, view, data, index)
        save(data, index, *rest)

    holds = server.parts.retention.holds
    look = holds.look

    def watched_look() -> Any:
        view.held_from = watch.commands.held_from(view)
        return look()

    holds.look = watched_look  # type: ignore[method-assign]
    store.read, store.read_bodies = watched_read, watched_read_bodies
    store.truncate, store.retain = watched_truncate, watched_retain
    checkpoints.save = watched_save
