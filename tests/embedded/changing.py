"""What tests share that change the nodes of a path's group."""

from __future__ import annotations

import json
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from dledger import Client
from dledger.embedded.groupfile import GroupFile
from dledger.embedded.home import Home
from dledger.embedded.member_steps import group_client
from dledger.embedded.moving import Move
from dledger.embedded.ports import free_ports
from dledger.types import NodeId
from tests.cli.commands import out, program
from tests.embedded import reads


class Load:
    """A program that appends numbers, one after the other, and to which no append may fail.

    Args:
        first: the first number.
        copies: so many records of each, by one append.
    """

    def __init__(self, path: Path, topic: str = "t", *, first: int = 0, copies: int = 1) -> None:
        self.acknowledged = first
        self._topic, self._copies = topic, copies
        self.error: BaseException | None = None
        self._path = path
        self._enough = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Load:
        with Client(self._path) as client:
            client.create_topic(self._topic, if_absent=True)
        self._thread.start()
        return self

    def _run(self) -> None:
        try:
            with Client(self._path) as client:
                while True:  # one at least
                    client.append(self._topic, [str(self.acknowledged)] * self._copies)
                    self.acknowledged += 1
                    if self._enough.is_set():
                        return
        except BaseException as error:  # told by the test
            self.error = error

    def stop(self) -> None:
        self._enough.set()
        self._thread.join()
        assert self.error is None, self.error

    def __exit__(self, *_: object) -> None:
        self.stop()

    def check(self, path: Path) -> None:
        """Each acknowledged record is there once, in order."""
        with Client(path) as client:
            found = [int(value) for value in reads.values(client)]
        assert found == list(range(self.acknowledged))
        assert found


def roles(path: Path) -> dict[str, str]:
    return {row["node"]: row["role"] for row in json.loads(out(f"members --json -b {path}"))}


def voters(*numbers: int) -> dict[str, str]:
    return {f"n{number}": "voter" for number in numbers}


def file_of(path: Path) -> GroupFile:
    file = Home(path).read()
    assert file is not None
    return file


class CutShort(BaseException):
    """The command was killed."""


class Cuts:
    """Clients that end the command at each change of members: once before it, once behind it."""

    def __init__(self) -> None:
        self.made: Counter[tuple[str, ...]] = Counter()

    @property
    def count(self) -> int:
        return self.made.total()

    def client(self, file: GroupFile, timeout_s: float) -> Client:
        client = group_client(file, timeout_s)
        for name in ("add_member", "promote_member", "remove_member"):
            setattr(client, name, self._cut(name, getattr(client, name)))
        return client

    def _cut(self, name: str, change: Callable[..., Any]) -> Callable[..., Any]:
        def changed(*arguments: str) -> None:
            key = (name, *arguments)
            turn = self.made[key]
            if turn > 0:
                change(*arguments)
            if turn < 2:
                self.made[key] += 1
                raise CutShort

        return changed

    def run(self, command: Callable[[], object]) -> None:
        """Say a command again until it comes to its end."""
        while True:
            with suppress(CutShort):
                command()
                return


def killed_at(words: str, line: str) -> None:
    """Kill the command when it says so."""
    with subprocess.Popen(program(words), stderr=subprocess.PIPE, text=True) as command:
        assert command.stderr is not None
        said = next((one for one in command.stderr if line in one), None)
        command.kill()
    assert said is not None


class Targets:
    """Nodes of ``dledger serve`` that wait for a path's group."""

    def __init__(self, path: Path, folder: Path, *names: str) -> None:
        self.path = path
        ports = free_ports("127.0.0.1", len(names))
        self.addresses = {
            NodeId(name): f"127.0.0.1:{port}" for name, port in zip(names, ports, strict=True)
        }
        self.servers = ";".join(f"{node}-{where}" for node, where in self.addresses.items())
        self._folder = folder
        self.running: dict[str, subprocess.Popen[str]] = {}
        self._reading: list[threading.Thread] = []
        self._logs: list[IO[str]] = []

    def start(self, *names: str, options: str = "--join") -> None:
        """Some of them, or all, as the command says; which has --join."""
        commands = Move(self.path, self.addresses).serve_commands()
        for node, command in zip(self.addresses, commands, strict=True):
            if not names or node in names:
                words = command.removeprefix("dledger serve --join ").replace(
                    "DIRECTORY", str(self._folder / f"served-{node}-{self.addresses[node][-5:]}")
                )
                self.running[node] = subprocess.Popen(
                    program(f"serve {words} {options}"), stderr=subprocess.PIPE, text=True
                )
        for node in names or self.addresses:
            self._wait(node)

    def _wait(self, name: str) -> None:
        """Until it listens."""
        log = self.running[name].stderr
        assert log is not None
        said = []
        for line in log:
            said.append(line)
            if "listens on" in line:
                break
        else:
            raise AssertionError(f"{name} has ended: {said}")
        self._logs.append(log)
        # or its pipe is full one day
        self._reading.append(threading.Thread(target=log.read))
        self._reading[-1].start()

    def ended(self, name: str) -> int:
        """The exit code of one that ends by itself."""
        return self.running.pop(name).wait(60)

    def close(self) -> None:
        for process in self.running.values():
            process.kill()
            process.wait()
        for thread, log in zip(self._reading, self._logs, strict=True):
            thread.join()
            log.close()


@contextmanager
def targets(path: Path, folder: Path, *names: str) -> Iterator[Targets]:
    found = Targets(path, folder, *names)
    try:
        yield found
    finally:
        found.close()
