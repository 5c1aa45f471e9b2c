"""Damage on one node's disk: found, fetched from the others, written back; until then neither
served nor led by."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.entry import HEADER_SIZE, MAGIC_NORMAL
from dledger.protocol.messages.entry_runs import stamp_all
from dledger.protocol.messages.repair import RepairResponse
from dledger.records.body.header import BODY_HEADER_SIZE
from dledger.storage.api import Fault
from dledger.storage.opening import open_store
from dledger.types import Index, Role
from tests.node.bodies import body
from tests.node.damaging import damage, place_of
from tests.node.elections import QUICK
from tests.node.trimming import (
    KIB,
    LARGER,
    checkpointed,
    expected,
    payload,
    read_all,
    stop_sound,
    write,
)

MAGIC_AT = 1 - BODY_HEADER_SIZE - HEADER_SIZE
"""The second byte of an entry, counted from its payload."""


async def fill(group: Any, count: int) -> int:
    topic = await write(group, 0, count)
    await group.agree()
    return topic


def faulty(node: Any) -> list[Any]:
    found: list[Any] = node.parts.repairs.status()["faulty"]
    return found


@pytest.mark.group(**QUICK)
async def test_damaged_node_starts_repairs_itself_and_has_its_full_log(
    group: Any,
) -> None:
    """Damage that opening the store finds: no checkpoint was written, so all is scanned and applied
    again."""
    topic = await fill(group, 20)
    victim = (await group.follower()).node.node_id
    end = group.nodes[victim].raft.end_index
    await group.kill(victim)
    damage(group.folder / victim, *map(payload, (3, 4, 11)))
    (group.folder / victim / "mark").unlink()
    node = await group.start(victim)
    assert node.raft.end_index >= end
    assert len(node.store.recovery.faulty) == 2
    await group.until(lambda: not faulty(node))
    assert node.parts.repairs.repaired == 3
    await group.agree()
    assert await read_all(group, node, topic) == expected(node, topic, 20)
    await stop_sound(group, victim)


@pytest.mark.group(scrub_bytes_per_s=1 << 30, scrub_pause_ms=10, cache_bytes=1000)
async def test_the_scrub_finds_damage_that_nobody_has_read_and_it_is_repaired(group: Any) -> None:
    topic = await fill(group, 200)
    node = await group.follower()
    damage(node.node.directory, *map(payload, (50, 51, 52, 120)))
    await group.until(lambda: node.parts.repairs.repaired == 4)
    assert not faulty(node)
    status = node.parts.scrubber.status
    await group.until(lambda: status()["last_pass_ms"] and not status()["found"])
    assert await read_all(group, node, topic) == expected(node, topic, 200)


@pytest.mark.group(scrub_bytes_per_s=0, cache_bytes=1000)
async def test_a_read_that_meets_damage_is_refused_and_has_it_repaired(group: Any) -> None:
    topic = await fill(group, 20)
    node = await group.follower()
    damage(node.node.directory, payload(7))
    client = await group.client(node)
    answer, _ = await client.fetch(topic, 7, end_offset=8)
    assert answer.code is Code.CORRUPT_ENTRY
    await group.until(lambda: node.parts.repairs.repaired == 1)
    answer, bodies = await client.fetch(topic, 7, end_offset=8)
    assert bodies == [body(topic, payload(7))]


@pytest.mark.group(scrub_bytes_per_s=0, cache_bytes=1000)
async def test_a_leader_that_finds_damage_hands_over(group: Any) -> None:
    topic = await fill(group, 20)
    old = await group.leader()
    old.parts.repairs._send = lambda message: None  # nobody helps yet
    damage(old.node.directory, payload(7))
    answer, _ = await (await group.client(old)).fetch(topic, 7, end_offset=8)
    assert answer.code is Code.CORRUPT_ENTRY
    new = await group.leader(but=old.node.node_id)
    assert (await (await group.client(new)).append(body(topic))).code is Code.SUCCESS
    assert old.raft.role is not Role.LEADER


async def test_damaged_node_elects_no_shorter_log_and_does_not_lead(
    group: Any,
) -> None:
    """B8, CTRL: the only living node with all that was acknowledged is damaged. Nobody may lead
    before it is sound, and the one that misses acknowledged entries never."""
    client, topic = await group.topic()
    await group.agree()
    names = sorted(group.nodes)
    leader = (await group.leader()).node.node_id
    behind, damaged = [name for name in names if name != leader]
    await group.stop(behind)
    client = await group.client()
    await client.write(topic, map(payload, range(10)))
    await group.kill(leader, damaged)
    damage(group.folder / damaged, payload(4))
    (group.folder / damaged / "mark").unlink()
    await group.start(behind, damaged)
    node, other = group.nodes[damaged], group.nodes[behind]
    await group.until(lambda: faulty(node) and "no copy" in faulty(node)[0]["state"])
    for _ in range(3):
        term = node.raft.term
        node.parts.ready_loop.feed(node.raft.tick, node.raft.deadline_ms() + 10_000)
        other.parts.ready_loop.feed(other.raft.tick, other.raft.deadline_ms() + 10_000)
        assert node.raft.term == term
    assert {node.raft.role, other.raft.role} == {Role.CANDIDATE}
    await group.start(leader)
    await group.until(lambda: not faulty(node))
    await group.agree()
    assert await read_all(group, other, topic) == expected(other, topic, 10)


def with_a_tail_of_its_own(group: Any, name: str, count: int) -> None:
    """What a leader wrote in its last moment and sent to nobody."""
    store = open_store(group.config, group.make(name).node)
    term, bodies = store.end.position.term, [b"mine %d" % number for number in range(count)]
    store.append(stamp_all(store.end, term, MAGIC_NORMAL, bodies, group.config.segment_bytes))
    store.close()


@pytest.mark.group(scrub_bytes_per_s=0)
@pytest.mark.parametrize("also_the_tail", [False, True])
async def test_D4_node_that_must_cut_behind_damaged_entry_repairs_it_first(
    group: Any, also_the_tail: bool
) -> None:
    """The entry may have been acknowledged, so it may not go. The tail behind it is nobody
    else's."""
    topic = await fill(group, 20)
    victim = (await group.leader()).node.node_id
    await group.kill(victim)
    with_a_tail_of_its_own(group, victim, 3)
    damage(group.folder / victim, payload(19))
    if also_the_tail:
        spoil(group.folder / victim, b"mine 0")
    await write(group, 20, 23)
    node = await group.start(victim)
    send = node.parts.repairs._send
    node.parts.repairs._send = lambda message: None  # nobody helps yet
    await group.until(lambda: node.parts.ready_loop.log_writer._cut_waits is not None)
    assert not node.parts.ready_loop.failed
    assert not node.parts.ready_loop.log_writer.is_full
    node.parts.repairs._send = send
    await group.until(lambda: not faulty(node))
    await group.agree()
    assert await read_all(group, node, topic) == expected(node, topic, 23)
    await stop_sound(group, victim)


@pytest.mark.group(scrub_bytes_per_s=0)
async def test_B8_an_entry_that_nobody_knows_to_be_committed_is_repaired_too(group: Any) -> None:
    """The node that has most may not lead before it is sound, and nobody can commit anything before
    somebody leads."""
    await fill(group, 20)
    victim, helper, _ = list(group.nodes)
    await group.kill()
    with_a_tail_of_its_own(group, victim, 3)
    with_a_tail_of_its_own(group, helper, 2)
    spoil(group.folder / victim, b"mine 1")
    (group.folder / victim / "mark").unlink()
    await group.start(victim, helper)
    assert faulty(group.nodes[victim])
    leader = await group.leader()
    assert leader.node.node_id == victim
    assert leader.parts.repairs.repaired == 1


def spoil(directory: Path, body: bytes) -> None:
    """Overwrite an entry from its header to its body on the disk."""
    path, at = place_of(directory, body)
    with path.open("r+b") as file:
        file.seek(at - HEADER_SIZE)
        file.write(b"\xa7" * (HEADER_SIZE + len(body)))


@pytest.mark.group(scrub_bytes_per_s=0, cache_bytes=1000)
async def test_catalog_waits_before_damaged_entry_and_goes_on_after_repair(
    group: Any,
) -> None:
    topic = await fill(group, 20)
    victim = (await group.follower()).node.node_id
    await group.kill(victim)
    damage(group.folder / victim, payload(12))
    server, held = await group.start(victim), list[Any]()
    send, server.parts.repairs._send = server.parts.repairs._send, held.append
    await group.until(lambda: faulty(server) and server.raft.leader_id)
    at = faulty(server)[0]["first"]
    await group.until(lambda: server.catalog.applied_index == at - 1)
    assert server.catalog.end_offset(topic, 0) == 12
    await write(group, 20, 21)
    assert server.catalog.applied_index == at - 1
    server.parts.repairs._send = send
    await group.agree()
    assert await read_all(group, server, topic) == expected(server, topic, 21)


async def test_entry_unreadable_once_is_read_again_if_no_peer_has_a_copy(
    group: Any,
) -> None:
    """B11. It may be one that only this node has, and that it has to lead with."""
    await fill(group, 20)
    node = await group.follower()
    asked: list[Any] = []

    def nobody_has_it(request: Any) -> None:
        asked.append(request)
        answer = RepairResponse(
            group=request.group,
            local_id=request.remote_id,
            remote_id=request.local_id,
            first=request.first,
            last=request.last,
            code=Code.INDEX_OUT_OF_RANGE,
        )
        asyncio.get_running_loop().call_soon(node.parts.repairs.on_message, answer)

    node.parts.repairs._send = nobody_has_it
    node.parts.repairs.found((Fault(Index(3), Index(5), -1, "n0", "an input/output error"),))
    await group.until(lambda: not faulty(node))
    assert len(asked) == 2
    assert node.raft.log.faulty == ()


@pytest.mark.group(scrub_bytes_per_s=0, cache_bytes=1000)
async def test_damage_beside_a_run_is_looked_for_and_repaired_with_it(group: Any) -> None:
    """An entry whose header is damaged too vouches for none in front of it."""
    topic = await fill(group, 20)
    node = await group.follower()
    damage(node.node.directory, *map(payload, (8, 10)), at=MAGIC_AT)
    first = Index(node.raft.end_index - 11)
    node.parts.repairs.found((Fault(first, Index(first + 1), -1, "n0", "an input/output error"),))
    assert [(one["first"], one["last"]) for one in faulty(node)] == [(first, first + 1)]
    await group.until(lambda: node.parts.repairs.repaired == 3)
    assert not faulty(node)
    assert await read_all(group, node, topic) == expected(node, topic, 20)


@pytest.mark.group(retention_bytes=512 * KIB, **LARGER)
async def test_damage_that_retention_takes_is_damage_no_more(group: Any) -> None:
    """Nobody has a copy of it, and a node that waited for one would never lead again."""
    topic = await fill(group, 20)
    node = await group.leader()
    for other in group.nodes.values():
        other.parts.repairs._server._peers = SimpleNamespace(send=lambda message: None)
    damage(node.node.directory, *map(payload, (1, 2, 3)))
    node.parts.repairs.found((Fault(Index(3), Index(5), 0, "a file", "rot"),))
    assert faulty(node)
    client = await group.client(await group.leader())
    for _ in range(120):
        answer = await client.append(body(topic, bytes(20_000)))
        if answer.code is not Code.SUCCESS:
            client = await group.client(await group.leader())
    await checkpointed(group)
    await group.until(lambda: node.store.begin_index > 5)
    await group.until(lambda: not faulty(node))
    assert node.raft.log.faulty == ()


@pytest.mark.group(scrub_bytes_per_s=0)
async def test_damage_that_everybody_has_is_reported_by_offset_and_never_served(group: Any) -> None:
    topic = await fill(group, 20)
    for name in list(group.nodes):
        await group.stop(name)
        damage(group.folder / name, payload(5))
    await group.start()
    nodes = list(group.nodes.values())
    for node in nodes:
        answer, bodies = await (await group.client(node)).fetch(topic, 5, end_offset=6)
        assert answer.code is Code.CORRUPT_ENTRY
        assert bodies == []
    await group.until(
        lambda: all(faulty(node) and "no copy" in faulty(node)[0]["state"] for node in nodes)
    )
    for node in nodes:
        assert faulty(node)[0]["records"] == ["t/0 offsets 5 to 5"]
        answer, bodies = await (await group.client(node)).fetch(topic, 6)
        assert bodies == expected(node, topic, 20)[6:]


@pytest.mark.group(1, scrub_bytes_per_s=1 << 30, scrub_pause_ms=10)
async def test_a_lone_node_reports_damage_and_serves_everything_else(group: Any) -> None:
    topic = await fill(group, 20)
    await group.stop("n0")
    damage(group.folder / "n0", payload(5))
    await group.start("n0")
    node = await group.leader()
    await group.until(lambda: faulty(node))
    assert faulty(node)[0]["records"] == ["t/0 offsets 5 to 5"]
    client = await group.client()
    assert (await client.fetch(topic, 5, end_offset=6))[0].code is Code.CORRUPT_ENTRY
    assert (await client.fetch(topic, 6))[1] == expected(node, topic, 20)[6:]
    assert (await client.append(body(topic))).base_offset == 20


@pytest.mark.group(scrub_bytes_per_s=0, cache_bytes=1000)
async def test_a_false_copy_is_not_taken(group: Any) -> None:
    """What a peer sends counts only when both neighbours here vouch for it."""
    topic = await fill(group, 20)
    node = await group.follower()
    liar = next(n for n in group.nodes.values() if n is not node and n.raft.role is not Role.LEADER)
    real = liar.store.read

    def read_false(begin: Any, *rest: Any) -> Any:
        return [replace(e, index=begin, body=b"lie" + e.body[3:]) for e in real(begin, *rest)]

    liar.store.read = read_false
    damage(node.node.directory, payload(7))
    await (await group.client(node)).fetch(topic, 7, end_offset=8)
    await group.until(lambda: node.parts.repairs.repaired == 1)
    assert await read_all(group, node, topic) == expected(node, topic, 20)
