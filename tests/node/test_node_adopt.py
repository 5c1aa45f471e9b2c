"""A group behind an old plain commit log: old and new messages are one log, over the border and
back."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from dledger.cli.main import main
from dledger.errors import ConfigError, PathError
from dledger.node.rocketmq import reput_service as reput
from dledger.node.rocketmq.adoption import adopt, plan_adoption
from dledger.node.rocketmq.dispatch_mark import MARK_FILE
from dledger.node.rocketmq.dispatched import ROOT
from dledger.protocol.messages.codes import Code
from dledger.rocketmq.files.layout import open_store
from dledger.rocketmq.files.storage import Storage
from dledger.rocketmq.format.message import Message, TransactionType
from dledger.rocketmq.store.consume_queues import ConsumeQueues
from dledger.rocketmq.store.message_store import MessageStore
from dledger.rocketmq.store.store_lock import StoreLock
from dledger.rocketmq.upgrade.adoption import copy_store
from dledger.rocketmq.upgrade.examine import examine
from dledger.rocketmq.upgrade.old_commit_log import ADOPTED_FILE, Adopted
from dledger.storage.opening import open_store as open_log
from dledger.types import Index, NodeId
from tests.node import putting
from tests.node.damaging import flip
from tests.node.putting import get, number_of, put, query, reput_of, rows_of, view
from tests.node.trimming import checkpointed, trimmed

KIB = 1 << 10
SIZES = {"segment_bytes": 64 * KIB, "index_file_bytes": 32 * KIB, "max_body_bytes": 16 * KIB}

pytestmark = pytest.mark.group(start=False, commit_log="rocketmq", **SIZES)
OLD = 400


message = partial(putting.message, size=300)


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of a broker that was stopped: two topics, four queues, and a transaction."""
    root = tmp_path_factory.mktemp("old") / "store"
    with MessageStore(root, file_size=64 * KIB) as store:
        store.put_messages(message(n, ("orders", "bills")[n % 2], n // 2 % 2) for n in range(OLD))
        store.put_message(message(OLD, "orders", 0, sys_flag=int(TransactionType.PREPARED)))
    return root


def place_of(root: Path, number: int) -> int:
    with MessageStore(root, file_size=64 * KIB) as store:
        (found,) = store.messages_with_key(("orders", "bills")[number % 2], f"u{number}")
    return found.physical_offset


def adopted(old: Path, folder: Path, name: str = "n0", group: str = "test") -> Path:
    """A copy of the store, adopted; its root."""
    root = folder / f"store-{name}"
    copy_store(old, root)
    adopt(plan_adoption(examine(root), group, NodeId(name), 32 * KIB))
    return root


async def start(
    group: Any, old: Path, *names: str, adopting: bool = True, settled: bool = True, **settings: Any
) -> None:
    """Start these members, or all, each behind a copy of the old log; ``settled``: with its
    messages in the queues."""
    for name in names or group.config.members:
        if adopting:
            adopted(old, group.folder, name)
        await group.start(
            name, directory=group.folder / f"store-{name}" / f"dledger-{name}", **settings
        )
        files = reput_of(group.nodes[NodeId(name)]).files
        if settled:
            await group.until(lambda files=files: files._is_open and not files.is_behind)


async def pull(client: Any, topic: str, queue_id: int, *, stale: bool = False) -> list[Message]:
    """A queue from its first message on."""
    found: list[Message] = []
    at = -1
    while True:
        answer, some = await get(client, at, topic, queue_id, stale=stale)
        found += some
        if answer.next_begin_offset == answer.max_offset:
            return found
        at = answer.next_begin_offset


async def check(client: Any, new: int) -> None:
    """Every message, the old ones and ``new`` behind them, by queue offset, place and key."""
    seen = 0
    for topic in ("orders", "bills"):
        for queue_id in (0, 1):
            found = await pull(client, topic, queue_id)
            assert [one.queue_offset for one in found] == list(range(len(found)))
            numbers = [number_of(one.body) for one in found]
            assert numbers == sorted(numbers)
            seen += len(found)
            for one in (*found[:3], *found[-3:]):
                assert await view(client, one.physical_offset) == one
                assert await query(client, f"u{number_of(one.body)}", topic) == [one]
    assert seen == OLD + new


def more(first: int, count: int) -> list[Message]:
    return [message(n, ("orders", "bills")[n % 2], n // 2 % 2) for n in range(first, first + count)]


async def test_old_and_new_messages_are_one_log_by_place_queue_offset_and_key(
    group: Any, old: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await start(group, old)
    client = await group.client()
    await check(client, 0)
    told = {
        reput_of(node).status()["old_commit_log"]["fingerprint"] for node in group.nodes.values()
    }
    assert told == {f"{examine(old).fingerprint:08x}"}
    answer = await put(client, *more(1000, 8))
    assert answer.queue_offsets == (100, 100, 100, 100, 101, 101, 101, 101)
    border = Adopted.load(group.nodes[NodeId("n0")].node.directory).divided_offset
    assert min(answer.physical_offsets) > border
    await check(client, 8)
    await group.stop()
    await start(group, old, adopting=False)
    await check(await group.client(), 8)
    assert "are made from entry" not in caplog.text, (
        "queues that an adoption or a node has made are not made again"
    )


async def test_nodes_that_were_killed_or_lost_their_queues_show_both_logs_again(
    group: Any, old: Path
) -> None:
    await start(group, old)
    await put(await group.client(), *more(1000, 8))
    await group.kill()
    (group.folder / "store-n0" / "dledger-n0" / ROOT / MARK_FILE).unlink()
    shutil.rmtree(group.folder / "store-n1" / "dledger-n1" / ROOT / "consumequeue")
    shutil.rmtree(group.folder / "store-n2" / "dledger-n2" / ROOT / "index")
    await start(group, old, adopting=False)
    client = await group.client()
    await put(client, *more(1008, 8))
    await check(client, 16)
    await group.agree()
    for node in group.nodes.values():
        await group.until(lambda node=node: reput_of(node).dispatched_index == node.raft.end_index)
        other = await group.client(node)
        assert (
            sum([len(await pull(other, "orders", queue, stale=True)) for queue in (0, 1)])
            == (OLD + 16) // 2
        )
        place = place_of(old, 3)
        assert (await view(other, place, stale=True)).physical_offset == place
        # also of a node that does not lead, and is asked for no key
        index = reput_of(node).files.index
        assert [index.lookup(("orders", "bills")[n % 2], f"u{n}") for n in (0, 3)] == [
            [place_of(old, 0)],
            [place],
        ]


@pytest.mark.group(1, start=False, commit_log="rocketmq", checkpoint_bytes=8 * KIB, **SIZES)
async def test_node_killed_while_putting_old_messages_goes_on_with_them(
    group: Any, old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reput, "READ_BYTES", 8 * KIB)
    root = adopted(old, group.folder)
    shutil.rmtree(root / "dledger-n0" / ROOT)
    for stop in (group.kill, group.stop):
        await start(group, old, adopting=False, settled=False)
        files = reput_of(group.nodes["n0"]).files
        await group.until(lambda files=files: files._is_open and files._old_at)
        assert files.is_behind
        await stop("n0")
    await start(group, old, adopting=False)
    client = await group.client()
    await group.until(lambda: not reput_of(group.nodes["n0"]).files.is_behind)
    await check(client, 0)


async def test_member_without_old_log_takes_nothing_until_it_has_adopted_it(
    group: Any, old: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await start(group, old)
    client = await group.client()
    await put(client, *more(1000, 4))
    lost = (await group.follower()).node.node_id
    await group.kill(lost)
    shutil.rmtree(group.folder / f"store-{lost}")
    await start(group, old, lost, adopting=False)
    await group.until(lambda: "each member must have adopted the same one" in caplog.text)
    await put(await group.client(), *more(1004, 4))
    assert group.nodes[NodeId(lost)].store.end.position.index == -1
    await group.stop(lost)
    shutil.rmtree(group.folder / f"store-{lost}")
    await start(group, old, lost)
    client = await group.client()
    await group.until(lambda: group.nodes[NodeId(lost)].store.end.position.index > 0)
    assert (await group.admit(lost)).code is Code.SUCCESS
    await group.agree()
    await check(client, 8)


async def test_a_member_with_another_old_log_never_takes_an_entry_of_the_others(
    group: Any, old: Path, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    copy_store(old, other)
    with MessageStore(other, file_size=64 * KIB) as store:
        store.put_message(message(OLD + 2, "orders", 1))
    await start(group, old)
    await put(await group.client(), *more(1000, 4))
    name = (await group.follower()).node.node_id
    await group.kill(name)
    shutil.rmtree(group.folder / f"store-{name}")
    await start(group, other, name)
    odd, leader = group.nodes[name], await group.leader(but=name)
    await group.until(lambda: "each member must have adopted the same one" in caplog.text)
    client = await group.client(leader)
    await put(client, *more(1004, 4))
    await check(client, 8)
    assert odd.raft.committed_index == 0
    assert (
        odd.catalog.queues.next["orders", 1] == 101 == leader.catalog.queues.next["orders", 1] - 1
    )


def log_folder(root: Path) -> Path:
    """Of a store's old log, or of a node's own."""
    return next(root / name for name in ("commitlog", "data") if (root / name).is_dir())


def old_files(root: Path) -> list[int]:
    return sorted(int(path.name) for path in log_folder(root).iterdir())


def age(root: Path, hours: int, *starts: int) -> None:
    """Let files have been written so long ago."""
    for start in starts:
        path = log_folder(root) / f"{start:020d}"
        now = path.stat().st_mtime
        os.utime(path, (now, now - hours * 3600))


@pytest.mark.group(
    start=False, commit_log="rocketmq", retention_ms=3_600_000, checkpoint_bytes=64 * KIB, **SIZES
)
async def test_retention_takes_the_old_files_first_then_those_of_the_group(
    group: Any, old: Path
) -> None:
    await start(group, old)
    starts = old_files(group.folder / "store-n0")
    border = starts[-1] + 64 * KIB
    client = await group.client()
    await put(client, *more(1000, 8))
    for start_at in range(1008, 1708, 50):
        await put(client, *more(start_at, 50))
    for name in group.nodes:
        age(group.folder / f"store-{name}", 2, *starts[:2])
    nodes = list(group.nodes.values())
    values = [reput_of(node).status for node in nodes]
    await group.until(
        lambda: all(one()["old_commit_log"]["min_offset"] == starts[2] for one in values)
    )
    assert await view(client, starts[0]) is Code.OFFSET_OUT_OF_RANGE
    found = await pull(client, "orders", 0)
    assert found[0].physical_offset >= starts[2]
    assert found[0].queue_offset > 0
    assert [one.queue_offset for one in found] == list(
        range(found[0].queue_offset, found[-1].queue_offset + 1)
    )
    for node in nodes:  # the group's own files go only when no old one is left
        age(node.node.directory, 2, *old_files(node.node.directory)[:-2])
    await checkpointed(group)
    for node in nodes:
        await node.parts.retention.retain()
    assert {node.store.begin_index for node in nodes} == {0}
    for name in group.nodes:
        age(group.folder / f"store-{name}", 2, *starts[2:])
    await group.until(lambda: all(node.store.begin_index > 0 for node in nodes))
    assert not any(old_files(group.folder / f"store-{name}") for name in group.nodes)
    assert (await pull(client, "orders", 0))[0].physical_offset > border
    await put(client, message(2000, "orders", 0))
    last = (await pull(client, "orders", 0))[-1]
    assert (number_of(last.body), last.queue_offset) == (2000, found[-1].queue_offset + 1)
    await group.stop()
    await start(group, old, adopting=False, retention_ms=3_600_000)
    client = await group.client()
    assert (await pull(client, "orders", 0))[-1] == last
    for node in group.nodes.values():
        assert Adopted.load(node.node.directory).gone


@pytest.mark.group(
    start=False,
    commit_log="rocketmq",
    retention_bytes=256 * KIB,
    checkpoint_bytes=64 * KIB,
    **SIZES,
)
async def test_member_joining_after_old_log_is_gone_gets_queue_offsets(
    group: Any, old: Path
) -> None:
    """The queue offsets come with the state."""
    await start(group, old)
    client = await group.client()
    for start_at in range(1000, 1700, 50):
        await put(client, *more(start_at, 50))
    name = (await group.follower()).node.node_id
    await trimmed(group)
    await group.kill(name)
    shutil.rmtree(group.folder / f"store-{name}")
    await start(group, old, name, adopting=False)
    node = group.nodes[name]
    await group.until(lambda: node.catalog.applied_index > 0)
    assert (await group.admit(name)).code is Code.SUCCESS
    await group.agree()
    client = await group.client()
    before = await pull(client, "bills", 1)
    answer = await put(client, message(1, "bills", 1))
    assert answer.queue_offsets == (before[-1].queue_offset + 1,)
    await group.agree()


@pytest.mark.group(1, start=False, commit_log="rocketmq", **SIZES)
async def test_node_whose_log_begins_past_the_old_end_shows_no_old_messages(
    group: Any, old: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As after taking over another node's state, which has let go of the first entries."""
    await start(group, old)
    client = await group.client()
    for first in range(1000, 1700, 50):
        await put(client, *more(first, 50))
    node = group.nodes[NodeId("n0")].node
    await group.stop()
    store = open_log(group.config, replace(node, retention_bytes=64 * KIB))
    store.retain(Index(store.end.position.index - 60), 0)
    begin = store.begin.end_pos
    store.close()
    await start(group, old, adopting=False)
    assert begin > Adopted.load(node.directory).divided_offset
    client = await group.client()
    assert await view(client, place_of(old, 3)) is Code.OFFSET_OUT_OF_RANGE
    assert "the old messages are not shown any more" in caplog.text
    found = await pull(client, "orders", 0)
    assert found[0].physical_offset > begin
    assert number_of(found[-1].body) == 1696
    assert old_files(group.folder / "store-n0")
    await put(client, message(1700, "orders", 0))
    assert (await pull(client, "orders", 0))[-1].queue_offset == found[-1].queue_offset + 1


def rewrite(path: Path, **values: Any) -> dict[str, Any]:
    """Change a JSON file; what it said before."""
    before: dict[str, Any] = json.loads(path.read_text())
    path.write_text(json.dumps({**before, **values}))
    return before


@pytest.mark.group(1, start=False, commit_log="rocketmq", **SIZES)
async def test_a_node_does_not_start_where_the_old_log_is_not_as_it_was_adopted(
    group: Any, old: Path
) -> None:
    async def refused(text: str) -> None:
        await start(group, old, adopting=False, settled=False)
        with pytest.raises(PathError, match=text):
            async with asyncio.timeout(20):
                await group.nodes[NodeId("n0")].wait_failed()
        await group.kill("n0")

    root = adopted(old, group.folder)
    last = log_folder(root) / f"{old_files(root)[-1]:020d}"
    lock = StoreLock(root)
    await refused("is in use: a broker")
    lock.release()
    more_of_it = last.with_name(f"{int(last.name) + 64 * KIB:020d}")
    shutil.copy(last, more_of_it)
    await refused("a broker that was started on the store")
    shutil.move(more_of_it, root / "kept")
    shutil.move(last, root / "kept")
    await refused("put back missing files")
    shutil.move(root / "kept", last)
    shutil.move(root / "commitlog", root / "elsewhere")
    await refused("has no files, but the old commit log")
    shutil.move(root / "elsewhere", root / "commitlog")
    path = root / "dledger-n0" / ADOPTED_FILE
    kept = rewrite(path, divided_offset="x")
    await refused("is damaged")
    rewrite(path, **kept)
    await start(group, old, adopting=False)
    await check(await group.client(), 0)


@pytest.mark.group(1, start=False, commit_log="rocketmq", **SIZES)
async def test_a_damaged_old_message_is_an_error_and_the_others_are_found(
    group: Any, old: Path
) -> None:
    root = adopted(old, group.folder)
    place = place_of(old, 7)
    flip(log_folder(root) / f"{place - place % (64 * KIB):020d}", place % (64 * KIB) + 100)
    await start(group, old, adopting=False)
    client = await group.client()
    assert await view(client, place) is Code.CORRUPT_ENTRY
    assert number_of((await view(client, place_of(old, 8))).body) == 8
    assert await view(client, place + 1) is Code.OFFSET_OUT_OF_RANGE
    assert await view(client, 64 * KIB - 4) is Code.OFFSET_OUT_OF_RANGE


async def test_an_adopted_store_is_one_table_over_the_border(group: Any, old: Path) -> None:
    await start(group, old)
    await put(await group.client(), *more(1000, 8))
    await group.agree()
    await group.stop()
    for name in ("n0", "n1", "n2"):
        store = open_store(Storage.of(str(group.folder / f"store-{name}")), "rocketmq")
        assert [form.name for form in store.forms] == ["commitlog", "dledger"]
        rows = rows_of(group.folder / f"store-{name}")
        assert [number_of(row["body"]) for row in rows] == [*range(OLD + 1), *range(1000, 1008)]
        assert [row["queue_offset"] for row in rows[-8:]] == [100] * 4 + [101] * 4


def staying(row: dict[str, Any]) -> dict[str, Any]:
    """What of a message is the same wherever it lies."""
    return {
        k: v
        for k, v in row.items()
        if k not in {"physical_offset", "message_id", "entry_index", "entry_term"}
    }


@pytest.mark.group(1, start=False, commit_log="rocketmq", **SIZES)
@pytest.mark.parametrize("with_old", [True, False])
async def test_messages_of_stopped_node_are_exported_for_ledger_mode_broker(
    group: Any, old: Path, tmp_path: Path, with_old: bool
) -> None:
    def export(node: Path, *words: str) -> dict[str, Any]:
        given = ["export", str(tmp_path / "out"), "--format", "dledger", "--node", str(node)]
        done = CliRunner().invoke(main, [*given, "--messages", *words], standalone_mode=False)
        if done.exception is not None:
            raise done.exception
        report: dict[str, Any] = json.loads(done.stdout)
        return report

    if with_old:
        await start(group, old)
    else:
        await group.start("n0", directory=group.folder / "store-n0" / "dledger-n0")
    client = await group.client()
    for first in range(1000, 1200, 50):
        await put(client, *more(first, 50))
        leader = await group.leader()
        await group.stop("n0")
        if first < 1150:  # each time a leader's first entry comes between
            await start(group, old, adopting=False)
            client = await group.client()
    root = group.folder / "store-n0"
    with pytest.raises(ConfigError, match="the node's files have 65536 bytes"):
        export(leader.node.directory, "--file-size", "4096")
    report = export(leader.node.directory)
    assert (report["messages"], report["moved"]) == (200 + OLD * with_old, 200)
    ours, theirs = rows_of(root), rows_of(tmp_path / "out")
    assert [staying(row) for row in ours] == [staying(row) for row in theirs]
    assert len(ours) == 200 + (OLD + 1) * with_old
    border = len(ours) - 200
    assert ours[:border] == theirs[:border]
    assert [row["entry_index"] for row in theirs[border:]] == list(range(200))
    queues = ConsumeQueues(tmp_path / "out" / "consumequeue")
    for row in theirs:
        if row["transaction"] == "none":
            unit = queues.get(row["topic"], row["queue_id"]).units(row["queue_offset"], 1)[0]
            assert (unit.physical_offset, unit.size) == (row["physical_offset"], row["stored_size"])
