"""A proxy in front of every node: all connections of peers and clients go through it, and it can
hurt each link.

The sender of a connection is known from its first frame, the hello: a peer gives its node id, a
client gives none. So all nodes and clients may use the same addresses, as they do without a proxy.

A link is one way: from one end to another. `Proxy.link` has its `Rules`, which may be changed at
any time and hold for connections that are open as well as for new ones, and its `ProxyCounts` of
the rules' effects.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from dledger.errors import ProtocolError
from dledger.net.connections.connection import log
from dledger.protocol.messages.hello import HelloRequest
from dledger.protocol.wire import HELLO_LIMITS, FrameLimits, FrameReader, decode

CLIENT: Final = "client"
"""The name of every end that is no node."""
CHUNK: Final = 64 << 10
AHEAD: Final = 64
"""Chunks of one connection and way that wait for their time; then the proxy reads no more, as a
full network would."""
HELLO_S: Final = 10.0
CONNECT_S: Final = 2.0
_RESET_AT_CLOSE: Final = struct.pack("ii", 1, 0)


@dataclass(frozen=True, slots=True)
class Rules:
    """How bytes on a link fare. As made, they pass at once."""

    hold: bool = False
    """They wait until this is False again, as packets that are sent again and again."""
    lose: bool = False
    """With ``hold``: bytes that came meanwhile never arrive, so their connections are reset in the
    end."""
    refuse: bool = False
    """Connections are reset, new ones at once."""
    delay_s: float = 0.0
    bytes_per_s: int = 0
    """0: no limit."""
    reset_after: int = 0
    """A connection is reset in the middle of a chunk after so many bytes. 0: never."""


@dataclass(slots=True)
class ProxyCounts:
    """The effects of rules on a link: bytes, and connections for the last two."""

    held: int = 0
    lost: int = 0
    delayed: int = 0
    throttled: int = 0
    reset: int = 0
    refused: int = 0


@dataclass(slots=True)
class Link:
    """One way between two ends: from ``source`` to ``target``."""

    source: str
    target: str
    rules: Rules = field(default_factory=Rules)
    counts: ProxyCounts = field(default_factory=ProxyCounts)
    bytes: int = 0
    """That arrived."""
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def set(self, rules: Rules) -> None:
        """From now on these rules."""
        self.rules = rules
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def admit(self, size: int) -> None:
        """Return when ``size`` bytes may go on.

        Raises:
            ConnectionResetError: they are lost, or the link refuses.
        """
        doomed = False
        if self.rules.hold:
            self.counts.held += size
        while self.rules.hold:
            doomed = doomed or self.rules.lose
            await self._changed.wait()
        if doomed:
            self.counts.lost += size
        if self.rules.refuse:
            self.counts.refused += 1
        if doomed or self.rules.refuse:
            raise ConnectionResetError


class Pipe:
    """One way of one connection."""

    def __init__(
        self, link: Link, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._link = link
        self._reader = reader
        self._writer = writer
        self._queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(AHEAD)
        self._passed = 0

    async def run(self, first: bytes = b"") -> None:
        """Until the end of what comes in; then the other side is told that it ended."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._take(first))
            tasks.create_task(self._give())

    async def _take(self, data: bytes) -> None:
        loop, link = asyncio.get_running_loop(), self._link
        while True:
            if data:
                delay = link.rules.delay_s
                link.counts.delayed += len(data) if delay else 0
                await self._queue.put((loop.time() + delay, data))
            data = await self._reader.read(CHUNK)
            if not data:
                await self._queue.put((loop.time() + link.rules.delay_s, b""))
                return

    async def _give(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due, data = await self._queue.get()
            if due > loop.time():
                await asyncio.sleep(due - loop.time())
            await self._link.admit(len(data))
            if not data:
                with contextlib.suppress(OSError, RuntimeError):  # it may be closed by now
                    self._writer.write_eof()
                return
            for piece in self._pieces(data):
                await self._pass(piece)

    def _pieces(self, data: bytes) -> list[bytes]:
        """Small ones on a slow link, so that it is slow for every byte."""
        rate = self._link.rules.bytes_per_s
        size = max(1, rate // 20) if rate else len(data)
        return [data[at : at + size] for at in range(0, len(data), size)]

    async def _pass(self, data: bytes) -> None:
        link = self._link
        rules = link.rules
        if rules.bytes_per_s:
            link.counts.throttled += len(data)
            await asyncio.sleep(len(data) / rules.bytes_per_s)
        torn = 0 < rules.reset_after <= self._passed + len(data)
        if self._writer.transport.is_closing():  # the other way has found out that this end is gone
            raise ConnectionResetError
        self._writer.write(data[: len(data) // 2] if torn else data)
        await self._writer.drain()
        if torn:
            link.counts.reset += 1
            raise ConnectionResetError
        self._passed += len(data)
        link.bytes += len(data)


class Proxy:
    """Listens for each node at an address of its own and passes on to the node itself.

    Args:
        targets: node id -> (host, port) where the node listens.
        host: where the proxy listens, for each node at the port that the node has.
    """

    def __init__(self, targets: Mapping[str, tuple[str, int]], host: str) -> None:
        self._targets = dict(targets)
        self._host = host
        self._links: dict[tuple[str, str], Link] = {}
        self._servers: dict[str, asyncio.Server] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def link(self, source: str, target: str) -> Link:
        """The link from ``source`` to ``target``: node ids, or CLIENT."""
        return self._links.setdefault((source, target), Link(source, target))

    def links(
        self, sources: list[str], targets: list[str], *, both_ways: bool = False
    ) -> list[Link]:
        """All links from any of the one to any of the other."""
        found = [self.link(s, t) for s in sources for t in targets if s != t]
        return found + (self.links(targets, sources) if both_ways else [])

    def heal(self) -> None:
        """All links as new."""
        for link in self._links.values():
            link.set(Rules())

    async def open(self) -> None:
        """Listen.

        Raises:
            OSError: an address is in use or none of this machine's.
        """
        for name, target in list(self._targets.items()):
            await self.listen(name, target)

    async def listen(self, name: str, target: tuple[str, int]) -> None:
        """Take connections for this node, which is new or has moved: at its former port no more.

        Raises:
            OSError: as `open`.
        """
        self.close_port(name)
        self._targets[name] = target
        accept = partial(self._accept, name)
        self._servers[name] = await asyncio.start_server(accept, self._host, target[1], limit=CHUNK)

    def close_port(self, name: str) -> None:
        """Take no more connections for this node; those that are open stay."""
        if name in self._servers:
            self._servers.pop(name).close()

    async def close(self) -> None:
        """Accept no more and cut everything."""
        for name in list(self._servers):
            self.close_port(name)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(
        self, target: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """One connection, to its end."""
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            with contextlib.suppress(asyncio.CancelledError):
                await self._serve(target, reader, writer)
        finally:
            self._tasks.discard(task)
            abort(writer)

    async def _serve(
        self, target: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            source, first = await asyncio.wait_for(self._hello(reader), HELLO_S)
            there, back = self.link(source, target), self.link(target, source)
            if there.rules.refuse or there.rules.hold:
                await there.admit(len(first))
            host, port = self._targets[target]
            their_reader, their_writer = await asyncio.wait_for(
                asyncio.open_connection(host, port), CONNECT_S
            )
        except (OSError, TimeoutError, ProtocolError, asyncio.IncompleteReadError):
            return
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(Pipe(there, reader, their_writer).run(first))
                tasks.create_task(Pipe(back, their_reader, writer).run())
        except* OSError as error:
            log.debug(
                "%s and %s are cut, since one side is gone: %s", source, target, error.exceptions
            )
        finally:
            abort(their_writer)

    @staticmethod
    async def _hello(reader: asyncio.StreamReader) -> tuple[str, bytes]:
        """The sender of a connection, and the bytes of its hello.

        Raises:
            ProtocolError: it speaks otherwise.
            IncompleteReadError: it went before it had said so.
        """
        frames, data = FrameReader(FrameLimits(), HELLO_LIMITS), b""
        while True:
            more = await reader.read(CHUNK)
            if not more:
                raise asyncio.IncompleteReadError(data, None)
            data += more
            for frame in frames.feed(more):
                hello = decode(frame.kind, frame.header, frame.payload)
                return (hello.node_id if isinstance(hello, HelloRequest) else "") or CLIENT, data


def abort(writer: asyncio.StreamWriter) -> None:
    """Reset the connection, so that the other side learns of it at once."""
    sock = writer.get_extra_info("socket")
    if sock is not None and not writer.is_closing():
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_AT_CLOSE)
    writer.transport.abort()
