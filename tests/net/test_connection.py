"""Connections over real sockets: many frames, large frames, slow and hostile other sides."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import logging
import socket
import weakref
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from dledger.config import MIB
from dledger.errors import ConfigError, PortInUse, ProtocolError, Unavailable
from dledger.net import Connection, FrameLimits, Handlers, Listener, Patience, connect
from dledger.net.address import KERNEL_BYTES, split_address
from dledger.net.connections.buffers import JOIN_BYTES, joined
from dledger.net.connections.handlers import RECEIVE_BYTES, OnConnection
from dledger.net.connections.incoming import HEAD_BYTES, TURN_BYTES, TURN_FRAMES
from dledger.net.connections.outgoing import WRITE_HIGH_BYTES
from dledger.net.limits.inflow import PRESSED_READ_BYTES
from dledger.net.loop import loop_factory
from dledger.protocol.messages.client import (
    AppendRequest,
    AppendResponse,
    StatusRequest,
    StatusResponse,
)
from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.hello import HelloRequest, HelloResponse
from dledger.protocol.wire import PREFIX_SIZE, Frame, encode
from dledger.types import Buffer
from tests.net.net_fakes import Watched, dial

HELLO = b"".join(encode(HelloRequest(), 1))


class Node(Watched):
    """A listener that answers, and remembers what happened."""

    def __init__(self) -> None:
        super().__init__()
        self.opened: list[Connection] = []
        self.frames: list[tuple[int, Any, bytes]] = []
        self.batches: list[int] = []
        self.closed: list[Exception | None] = []
        self.listener = Listener(self.handlers(), FrameLimits())
        self.quiet = False
        self.on_measure: OnConnection = lambda connection: None

    def handlers(self) -> Handlers[Connection]:
        return Handlers(
            on_open=self.on_open,
            on_frame=self.on_frame,
            on_close=self.on_close,
            on_batch_end=self.on_batch_end,
        )

    async def open(self, **patience: Any) -> str:
        limits = FrameLimits(payload_bytes=8 << 20)
        self.listener = Listener(self.handlers(), limits, patience=Patience(**patience))
        await self.listener.open("127.0.0.1", 0)
        return f"127.0.0.1:{self.listener.port}"

    def on_open(self, connection: Connection) -> None:
        self.opened.append(connection)
        self.changed.set()

    def on_frame(
        self, connection: Connection, request_id: int, message: Any, payload: memoryview
    ) -> None:
        self.frames.append((request_id, message, bytes(payload)))
        if not self.quiet:
            if isinstance(message, HelloRequest):
                self.welcome(connection, request_id, message)
            elif isinstance(message, AppendRequest):
                connection.send(
                    AppendResponse(code=Code.SUCCESS, base_offset=len(payload)), request_id
                )
            elif isinstance(message, StatusRequest):
                connection.send(
                    StatusResponse(code=Code.SUCCESS, status={"x": b"y" * 60_000}), request_id
                )
        self.changed.set()

    def welcome(self, connection: Connection, request_id: int, message: HelloRequest) -> None:
        places = self.listener.places
        if message.node_id:
            places.seat_member(message.node_id, connection)
        elif full := places.refusal(connection):
            connection.send(HelloResponse(code=Code.LEADER_PENDING_FULL, message=full), request_id)
            connection.close()
            return
        else:
            places.seat_client(connection)
        connection.send(HelloResponse(code=Code.SUCCESS), request_id)

    def on_batch_end(self, connection: Connection) -> None:
        self.on_measure(connection)
        self.batches.append(len(self.frames))
        self.changed.set()

    def on_close(self, connection: Connection, error: Exception | None) -> None:
        self.closed.append(error)
        self.changed.set()

    async def closes(self, words: str) -> None:
        """Wait for the end of the first connection, for that reason."""
        await self.until(lambda: len(self.closed) == 1)
        assert words in str(self.closed[0])


class Caller(Watched):
    """The other end."""

    def __init__(self) -> None:
        super().__init__()
        self.answers: list[tuple[int, Any]] = []
        self.closed: list[Exception | None] = []

    async def open(self, address: str, hello: HelloRequest = HelloRequest()) -> Connection:
        """A connection that has said hello."""
        handlers = Handlers(on_frame=self.on_frame, on_close=self.on_close)
        connection = await connect(address, handlers, FrameLimits(), 5)
        connection.send(hello, 0)
        return connection

    async def enter(self, address: str) -> Connection:
        """`open`, and wait for the welcome."""
        connection = await self.open(address)
        await self.answered(1)
        return connection

    async def answered(self, count: int) -> None:
        """Wait for so many answers in all."""
        await self.until(lambda: len(self.answers) == count)

    def on_frame(
        self, connection: Connection, request_id: int, message: Any, payload: memoryview
    ) -> None:
        self.answers.append((request_id, message))
        self.changed.set()

    def on_close(self, connection: Connection, error: Exception | None) -> None:
        self.closed.append(error)
        self.changed.set()


async def called(node: Node) -> tuple[Caller, Connection]:
    """A caller that the node welcomes when it has opened, and its connection."""
    caller = Caller()
    return caller, await caller.enter(await node.open())


@pytest.fixture
@contextlib.asynccontextmanager
async def node() -> AsyncIterator[Node]:
    node = Node()
    try:
        yield node
    finally:
        await node.listener.close()


@contextlib.asynccontextmanager
async def welcome(node: Node, **patience: Any) -> AsyncIterator[tuple[socket.socket, Connection]]:
    """A socket that has said hello, and its connection at the node."""
    with dial(await node.open(**patience)) as sock:
        sock.sendall(HELLO)
        await node.until(lambda: len(node.frames) == 1)
        yield sock, node.opened[0]


async def ends(sock: socket.socket) -> bytes:
    """What comes until the other side closes."""

    def read() -> bytes:
        data = b""
        with contextlib.suppress(ConnectionResetError):
            while piece := sock.recv(65536):
                data += piece
        return data

    return await asyncio.to_thread(read)


@pytest.mark.usefixtures("new_loop")
async def test_frames_of_all_sizes_arrive_in_order(node: Node) -> None:
    sizes = [0, 1, 1000, 70_000, 300_000, 5, 4 << 20, 2, *([100] * 500), 200_000]
    caller, connection = await called(node)
    payloads = [bytes([n % 256]) * size for n, size in enumerate(sizes)]
    for n, payload in enumerate(payloads):
        connection.send(AppendRequest(), n + 1, [payload[:10], payload[10:]])
    await caller.until(lambda: len(caller.answers) > len(sizes))
    assert [payload for _, _, payload in node.frames[1:]] == payloads
    assert [(rid, m.base_offset) for rid, m in caller.answers[1:]] == [
        (n + 1, s) for n, s in enumerate(sizes)
    ]
    assert len(node.batches) < len(node.frames)
    assert node.batches[-1] == len(node.frames)
    connection.close()
    await node.until(lambda: node.closed == [None])


async def test_payloads_stay_as_they_were_while_more_arrives(node: Node) -> None:
    """The receive buffer is used again; a payload that was handed out is not in it."""
    kept: list[memoryview] = []
    node.on_frame = lambda c, rid, m, payload: (kept.append(payload), node.changed.set())  # type: ignore[method-assign]
    caller = Caller()
    connection = await caller.open(await node.open())
    for n in range(50):
        connection.send(AppendRequest(), n, [bytes([n]) * 10_000])
    await node.until(lambda: len(kept) == 51)
    assert [bytes(p) for p in kept[1:]] == [bytes([n]) * 10_000 for n in range(50)]


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"GET / HTTP/1.1\r\nHost: somewhere\r\n\r\n", "starts with"),
        (b"".join(encode(StatusRequest(), 1)), "first frame is StatusRequest"),
        (b"".join(encode(HelloRequest(group="g" * 70_000), 1)), "over the limit"),
        (HELLO[:24] + b"\xc1" + HELLO[25:], "CRC"),
        (
            HELLO + b"".join(encode(AppendRequest(), 1, [bytes(9 << 20)]))[:100],
            "payload of 9437184 bytes is over",
        ),
        (HELLO + HELLO[:-1] + b"\x00", "CRC"),
        (HELLO + b"\n\x1b[31mred\n" * 10, "starts with"),
    ],
    ids=lambda case: case if isinstance(case, str) else "",
)
async def test_garbage_closes_its_connection_with_one_line_and_nothing_else(
    node: Node, data: bytes, says: str, caplog: pytest.LogCaptureFixture
) -> None:
    address = await node.open()
    good = Caller()
    connection = await good.enter(address)
    with dial(address) as sock, caplog.at_level(logging.DEBUG, "dledger.net"):
        sock.sendall(data)
        await ends(sock)
    await node.until(lambda: len(node.closed) == 1)
    assert isinstance(node.closed[0], ProtocolError)
    connection.send(StatusRequest(), 5)
    await good.answered(2)
    (line,) = [r.getMessage() for r in caplog.records if r.name == "dledger.net"]
    assert says in line
    assert line.isprintable()


@pytest.mark.parametrize("size", [1, 23, 24, len(HELLO) - 1, len(HELLO) + 10])
async def test_stream_that_ends_inside_a_frame_closes_the_connection(node: Node, size: int) -> None:
    with dial(await node.open()) as sock:
        sock.sendall((HELLO + HELLO)[:size])
        sock.shutdown(socket.SHUT_WR)
        await ends(sock)
    await node.closes("ended inside a frame")
    assert len(node.frames) == (1 if size > len(HELLO) else 0)


async def test_who_never_says_hello_is_closed(node: Node) -> None:
    with dial(await node.open(hello_s=0.02, sweep_s=0.01)) as sock:
        sock.sendall(HELLO[:5])
        assert await ends(sock) == b""
    await node.closes("no hello")


async def test_who_stalls_inside_a_frame_is_closed_and_who_is_idle_is_not(node: Node) -> None:
    address = await node.open(stall_s=0.02, sweep_s=0.01)
    idle = Caller()
    connection = await idle.enter(address)
    with dial(address) as sock:
        sock.sendall(HELLO + HELLO[:20])
        await ends(sock)
    await node.closes("stalled")
    connection.send(StatusRequest(), 1)
    await idle.answered(2)


async def test_too_many_connections_are_refused_and_the_others_live(node: Node) -> None:
    address = await node.open(max_connections=2)
    callers = [Caller() for _ in range(3)]
    for caller in callers:
        await caller.open(address)
    await callers[2].until(lambda: len(callers[2].closed) == 1)
    assert "max_connections of the node" in callers[2].answers[0][1].message
    for caller in callers[:2]:
        await caller.answered(1)
    assert len(node.listener.connections) == 2


@pytest.mark.usefixtures("new_loop")
async def test_who_does_not_take_answers_is_not_read_from(node: Node) -> None:
    """Back-pressure: a client that asks and asks without reading must not fill the node's memory.
    Many small requests come in one read, and each may have a large answer; they wait too."""
    address = await node.open()
    with dial(address) as sock:
        most = 0

        def measure(connection: Connection) -> None:
            nonlocal most
            most = max(most, connection.unsent_bytes)

        node.on_measure = measure
        requests = HELLO + b"".join(encode(StatusRequest(), 1)) * 500
        await asyncio.to_thread(sock.sendall, requests)
        await node.until(lambda: len(node.frames) > 10)
        sock.setblocking(False)
        received = 0
        while received < 500 * 60_000:
            received += len(await asyncio.get_running_loop().sock_recv(sock, 1 << 20))
        assert len(node.frames) == 501
        assert most < 4 << 20


def unfinished(size: int) -> bytes:
    """A hello, and a request of which the last byte is missing."""
    return HELLO + b"".join(encode(AppendRequest(), 1, [bytes(size)]))[:-1]


async def test_unfinished_requests_stay_in_budget_and_delay_no_small_one(
    node: Node,
) -> None:
    """Neither a client with small requests nor a member waits for those who begin large frames and
    do not end them."""
    address = await node.open(max_bytes=16 << 20, stall_s=1000.0, pressed_s=1000.0)
    inflow = node.listener.inflow
    slow = [dial(address) for _ in range(30)]
    for sock in slow[:3]:
        await asyncio.to_thread(sock.sendall, unfinished(4 << 20))
    for sock in slow[3:]:
        sock.sendall(unfinished(4 << 20)[:200])
    await node.until(lambda: len(node.frames) == 30)
    good, member = Caller(), Caller()
    connection = await good.open(address)
    for number in range(10):
        connection.send(StatusRequest(), number)
    await good.answered(11)
    assert inflow.used <= 17 << 20, "and the first bytes of those that wait"
    assert len(inflow.kept_waiting) >= 25
    (await member.open(address, HelloRequest(node_id="n1"))).send(
        AppendRequest(), 1, [bytes(7 << 20)]
    )
    await member.answered(2)
    for sock in slow:
        sock.close()
    await node.until(lambda: len(node.closed) == 30)
    assert (inflow.used, inflow.kept_waiting) == (0, {})


async def test_connections_take_of_the_budget_and_leave_a_quarter(node: Node) -> None:
    address = await node.open(max_bytes=64 << 10)
    inflow = node.listener.inflow
    with contextlib.ExitStack() as crowd:
        for count, left in ((0, 64), (1, 48), (2, 32), (3, 16), (9, 16)):
            for _ in range(count - len(node.opened)):
                crowd.enter_context(dial(address))
            await node.until(lambda count=count: len(node.opened) == count)  # type: ignore[misc]
            assert inflow.limit == left << 10


@pytest.mark.parametrize("last", [b"", b"no frame at all, but as long as one"])
async def test_an_ended_connection_waits_for_no_collection(node: Node, last: bytes) -> None:
    """A crowd that comes and goes would else leave thousands of them."""
    address = await node.open()
    gc.collect()
    gc.disable()
    try:
        with dial(address) as sock:
            sock.sendall(b"".join(encode(HelloRequest(), 1)) + last)
            await node.until(lambda: bool(node.frames or node.closed))
        await node.until(lambda: len(node.closed) == 1)
        ended = weakref.ref(node.opened.pop())
        await asyncio.sleep(0)
        assert ended() is None
    finally:
        gc.enable()


async def test_ended_connection_holds_no_memory_while_still_referenced(
    node: Node,
) -> None:
    address = await node.open()
    with dial(address) as sock:
        await asyncio.to_thread(sock.sendall, unfinished(4 << 20))
        await node.until(lambda: len(node.frames) == 1)
        reader, other = node.opened[0]._reader, Caller()
        connection = await other.open(address)
        while reader.held < 4 << 20:  # the kernel has the rest
            seen = len(other.answers)
            connection.send(StatusRequest(), 1)
            await other.until(lambda seen=seen: len(other.answers) > seen)  # type: ignore[misc]
    await node.until(lambda: len(node.closed) == 1)
    assert reader.held == 0


async def test_first_read_behind_a_very_large_payload_is_that_of_a_head(node: Node) -> None:
    """So the next payload goes straight to its place, with little to be copied."""
    async with welcome(node) as (sock, connection):
        assert len(connection.get_buffer(-1)) == RECEIVE_BYTES
        await asyncio.to_thread(sock.sendall, b"".join(encode(AppendRequest(), 1, [bytes(MIB)])))
        await node.until(lambda: len(node.frames) == 2)
        assert len(connection.get_buffer(-1)) == HEAD_BYTES
        assert len(connection.get_buffer(-1)) == HEAD_BYTES, "until something came"
        await asyncio.to_thread(sock.sendall, b"".join(encode(StatusRequest(), 1)))
        await node.until(lambda: len(node.frames) == 3)
        assert len(connection.get_buffer(-1)) == RECEIVE_BYTES
        small = b"".join(encode(AppendRequest(), 1, [bytes(RECEIVE_BYTES - 1)]))
        await asyncio.to_thread(sock.sendall, small)
        await node.until(lambda: len(node.frames) == 4)
        assert len(connection.get_buffer(-1)) == RECEIVE_BYTES, "a copy of that costs less"


async def test_request_flood_on_one_connection_leaves_turns_room_for_others(
    node: Node,
) -> None:
    address = await node.open()
    node.quiet = True
    with dial(address) as sock:
        sock.sendall(HELLO + b"".join(encode(StatusRequest(), 1)) * 2000)
        await node.until(lambda: len(node.frames) == 2001)
    sizes = [after - before for before, after in itertools.pairwise([0, *node.batches])]
    assert max(sizes) <= TURN_FRAMES
    assert sum(sizes) == 2001


def send_what_fits(sock: socket.socket, frame: bytes, most: int) -> int:
    """Send a frame again and again, up to ``most`` bytes or to where the kernel takes no more; how
    many those were."""
    sock.setblocking(False)
    sent = 0
    with contextlib.suppress(BlockingIOError):
        while sent < most:
            sent += sock.send(frame[sent % len(frame) :])
    return sent


def check_turns(received: list[int], sent: int) -> None:
    """``received``: bytes so far, behind each turn of the loop."""
    most = TURN_BYTES + RECEIVE_BYTES
    assert sent > most
    assert max(after - before for before, after in itertools.pairwise(received)) <= most


async def test_received_megabytes_of_one_connection_take_more_than_one_turn(
    node: Node,
) -> None:
    node.quiet = True
    turns: list[int] = [0]
    node.on_measure = lambda connection: turns.__setitem__(
        -1, sum(len(body) for _, _, body in node.frames)
    )

    def next_turn() -> None:
        turns.append(turns[-1])
        ticking.append(loop.call_soon(next_turn))

    loop, ticking = asyncio.get_running_loop(), list[asyncio.Handle]()
    async with welcome(node) as (sock, _):
        frame = b"".join(encode(AppendRequest(), 1, [bytes(16 << 10)]))
        sent = send_what_fits(sock, frame, 1 << 30)
        next_turn()
        await node.until(lambda: len(node.frames) == 1 + sent // len(frame))
        ticking[-1].cancel()
    check_turns(turns, sent)


async def test_a_large_body_is_received_no_more_at_once_than_is_a_clients_turn(node: Node) -> None:
    """Fifty clients may have megabytes ready, and one turn of the loop would copy them all."""
    async with welcome(node) as (sock, connection):
        frame = b"".join(encode(AppendRequest(), 1, [bytes(4 << 20)]))
        sent = send_what_fits(sock, frame, len(frame))
        turns = [connection.received]
        while turns[-1] < len(HELLO) + sent and not connection.closing:
            await asyncio.sleep(0)
            turns.append(connection.received)
    check_turns(turns, sent)


async def test_large_requests_that_had_to_wait_are_taken_when_others_have_ended(node: Node) -> None:
    address = await node.open(max_bytes=5 << 20)
    callers = [Caller() for _ in range(8)]
    for number, caller in enumerate(callers):
        (await caller.open(address)).send(AppendRequest(), 1, [bytes([number]) * (4 << 20)])
    for caller in callers:
        await caller.answered(2)
    taken = sorted(
        payload for _, message, payload in node.frames if isinstance(message, AppendRequest)
    )
    assert taken == [bytes([number]) * (4 << 20) for number in range(8)]
    assert node.listener.inflow.used == 0


async def test_client_idle_too_long_is_closed_and_one_awaiting_answer_is_not(
    node: Node,
) -> None:
    address = await node.open(idle_s=0.05, sweep_s=0.01)
    idle, waiting = Caller(), Caller()
    connection = await waiting.enter(address)
    node.quiet = True
    connection.send(StatusRequest(), 7)
    await node.until(lambda: len(node.frames) == 2)
    node.quiet = False
    await idle.open(address)
    await idle.until(lambda: len(idle.closed) == 1)
    assert not waiting.closed


async def test_paused_reading_stops_frames_until_it_is_resumed(node: Node) -> None:
    caller, connection = await called(node)
    served = node.opened[0]
    served.pause_reading()
    served.pause_reading()
    connection.send(StatusRequest(), 1)
    connection.flush()
    served.send(StatusResponse(code=Code.SUCCESS), 99)
    await caller.answered(2)
    assert len(node.frames) == 1
    served.resume_reading()
    await node.until(lambda: len(node.frames) == 2)


async def test_a_member_is_read_in_whole_buffers_whatever_clients_hold(node: Node) -> None:
    await called(node)
    served = node.opened[0]
    assert served._inflow is not None
    served._inflow._is_pressed = True
    assert len(served.get_buffer(-1)) == PRESSED_READ_BYTES
    served.become_member()
    served._inflow._is_pressed = True
    assert len(served.get_buffer(-1)) == RECEIVE_BYTES


async def test_a_flush_before_the_end_of_the_turn_leaves_nothing_for_then(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, connection = await called(node)
    flushes: list[int] = []
    write_now = Connection._write_now

    def watched(one: Connection, pieces: list[Buffer], size: int) -> list[Buffer]:
        if one is connection:
            flushes.append(size)
        return write_now(one, pieces, size)

    monkeypatch.setattr(Connection, "_write_now", watched)
    connection.send(StatusRequest(), 1)
    due = connection._due
    assert due is not None
    connection.flush()
    assert due.cancelled()
    connection.send(StatusRequest(), 2)
    assert not connection._due.cancelled()
    await node.until(lambda: len(node.frames) == 3)
    assert len(flushes) == 2


async def test_reading_goes_on_when_all_that_was_unsent_has_left_in_one_write(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As much was queued as may wait, when the owner let it be read again, and the kernel took it
    all at once."""
    _, connection = await called(node)
    served = node.opened[0]
    write = Connection._write_now

    def written(self: Connection, pieces: list[Any], size: int) -> list[Any]:
        return [] if self is served else write(self, pieces, size)

    monkeypatch.setattr(Connection, "_write_now", written)
    served.pause_reading()
    served.send(StatusResponse(code=Code.SUCCESS, status={"x": b"y" * (WRITE_HIGH_BYTES + 1)}), 1)
    served.resume_reading()
    connection.send(AppendRequest(timeout_ms=1), 2)
    await node.until(lambda: len(node.frames) == 2)


async def test_idle_connection_has_no_dict_of_its_own(node: Node) -> None:
    """A dict of so many attributes is shared with no other, and takes 1.5 KiB: a third of what an
    idle connection of a stranger costs."""
    _, connection = await called(node)
    assert not hasattr(connection, "__dict__")
    assert not hasattr(node.opened[0], "__dict__")


async def test_unsent_bytes_of_a_slow_reader_are_gone_when_it_ends(node: Node) -> None:
    _, connection = await called(node)
    node.opened[0].pause_reading()
    for n in range(16):
        connection.send(AppendRequest(), n, [bytes(1 << 20)])
    connection.flush()
    assert connection.unsent_bytes > 1 << 20
    node.opened[0].abort()
    await connection.wait_closed()
    assert connection.closing
    connection.send(StatusRequest(), 1)
    assert connection.unsent_bytes == 0


async def test_close_sends_what_is_unsent(node: Node) -> None:
    _, connection = await called(node)
    # an answer to a closed socket is met by a reset, which drops what is not read yet
    node.quiet = True
    for n in range(5):
        connection.send(AppendRequest(), n, [bytes(1 << 20)])
    connection.close()
    await connection.wait_closed()
    await node.until(lambda: len(node.closed) == 1)
    assert len(node.frames) == 6


async def test_listener_that_closes_sends_what_is_unsent_and_frees_its_port(node: Node) -> None:
    caller, _ = await called(node)
    node.opened[0].send(StatusResponse(code=Code.SUCCESS), 42)
    await node.listener.close()
    await caller.until(lambda: len(caller.closed) == 1)
    assert caller.answers[-1][0] == 42
    with pytest.raises(Unavailable):
        await caller.open(f"127.0.0.1:{node.listener.port}")


async def test_port_in_use_is_said_and_so_is_a_host_of_somebody_else(node: Node) -> None:
    address = await node.open()
    port = split_address(address)[1]
    other = Node().listener
    with pytest.raises(PortInUse, match=str(port)):
        await other.open("127.0.0.1", port)
    with pytest.raises(ConfigError, match="192"):
        await other.open("192.0.2.1", 0)


@pytest.mark.parametrize("address", ["", "host", "host:", ":5", "host:0", "host:70000", "host:x"])
async def test_address_that_cannot_be_is_refused(address: str) -> None:
    caller = Caller()
    with pytest.raises(ConfigError, match="host:port"):
        await caller.open(address)


def test_small_buffers_are_joined_and_large_ones_are_not_copied() -> None:
    large = bytearray(JOIN_BYTES)
    pieces = joined([b"a", b"b", large, b"c", b"", b"d", large, large])
    assert [bytes(p) for p in pieces] == [b"ab", bytes(large), b"cd", bytes(large), bytes(large)]
    assert pieces[1] is large
    assert joined([]) == []


def test_loop_is_uvloop_where_it_is_installed() -> None:
    uvloop = pytest.importorskip("uvloop")
    loop = loop_factory()()
    assert isinstance(loop, uvloop.Loop)
    loop.close()


@pytest.mark.skipif(
    not hasattr(socket, "TCP_NOTSENT_LOWAT"),
    reason="this system cannot limit what its kernel takes",
)
async def test_the_kernel_takes_little_of_answers_that_nobody_takes(node: Node) -> None:
    address = await node.open()
    with socket.socket() as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.connect(split_address(address))
        deaf.sendall(HELLO)
        await node.until(lambda: bool(node.frames))
        (connection,) = node.opened
        connection.send(AppendResponse(code=Code.SUCCESS), 2, [bytes(1 << 20)] * 8)
        connection.flush()
        for _ in range(100):  # the kernel has every chance to take more
            await asyncio.sleep(0)
        assert (8 << 20) - connection.unsent_bytes <= 2 * KERNEL_BYTES


async def test_requests_that_wait_are_held_as_bytes_and_lost_by_nobody(node: Node) -> None:
    node.quiet = True
    request, count = b"".join(encode(StatusRequest(), 1)), 3000
    async with welcome(node) as (sock, connection):
        node.on_measure = lambda it: it.pause_reading()
        sock.sendall(request * count)
        while connection.received < len(request) * 1000:  # noqa: ASYNC110 - the kernel has the rest
            await asyncio.sleep(0)
        assert len(node.frames) < 1000
        assert sum(isinstance(one, Frame) for one in gc.get_objects()) < TURN_FRAMES
        node.on_measure = lambda connection: None
        connection.resume_reading()
        await node.until(lambda: len(node.frames) == count + 1)


async def test_parsed_but_unwanted_requests_count_against_the_budget(
    node: Node,
) -> None:
    append = b"".join(encode(AppendRequest(), 1, [bytes(10_000)]))
    async with welcome(node) as (sock, connection):
        take = node.on_frame

        def pause_at_first(
            it: Connection, request_id: int, message: Any, payload: memoryview
        ) -> None:
            take(it, request_id, message, payload)
            it.pause_reading()

        connection._handlers = replace(connection._handlers, on_frame=pause_at_first)
        sock.sendall(append * 8)
        await node.until(lambda: len(node.frames) > 1)
        assert connection._frames
        kept = connection.received - len(HELLO) - len(append)
        assert node.listener.inflow.used >= kept - 8 * PREFIX_SIZE
        connection._handlers = replace(connection._handlers, on_frame=take)
        connection.resume_reading()
        await node.until(lambda: len(node.frames) == 9)


async def test_large_request_waiting_for_room_keeps_its_place_in_any_turn(
    node: Node,
) -> None:
    address = await node.open(max_bytes=6 << 20)
    with dial(address) as first, dial(address) as second, dial(address) as third:
        for number, sock in enumerate((first, second, third)):
            await asyncio.to_thread(sock.sendall, unfinished(4 << 20)[: 1 << 20])
            await node.until(lambda number=number: len(node.frames) == number + 1)  # type: ignore[misc]
            reader = node.opened[number]._reader
            while not (reader.large or reader.refused):  # noqa: ASYNC110 - the kernel has the rest
                await asyncio.sleep(0)
        _, waits, behind = (one._reader for one in node.opened)
        assert waits.refused
        assert behind.refused
        node.listener._turns._left = 0
        first.close()
        async with asyncio.timeout(20):
            while not (waits.large or behind.large):  # noqa: ASYNC110 - the room comes back in its own time
                await asyncio.sleep(0)
        assert waits.large
