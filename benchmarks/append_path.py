"""How many modules and functions one `Client.append` passes, at the client and at all three nodes.

Nodes and client run in one process, so that `sys.setprofile` sees all of it: the client in the main
thread, the nodes on one loop in another one, and their log writers and readers in theirs. What runs
by the clock beside the append (heartbeats, maintenance) is counted where it falls between its begin
and its end, so the least of many appends is shown.

    python -m benchmarks.append_path [--list]
"""

from __future__ import annotations

import argparse
import asyncio
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

from dledger import Client
from dledger.config import GroupConfig, NodeConfig
from dledger.node.node import NodeServer
from dledger.types import NodeId

MEMBERS: Final = tuple(NodeId(f"n{number}") for number in range(3))
WARM_UP, MEASURED = 200, 50


class Calls:
    """The functions of this package that are called, in any thread, while it is `on`."""

    def __init__(self) -> None:
        self.on = False
        self.seen: set[CodeType] = set()

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        if self.on and event == "call" and "/dledger/" in frame.f_code.co_filename:
            self.seen.add(frame.f_code)


def free_port() -> int:
    """A port without a listener now."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
    return port


@contextmanager
def three_nodes(directory: Path, calls: Calls) -> Iterator[str]:
    """Their addresses."""
    threading.setprofile(calls)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    group = GroupConfig(group="path", members=MEMBERS)
    nodes: dict[NodeId, NodeServer] = {}

    ports = {name: free_port() for name in MEMBERS}
    addresses = {name: f"127.0.0.1:{port}" for name, port in ports.items()}

    async def start() -> None:
        for name, port in ports.items():
            config = NodeConfig(node_id=name, directory=directory / name, port=port)
            nodes[name] = NodeServer(group, config, addresses=lambda: addresses)
            await nodes[name].start()

    async def stop() -> None:
        for node in nodes.values():
            await node.stop()

    asyncio.run_coroutine_threadsafe(start(), loop).result()
    try:
        yield ",".join(addresses.values())
    finally:
        asyncio.run_coroutine_threadsafe(stop(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        threading.setprofile(None)


def measured() -> set[CodeType]:
    """The functions of the append that passes the fewest."""
    calls, found = Calls(), list[set[CodeType]]()
    with (
        tempfile.TemporaryDirectory() as directory,
        three_nodes(Path(directory), calls) as servers,
        Client(servers, group="path") as client,
    ):
        client.create_topic("t")
        for _ in range(WARM_UP):
            client.append("t", [b"x" * 100], partition=0)
        sys.setprofile(calls)
        for _ in range(MEASURED):
            calls.seen, calls.on = set(), True
            client.append("t", [b"x" * 100], partition=0)
            calls.on = False
            found.append(calls.seen)
        sys.setprofile(None)
    return min(found, key=len)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--list", action="store_true", help="name them")
    shown = parser.parse_args()
    codes = measured()
    names = sorted(
        (code.co_filename.rpartition("/dledger/")[2], code.co_qualname) for code in codes
    )
    if shown.list:
        for module, function in names:
            print(f"{module:<50} {function}")
    print(f"{len({module for module, _ in names})} modules, {len(names)} functions")


if __name__ == "__main__":
    main()
