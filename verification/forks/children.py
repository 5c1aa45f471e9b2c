"""The calls of a forked child on objects that its parent had made, and its report of the
answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dledger.client import Client, Producer, Transaction
from dledger.client.blocking.pool import shared_client
from dledger.client.protocol.reading.resuming import Resuming
from dledger.embedded import EmbeddedGroup, connect_path
from dledger.embedded.home import Home
from dledger.errors import ForkedClient


@dataclass(slots=True)
class Before:
    """Of the parent.

    Attributes:
        folder: the group's directory.
        number: of the fork, so that no two children write the same value.
    """

    servers: str
    folder: Path
    topic: str
    client: Client
    group: EmbeddedGroup
    producer: Producer
    transaction: Transaction
    reader: Resuming[Any]
    number: int = 0

    def value(self, n: int = 0) -> str:
        """A value that no other record has."""
        return f"child {self.number} {n}"


Told = dict[str, Any]
"""``values``, ``partition`` and ``start`` of an append that was acknowledged; ``committed`` values
have no place."""


def append(before: Before) -> Told:
    """The client from before the fork."""
    value = before.value()
    answer = before.client.append(before.topic, value.encode())
    return {"values": [value], "partition": answer.partition, "start": answer.start}


def first_producer(before: Before) -> Told:
    """The child's first producer: another thread of the parent may have been making its own."""
    value = before.value()
    producer = before.client.producer(before.topic)
    future = producer.append(value.encode())
    producer.close()
    answer = future.result(0)
    return {"values": [value], "partition": answer.partition, "start": answer.start}


def own_transaction(before: Before) -> Told:
    """A transaction of the child's own."""
    values = [before.value(n) for n in range(3)]
    with before.client.transaction(values[0], 1) as transaction:
        transaction.append(before.topic, [value.encode() for value in values])
    return {"committed": values}


def ask_shared(before: Before) -> Told:
    """The client that a process shares."""
    shared_client(before.servers).end_offsets(before.topic)
    return {}


def read_on(before: Before) -> Told:
    """A reader from before the fork goes on where the parent had come."""
    position = before.reader._position
    offsets = next(before.reader)["offset"].to_pylist()
    if offsets[0] != position:
        raise AssertionError(
            f"the reader went on at offset {offsets[0]} where {position} comes next"
        )
    return {}


def refused(before: Before) -> Told:
    """Calls on the parent's objects are refused, and calls that end such an object do nothing."""
    calls: list[Callable[[], Any]] = [
        lambda: before.producer.append(b"of a child"),
        before.producer.flush,
        lambda: before.transaction.append(before.topic, b"of a child"),
        before.transaction.commit,
    ]
    for call in calls:
        try:
            call()
        except ForkedClient:
            continue
        raise AssertionError("a call on what the parent had made was not refused")
    before.producer.close()
    before.transaction.abort()
    before.group.stop()
    return {}


def look(before: Before) -> Told:
    """The group's directory, as every program that is given the path looks at it."""
    with Home(before.folder).lock():
        pass
    connect_path(before.folder)
    return {}


WORKS: Final[dict[str, Callable[[Before], Told]]] = {
    "append": append,
    "first producer": first_producer,
    "own transaction": own_transaction,
    "shared client": ask_shared,
    "reader": read_on,
    "refused": refused,
    "directory": look,
}
"""By what a fault of it is called."""
