"""Servers that take connections, and throw away what they read: ``python -m
verification.strangers.sinks``. An attack on these takes of the machine what it takes beside any
servers at all."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import Iterable
from types import TracebackType
from typing import Final, Self

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


class Sinks:
    """Such a server, in a process of its own, for each of these nodes; a context manager.

    Attributes:
        addresses: of each, by the node in whose place it is.
    """

    def __init__(self, nodes: Iterable[NodeId]) -> None:
        line = [sys.executable, "-m", "verification.strangers.sinks"]
        self._processes = {
            name: subprocess.Popen(line, stdout=subprocess.PIPE, text=True) for name in nodes
        }
        self.addresses: dict[NodeId, str] = {}

    def __enter__(self) -> Self:
        for name, process in self._processes.items():
            assert process.stdout is not None
            self.addresses[name] = f"127.0.0.1:{int(process.stdout.readline())}"
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for process in self._processes.values():
            process.kill()
            with process:
                process.wait()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        run(serve())
