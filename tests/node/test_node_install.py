"""A member that needs entries which retention has deleted everywhere: it takes over the leader's
state and goes on."""

from __future__ import annotations

import asyncio
import logging
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dledger.errors import CorruptEntry, CorruptStore, OffsetOutOfRange
from dledger.node.snapshot.image import Image, Unpacker
from dledger.node.snapshot.receiver import SnapshotReceiver
from dledger.node.snapshot.sender import KEPT_MS, PIECES_A_SECOND
from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.snapshot import SnapshotRequest, SnapshotResponse
from dledger.raft.state.ready import IDLE
from dledger.storage.recovery.snapshot_install import Staging
from dledger.types import Index, NodeId
from tests.node.bodies import entries_of
from tests.node.damaging import damage
from tests.node.trimming import (
    KIB,
    SMALL,
    awake,
    equal,
    expected,
    payload,
    read_all,
    stop_sound,
    trimmed,
    write,
    write_trimmed,
)
from verification.disk.memory_disk import MemoryDisk

pytestmark = pytest.mark.group(1, **SMALL)


async def wiped(group: Any) -> tuple[str, int]:
    """A follower whose directory is gone, behind the retention of the others; not started again."""
    topic = await write_trimmed(group)
    name = (await group.follower()).node.node_id
    await group.stop(name)
    shutil.rmtree(group.folder / name)
    return name, topic


@pytest.mark.group(**SMALL)
async def test_wiped_member_takes_over_state_and_counts_when_admitted_again(
    group: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Retention has removed the first entries that the member would need."""
    caplog.set_level(logging.WARNING, "dledger")
    name, topic = await wiped(group)
    node, leader = await group.start(name), await group.leader()
    await equal(group)
    assert 0 < node.store.begin_index == leader.store.begin_index
    assert node.raft.committed_index == leader.raft.committed_index
    assert await read_all(group, node, topic) == expected(node, topic, 60)
    assert not node.raft.is_admitted, "state does not admit"
    assert "takes over the catalog as of entry" in caplog.text

    assert (await group.admit(name)).code is Code.SUCCESS
    await group.until(lambda: node.raft.is_admitted)
    await group.kill(next(n for n in group.nodes if n not in {name, leader.node.node_id}))
    await write(group, 60, 70)
    await equal(group)
    assert await read_all(group, node, topic) == expected(node, topic, 70)
    await stop_sound(group, name)
    await group.start(name)
    await equal(group)


@pytest.mark.group(**SMALL)
@pytest.mark.parametrize("applied", [True, False], ids=["applied", "not applied"])
async def test_damage_without_any_copy_is_removed_and_rest_of_log_stays(
    group: Any, caplog: pytest.LogCaptureFixture, applied: bool
) -> None:
    """A damaged entry that is applied needs no catalog; one that is not needs the state that comes
    of it. What the node has behind the damage, and has acknowledged, stays in either case."""
    caplog.set_level(logging.WARNING, "dledger")
    topic = await write(group, 0, 6)
    await group.agree()
    entries = entries_of((await group.leader()).store)
    victim = next(entry.index for entry in entries if payload(3) in bytes(entry.body))
    name = (await group.follower()).node.node_id
    await (group.stop(name) if applied else group.kill(name))
    damage(group.folder / name, payload(3))
    node = await group.start(name, scrub_bytes_per_s=0, checkpoint_bytes=1 << 30, retention_bytes=0)
    node.parts.repairs._send = lambda message: None  # nobody is asked before nobody can help
    incarnation = node.store.membership.incarnation
    await write(group, 6, 60)
    others = [other for other in group.nodes if other != name]
    await trimmed(group, *others)
    end = node.raft.end_index
    assert node.store.begin_index == 0
    if applied:
        await group.agree()
        node.parts.events.damage(CorruptEntry("found by the scrub", victim))
    assert not node.raft._machine.can_lead
    node.parts.repairs._send = node.parts.peers.send
    await group.until(lambda: group.nodes[name].store.begin_index > 0)
    await awake(node)
    await equal(group)
    await group.until(lambda: not node.parts.repairs.status()["faulty"])
    assert node.raft.end_index >= end
    assert node.store.membership.incarnation == incarnation
    assert node.raft.is_admitted
    assert node.raft._machine.can_lead
    assert await read_all(group, node, topic) == expected(node, topic, 60)
    assert ("takes over no catalog" in caplog.text) is applied
    await stop_sound(group, name)


@pytest.mark.group(**SMALL)
async def test_node_with_catalog_ahead_of_log_serves_nothing_and_survives_kill(
    group: Any,
) -> None:
    """Its admission stands in the catalog that it takes over; the records that this tells of are
    still to come."""
    name, topic = await wiped(group)
    leader = await group.leader()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SnapshotReceiver, "wanted", lambda *_: None)
        await group.start(name)
        incarnation = group.nodes[name].store.membership.incarnation
        await group.until(lambda: leader.raft.heard.get(NodeId(name)) == incarnation)
        assert (await group.admit(name)).code is Code.SUCCESS
    node, old = group.nodes[name], group.nodes[name].raft
    await group.until(lambda: node._restarting is not None)
    await awake(node)
    assert node.raft is not old
    node.raft.step = lambda message, now_ms: IDLE  # the log does not come
    assert node.catalog.members[name] == node.store.membership.incarnation == incarnation
    assert node.raft.committed_index < node.catalog.applied_index
    assert node.raft.is_admitted
    answer, _ = await (await group.client(node)).fetch(topic, node.catalog.begin_offset(topic, 0))
    assert answer.code is Code.BEHIND
    node = await group.restart(name, kill=True)
    await equal(group)
    assert node.raft.is_admitted
    assert await read_all(group, node, topic) == expected(node, topic, 60)


@pytest.mark.group(disks=MemoryDisk, **SMALL)
@pytest.mark.parametrize(
    "part", ["snapshot", "data"], ids=["while it comes", "when it is taken over"]
)
async def test_a_full_disk_gives_the_state_up_and_keeps_the_node(group: Any, part: str) -> None:
    topic = await write_trimmed(group)
    name = (await group.follower()).node.node_id
    await group.stop(name)
    disk = group.disks[name] = MemoryDisk()
    node = await group.start(name)
    writes: list[Path] = []
    write_file = Staging._write

    def full(self: Staging, path: Path, data: bytes, size: int) -> None:
        if path.parent.name == part:
            writes.append(path)
            raise OSError(28, "No space left on device")
        write_file(self, path, data, size)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Staging, "_write", full)
        await group.until(lambda: writes)
        await awake(node)
        await group.until(lambda: node.parts.snapshots.receiver.status() is None)
    await equal(group)
    assert await read_all(group, node, topic) == expected(node, topic, 60)
    assert not [path for path in disk.names if path.suffix == ".install"]


@pytest.mark.group(**SMALL)
async def test_only_a_leader_whose_catalog_has_what_is_gone_gives_its_state(group: Any) -> None:
    await write(group, 0, 3)
    await group.agree()
    leader, follower = await group.leader(), await group.follower()
    said, refused = answers_of(leader), answers_of(follower)
    follower.parts.snapshots.sender.serve(asked_by(follower))
    assert refused.pop().code is Code.NOT_LEADER
    serve = leader.parts.snapshots.sender.serve
    applied, leader.catalog.applied_index = leader.catalog.applied_index, Index(-1)
    serve(asked_by(leader))
    assert said.pop().code is Code.LEADER_NOT_READY
    leader.catalog.applied_index = applied
    serve(asked_by(leader, 2))
    assert said.pop().code is Code.INDEX_LESS_THAN_LOCAL_BEGIN, (
        "an image that nobody has begun with"
    )
    assert leader.parts.snapshots.sender.floor is None
    serve(asked_by(leader))
    await group.until(lambda: said)
    piece = said.pop()
    assert (piece.code, len(piece.data)) == (Code.SUCCESS, 100)
    assert leader.parts.snapshots.sender.floor == 0, "what the image begins with stays"
    serve(asked_by(leader, piece.last_included_index, piece.size - 5))
    assert len(said.pop().data) == 5


@pytest.mark.group(1)
async def test_pieces_of_a_state_are_as_far_apart_as_the_limit_says(
    group: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, said, index = await given(group)
    sender, limit, now_s = node.parts.snapshots.sender, 1000, 0.0
    waits: list[float] = []

    def at_once(wait_s: float, call: Any, *arguments: Any) -> None:
        nonlocal now_s
        waits.append(wait_s)
        now_s += wait_s
        call(*arguments)

    monkeypatch.setattr(node.raft.leader.pace, "limit_of", lambda peer, now_ms: limit)
    monkeypatch.setattr(sender, "_loop", SimpleNamespace(call_later=at_once))
    monkeypatch.setattr(sender, "_now_ms", lambda: round(now_s * 1000))
    for _ in range(20):
        sender.serve(asked_by(node, index, 0, 10_000))
    sizes = [len(piece.data) for piece in said]
    assert max(sizes) <= limit // PIECES_A_SECOND, "a piece that would be asked for again"
    assert sum(sizes) / sum(waits) == pytest.approx(limit, rel=0.2)


def asked_by(node: Any, index: int = -1, offset: int = 0, max_bytes: int = 100) -> SnapshotRequest:
    return SnapshotRequest(
        group="test",
        local_id=node.node.node_id,
        remote_id=node.node.node_id,
        last_included_index=Index(index),
        offset=offset,
        max_bytes=max_bytes,
    )


def answers_of(node: Any) -> list[SnapshotResponse]:
    """What a node says from now on to those who ask for its state."""
    said: list[SnapshotResponse] = []
    node.parts.snapshots.sender._peers = SimpleNamespace(send=said.append)
    return said


async def given(group: Any) -> tuple[Any, list[SnapshotResponse], Index]:
    """The only node, what it says, and the index of the state that is being fetched from it."""
    await write(group, 0, 3)
    node = await group.leader()
    said = answers_of(node)
    node.parts.snapshots.sender.serve(asked_by(node))
    await group.until(lambda: said)
    return node, said, said.pop().last_included_index


async def test_piece_of_state_is_never_larger_than_a_frame_for_any_request(
    group: Any,
) -> None:
    node, said, index = await given(group)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dledger.node.snapshot.sender.PIECE_BYTES", 64)
        for max_bytes in (0, 1, 64, 65, 1 << 40):
            node.parts.snapshots.sender.serve(asked_by(node, index, max_bytes=max_bytes))
    assert [len(piece.data) for piece in said] == [1, 1, 64, 64, 64]


async def test_a_state_is_kept_as_long_as_its_pieces_are_asked_for_and_no_longer(
    group: Any,
) -> None:
    node, said, index = await given(group)
    images = node.parts.snapshots.sender
    now_ms = images._given[node.node.node_id].used_ms
    images._now_ms = lambda: now_ms
    first = images.floor
    assert first == node.store.begin_index
    for offset in range(5):
        now_ms += KEPT_MS
        assert images.floor == first, "what the state begins with stays"
        images.serve(asked_by(node, index, offset))
        assert said.pop().code is Code.SUCCESS
    now_ms += KEPT_MS + 1
    assert images.floor is None
    images.serve(asked_by(node, index, 5))
    assert said.pop().code is Code.INDEX_LESS_THAN_LOCAL_BEGIN


async def test_state_begins_anew_on_request_when_its_first_entry_is_gone(
    group: Any,
) -> None:
    """Retention goes on meanwhile: that is no failure of the disk."""
    await write(group, 0, 3)
    node = await group.leader()
    images, store, said = node.parts.snapshots.sender, node.store, answers_of(node)

    def gone(begin: Index, *_: object) -> Any:
        raise OffsetOutOfRange(f"entry {begin} is not kept any more", begin + 1, begin + 2)

    images._store = SimpleNamespace(begin_index=store.begin_index, read=gone)
    images.serve(asked_by(node))
    await group.until(lambda: not images._beginning)
    assert (node.parts.ready_loop.failed, said) == (False, [])
    images._store = store
    images.serve(asked_by(node))
    await group.until(lambda: said)
    assert said[0].code is Code.SUCCESS


async def test_a_node_that_stops_neither_gives_nor_takes_a_state(group: Any) -> None:
    await write(group, 0, 3)
    node = await group.leader()
    said = answers_of(node)
    node.parts.snapshots.stop()
    node.parts.snapshots.receiver.on_message(asked_by(node, 2))
    assert said == []


def image_of(node: Any) -> bytes:
    entry = node.store.read(node.store.begin_index, 1)[0]
    image = Image(node.catalog, node.store.begin, first=entry)
    data = b"".join(image.read(at, 1000) for at in range(0, image.size, 1000))
    assert len(data) == image.size
    return data


def unpacked(data: bytes, step: int = 777) -> Unpacker:
    disk, root = MemoryDisk(), Path("/disk/n9")
    for name in ("data", "tables", "snapshot"):
        disk.mkdir(root / name)
    unpacker = Unpacker(Staging(root, disk, segment_bytes=64 * KIB))
    for at in range(0, len(data), step):
        unpacker.feed(data[at : at + step])
    return unpacker


async def test_an_image_that_is_cut_too_long_or_changed_anywhere_is_refused(group: Any) -> None:
    """What of it is not rows has checksums of its own. Rows have them where they are read and on
    their way, and how many there are, and where they end, has to fit the catalog."""
    await write(group, 0, 25)
    await trimmed(group)
    await group.agree()
    node = await group.leader()
    data = image_of(node)
    unpacker = unpacked(data)
    unpacker.check()
    head = unpacker.head
    assert head is not None
    assert head.first.index == node.store.begin_index > 0
    for wrong in (data[:-1], data[:50], data + b"x", b""):
        with pytest.raises((CorruptStore, CorruptEntry)):
            unpacked(wrong).check()
    length = int.from_bytes(data[:4], "big")
    rows = len(data) - sum((end - first) * 56 for _, first, end in head.tables)
    bytes_before = len(data) - 56 + 40
    for at in (*range(4 + length, rows, 97), bytes_before):
        changed = bytearray(data)
        changed[at] ^= 0x10
        with pytest.raises((CorruptStore, CorruptEntry)):
            unpacked(bytes(changed)).check()
    await asyncio.sleep(0)
