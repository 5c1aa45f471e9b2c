"""A group of nodes for client tests: real sockets and the real catalog, no raft, and faults on
demand."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import socket
import threading
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial
from typing import Any

import pytest

from dledger.catalog.state_machine import Catalog
from dledger.catalog.topics.table import MemoryTables
from dledger.checksum import crc32
from dledger.client import AsyncClient, AsyncRecordFuture, Client
from dledger.errors import TopicNotFound
from dledger.net.loop import loop_factory
from dledger.protocol.messages.client import (
    AppendRequest,
    AppendResponse,
    ExecuteRequest,
    ExecuteResponse,
    FetchRequest,
    GroupRequest,
    GroupResponse,
    MetadataRequest,
    MetadataResponse,
    OffsetKind,
    OffsetsRequest,
    OffsetsResponse,
    SchemasRequest,
    SchemasResponse,
    SplitResponse,
    StatusRequest,
    StatusResponse,
    TransferRequest,
    TransferResponse,
)
from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.fetched import (
    FetchedBatch,
    FetchResponse,
)
from dledger.protocol.messages.hello import HelloRequest, HelloResponse
from dledger.protocol.messages.splits import SplitRequest, pack_cuts
from dledger.protocol.wire import FrameLimits, FrameReader, decode, encode
from dledger.records.body.header import decode_header
from dledger.records.body.records import decode_batch

MAX_BODY = 1 << 20


class FakeNode:
    """One address of the group. Each connection has a thread."""

    def __init__(self, group: FakeGroup, node_id: str) -> None:
        self.group = group
        self.node_id = node_id
        self.alive = True
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        self.sockets: set[socket.socket] = set()
        self.threads = [threading.Thread(target=self._accept, daemon=True)]
        self.threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            with self.group.lock:
                if not self.alive:
                    sock.close()
                    return
                self.sockets.add(sock)
                thread = threading.Thread(target=self._serve, args=(sock,), daemon=True)
                self.threads.append(thread)
            thread.start()

    def _serve(self, sock: socket.socket) -> None:
        reader = FrameReader(FrameLimits())
        try:
            while data := sock.recv(1 << 16):
                answers = []
                for frame in reader.feed(data):
                    message = decode(frame.kind, frame.header, frame.payload)
                    answer = self.group.handle(self, message, frame.payload)
                    if answer is DROP:
                        return
                    if answer is not SILENCE:
                        answers += encode(answer[0], frame.request_id, answer[1])
                sock.sendall(b"".join(answers))
        except OSError:
            return
        finally:
            with self.group.lock:
                self.sockets.discard(sock)
            close(sock)

    def kill(self) -> None:
        """As SIGKILL: every connection ends at once, and nobody listens."""
        with self.group.lock:
            self.alive = False
            sockets = list(self.sockets)
        close(self.listener)
        for sock in sockets:
            close(sock)


def close(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
    sock.close()


DROP = object()
SILENCE = object()


class FakeGroup:
    """A catalog behind some addresses. ``faults`` (message type -> what happens to the next ones,
    in order):

    "drop": closed before it is done; "lose": done, then closed without an answer; "silence": not
    done, no answer; a Code or a whole answer: answered with it, not done; ("done", Code): done,
    then answered with it; a callable: gives one of these.
    """

    def __init__(self, nodes: int = 3) -> None:
        self.lock = threading.RLock()
        self.catalog = Catalog(MemoryTables())
        self.index = -1
        self.bodies: dict[int, bytes] = {}
        self.faults: dict[type, deque[Any]] = {}
        self.seen: list[tuple[str, Any, bytes]] = []
        self.leader = "n0"
        self.name = "g"
        self.ids: dict[str, tuple[str, tuple[tuple[str, int], ...]]] = {}
        """By node, the id of its group and that group's ancestors; A and none where nothing is
        said."""
        self.refusal: Code | None = None
        """What every hello is answered with, in place of a welcome."""
        self.behind: set[str] = set()
        self.lag: dict[str, int] = {}
        """Records of each partition that a node has not applied when it is asked for end
        offsets."""
        self.racks: dict[str, str] = {}
        """Where nodes stand."""
        self.learners: set[str] = set()
        self.stuck: dict[str, int] = {}
        """Nodes that get no more records than these, and do not know of it."""
        self.most_cuts = 10_000
        """Of one answer to a split."""
        # last: whoever calls finds a whole group
        self.nodes = {f"n{i}": FakeNode(self, f"n{i}") for i in range(nodes)}

    @property
    def bootstrap(self) -> str:
        return ",".join(node.address for node in self.nodes.values())

    def fault(self, kind: type, *what: Any) -> None:
        with self.lock:
            self.faults.setdefault(kind, deque()).extend(what)

    def requests(self, kind: type) -> list[Any]:
        with self.lock:
            return [message for _, message, _ in self.seen if isinstance(message, kind)]

    def commands(self, kind: type) -> list[Any]:
        asked = (message.command for message in self.requests(ExecuteRequest))
        return [command for command in asked if isinstance(command, kind)]

    def values(self, topic: str, partition: int = 0) -> list[bytes]:
        """All records of a partition, from the catalog itself."""
        with self.lock:
            refs = self.catalog.find(self.catalog.topic(topic).topic_id, partition, 0, -1, 1 << 40)
            return [
                v
                for ref in refs
                for v in decode_batch(self.bodies[ref.index])[1].column("value").to_pylist()
            ]

    def handle(self, node: FakeNode, message: Any, payload: memoryview) -> Any:
        with self.lock:
            self.seen.append((node.node_id, message, bytes(payload[:64])))
            if isinstance(message, HelloRequest):
                good = message.group in ("", self.name)
                code = self.refusal or (Code.SUCCESS if good else Code.UNKNOWN_GROUP)
                group_id, ancestors = self.ids.get(node.node_id, ("A", ()))
                text = "" if good else "another group"
                answer = HelloResponse(
                    code=code, message=text, group=self.name, group_id=group_id, ancestors=ancestors
                )
                return answer, ()
            waiting = self.faults.get(type(message))
            fault = waiting.popleft() if waiting else None
            if callable(fault):
                fault = fault()
            if fault == "drop":
                return DROP
            if fault == "silence":
                return SILENCE
            if hasattr(fault, "code"):
                return fault, ()
            if isinstance(fault, Code):
                return refuse(message, fault, ""), ()
            answer = self._do(node, message, payload)
            if fault == "lose":
                return DROP
            if isinstance(fault, tuple):
                return refuse(message, fault[1], ""), ()
            return answer

    def is_now(self, group_id: str, *ancestors: tuple[str, int]) -> None:
        """Another group answers at these addresses, over new connections."""
        self.ids = dict.fromkeys(self.nodes, (group_id, ancestors))
        self.drop_connections()

    def drop_connections(self) -> None:
        """All that are open end now."""
        with self.lock:
            for node in self.nodes.values():
                for sock in list(node.sockets):
                    with contextlib.suppress(OSError):
                        sock.shutdown(socket.SHUT_RDWR)

    def _do(self, node: FakeNode, message: Any, payload: memoryview) -> Any:
        anywhere = (MetadataRequest, FetchRequest, StatusRequest, SplitRequest)
        stale = isinstance(message, OffsetsRequest) and message.stale
        if node.node_id != self.leader and not stale and not isinstance(message, anywhere):
            return refuse(message, Code.NOT_LEADER, self.leader), ()
        _, do = ANSWERS[type(message)]
        found = getattr(self, do)(node, message, payload)
        return found if isinstance(found, tuple) else (found, ())

    def _metadata(self, node: FakeNode, message: MetadataRequest, payload: memoryview) -> Any:
        topics = self.catalog.topics() if message.all_topics else []
        topics += [info for info in self.catalog.topics() if info.name in message.topics]
        peers = {node_id: one.address for node_id, one in self.nodes.items()}
        return MetadataResponse(
            code=Code.SUCCESS,
            group=self.name,
            node_id=node.node_id,
            leader_id=self.leader,
            peers=peers,
            topics=tuple(topics),
            max_body_bytes=MAX_BODY,
        )

    def _append(self, node: FakeNode, message: AppendRequest, payload: memoryview) -> Any:
        self.index += 1
        body = bytes(payload)
        self.bodies[self.index] = body
        header = decode_header(body)
        result = self.catalog.apply_data(
            self.index, self.index * 1000, len(body), header, crc32(body)
        )
        return AppendResponse(
            code=result.code, message=result.message, base_offset=result.base_offset
        )

    def _execute(self, node: FakeNode, message: ExecuteRequest, payload: memoryview) -> Any:
        self.index += 1
        result = self.catalog.apply_command(self.index, message.command)
        return ExecuteResponse(code=result.code, message=result.message, result=result.result)

    def _fetch(self, node: FakeNode, message: FetchRequest, payload: memoryview) -> Any:
        if node.node_id in self.behind:
            return FetchResponse(code=Code.BEHIND)
        of = message.topic_id, message.partition
        try:
            begin, end = self.catalog.begin_offset(*of), self.catalog.end_offset(*of)
        except TopicNotFound:
            return FetchResponse(code=Code.UNKNOWN_TOPIC, message="no such topic")
        kept = {"begin_offset": begin, "end_offset": end}
        if message.start_offset < begin:
            return FetchResponse(code=Code.OFFSET_OUT_OF_RANGE, **kept)
        stop = message.end_offset
        if node.node_id in self.stuck:
            stop = kept["end_offset"] = min(end, self.stuck[node.node_id])
            if message.start_offset > stop:
                return FetchResponse(code=Code.BEHIND, **kept)
        refs = self.catalog.find(*of, message.start_offset, stop, message.max_bytes)
        batches = tuple(
            FetchedBatch(
                base_offset=r.base_offset, count=r.count, size=r.size, crc=r.crc, index=r.index
            )
            for r in refs
        )
        bodies = [self.bodies[r.index] for r in refs]
        return FetchResponse(code=Code.SUCCESS, batches=batches, **kept), bodies

    def _offsets(self, node: FakeNode, message: OffsetsRequest, payload: memoryview) -> Any:
        catalog, lag = self.catalog, self.lag.get(node.node_id, 0)

        def offset(topic_id: int, partition: int) -> int:
            if message.kind is OffsetKind.BEGIN:
                return catalog.begin_offset(topic_id, partition)
            if message.kind in (OffsetKind.END, OffsetKind.EDGES):
                return max(0, catalog.end_offset(topic_id, partition) - lag)
            return catalog.offset_for_time(topic_id, partition, message.timestamp_us)

        try:
            infos = [catalog.topic(name) for name in message.topics]
        except TopicNotFound as error:
            return OffsetsResponse(code=Code.UNKNOWN_TOPIC, message=str(error))

        def all_of(one: Callable[[int, int], int]) -> dict[str, dict[int, int]]:
            return {
                info.name: {n: one(info.topic_id, n) for n in range(info.partitions)}
                for info in infos
            }

        return OffsetsResponse(
            code=Code.SUCCESS,
            offsets=all_of(offset),
            log_ids={info.name: info.log_id for info in infos},
            begins=all_of(catalog.begin_offset) if message.kind is OffsetKind.EDGES else {},
        )

    def _split(self, node: FakeNode, message: SplitRequest, payload: memoryview) -> Any:
        cuts = [
            self.catalog.partition_at(topic_id, number).split(
                start, end, target, min(most, self.most_cuts)
            )
            for topic_id, number, start, end, target, most in message.rows()
        ]
        counts, pieces = pack_cuts(cuts)
        return SplitResponse(code=Code.SUCCESS, counts=counts, pieces=pieces)

    def _group(self, node: FakeNode, message: GroupRequest, payload: memoryview) -> Any:
        if not message.consumer_group:
            return GroupResponse(code=Code.SUCCESS, groups=self.catalog.groups())
        return GroupResponse(code=Code.SUCCESS, offsets=self.catalog.group(message.consumer_group))

    def _schemas(self, node: FakeNode, message: SchemasRequest, payload: memoryview) -> Any:
        some, newest = self.catalog.schemas.behind(message.topic_id, message.after)
        code = Code.UNKNOWN_TOPIC if newest < 0 else Code.SUCCESS
        return SchemasResponse(code=code, schemas=some, newest=newest)

    def _status(self, node: FakeNode, message: StatusRequest, payload: memoryview) -> Any:
        roles = {name: "LEARNER" if name in self.learners else "VOTER" for name in self.nodes}
        places = {"member_roles": roles, "member_racks": self.racks} if self.racks else {}
        return StatusResponse(code=Code.SUCCESS, status={"node_id": node.node_id, **places})

    def _transfer(self, node: FakeNode, message: TransferRequest, payload: memoryview) -> Any:
        self.leader = message.to
        return TransferResponse(code=Code.SUCCESS)

    def close(self) -> None:
        for node in self.nodes.values():
            node.kill()
        for node in self.nodes.values():
            for thread in node.threads:
                thread.join(5)


ANSWERS: dict[type, tuple[type, str]] = {
    MetadataRequest: (MetadataResponse, "_metadata"),
    AppendRequest: (AppendResponse, "_append"),
    ExecuteRequest: (ExecuteResponse, "_execute"),
    FetchRequest: (FetchResponse, "_fetch"),
    OffsetsRequest: (OffsetsResponse, "_offsets"),
    SplitRequest: (SplitResponse, "_split"),
    GroupRequest: (GroupResponse, "_group"),
    SchemasRequest: (SchemasResponse, "_schemas"),
    StatusRequest: (StatusResponse, "_status"),
    TransferRequest: (TransferResponse, "_transfer"),
}
"""By request, the answer to it and the method of the group that gives it."""


def refuse(message: Any, code: Code, leader_id: str) -> Any:
    """The refusal that belongs to a request."""
    kind, _ = ANSWERS[type(message)]
    if kind is FetchResponse:
        return FetchResponse(code=code)
    return kind(code=code, message=code.name, leader_id=leader_id)


@pytest.fixture
def group() -> Iterator[FakeGroup]:
    fake = FakeGroup()
    yield fake
    fake.close()


FAST = {
    "retry_min_ms": 1,
    "retry_max_ms": 5,
    "request_timeout_ms": 5000,
    "connect_timeout_ms": 1000,
}


@pytest.fixture
def fast() -> dict[str, Any]:
    """Client settings for tests of failures."""
    return dict(FAST)


@pytest.fixture
def connect(group: FakeGroup, fast: dict[str, Any]) -> Iterator[Callable[..., Client]]:
    """``connect(partitions=1, **settings)``: a client of that group, and a topic ``t``."""
    with contextlib.ExitStack() as stack:

        def made(partitions: int = 1, **settings: Any) -> Client:
            client = stack.enter_context(Client(group.bootstrap, **{**fast, **settings}))
            client.create_topic("t", partitions, if_absent=True)
            return client

        yield made


def numbered(count: int) -> list[bytes]:
    """Values that no two records share."""
    return [str(n).encode() for n in range(count)]


@pytest.fixture
def gate(group: Any) -> Iterator[threading.Event]:
    """The group answers no append before it is set."""
    opened = threading.Event()
    do = group._append

    def append(node: Any, message: Any, payload: Any) -> Any:
        assert opened.wait(60)
        return do(node, message, payload)

    group._append = append
    yield opened
    opened.set()


class InLoop:
    """An object of the asyncio client that is called as one of the blocking client: a loop in
    another thread awaits each call."""

    def __init__(self, made: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._made = made
        self._loop = loop

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._made, name)
        return partial(self._wait, found) if callable(found) else found

    def _wait(self, call: Callable[..., Any], *args: Any, **named: Any) -> Any:
        async def work() -> Any:
            found = call(*args, **named)
            return await found if inspect.isawaitable(found) else found

        found = asyncio.run_coroutine_threadsafe(work(), self._loop).result(60)
        if isinstance(found, asyncio.Future | AsyncRecordFuture):
            return asyncio.run_coroutine_threadsafe(awaited(found), self._loop)
        is_client = type(found).__module__.startswith("dledger.client.aio")
        return InLoop(found, self._loop) if is_client or hasattr(found, "__anext__") else found

    def __enter__(self) -> Any:
        return self._wait(self._made.__aenter__)

    def __exit__(self, *error: Any) -> None:
        self._wait(self._made.__aexit__, *error)

    def __iter__(self) -> InLoop:
        return self

    def __next__(self) -> Any:
        if (found := self._wait(anext, self._made, DROP)) is DROP:
            raise StopIteration
        return found

    def close(self) -> Any:
        return self._wait(getattr(self._made, "aclose", None) or self._made.close)


async def awaited(future: Awaitable[Any]) -> Any:
    return await future


@pytest.fixture(params=["blocking", "asyncio"])
def connect_either(
    request: pytest.FixtureRequest, group: FakeGroup, connect: Any
) -> Iterator[Callable[..., Any]]:
    """As ``connect``, once for each client."""
    if request.param == "blocking":
        yield connect
        return
    with asyncio.Runner(loop_factory=loop_factory()) as runner, contextlib.ExitStack() as stack:
        loop = runner.get_loop()
        thread = threading.Thread(target=loop.run_forever)
        thread.start()
        stack.callback(thread.join)
        stack.callback(loop.call_soon_threadsafe, loop.stop)

        def made(partitions: int = 1, **settings: Any) -> Any:
            opened = AsyncClient(group.bootstrap, **{**FAST, **settings})
            client = stack.enter_context(InLoop(opened, loop))
            client.create_topic("t", partitions, if_absent=True)
            return client

        yield made


@pytest.fixture
def either(connect_either: Callable[..., Any]) -> Any:
    """A client of either kind, and a topic ``t``."""
    return connect_either()


@pytest.fixture
def client(connect: Callable[..., Client]) -> Client:
    """A client of that group, and a topic ``t``."""
    return connect()


@pytest.fixture
def connect_async(
    group: FakeGroup, fast: dict[str, Any]
) -> Callable[..., contextlib.AbstractAsyncContextManager[AsyncClient]]:
    """As ``connect``: ``async with connect_async(...) as client``."""

    @contextlib.asynccontextmanager
    async def made(partitions: int = 1, **settings: Any) -> AsyncIterator[AsyncClient]:
        async with AsyncClient(group.bootstrap, **{**fast, **settings}) as client:
            await client.create_topic("t", partitions, if_absent=True)
            yield client

    return made
