"""The proxy in front of a node: each rule does what it says, to the link that it is set for and to
no other."""

from __future__ import annotations

import asyncio
import contextlib
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator, Callable

import pytest

from dledger.embedded.ports import free_ports
from dledger.protocol.messages.hello import HelloRequest
from dledger.protocol.wire import encode
from verification.chaos.proxy import CLIENT, Proxy, Rules

PATIENCE_S = 20
PROXY = "127.0.0.2"
BIG = bytes(300_000)


class Target:
    """A server that answers every byte with itself, and keeps what it got behind each hello."""

    def __init__(self) -> None:
        self.got = b""
        self.ended = 0
        self.changed = asyncio.Event()

    async def serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        with contextlib.suppress(OSError):  # the proxy resets what it cuts
            while data := await reader.read(1 << 16):
                self.got += data
                self.changed.set()
                writer.write(data)
                await writer.drain()
        self.ended += 1
        self.changed.set()
        writer.transport.abort()

    async def until(self, wanted: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not wanted():
                self.changed.clear()
                await self.changed.wait()


class End:
    """A peer or client on its connection through the proxy."""

    def __init__(
        self, name: str, reader: StreamReader, writer: StreamWriter, *, hello: bytes = b""
    ) -> None:
        self.hello = hello or b"".join(encode(HelloRequest(group="g", node_id=name), 1))
        self.reader, self.writer = reader, writer
        writer.write(self.hello)

    async def say(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def hears(self, data: bytes) -> None:
        async with asyncio.timeout(PATIENCE_S):
            assert await self.reader.readexactly(len(data)) == data

    async def is_reset(self) -> None:
        """Whatever still comes, the connection ends."""
        async with asyncio.timeout(PATIENCE_S):
            with contextlib.suppress(OSError):
                await self.reader.read()


class Scene:
    """A target ``n0``, a proxy, and ends."""

    def __init__(self) -> None:
        self.target = Target()
        self.port = free_ports("127.0.0.1", 1)[0]
        self.proxy = Proxy({"n0": ("127.0.0.1", self.port)}, PROXY)
        self.ends: list[End] = []

    async def end(self, name: str = "") -> End:
        return await self.connected(name, self.port)

    async def connected(self, name: str, port: int, hello: bytes = b"") -> End:
        end = End(name, *await asyncio.open_connection(PROXY, port), hello=hello)
        self.ends.append(end)
        return end

    async def greeted(self, name: str = "") -> End:
        end = await self.end(name)
        await end.hears(end.hello)
        return end


@pytest.fixture
@contextlib.asynccontextmanager
async def scene() -> AsyncIterator[Scene]:
    scene = Scene()
    server = await asyncio.start_server(scene.target.serve, "127.0.0.1", scene.port)
    await scene.proxy.open()
    try:
        yield scene
    finally:
        for end in scene.ends:
            end.writer.transport.abort()
        await scene.proxy.close()
        server.close()
        await scene.target.until(lambda: True)


async def test_bytes_pass_both_ways_and_ends_are_known_by_their_hello(scene: Scene) -> None:
    client, peer = await scene.greeted(), await scene.greeted("n1")
    await client.say(b"from a client")
    await client.hears(b"from a client")
    await peer.say(BIG)
    await peer.hears(BIG)
    link = scene.proxy.link
    assert link(CLIENT, "n0").bytes == link("n0", CLIENT).bytes == len(client.hello) + 13
    assert link("n1", "n0").bytes == link("n0", "n1").bytes == len(peer.hello) + len(BIG)
    ends = ["n0", "n1", CLIENT]
    assert not any(one.counts.held for one in scene.proxy.links(ends, ends))


async def test_held_bytes_come_when_the_link_is_healed(scene: Scene) -> None:
    client, peer = await scene.greeted(), await scene.greeted("n1")
    link = scene.proxy.link("n1", "n0")
    link.set(Rules(hold=True))
    await peer.say(b"late")
    await client.say(b"soon")
    await client.hears(b"soon")
    assert b"late" not in scene.target.got
    new = await scene.end("n1")
    scene.proxy.heal()
    await peer.hears(b"late")
    await new.hears(new.hello)
    assert link.counts.held >= 4
    assert link.counts.lost == 0


async def test_a_link_is_cut_one_way(scene: Scene) -> None:
    """What is asked arrives; only the answer does not."""
    client = await scene.greeted()
    back = scene.proxy.link("n0", CLIENT)
    back.set(Rules(hold=True))
    await client.say(b"question")
    await scene.target.until(lambda: b"question" in scene.target.got)
    assert scene.proxy.link(CLIENT, "n0").counts.held == 0
    back.set(Rules())
    await client.hears(b"question")


async def test_lost_bytes_never_come_and_their_connection_is_reset(scene: Scene) -> None:
    peer = await scene.greeted("n1")
    link = scene.proxy.link("n1", "n0")
    link.set(Rules(hold=True, lose=True))
    await peer.say(b"lost")
    async with asyncio.timeout(PATIENCE_S):
        while not link.counts.held:  # noqa: ASYNC110 - the proxy reads when it likes
            await asyncio.sleep(0)
    scene.proxy.heal()
    await peer.is_reset()
    assert link.counts.lost == 4
    assert b"lost" not in scene.target.got
    await scene.target.until(lambda: scene.target.ended == 1)


async def test_delayed_bytes_come_later_and_in_order(scene: Scene) -> None:
    client = await scene.greeted()
    link = scene.proxy.link(CLIENT, "n0")
    link.set(Rules(delay_s=0.1))
    began = asyncio.get_running_loop().time()
    for _ in range(5):
        await client.say(b"ab")
    await client.hears(b"ab" * 5)
    assert asyncio.get_running_loop().time() - began > 0.09
    assert link.counts.delayed == 10


async def test_a_throttled_link_is_slow_for_every_byte(scene: Scene) -> None:
    client = await scene.greeted()
    link = scene.proxy.link("n0", CLIENT)
    link.set(Rules(bytes_per_s=50_000))
    began = asyncio.get_running_loop().time()
    await client.say(bytes(5000))
    await client.hears(bytes(5000))
    assert asyncio.get_running_loop().time() - began > 0.09
    assert link.counts.throttled == 5000


async def test_a_connection_is_reset_in_mid_chunk(scene: Scene) -> None:
    peer = await scene.greeted("n1")
    link = scene.proxy.link("n1", "n0")
    link.set(Rules(reset_after=link.bytes + 100))
    await peer.say(b"x" * 60)
    await peer.hears(b"x" * 60)
    await peer.say(b"y" * 60)
    await peer.is_reset()
    await scene.target.until(lambda: scene.target.ended == 1)
    assert link.counts.reset == 1
    assert scene.target.got.count(b"y") < 60


async def test_a_link_that_refuses_throws_out_old_and_new(scene: Scene) -> None:
    old = await scene.greeted("n1")
    link = scene.proxy.link("n1", "n0")
    link.set(Rules(refuse=True))
    await old.say(b"still there?")
    await old.is_reset()
    new = await scene.end("n1")
    await new.is_reset()
    assert link.counts.refused == 2
    await (await scene.greeted()).say(b"others may")


async def test_a_target_that_ends_and_one_that_is_not_there_end_the_connection(
    scene: Scene,
) -> None:
    client = await scene.greeted()
    client.writer.write_eof()
    await client.is_reset()
    await scene.target.until(lambda: scene.target.ended == 1)
    port = free_ports("127.0.0.1", 1)[0]
    gone = Proxy({"n1": ("127.0.0.1", port)}, PROXY)
    await gone.open()
    try:
        await (await scene.connected("", port)).is_reset()
    finally:
        await gone.close()


async def test_what_is_no_hello_is_not_passed_on(scene: Scene) -> None:
    stranger = await scene.connected("", scene.port, b"GET / HTTP/1.1\r\n" * 4)
    await stranger.is_reset()
    assert scene.target.got == b""
