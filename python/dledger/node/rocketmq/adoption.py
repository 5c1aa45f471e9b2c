"""Putting a new group's node behind an old plain commit log: RocketMQ's smooth upgrade, in place or
in a copy.

In place, beside the old ``commitlog``, a directory is made under another name, with all that a node
needs in it; when that is durable it gets the name ``dledger-<id>``, and from then on the store is
adopted. Before that it is as it was, but that its last file may be closed by a blank, as a broker
does itself when a file is full. So an interrupted adoption is done again as a whole.

The group's log begins where the old one ends (dividedCommitlogOffset), with entry 0 of term 0,
which every member makes out of its own copy of the old log. It says how far each queue has come.
Members of which it differs have different old logs, and the chain of checksums keeps them from ever
taking an entry of each other.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dledger.errors import PathError
from dledger.node.rocketmq.dispatched import Dispatched
from dledger.protocol.messages.catalog_commands import AdoptCommitLog
from dledger.protocol.messages.entry import MAGIC_NORMAL, HardState, stamp
from dledger.protocol.wire import encode_command
from dledger.records.body.header import BodyHeader, BodyKind, encode_header
from dledger.rocketmq.dispatch.build_consume_queue import Reput
from dledger.rocketmq.store.files import make_directory, storing, sync_directory
from dledger.rocketmq.store.index_service import now_ms
from dledger.rocketmq.upgrade.adoption import STAGED, Adoption, close_last_file
from dledger.rocketmq.upgrade.old_commit_log import Adopted
from dledger.storage.disk.disk import RealDisk
from dledger.storage.offline.inspect import inspect_store
from dledger.storage.opening import open_settings
from dledger.storage.recovery.open_files import StoreSettings
from dledger.types import Index, NodeId, Term

FIRST_TERM: Final = Term(0)
MOST_QUEUES_BYTES: Final = 4 << 20
PIECE_BYTES: Final = 4 << 20
WITH: Final = """\
  with entry 0, which says how far each queue has come; it must be the same on every member
  with consume queues and index of the {messages:,} old messages, which stay where they are"""
REBORN: Final = """\
  where a topic was deleted its messages are back: in {some}. Of two with the same queue offset,
  because the topic was made again, the older one has it, and the other is found by place and key"""


@dataclass(frozen=True, slots=True)
class AdoptionPlan:
    """The work to be done."""

    adoption: Adoption
    group: str
    node_id: NodeId
    index_file_bytes: int
    is_done: bool = False
    """It is done already."""

    @property
    def directory(self) -> Path:
        """The node's."""
        return self.adoption.root / f"dledger-{self.node_id}"

    @property
    def first_body(self) -> bytes:
        """Of entry 0: the same for every member."""
        old = self.adoption
        command = AdoptCommitLog(
            divided_offset=old.divided_offset,
            fingerprint=old.fingerprint,
            store_ms=old.store_ms,
            queues=old.queues,
        )
        return encode_header(BodyHeader(BodyKind.COMMAND)) + encode_command(command)

    def steps(self) -> Iterator[str]:
        """The steps to be done, a line each."""
        old = self.adoption
        if not old.has_blank:
            room = old.divided_offset - old.end
            yield f"close {old.last_file} by a blank of {room:,} bytes at {old.end:,}"
            if old.tail:
                yield f"  it covers what stands there: {old.tail}"
        node = f"node {self.node_id} of group {self.group}"
        yield f"make {self.directory}: {node}, whose log begins at {old.divided_offset:,}"
        yield from WITH.format(messages=old.messages).split("\n")
        if old.reborn:
            more = f" and {len(old.reborn) - 3:,} more" if len(old.reborn) > 3 else ""
            yield from REBORN.format(some=", ".join(old.reborn[:3]) + more).split("\n")
        yield "nothing else of the store is changed"


def plan_adoption(
    adoption: Adoption, group: str, node_id: NodeId, index_file_bytes: int
) -> AdoptionPlan:
    """The plan for an old log (`dledger.rocketmq.upgrade.examine`); nothing is changed.

    Raises:
        PathError: its store belongs to a group already, or it has too many queues.
    """
    root = adoption.root
    nodes = sorted(path.name for path in root.glob("dledger-*") if path.is_dir())
    plan = AdoptionPlan(adoption, group, node_id, index_file_bytes, is_done=bool(nodes))
    if nodes:
        adopted = Adopted.load(root / nodes[0])
        state = inspect_store(root / nodes[0]).state if adopted is not None else None
        is_ours = state is not None and state.identity.group == group
        if nodes != [plan.directory.name] or not is_ours:
            raise PathError(
                f"{root} has {', '.join(nodes)} already, and is not adopted again: that is the "
                "log of another group or node, or of a broker in DLedger mode. Each member "
                "adopts a copy of the old store of its own"
            )
    largest = min(MOST_QUEUES_BYTES, adoption.file_size // 2)
    if len(plan.first_body) > largest:
        count = sum(map(len, adoption.queues.values()))
        raise PathError(
            f"{root} has {count:,} queues: what is to be said of them, {len(plan.first_body):,} "
            f"bytes, does not fit an entry of {largest:,}"
        )
    return plan


def adopt(plan: AdoptionPlan, reput: type[Reput] = Reput) -> None:
    """Carry it out. The caller holds the store's lock. It may be interrupted at any point, and
    called again.

    Args:
        reput: makes consume queues and index of the old messages.

    Raises:
        DiskFull, StorageError: there is no room for the node's files, or the disk failed; at most
            the old log's last file was closed.
    """
    if plan.is_done:
        return
    root = plan.adoption.root
    staged = root / f"{STAGED}{plan.node_id}"
    with storing("remove", staged):
        if staged.exists():
            shutil.rmtree(staged)
    try:
        _make_node(plan, staged, reput)
    except BaseException:
        shutil.rmtree(staged, ignore_errors=True)  # on a disk that is full its files are in the way
        raise
    with storing("rename", staged):
        staged.rename(plan.directory)
    sync_directory(root)


def _make_node(plan: AdoptionPlan, staged: Path, reput: type[Reput]) -> None:
    """All of a node's files, durable, and the old log's last file closed."""
    make_directory(staged)
    old = plan.adoption
    Adopted(old.divided_offset, old.file_size, old.fingerprint).save(staged)
    settings = StoreSettings(
        directory=staged,
        node_id=plan.node_id,
        group=plan.group,
        segment_bytes=old.file_size,
        index_file_bytes=plan.index_file_bytes,
        begin_pos=old.divided_offset,
    )
    store = open_settings(settings, RealDisk())
    try:
        store.save_hard_state(HardState(FIRST_TERM))
        store.append([stamp(store.end, FIRST_TERM, MAGIC_NORMAL, plan.first_body, old.file_size)])
        store.sync()
        store.save_hard_state(HardState(FIRST_TERM, None, Index(0)))
        close_last_file(old)
        files = Dispatched(staged, now_ms, reput=reput, lock=False)
        files.open(store)
        try:
            while files.is_behind:
                files.put_old(PIECE_BYTES)
        finally:
            files.close(store.durable.index, clean=not files.is_behind)
    finally:
        store.close()
