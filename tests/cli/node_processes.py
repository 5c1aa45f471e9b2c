"""Nodes as processes, and a program that appends to them all the time."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from dledger import Client
from dledger.config import format_peers
from dledger.embedded.ports import free_ports
from dledger.types import NodeId
from tests.cli.commands import program, serving


class Processes:
    """Nodes as a user starts them."""

    def __init__(self, folder: Path, names: list[str]) -> None:
        ports = free_ports("127.0.0.1", len(names))
        self._folder = folder
        self.addresses = {
            NodeId(name): f"127.0.0.1:{port}" for name, port in zip(names, ports, strict=True)
        }
        self.running: dict[str, subprocess.Popen[str]] = {}

    def start(self, name: str, *members: str, options: str = "") -> None:
        peers = format_peers({NodeId(one): self.addresses[NodeId(one)] for one in members})
        words = serving(f"'{peers}'", name, self._folder / name, options)
        self.running[name] = subprocess.Popen(program(words), stderr=subprocess.PIPE, text=True)

    def ended(self, name: str) -> tuple[int, str]:
        """The exit code of a node that ends by itself, and its log."""
        process = self.running.pop(name)
        _, said = process.communicate(timeout=60)
        return process.returncode, said

    def move(self, name: str) -> str:
        """The next start of this node is at another port; the address."""
        (port,) = free_ports("127.0.0.1", 1)
        self.addresses[NodeId(name)] = f"127.0.0.1:{port}"
        return self.addresses[NodeId(name)]

    def kill(self, name: str) -> None:
        """As a loss of power, but that the page cache stays."""
        process = self.running.pop(name)
        process.kill()
        process.communicate()

    def stop(self, name: str) -> None:
        process = self.running.pop(name)
        process.terminate()
        process.communicate(timeout=60)

    def close(self) -> None:
        for process in self.running.values():
            process.kill()
            process.communicate()


@contextmanager
def processes(folder: Path, names: list[str]) -> Iterator[Processes]:
    with ExitStack() as stack:
        found = Processes(folder, names)
        stack.callback(found.close)
        yield found


class Appends:
    """Numbered records, one after the other, until the end of the block."""

    def __init__(self, address: str) -> None:
        self._address = address
        self.acknowledged = 0
        self._error: BaseException | None = None
        self._over = threading.Event()
        self._more = threading.Condition()
        self._thread = threading.Thread(target=self._append)

    def __enter__(self) -> Appends:
        with Client(self._address) as client:
            client.create_topic("t")
        self._thread.start()
        return self

    def _append(self) -> None:
        try:
            with Client(self._address, request_timeout_ms=60_000) as client:
                while not self._over.is_set():
                    client.append("t", str(self.acknowledged).encode())
                    with self._more:
                        self.acknowledged += 1
                        self._more.notify_all()
        except BaseException as error:
            self._error = error

    def wait_for(self, more: int = 20) -> None:
        """So many more are acknowledged."""
        with self._more:
            goal = self.acknowledged + more
            assert self._more.wait_for(lambda: self.acknowledged >= goal, timeout=60)

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        if self._error is not None:
            raise self._error

    def check(self, address: str) -> None:
        """A client that knows this address alone reads each acknowledged record once, in order."""
        with Client(address) as client:
            found = [bytes(value) for value in client.table("t")["value"].to_pylist()]
        assert found == [str(number).encode() for number in range(self.acknowledged)]
