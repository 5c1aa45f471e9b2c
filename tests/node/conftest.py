"""Groups of real nodes on real sockets in one loop, on disks in memory or in a folder, and a bare
client for them."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import shutil
from collections.abc import AsyncIterator, Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from dledger.catalog.versions import SINCE
from dledger.client import AsyncClient
from dledger.config import GroupConfig, NodeConfig
from dledger.embedded.ports import free_ports
from dledger.net import Connection, FrameLimits, Handlers, connect
from dledger.node.node import NodeServer
from dledger.protocol.messages.catalog_commands import (
    ChangeMembers,
    Command,
    CommitTransaction,
    CreateTopic,
    InitProducer,
    OpenStage,
    StageSum,
)
from dledger.protocol.messages.client import (
    AdmitRequest,
    AdmitResponse,
    AppendRequest,
    AppendResponse,
    ExecuteRequest,
    ExecuteResponse,
    FetchRequest,
    OffsetKind,
    OffsetsRequest,
    OffsetsResponse,
    StatusRequest,
    TransferRequest,
)
from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.fetched import (
    FetchResponse,
)
from dledger.protocol.messages.hello import HelloRequest
from dledger.records.body.header import Flag
from dledger.types import NodeId, Role
from tests.node.bodies import body

PATIENCE_S = 20.0
STORY_S = 90.0
MIB = 1 << 20


async def until(condition: Callable[[], Any]) -> Any:
    """Wait until ``condition`` holds; returns what it returned."""
    async with asyncio.timeout(PATIENCE_S):
        while not (result := condition()):  # noqa: ASYNC110 - whatever makes it so
            await asyncio.sleep(0.001)
    return result


class BareClient:
    """One connection to one node: requests in, answers out, nothing retried."""

    def __init__(self) -> None:
        self.answers: dict[int, asyncio.Future[tuple[Any, bytes]]] = {}
        self.closed = asyncio.Event()
        self.connection: Connection
        self._ids = itertools.count(1)

    @classmethod
    async def dial(cls, port: int, *, tls: Any = None) -> BareClient:
        """A connection that has said nothing yet."""
        client = cls()
        handlers = Handlers(on_frame=client._on_frame, on_close=client._on_close)
        address = f"127.0.0.1:{port}"
        client.connection = await connect(address, handlers, FrameLimits(), PATIENCE_S, tls=tls)
        return client

    @property
    def address(self) -> str:
        """This side's, as the node sees it."""
        transport = self.connection._transport
        assert transport is not None
        host, port = transport.get_extra_info("sockname")
        return f"{host}:{port}"

    def _on_frame(
        self, connection: Connection, request_id: int, message: Any, payload: memoryview
    ) -> None:
        future = self.answers.pop(request_id)
        if not future.done():
            future.set_result((message, bytes(payload)))

    def _on_close(self, connection: Connection, error: Exception | None) -> None:
        self.closed.set()
        for future in self.answers.values():
            if not future.done():
                future.set_exception(ConnectionError("closed"))
                future.exception()

    def start(self, request: Any, payload: bytes = b"") -> asyncio.Future[tuple[Any, bytes]]:
        """Send; the future has the answer and its payload."""
        future: asyncio.Future[tuple[Any, bytes]] = asyncio.get_running_loop().create_future()
        request_id = next(self._ids)
        if self.closed.is_set():
            future.set_exception(ConnectionError("closed"))
            return future
        self.answers[request_id] = future
        self.connection.send(request, request_id, [payload] if payload else [])
        return future

    async def ask(self, request: Any, payload: bytes = b"") -> Any:
        async with asyncio.timeout(PATIENCE_S):
            return (await self.start(request, payload))[0]

    async def append(self, data: bytes, timeout_ms: int = 10_000) -> AppendResponse:
        answer: AppendResponse = await self.ask(AppendRequest(timeout_ms=timeout_ms), data)
        return answer

    async def write(
        self, topic_id: int, payloads: Iterable[bytes] = (b"payload",), **fields: Any
    ) -> list[bytes]:
        """Append a body for each payload, one after the other; returns the bodies."""
        bodies = [body(topic_id, payload, **fields) for payload in payloads]
        for data in bodies:
            answer = await self.append(data)
            assert answer.code is Code.SUCCESS, answer
        return bodies

    async def execute(self, command: Command, timeout_ms: int = 10_000) -> ExecuteResponse:
        answer: ExecuteResponse = await self.ask(
            ExecuteRequest(command=command, timeout_ms=timeout_ms)
        )
        return answer

    async def create(self, name: str, partitions: int = 1) -> int:
        """A topic; returns its id."""
        answer = await self.execute(
            CreateTopic(name=name, log_id=f"log-of-{name}", partitions=partitions)
        )
        assert answer.code is Code.SUCCESS, answer
        topic_id: int = answer.result["topic_id"]
        return topic_id

    async def producer(self) -> dict[str, int]:
        """A session of producer ``p``: the fields of its bodies."""
        session = (await self.execute(InitProducer(producer_name="p"))).result
        return {"producer_id": session["producer_id"], "producer_epoch": session["epoch"]}

    async def stage(self, timeout_ms: int = 600_000) -> dict[str, Any]:
        """A stage of writer ``w``: the fields of its bodies."""
        opened = OpenStage(writer_id="w", sequence=0, label="a", timeout_ms=timeout_ms)
        stage_id = (await self.execute(opened)).result["stage_id"]
        return {"producer_id": stage_id, "flags": Flag.STAGED}

    async def commit(self, stage: dict[str, Any], batches: int) -> ExecuteResponse:
        """Commit a stage of so many bodies of one record."""
        sums = StageSum(stage_id=stage["producer_id"], batches=batches, records=batches)
        return await self.execute(CommitTransaction(writer_id="w", sequence=0, stages=(sums,)))

    async def status(self) -> dict[str, Any]:
        status: dict[str, Any] = (await self.ask(StatusRequest())).status
        return status

    async def fetch(
        self, topic_id: int, start: int, **fields: Any
    ) -> tuple[FetchResponse, list[bytes]]:
        """The answer, and the bodies in its payload."""
        request = FetchRequest(
            topic_id=topic_id, partition=fields.pop("partition", 0), start_offset=start, **fields
        )
        async with asyncio.timeout(PATIENCE_S):
            answer, payload = await self.start(request)
        bodies, at = [], 0
        for batch in answer.batches:
            bodies.append(payload[at : at + batch.size])
            at += batch.size
        return answer, bodies

    async def offsets(
        self, topic: str, kind: OffsetKind = OffsetKind.END, **fields: Any
    ) -> OffsetsResponse:
        answer: OffsetsResponse = await self.ask(
            OffsetsRequest(topics=(topic,), kind=kind, **fields)
        )
        return answer

    def close(self) -> None:
        self.connection.close()


class Group:
    """Nodes of one group in this loop. ``disks[node]``: a disk of its own, or the real one."""

    def __init__(
        self,
        folder: Path,
        size: int = 3,
        *,
        disks: Callable[[], Any] | None = None,
        **settings: Any,
    ) -> None:
        self.folder = folder
        members = tuple(NodeId(f"n{number}") for number in range(size))
        node_names = set(NodeConfig.__dataclass_fields__)
        self.node_settings = {
            name: settings.pop(name) for name in list(settings) if name in node_names
        }
        sizes = {
            "segment_bytes": 4 * MIB,
            "index_file_bytes": 32 << 10,
            "max_body_bytes": MIB,
            # a node that waits for a busy machine keeps its leader; one whose leader has died
            # waits for takeover_ms only
            "election_ms": 10_000,
            # so that the first entry behind a leader's own is a test's
            "founding_version": 0,
        }
        self.config = GroupConfig(group="test", members=members, **{**sizes, **settings})
        self.disks = {member: disks() for member in members} if disks is not None else {}
        # Not the system's own range: somebody's outgoing connection may take such a port while its
        # node is down.
        ports = free_ports("127.0.0.1", len(members))
        self.addresses = {
            member: f"127.0.0.1:{port}" for member, port in zip(members, ports, strict=True)
        }
        self.nodes: dict[NodeId, NodeServer] = {}
        self.clients: list[BareClient] = []
        self.async_clients = contextlib.AsyncExitStack()

    until = staticmethod(until)

    def make(self, name: str, **settings: Any) -> NodeServer:
        """A node that is not started."""
        node_id = NodeId(name)
        port = int(self.addresses[node_id].rpartition(":")[2])
        own: dict[str, Any] = {"node_id": node_id, "directory": self.folder / name, "port": port}
        # how full the machine's own disk is says nothing about the node
        if node_id not in self.disks:
            own |= {"disk_warn_ratio": 1.0, "disk_full_ratio": 1.0}
        config = NodeConfig(**{**own, **self.node_settings, **settings})
        return NodeServer(
            self.config,
            config,
            addresses=lambda: dict(self.addresses),
            disk=self.disks.get(node_id),
        )

    async def start(self, *names: str, **settings: Any) -> NodeServer:
        """Start these nodes, or all; the first of them."""
        names = names or self.config.members
        for name in names:
            server = self.make(name, **settings)
            await server.start()
            self.nodes[NodeId(name)] = server
        return self.nodes[NodeId(names[0])]

    async def stop(self, *names: str) -> None:
        """Stop these nodes gracefully, or all."""
        for name in names or list(self.nodes):
            await self.nodes.pop(NodeId(name)).stop()

    async def kill(self, *names: str) -> None:
        """End these nodes, or all, at once: nothing is answered, handed over or saved."""
        for name in names or list(self.nodes):
            await self.nodes.pop(NodeId(name)).kill()

    async def restart(self, *names: str, kill: bool = False, **settings: Any) -> NodeServer:
        """Stop or kill these nodes, or all, and start them again; the first of them."""
        await (self.kill(*names) if kill else self.stop(*names))
        return await self.start(*names, **settings)

    async def replace_disk(self, name: str, **settings: Any) -> NodeServer:
        """Stop this node, and start it on an empty directory."""
        await self.stop(name)
        shutil.rmtree(self.folder / name)
        return await self.start(name, **settings)

    async def kill_followers(self) -> NodeServer:
        """Kill all nodes but the leader, which is returned."""
        leader = await self.leader()
        await self.kill(*(name for name, node in self.nodes.items() if node is not leader))
        return leader

    async def leader(self, *, but: str = "") -> NodeServer:
        """The node that leads and whose NOOP is applied; not ``but``."""

        def found() -> NodeServer | None:
            others = [node for name, node in self.nodes.items() if name != but]
            leaders = [node for node in others if node.raft.role is Role.LEADER]
            ready = [node for node in leaders if node.parts.proposals.caught_up]
            return max(ready, key=lambda node: node.raft.term, default=None)

        node: NodeServer = await until(found)
        return node

    async def follower(self) -> NodeServer:
        leader = await self.leader()
        return next(node for node in self.nodes.values() if node is not leader)

    async def hand_over(self, name: str) -> NodeServer:
        """Let this node lead, and all the others follow it, also where another wins the election:
        see `elections`."""
        while True:
            leader = await self.leader()
            if leader.node.node_id != name:
                await self.agree()
                await (await self.client(leader)).ask(TransferRequest(to=NodeId(name)))
                continue
            await until(
                lambda leader=leader: leader.raft.role is not Role.LEADER or self.follow(name)
            )
            if self.follow(name):
                return leader

    def follow(self, name: str) -> bool:
        """Whether all nodes take this one for the leader."""
        return {node.raft.leader_id for node in self.nodes.values()} == {name}

    async def client(self, node: NodeServer | None = None) -> BareClient:
        """A connection to this node, or to the leader."""
        client = await BareClient.dial((node or await self.leader()).port)
        hello = await client.ask(HelloRequest())
        assert hello.code is Code.SUCCESS, hello
        self.clients.append(client)
        return client

    async def async_client(self) -> AsyncClient:
        """A client of all members, once there is a leader; it ends with the group."""
        await self.leader()
        client = AsyncClient(",".join(self.addresses.values()))
        return await self.async_clients.enter_async_context(client)

    async def admit(self, name: str, **fields: Any) -> AdmitResponse:
        """Ask the leader to let this member count again."""
        request = AdmitRequest(node_id=NodeId(name), **fields)
        answer: AdmitResponse = await (await self.client()).ask(request)
        return answer

    async def topic(self, partitions: int = 1) -> tuple[BareClient, int]:
        """A connection to the leader, and the id of a new topic ``t``."""
        client = await self.client()
        return client, await client.create("t", partitions)

    async def agree(self) -> None:
        """Wait until all nodes have applied the same, and see that it came to the same."""
        leader = await self.leader()
        await until(
            lambda: (
                {n.catalog.applied_index for n in self.nodes.values()} == {leader.raft.end_index}
            )
        )
        assert len({node.catalog.digest() for node in self.nodes.values()}) == 1

    async def close(self) -> None:
        for client in self.clients:
            client.close()
        await self.async_clients.aclose()
        for node in list(self.nodes.values()):
            await node.kill()


@contextlib.asynccontextmanager
async def played(
    folder: Path, size: int = 3, *, start: bool = True, story_s: float = STORY_S, **settings: Any
) -> AsyncIterator[Group]:
    """A group, for one story of no more than ``story_s``; ``start=False``: no node is started
    before."""
    group = Group(folder, size, **settings)
    try:
        if start:
            await group.start()
        async with asyncio.timeout(story_s):
            yield group
    finally:
        await group.close()


Play = Callable[..., contextlib.AbstractAsyncContextManager[Group]]


@pytest.fixture
def play(tmp_path: Path) -> Play:
    """Makes a group, with size and settings that only the test itself knows."""
    return partial(played, tmp_path)


def marked(
    play: Play, request: pytest.FixtureRequest, **settings: Any
) -> contextlib.AbstractAsyncContextManager[Group]:
    """Three nodes, or what the mark ``group`` of the test or its module says, with these
    settings."""
    mark = request.node.get_closest_marker("group") or pytest.mark.group().mark
    return play(*mark.args, **settings, **mark.kwargs)


@pytest.fixture
def group(
    play: Play, request: pytest.FixtureRequest
) -> contextlib.AbstractAsyncContextManager[Group]:
    """Three nodes, or what the mark ``group`` of the test or its module says."""
    return marked(play, request)


@pytest.fixture
def takes_members(monkeypatch: pytest.MonkeyPatch) -> None:
    """A group takes changes of its members, whatever its version."""
    monkeypatch.setitem(SINCE, ChangeMembers, 0)
