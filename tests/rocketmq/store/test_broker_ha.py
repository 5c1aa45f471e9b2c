"""Master and slave over real sockets, with logs in memory."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import AsyncIterator

import pytest

from dledger.errors import ConfigError, PathError, PortInUse, ProtocolError, StorageError
from dledger.rocketmq.ha.follower import BrokerFollower
from dledger.rocketmq.ha.ha_service import HAService
from dledger.rocketmq.ha_protocol.group_transfer_service import BrokerRole, HAStatus
from dledger.rocketmq.ha_protocol.messages import HASettings
from dledger.types import Buffer
from tests.rocketmq.store.links import address, beside, until

pytestmark = pytest.mark.usefixtures("in_time")

FILE = 1 << 20
SETTINGS = HASettings(mapped_file_size_commit_log=FILE)
QUICK = HASettings(
    mapped_file_size_commit_log=FILE,
    ha_send_heartbeat_interval=20,
    ha_housekeeping_interval=200,
    slave_timeout=50,
)


class FakeLog:
    """A commit log in memory."""

    def __init__(self, data: bytes = b"", start: int = 0) -> None:
        self.data = bytearray(data)
        self.min_offset = start
        self.flushed = len(data)
        self.open = threading.Event()
        """Flushes wait for it."""
        self.open.set()
        self.flushing = threading.Event()
        self.fails: Exception | None = None
        self.appends = 0

    @property
    def max_offset(self) -> int:
        return self.min_offset + len(self.data)

    @property
    def sound_offset(self) -> int:
        return self.max_offset

    def read(self, offset: int, size: int) -> bytes:
        begin = offset - self.min_offset
        assert 0 <= begin <= begin + size <= len(self.data)
        return bytes(self.data[begin : begin + size])

    def append_raw(self, offset: int, data: Buffer) -> int:
        if not self.data:
            self.min_offset = offset
        assert offset == self.max_offset
        assert offset // FILE == (offset + len(data) - 1) // FILE
        self.data += data
        self.appends += 1
        return self.max_offset

    def flush(self) -> None:
        length = len(self.data)
        self.flushing.set()
        assert self.open.wait(30)
        if self.fails:
            error, self.fails = self.fails, None
            raise error
        self.flushed = length


def log_bytes(begin: int, size: int) -> bytes:
    """Such bytes that each place in the log has its own."""
    count = size // 8 + 2
    first = begin // 8
    return struct.pack(f">{count}Q", *range(first, first + count))[begin % 8 : begin % 8 + size]


@contextlib.asynccontextmanager
async def serving(
    log: FakeLog,
    role: BrokerRole = BrokerRole.ASYNC_MASTER,
    settings: HASettings = SETTINGS,
    port: int = 0,
    most_slaves: int = 64,
) -> AsyncIterator[HAService]:
    service = HAService(log, role, settings=settings, most_slaves=most_slaves)
    await service.start("127.0.0.1", port)
    try:
        yield service
    finally:
        await service.stop()


def acknowledged(service: HAService) -> list[int]:
    """The last report of each slave."""
    return [link.connection.slave_ack_offset for link in service.connections]


@contextlib.asynccontextmanager
async def following(
    log: FakeLog, port: int, settings: HASettings = SETTINGS
) -> AsyncIterator[BrokerFollower]:
    follower = BrokerFollower(log, f"127.0.0.1:{port}", settings=settings)
    async with beside(follower.run()):
        yield follower


@contextlib.asynccontextmanager
async def lying_master(*answers: bytes) -> AsyncIterator[int]:
    """Waits for the first report of each connection, sends the next answer, and then only listens;
    without an answer it closes."""
    loop = asyncio.get_running_loop()

    async def serve(listening: socket.socket) -> None:
        for answer in [*answers, *[b""] * 100]:
            accepted, _ = await loop.sock_accept(listening)
            accepted.setblocking(False)
            with accepted, contextlib.suppress(ConnectionError):
                await loop.sock_recv(accepted, 8)
                await loop.sock_sendall(accepted, answer)
                while answer and await loop.sock_recv(accepted, 8):
                    pass

    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)
        async with beside(serve(listening)):
            yield listening.getsockname()[1]


@contextlib.asynccontextmanager
async def raw_slave(port: int) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    yield reader, writer
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


async def test_slave_follows_from_the_masters_last_file_into_later_files() -> None:
    master, slave = FakeLog(log_bytes(0, 2 * FILE + 70_001)), FakeLog()
    async with serving(master) as service, following(slave, service.accept_socket_service.port):
        await until(lambda: slave.flushed == 70_001)
        assert slave.min_offset == 2 * FILE
        for size in (1, 200_000, FILE, 3 * FILE):
            master.data += log_bytes(master.max_offset, size)
            service.notify_appended()
            await until(lambda: slave.max_offset == master.max_offset)
    assert slave.data == master.data[2 * FILE :]


async def test_slave_goes_on_where_its_log_ends_when_its_master_comes_back() -> None:
    master, slave = FakeLog(log_bytes(0, 30_000)), FakeLog(log_bytes(0, 10_001))
    async with contextlib.AsyncExitStack() as follows:
        async with serving(master) as service:
            port = service.accept_socket_service.port
            await follows.enter_async_context(following(slave, port))
            await until(lambda: slave.max_offset == 30_000)
        master.data += log_bytes(30_000, 5_000)
        async with serving(master, port=port):
            await until(lambda: slave.max_offset == 35_000)
    assert slave.data == master.data


async def test_put_on_a_sync_master_is_ok_only_when_it_is_on_the_slaves_disk() -> None:
    master, slave = FakeLog(log_bytes(0, 1_000)), FakeLog()
    async with (
        serving(master, BrokerRole.SYNC_MASTER) as service,
        following(slave, service.accept_socket_service.port),
    ):
        await until(lambda: slave.flushed == 1_000)
        slave.open.clear()
        master.data += log_bytes(1_000, 500)
        put = asyncio.create_task(service.handle_ha(1_500))
        await until(lambda: slave.max_offset == 1_500)
        assert not put.done()
        assert service.group_transfer_service.push2_slave_max_offset <= 1_000
        slave.open.set()
        assert await put is HAStatus.PUT_OK
        assert slave.flushed == 1_500


class StepLog(FakeLog):
    """Each flush takes what was there when it began, and ends when it may."""

    def __init__(self) -> None:
        super().__init__()
        self.may_end = threading.Semaphore(1)
        self.begun = 0
        """Where the log ended when the last flush began."""

    def flush(self) -> None:
        end = self.begun = self.max_offset
        assert self.may_end.acquire(timeout=30)
        self.flushed = end


async def test_report_after_a_flush_does_not_cover_what_came_during_it() -> None:
    master, slave = FakeLog(log_bytes(0, 1_000)), StepLog()
    slave.may_end.release()  # of an empty log, and of what the master has
    async with (
        serving(master, BrokerRole.SYNC_MASTER) as service,
        following(slave, service.accept_socket_service.port),
    ):
        await until(lambda: acknowledged(service) == [1_000])
        master.data += log_bytes(1_000, 500)
        one = asyncio.create_task(service.handle_ha(1_500))
        await until(lambda: slave.begun == 1_500)
        master.data += log_bytes(1_500, 500)
        two = asyncio.create_task(service.handle_ha(2_000))
        await until(lambda: slave.max_offset == 2_000)
        slave.may_end.release()
        await until(lambda: acknowledged(service) != [1_000])
        assert acknowledged(service) == [slave.flushed] == [1_500]
        assert await one is HAStatus.PUT_OK
        assert not two.done()
        slave.may_end.release()
        assert await two is HAStatus.PUT_OK
        assert slave.flushed == 2_000


async def test_put_that_no_slave_acknowledges_or_that_has_no_slave_says_so() -> None:
    master = FakeLog(log_bytes(0, 1_000))
    async with serving(master, BrokerRole.SYNC_MASTER, QUICK) as service:
        assert await service.handle_ha(1_000) is HAStatus.SLAVE_NOT_AVAILABLE
        async with raw_slave(service.accept_socket_service.port):
            await until(lambda: service.connections)
            assert await service.handle_ha(1_000) is HAStatus.FLUSH_SLAVE_TIMEOUT
            assert await service.handle_ha(1_000, wait_store_msg_ok=False) is HAStatus.PUT_OK
            waits = asyncio.create_task(service.handle_ha(1_000))
            await asyncio.sleep(0)
            await service.stop()
            assert await waits is HAStatus.FLUSH_SLAVE_TIMEOUT


async def test_made_up_first_report_is_no_acknowledgement() -> None:
    async with (
        serving(FakeLog(log_bytes(0, 1_000)), BrokerRole.SYNC_MASTER, QUICK) as service,
        raw_slave(service.accept_socket_service.port) as (_, writer),
    ):
        writer.write(struct.pack(">q", 1_000))
        await until(lambda: acknowledged(service) == [1_000])
        assert await service.handle_ha(1_000) is HAStatus.FLUSH_SLAVE_TIMEOUT


async def test_slave_that_reports_behind_the_end_is_refused_and_others_go_on() -> None:
    master, slave = FakeLog(log_bytes(0, 1_000)), FakeLog()
    async with serving(master) as service, following(slave, service.accept_socket_service.port):
        async with raw_slave(service.accept_socket_service.port) as (reader, writer):
            writer.write(struct.pack(">q", 99_999_999))
            assert await reader.read() == b""
        await until(lambda: slave.flushed == 1_000)


async def test_silent_slave_is_given_up_and_an_idle_one_gets_heartbeats() -> None:
    async with serving(FakeLog(log_bytes(0, 1_000)), settings=QUICK) as service:
        async with raw_slave(service.accept_socket_service.port) as (reader, _):
            assert await reader.read() == b""
        async with raw_slave(service.accept_socket_service.port) as (reader, writer):
            writer.write(struct.pack(">q", 1_000))
            for _ in range(3):
                assert await reader.readexactly(12) == struct.pack(">qi", 1_000, 0)


async def test_slave_for_which_there_is_no_place_waits_and_is_not_sent_away() -> None:
    async with serving(FakeLog(log_bytes(0, 1_000)), most_slaves=1) as service:
        port = service.accept_socket_service.port
        async with contextlib.AsyncExitStack() as links:
            first = await links.enter_async_context(raw_slave(port))
            await until(lambda: service.connections)
            second = await links.enter_async_context(raw_slave(port))
            for _, writer in (first, second):
                writer.write(struct.pack(">q", 900))
            assert len(await first[0].readexactly(112)) == 112
            assert len(service.connections) == 1
            first[1].close()
            assert len(await second[0].readexactly(112)) == 112


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (struct.pack(">qi", 1_001, 1) + b"x", "sends from 1001 but this log ends at 1000"),
        (struct.pack(">qi", 1_000, 5 << 20), "a frame of 5242880 bytes"),
        (b"HTTP/1.1 400 Bad Request", "sends from 52"),
    ],
)
async def test_following_a_master_that_lies_ends_with_what_it_did(answer: bytes, why: str) -> None:
    slave = FakeLog(log_bytes(0, 1_000))
    async with lying_master(answer) as port:
        with pytest.raises(ProtocolError, match=why):
            await BrokerFollower(slave, f"127.0.0.1:{port}", settings=SETTINGS).run()
    assert slave.appends == 0


async def test_slave_reconnects_after_a_master_stops_within_a_header() -> None:
    slave = FakeLog(log_bytes(0, 1_000))
    half, whole = struct.pack(">qi", 1_000, 3)[:7], struct.pack(">qi", 1_000, 3) + b"abc"
    async with lying_master(half, whole) as port, following(slave, port, QUICK):
        await until(lambda: slave.flushed == 1_003)


async def test_slave_waits_longer_each_time_for_a_master_that_closes_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits: list[float] = []
    real = asyncio.sleep

    async def sleep(seconds: float) -> None:
        waits.append(seconds)
        await real(0)

    async with lying_master() as port:
        with monkeypatch.context() as patched:
            patched.setattr(asyncio, "sleep", sleep)
            async with following(FakeLog(), port):
                while len(waits) < 8:
                    await real(0)
    assert waits[:8] == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]


@pytest.mark.parametrize("error", [StorageError("the disk failed"), PathError("no such folder")])
async def test_following_ends_when_the_disk_fails(error: Exception) -> None:
    slave = FakeLog()
    slave.fails = error
    async with serving(FakeLog(log_bytes(0, 1_000))) as service:
        with pytest.raises(type(error), match=str(error)):
            await BrokerFollower(slave, address(service), settings=SETTINGS).run()


async def test_flush_that_fails_while_the_master_goes_away_is_not_forgotten() -> None:
    """The flush that follows it succeeds, as the system's second fsync does: nothing it covers may
    be reported."""
    slave = FakeLog()
    async with serving(FakeLog(log_bytes(0, 1_000))) as service:
        port = service.accept_socket_service.port
        follower = BrokerFollower(slave, address(service), settings=SETTINGS)
        task = asyncio.create_task(follower.run())
        await until(lambda: service.connections)
        slave.flushing.clear()
        slave.open.clear()
        slave.fails = StorageError("the disk failed")
        service.notify_appended()
        await until(lambda: slave.max_offset == 1_000)
        await until(slave.flushing.is_set)
    slave.open.set()
    async with serving(FakeLog(log_bytes(0, 1_000)), port=port):
        with pytest.raises(StorageError, match="the disk failed"):
            await task


async def test_port_that_is_taken_or_no_address_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        with pytest.raises(PortInUse, match="another process listens there"):
            await HAService(FakeLog()).start("127.0.0.1", taken.getsockname()[1])
        with pytest.raises(ConfigError, match="cannot listen on"):
            await HAService(FakeLog()).start("192.0.2.1", 0)
