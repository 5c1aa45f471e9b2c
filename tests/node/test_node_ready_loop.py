"""The order in which a node carries out what its core wants."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from dledger.config import GroupConfig, NodeConfig
from dledger.errors import StorageError
from dledger.node.events import NodeEvents
from dledger.node.loop.ready_loop import ReadyLoop
from dledger.protocol.messages.entry import HardState, LogEnd
from dledger.protocol.messages.entry_runs import Entries, stamp_all
from dledger.raft.state.ready import Ready
from dledger.storage.file_store import FileStore
from dledger.storage.opening import open_store
from dledger.types import Index, NodeId, Term
from tests.node.bodies import heartbeat
from verification.disk.memory_disk import MemoryDisk


def entries_behind(end: LogEnd, term: int, count: int) -> Entries:
    bodies = [f"{number} of {term}".encode() for number in range(count)]
    return stamp_all(end, Term(term), 1, bodies, 1 << 20)


def open_memory_store() -> FileStore:
    group = GroupConfig(segment_bytes=1 << 20, index_file_bytes=32 << 10, max_body_bytes=1 << 16)
    store = open_store(
        group, NodeConfig(node_id=NodeId("n0"), directory=Path("/node")), MemoryDisk()
    )
    assert isinstance(store, FileStore)
    store.save_hard_state(HardState(Term(2), None, Index(-1)))
    return store


async def test_d7_a_commit_is_not_noted_before_what_it_replaces_is_cut() -> None:
    """The former leader's tail is cut, and the new leader's entry in its place committed, by one
    push. A store that is told of the commit while it still has the old entry would keep that for
    ever, and call it committed."""
    store = open_memory_store()
    old = entries_behind(LogEnd(), 1, 5)
    new = entries_behind(LogEnd.after(old[2]), 2, 1)
    told, failed = [], []
    asked, may_cut = threading.Event(), threading.Event()
    cut = store.truncate

    def truncate(after: Index) -> None:
        asked.set()
        may_cut.wait()
        cut(after)

    store.truncate = truncate  # type: ignore[method-assign]
    done = asyncio.Event()

    def on_committed(index: Index) -> None:
        store.note_commit(index)
        told.append((index, store.end.position.term))
        done.set()

    raft: Any = SimpleNamespace(
        set_watched=bool,
        truncated=lambda end: None,
        persisted=lambda position, now: Ready(),
        deadline_ms=lambda: 1 << 60,
    )
    links: Any = {}
    events = NodeEvents()
    events.committed.subscribe(on_committed)
    events.fatal.subscribe(failed.append)
    ready_loop = ReadyLoop(raft, store, links=links, events=events)
    ready_loop.start()
    ready_loop.carry_out(Ready(append=old))
    ready_loop.carry_out(Ready(truncate_to=Index(2), append=new, committed=Index(3)))
    await asyncio.to_thread(asked.wait)
    assert told == [], "the old entry 3 was taken for the committed one"
    may_cut.set()
    async with asyncio.timeout(20):
        await done.wait()
    await ready_loop.stop()
    assert failed == []
    assert told[0][0] == 3
    assert store.end == LogEnd.after(new[0])
    assert store.hard_state.commit_hint <= 3
    store.close()


async def test_d2_a_node_that_cannot_apply_what_is_committed_sends_nothing_more() -> None:
    """The disk of the topic index fails while a commit is told: what the same call wanted to send
    stays unsent."""
    sent, failed = [], []
    raft: Any = SimpleNamespace(deadline_ms=lambda: 1 << 60, set_watched=bool)
    links: Any = {NodeId("n1"): SimpleNamespace(send=sent.append, flush=lambda: None)}
    events = NodeEvents()
    events.committed.subscribe(lambda index: ready_loop.fail(StorageError("the disk failed")))
    events.fatal.subscribe(failed.append)
    store: Any = SimpleNamespace()
    ready_loop = ReadyLoop(raft, store, links=links, events=events)
    ready_loop.carry_out(Ready(committed=Index(3), messages=(heartbeat(1),)))
    await ready_loop.stop()
    assert [str(error) for error in failed] == ["the disk failed"]
    assert sent == []
