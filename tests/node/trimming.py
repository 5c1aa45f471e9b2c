"""Groups that have let go of the beginning of their log, and what they should hold then."""

from __future__ import annotations

from typing import Any

from dledger.protocol.messages.catalog_commands import Expire
from dledger.protocol.messages.client import ExecuteRequest
from dledger.protocol.messages.codes import Code
from dledger.storage.offline.verify import verify_store
from dledger.types import NodeId
from tests.node.bodies import body

KIB = 1 << 10
SMALL = {
    "segment_bytes": 64 * KIB,
    "max_body_bytes": 32 * KIB,
    "checkpoint_bytes": 100 * KIB,
    "retention_bytes": 192 * KIB,
    "cache_bytes": 16 * KIB,
}

LARGER = {"segment_bytes": 256 * KIB, "max_body_bytes": 64 * KIB, "checkpoint_bytes": 100 * KIB}


def payload(number: int) -> bytes:
    return b"<%06d>" % number * 1000


async def write(group: Any, first: int, last: int) -> int:
    """Append the payloads of these numbers to topic t, which is made when it is not there."""
    client = await group.client()
    if not first:
        await client.create("t")
    topic = (await group.leader()).catalog.topic("t").topic_id
    await client.write(topic, map(payload, range(first, last)))
    return int(topic)


async def write_trimmed(group: Any) -> int:
    """Append 60 payloads to topic t, and let go of the first ones, on all nodes."""
    topic = await write(group, 0, 60)
    await trimmed(group)
    await group.agree()
    return topic


async def checkpointed(group: Any, *names: str) -> None:
    """These nodes, or all, save their catalogs until the older of the two that each keeps has all
    that is in the log.

    What is behind the older one never goes, and a catalog is saved as the log grows: how many were
    saved while a test wrote depends on how fast the disk is, and none is saved when nothing is
    written any more.
    """
    nodes = [group.nodes[NodeId(name)] for name in names or group.nodes]
    for _ in range(2):  # with one more entry each, as there has to be something new
        leader = await group.leader()
        index = leader.raft.end_index + 1
        leader.parts.proposals.execute(None, 0, ExecuteRequest(command=Expire(time_ms=0)))
        for node in nodes:
            await group.until(lambda node=node, index=index: has_saved(node, index))


def has_saved(node: Any, index: int) -> bool:
    """Whether a node's catalog is saved up to this entry; else it is being saved, or will be when
    asked again."""
    node.parts.checkpointer.save()
    return bool(node.checkpoints.index >= index)


async def trimmed(group: Any, *names: str) -> None:
    """Let these nodes, or all, let go of the beginning of the log."""
    nodes = [group.nodes[NodeId(name)] for name in names or group.nodes]
    await checkpointed(group, *names)
    await group.until(lambda: all(node.store.begin_index > 0 for node in nodes))


async def equal(group: Any) -> None:
    """Wait until all nodes have and have applied the same, and see that it came to the same."""
    await group.agree()
    await group.until(
        lambda: len({node.raft.committed_index for node in group.nodes.values()}) == 1
    )
    await group.until(
        lambda: all(n.raft.durable_index >= n.raft.committed_index for n in group.nodes.values())
    )
    await awake(*group.nodes.values())
    assert len({node.catalog.digest() for node in group.nodes.values()}) == 1


async def awake(*nodes: Any) -> None:
    """Wait for a restart on another state to end."""
    for node in nodes:
        if node._restarting is not None:
            await node._restarting


async def read_all(group: Any, node: Any, topic: int) -> list[bytes]:
    """Everything that a node keeps, from that node."""
    client = await group.client(node)
    found: list[bytes] = []
    at, end = node.catalog.begin_offset(topic, 0), node.catalog.end_offset(topic, 0)
    while at + len(found) < end:
        answer, bodies = await client.fetch(topic, at + len(found))
        assert answer.code is Code.SUCCESS, answer
        found += bodies
    return found


def expected(node: Any, topic: int, count: int) -> list[bytes]:
    return [
        body(topic, payload(number)) for number in range(node.catalog.begin_offset(topic, 0), count)
    ]


async def stop_sound(group: Any, name: str) -> None:
    """Stop a node, and see that its files are sound."""
    await group.stop(name)
    assert verify_store(group.folder / name)["problems"] == []
