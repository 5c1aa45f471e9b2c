"""Under TLS a node is the one that its certificate names, for the others and for itself."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trustme

from dledger.config import GroupConfig, NodeConfig, tls_files
from dledger.errors import AccessDenied, ConfigError
from dledger.net import FrameLimits
from dledger.net.connections.blocking import BlockingConnection
from dledger.net.connections.handshake import Greeting
from dledger.net.connections.tls import client_context, nodes_of
from dledger.net.secret import create_secret
from dledger.node.node import NodeServer
from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.hello import HelloRequest
from dledger.types import NodeId
from tests.node.conftest import BareClient

Issue = Callable[..., dict[str, str]]
MEMBERS = (NodeId("n0"), NodeId("n1"))
GROUP = GroupConfig(group="test", members=MEMBERS, segment_bytes=16 << 20, index_file_bytes=1 << 20)


def node(tmp_path: Path, files: dict[str, str]) -> NodeServer:
    full: Any = {"disk_warn_ratio": 1.0, "disk_full_ratio": 1.0}
    config = NodeConfig(node_id=NodeId("n0"), directory=tmp_path / "n0", **full, **files)
    return NodeServer(
        GROUP, config, addresses=lambda: {NodeId("n0"): "127.0.0.1:1", NodeId("n1"): "127.0.0.1:1"}
    )


def context_of(files: dict[str, str]) -> ssl.SSLContext | None:
    """The TLS of a connection to a node, with the settings of another one."""
    return client_context(tls_files(**{name.removeprefix("tls_"): files[name] for name in files}))


async def hello(port: int, files: dict[str, str], node_id: str) -> Any:
    client = await BareClient.dial(port, tls=context_of(files))
    answer = await client.ask(HelloRequest(group="test", node_id=node_id))
    client.close()
    return answer


@pytest.mark.parametrize(
    ("nodes", "node_id", "code"),
    [
        (("n1",), "n1", Code.SUCCESS),
        (("n0", "n1"), "n1", Code.SUCCESS),
        (("n2",), "n1", Code.ACCESS_DENIED),
        ((), "n1", Code.ACCESS_DENIED),
        ((), "", Code.SUCCESS),
        (("n2",), "", Code.SUCCESS),
    ],
)
async def test_a_member_is_who_its_certificate_says(
    tmp_path: Path, issue: Issue, nodes: tuple[str, ...], node_id: str, code: Code
) -> None:
    authority = trustme.CA()
    server = node(tmp_path, issue(authority=authority))
    await server.start()
    try:
        answer = await hello(server.port, issue(authority=authority, nodes=nodes), node_id)
    finally:
        await server.stop()
    assert answer.code is code
    if code is not Code.SUCCESS:
        assert "dledger://node/n1" in answer.message


def principals(server: NodeServer) -> set[str]:
    """Those of the connections of clients."""
    clients = server.parts.router.port_sessions.clients
    return {connection.context.principal for connection in clients}


@pytest.mark.parametrize(
    ("users", "nodes", "as_node", "found"),
    [
        (("alice",), (), "", "User:alice"),
        ((), (), "", "User:ANONYMOUS"),
        ((), ("n1",), "", "Node:n1"),
        (("alice",), ("n1",), "n1", "Node:n1"),
    ],
)
async def test_a_client_is_who_its_certificate_says(
    tmp_path: Path,
    issue: Issue,
    users: tuple[str, ...],
    nodes: tuple[str, ...],
    as_node: str,
    found: str,
) -> None:
    authority = trustme.CA()
    server = node(tmp_path, issue(authority=authority))
    await server.start()
    try:
        files = issue(authority=authority, nodes=nodes, users=users)
        client = await BareClient.dial(server.port, tls=context_of(files))
        answer = await client.ask(HelloRequest(group="test", as_node=as_node))
        assert answer.code is Code.SUCCESS
        assert principals(server) == {found}
        client.close()
    finally:
        await server.stop()


@pytest.mark.parametrize(
    ("users", "as_node", "said"),
    [
        (("alice", "bob"), "", "for the users 'alice', 'bob', and a client is one user"),
        (("",), "", "user '': use 1 to 127"),
        (("al%20ice",), "", "user 'al%20ice': use 1 to 127"),
        (("..",), "", r"user '..': use 1 to 127"),
        (("a" * 128,), "", "use 1 to 127"),
        (("alice",), "n1", "n1 needs a certificate with the URI dledger://node/n1"),
        ((), "n7", "'n7' is not a member"),
    ],
)
async def test_a_client_of_an_improper_name_is_refused_with_the_reason(
    tmp_path: Path,
    issue: Issue,
    caplog: pytest.LogCaptureFixture,
    users: tuple[str, ...],
    as_node: str,
    said: str,
) -> None:
    authority = trustme.CA()
    server = node(tmp_path, issue(authority=authority))
    await server.start()
    try:
        files = issue(authority=authority, nodes=(), users=users)
        client = await BareClient.dial(server.port, tls=context_of(files))
        answer = await client.ask(HelloRequest(group="test", as_node=as_node))
        assert answer.code in (Code.ACCESS_DENIED, Code.UNKNOWN_MEMBER)
        assert said in answer.message
        await asyncio.wait_for(client.closed.wait(), 20)
        assert principals(server) == set()
        assert '"event": "authenticate"' in caplog.text
    finally:
        await server.stop()


async def test_a_node_that_its_certificate_does_not_name_is_not_talked_to(
    tmp_path: Path, issue: Issue
) -> None:
    """Another member's certificate, and a name that it takes for its own: the address is not
    enough."""
    authority = trustme.CA()
    files = issue(authority=authority, nodes=("n0",))
    server = node(tmp_path, issue(authority=authority, nodes=("n0",)))
    await server.start()
    # it lies
    server.parts.gate._node = server.node = NodeConfig(node_id=NodeId("n1"), directory=tmp_path)
    try:
        with pytest.raises(AccessDenied, match="says that it is node n1"):
            await asyncio.to_thread(
                BlockingConnection,
                f"127.0.0.1:{server.port}",
                Greeting(),
                limits=FrameLimits(),
                timeout_s=10,
                tls=context_of(files),
            )
    finally:
        await server.stop()


@pytest.mark.parametrize("nodes", [(), ("n1",), ("n1", "n2")])
async def test_a_node_without_a_certificate_of_its_own_does_not_start(
    tmp_path: Path, issue: Issue, nodes: tuple[str, ...]
) -> None:
    files = issue(nodes=nodes)
    said = (
        f"{files['tls_certificate']!r} is .*not for node n0.*openssl req -new -key "
        f".*URI:dledger://node/n0"
    )
    with pytest.raises(ConfigError, match=said):
        await node(tmp_path, files).start()
    assert not (tmp_path / "n0").exists()


@pytest.mark.parametrize("by", ["a certificate", "the secret"])
async def test_a_node_that_asks_as_a_client_does_proves_that_it_is_one(
    play: Callable[..., Any], issue: Issue, tmp_path: Path, monkeypatch: Any, by: str
) -> None:
    """Nodes ask one another as clients do: retention needs to know what the leader has."""
    create_secret(tmp_path / "secret")
    settings = issue() if by == "a certificate" else {"secret_file": str(tmp_path / "secret")}
    async with play(**settings) as group:
        leader, follower = await group.leader(), await group.follower()
        found: list[str] = []
        sessions = leader.parts.router.port_sessions
        monkeypatch.setattr(
            sessions._context.status, "values", lambda: found.extend(principals(leader)) or {}
        )
        status = await follower.parts.peers.status_of(leader.node.node_id)
        assert (status["node_id"], status["role"]) == (leader.node.node_id, "LEADER")
        assert f"Node:{follower.node.node_id}" in found


def test_only_uris_of_nodes_name_nodes() -> None:
    names = (
        ("DNS", "dledger://node/n1"),
        ("URI", "dledger://client/alice"),
        ("URI", "http://node/n2"),
        ("URI", "dledger://node/n3"),
    )
    assert nodes_of({"subjectAltName": names}) == {"n3"}
    assert nodes_of({}) == nodes_of(None) == set()
