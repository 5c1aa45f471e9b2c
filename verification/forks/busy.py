"""The threads of a parent: at each moment of a fork they are somewhere else, and hold something."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from dledger.client import Client
from dledger.client.blocking.pool import shared_client
from dledger.embedded import EmbeddedGroup, connect_path
from dledger.embedded.home import Home
from dledger.types import NodeId
from verification.interrupts.book import TAKEN, Book


class Busy:
    """Threads that work until they are asked to stop.

    Args:
        folder: of the group; another one beside it is started and ended again and again.
        book: gets the appends.

    Attributes:
        problems: errors that ended a thread.
    """

    def __init__(self, servers: str, folder: Path, topic: str, client: Client, book: Book) -> None:
        self.problems: list[str] = []
        self._servers = servers
        self._folder = folder
        self._topic = topic
        self._client = client
        self._book = book
        self._stop = threading.Event()
        self._looking = threading.Lock()
        works = (self._append, self._append, self._produce, self._ask, self._look, self._start)
        self._threads = [
            threading.Thread(target=self._run, args=(work,), daemon=True) for work in works
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Let the threads end, and wait for them."""
        self._stop.set()
        for thread in self._threads:
            thread.join(120)
            if thread.is_alive():
                self.problems.append("a thread of the parent does not end")

    @contextlib.contextmanager
    def nobody_looks(self) -> Iterator[None]:
        """While it holds no thread of the parent has a lock of the group's directory."""
        with self._looking:
            yield

    def _run(self, work: Callable[[], None]) -> None:
        try:
            while not self._stop.is_set():
                work()
        except Exception as error:
            self.problems.append(f"a thread of the parent ended: {error!r}")

    def _append(self) -> None:
        one = self._book.attempt(self._book.values(1))
        one.answer = self._client.append(self._topic, one.values)
        one.state = TAKEN

    def _produce(self) -> None:
        """With a client of its own, so that connections are made as well."""
        attempts = []
        with Client(self._servers) as client, client.producer(self._topic) as producer:
            for _ in range(5):
                one = self._book.attempt(self._book.values(1))
                one.future, one.state = producer.append(one.values[0]), TAKEN
                attempts.append(one)
        for one in attempts:
            one.answer = one.future.result(0)

    def _ask(self) -> None:
        shared_client(self._servers).end_offsets(self._topic)

    def _look(self) -> None:
        with self._looking:
            home = Home(self._folder)
            home.node(NodeId("n0"))
            with home.lock():
                home.read()
            connect_path(self._folder)
        self._stop.wait(0.001)  # else no other thread gets the lock

    def _start(self) -> None:
        """A group of its own, whose lock is held for as long as its node needs to start."""
        with EmbeddedGroup(self._folder.with_name("other"), replicas=1):
            self._stop.wait(0.2)
