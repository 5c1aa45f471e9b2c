"""Forks beside busy threads, and checks of the children."""

from __future__ import annotations

import faulthandler
import fcntl
import gc
import json
import os
import select
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import IO, Any, Final

from dledger.client import Client
from dledger.client.protocol.results import Appended
from dledger.embedded import EmbeddedGroup
from dledger.embedded.home import LOCK_FILE
from verification.forks.busy import Busy
from verification.forks.children import WORKS, Before, Told
from verification.interrupts.book import TAKEN, Attempt, Book, Unit
from verification.result import result

PATIENCE_S: Final = 60.0
"""A child that says nothing for longer hangs."""
LIVING: Final = 0.2
"""So many of the children live on while another program wants the lock of the group's directory."""
PARTITIONS: Final = 2
TOPIC: Final = "t"
PROBLEMS: Final = 20


def run(
    folder: Path,
    wanted: int,
    seed: int,
    say: Callable[[str], None],
    works: dict[str, Callable[[Before], Told]] = WORKS,
) -> dict[str, Any]:
    """Fork that often, or until there is a problem.

    Args:
        folder: for the groups' files.
        seed: of the children's calls and their times; the order of threads is not drawn.
        works: calls of children, by name.
    """
    problems: list[str] = []
    book, forked, dice = Book(TOPIC), Counter[str](), Random(seed)
    with (
        EmbeddedGroup(folder / "group", replicas=1) as group,
        Client(group.bootstrap_servers) as client,
    ):
        client.create_topic(TOPIC, PARTITIONS)
        first = book.attempt(book.values(1))
        first.answer = client.append(TOPIC, first.values, partition=0)
        before = _before(group, folder / "group", client)
        busy = Busy(group.bootstrap_servers, folder / "group", TOPIC, client, book)
        while forked.total() < wanted and not problems and not busy.problems:
            name = dice.choice([*works])
            lives = dice.random() < LIVING
            time.sleep(dice.random() * 0.004)
            before.number += 1
            problem, told = Child(works[name], before, lives).outcome(busy)
            forked[name] += 1
            if problem:
                problems.append(f"fork {forked.total()}, {name}: {problem}")
            _note(told, book)
            if not forked.total() % 100:
                say(f"{forked.total()} forks")
        busy.stop()
        _end(before, book)
        there = {at: _values(client, at) for at in range(PARTITIONS)}
    book.check(there)
    problems += busy.problems + book.problems
    return result(
        "forks",
        command=f"make forks FORKS={wanted} SEED={seed}",
        ok=not problems,
        figures={
            "forks": forked.total(),
            "stored records": sum(map(len, there.values())),
            "problems": len(problems),
        },
        faults=dict(sorted(forked.items())),
        problems=problems[:PROBLEMS],
    )


def _before(group: EmbeddedGroup, folder: Path, client: Client) -> Before:
    return Before(
        group.bootstrap_servers,
        folder,
        TOPIC,
        client,
        group,
        client.producer(TOPIC),
        client.transaction("before", 1),
        client.read(TOPIC, 0, 0, follow=True),
    )


def _end(before: Before, book: Book) -> None:
    """The parent ends what it had begun before the forks, which no child may have ended."""
    before.transaction.append(TOPIC, b"of the parent")
    before.transaction.commit()
    before.producer.close()
    before.reader.close()
    book.units.append(Unit("before", 1, [Attempt([b"of the parent"], TAKEN)], "committed"))


def _values(client: Client, partition: int) -> list[bytes]:
    """All records of the partition."""
    batches = client.read(TOPIC, partition, 0)
    return [value for batch in batches for value in batch["value"].to_pylist()]


def _note(told: Told, book: Book) -> None:
    """Hold what a child was told against what is stored, later."""
    values = [value.encode() for value in told.get("values", [])]
    if values:
        place = Appended(TOPIC, told["partition"], told["start"], told["start"] + len(values))
        book.attempts.append(Attempt(values, TAKEN, answer=place))
    if committed := told.get("committed"):
        book.units.append(
            Unit("child", 1, [Attempt([value.encode() for value in committed], TAKEN)], "committed")
        )


class Child:
    """A forked child.

    Args:
        lives: it goes on living until it is told otherwise.
    """

    def __init__(self, work: Callable[[Before], Told], before: Before, lives: bool) -> None:
        self._lives = lives
        self._folder = before.folder
        self._stacks: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the outcome
        from_child, to_parent = os.pipe()
        self._from_child, (may_end, self._ends) = from_child, os.pipe()
        gc.disable()  # what is collected in a child closes its copies; here everything lives on
        self._pid = os.fork()
        if not self._pid:
            os.close(from_child)
            os.close(self._ends)
            self._be(work, before, to_parent, may_end)
        gc.enable()
        os.close(to_parent)
        os.close(may_end)

    def _be(
        self, work: Callable[[Before], Told], before: Before, to_parent: int, may_end: int
    ) -> None:
        faulthandler.register(signal.SIGUSR2, self._stacks, all_threads=True)
        said: dict[str, Any]
        try:
            try:
                said = {"told": work(before)}
            except BaseException as error:
                said = {"error": repr(error)}
            os.write(to_parent, json.dumps(said).encode())
            if self._lives:
                os.read(may_end, 1)
        finally:
            os._exit(0)

    def outcome(self, busy: Busy) -> tuple[str, Told]:
        """The problem, if there is one, and the answers that the child got."""
        try:
            if not select.select([self._from_child], [], [], PATIENCE_S)[0]:
                return f"hangs:\n{self._where()}", {}
            said = json.loads(os.read(self._from_child, 1 << 16) or b'{"error": "it died"}')
            if "error" in said:
                return said["error"], {}
            return (self._lock_kept(busy) if self._lives else ""), said["told"]
        finally:
            os.close(self._from_child)
            os.close(self._ends)
            os.waitpid(self._pid, 0)
            self._stacks.close()

    def _lock_kept(self, busy: Busy) -> str:
        """Whether another program could lock the group's directory, while no thread of the parent
        does."""
        with busy.nobody_looks(), open(self._folder / LOCK_FILE, "rb") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return "keeps the lock of the group's directory"
            fcntl.flock(lock, fcntl.LOCK_UN)
        return ""

    def _where(self) -> str:
        """The stacks of a child that hangs; it ends."""
        os.kill(self._pid, signal.SIGUSR2)
        time.sleep(1)
        os.kill(self._pid, signal.SIGKILL)
        self._stacks.seek(0)
        return self._stacks.read().decode(errors="replace")
