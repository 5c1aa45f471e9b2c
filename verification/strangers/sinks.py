"""Servers that take connections, and throw away what they read: ``python -m
verification.strangers.sinks``. An attack on these takes of the machine what it takes beside any
servers at all."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from subprocess import PIPE, Popen
from typing import Final

from dledger.net.loop import run
from dledger.types import NodeId

BUFFER: Final = memoryview(bytearray(1 << 20))
"""Of all connections: nobody looks into it."""
BACKLOG: Final = 4096


class Sink(asyncio.BufferedProtocol):
    """One connection."""

    def get_buffer(self, sizehint: int) -> memoryview:
        return BUFFER

    def buffer_updated(self, nbytes: int) -> None:
        """What was read is forgotten."""


async def serve() -> None:
    """Serve on a port of its own, which it prints, until it is ended."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Sink, "127.0.0.1", 0, backlog=BACKLOG)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await server.serve_forever()


@contextmanager
def sinks(nodes: Iterable[NodeId]) -> Iterator[dict[NodeId, str]]:
    """Such a server, in a process of its own, for each of these nodes; its address, by the node in
    whose place it is."""
    line = [sys.executable, "-m", "verification.strangers.sinks"]
    with ExitStack() as running:
        addresses = {}
        for name in nodes:
            process = running.enter_context(Popen(line, stdout=PIPE, text=True))
            running.callback(process.kill)
            assert process.stdout is not None
            addresses[name] = f"127.0.0.1:{int(process.stdout.readline())}"
        yield addresses


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        run(serve())
