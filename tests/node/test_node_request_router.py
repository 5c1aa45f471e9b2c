"""The port: who may come in, and what happens to those who break the protocol."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dledger.net import FrameLimits
from dledger.protocol.messages.client import AppendRequest, StatusRequest, TransferRequest
from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.fetched import FetchResponse
from dledger.protocol.messages.hello import HelloRequest, HelloResponse
from dledger.protocol.wire import FrameReader, encode
from dledger.protocol.wire.framing import pack_frame
from dledger.protocol.wire.msgpack import unpack
from dledger.release import RELEASE
from dledger.types import NodeId
from tests.node.bodies import body, heartbeat
from tests.node.conftest import BareClient
from tests.node.elections import SLOW_VOTES


async def talk(port: int, data: bytes) -> bytes:
    """Send bytes to a port; what came back until it was closed."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    try:
        return await asyncio.wait_for(reader.read(), 20)
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


async def hello(port: int, request: HelloRequest) -> tuple[HelloResponse, bool]:
    """The answer, and whether the node closed the connection behind it."""
    client = await BareClient.dial(port)
    answer = await client.ask(request)
    if answer.code is not Code.SUCCESS:
        await asyncio.wait_for(client.closed.wait(), 20)
        return answer, True
    client.close()
    return answer, False


HELLO = b"".join(encode(HelloRequest(), 1))
GARBAGE = {
    "http": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "zeros": bytes(1000),
    "a request before hello": b"".join(encode(StatusRequest(), 1)),
    "a flipped bit": HELLO[:26] + bytes([HELLO[26] ^ 1]) + HELLO[27:],
    "an answer": HELLO + b"".join(encode(FetchResponse(code=Code.SUCCESS), 2)),
    "a peer's message from a client": HELLO + b"".join(encode(heartbeat(99))),
    "a client's request from a peer": b"".join(
        [*encode(HelloRequest(group="test", node_id="n1"), 1), *encode(StatusRequest(), 2)]
    ),
    "a frame over the limit": HELLO + b"".join(encode(AppendRequest(), 2, [bytes(8 << 20)])),
}


@pytest.mark.group(3)
@pytest.mark.parametrize("what", GARBAGE)
async def test_garbage_closes_that_connection_and_no_other(group: Any, what: str) -> None:
    client, topic = await group.topic()
    node = group.nodes["n0"]
    term = node.raft.term
    await talk(node.port, GARBAGE[what])
    assert (await client.append(body(topic))).code is Code.SUCCESS
    assert node.raft.term == term


@pytest.mark.group(1)
@pytest.mark.parametrize(
    ("request_", "code", "names"),
    [
        (HelloRequest(), Code.SUCCESS, ""),
        (HelloRequest(group="test"), Code.SUCCESS, ""),
        (HelloRequest(group="other"), Code.UNKNOWN_GROUP, "other"),
        (HelloRequest(group="other", node_id="n1"), Code.UNKNOWN_GROUP, "other"),
        (HelloRequest(node_id="n1"), Code.UNKNOWN_GROUP, "test"),
        (HelloRequest(group="test", node_id="n7"), Code.UNKNOWN_MEMBER, "n7"),
        (HelloRequest(group="test", node_id="n0"), Code.UNEXPECTED_MEMBER, "n0"),
        (HelloRequest(version=99), Code.UNSUPPORTED, "99"),
    ],
)
async def test_group_and_node_are_told_and_who_does_not_belong_here_is_refused(
    group: Any, request_: HelloRequest, code: Code, names: str
) -> None:
    answer, closed = await hello(group.nodes["n0"].port, request_)
    assert (answer.code, answer.group, answer.node_id) == (code, "test", "n0")
    assert names in answer.message
    assert closed is (code is not Code.SUCCESS)


@pytest.mark.group(3)
async def test_a_hello_of_the_release_before_is_told_both_releases(group: Any) -> None:
    """Its programs take an answer of four fields, and print the second one."""
    old = pack_frame(1, 7, b"\x93\xa4test\xa2n1\x01", 0)
    [frame] = FrameReader(FrameLimits()).feed(await talk(group.nodes["n0"].port, old))
    code, text, name, node_id = unpack(frame.header)
    assert (frame.kind, frame.request_id) == (2, 7)
    assert (code, name, node_id) == (Code.UNSUPPORTED, "test", "n0")
    assert f"dledger {RELEASE}" in text
    assert "dledger 0.1.0" in text
    assert "upgrade the older one" in text


@pytest.mark.group(1, max_connections=2)
async def test_more_connections_than_allowed_are_closed(group: Any) -> None:
    first = await group.client()
    second = await group.client()
    refused = await talk(group.nodes["n0"].port, HELLO)
    assert b"max_connections of the node" in refused
    assert (await first.ask(StatusRequest())).code is Code.SUCCESS
    assert (await second.ask(StatusRequest())).code is Code.SUCCESS


@pytest.mark.group(3, max_connections=2)
async def test_members_come_and_go_while_clients_have_all_places(group: Any) -> None:
    leader = await group.leader()
    clients = [await group.client(leader) for _ in range(2)]
    name = (await group.follower()).node.node_id
    await group.restart(name, kill=True)
    await group.until(lambda: leader.parts.peers.connected()[name])
    await group.until(lambda: all(group.nodes[name].parts.peers.connected().values()))
    await group.until(lambda: group.nodes[name].raft.leader_id == leader.node.node_id)
    for client in clients:
        assert (await client.ask(StatusRequest())).code is Code.SUCCESS


@pytest.mark.group(1, client_idle_ms=50)
async def test_a_client_that_was_closed_as_idle_goes_on_without_an_error(group: Any) -> None:
    client = await group.async_client()
    await client.create_topic("t")
    await client.append("t", [b"before"])
    await group.until(lambda: not group.nodes["n0"].parts.router.clients)
    await client.append("t", [b"after"])
    assert await client.end_offsets("t") == {0: 2}


@pytest.mark.group(1)
async def test_status_requests_do_not_count_as_use(group: Any) -> None:
    client = await group.client()
    node = await group.leader()
    before = node.parts.router.client_requests
    await client.ask(StatusRequest())
    assert node.parts.router.client_requests == before
    await client.create("t")
    assert node.parts.router.client_requests == before + 1


@pytest.mark.group(**SLOW_VOTES)
async def test_a_transfer_is_answered_when_the_other_leads(group: Any) -> None:
    client, topic = await group.topic()
    await group.agree()
    old, to = await group.leader(), (await group.follower()).node.node_id
    answer = await client.ask(TransferRequest(to=to))
    assert answer.code is Code.SUCCESS
    assert (await group.leader(but=old.node.node_id)).node.node_id == to
    assert (await (await group.client()).append(body(topic))).code is Code.SUCCESS


async def test_a_transfer_that_cannot_be_says_why(group: Any) -> None:
    client = await group.client()
    stranger = await client.ask(TransferRequest(to=NodeId("n9")))
    assert (stranger.code, "n9" in stranger.message) == (Code.UNKNOWN_MEMBER, True)
    follower = await group.follower()
    refused = await (await group.client(follower)).ask(TransferRequest(to=follower.node.node_id))
    assert refused.code is Code.NOT_LEADER
    assert refused.leader_id == (await group.leader()).node.node_id


async def test_a_node_that_closes_its_port_does_not_take_its_peers_for_lost(group: Any) -> None:
    """It hangs up on them itself: no reason to begin an election on its way out."""
    await group.agree()
    node = await group.follower()
    lost = list[NodeId]()
    node.parts.ready_loop.peer_lost = lost.append
    assert any(node.parts.router.port_sessions._peer_connections.values())
    await group.stop(node.node.node_id)
    assert not any(node.parts.router.port_sessions._peer_connections.values())
    assert lost == []
