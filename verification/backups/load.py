"""Writers whose calls are known, so that the state of a group at each entry is known too."""

from __future__ import annotations

import ast
import threading
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from dledger.client import Client
from dledger.client.protocol.operations.group_state import EntryState
from dledger.client.protocol.session import ProducerSession
from dledger.errors import DLedgerError, OutcomeUnknown, TopicNotFound

WRITERS: Final = 3
PARTITIONS: Final = 2
PAUSE_S: Final = 0.1
PATIENCE_MS: Final = 60_000
"""For a call, while nodes are killed: within it a client repeats itself until it is told."""
APPEND, COMMIT, PROGRESS, CREATE, DELETE = "append", "commit", "progress", "create", "delete"
SERIAL: Final = -1
"""In place of a partition: a call that is about none."""


@dataclass(slots=True)
class Call:
    """One call of a writer, on record before it is made."""

    kind: str
    partition: int = SERIAL
    values: dict[int, list[bytes]] = field(default_factory=dict)
    """By partition, behind what is there."""
    number: int = 0
    """Of a transaction, or of the topic that comes or goes."""
    progress: dict[int, int] = field(default_factory=dict)
    key: tuple[Any, ...] = ()
    """By which its entry is found."""
    session: tuple[int, int, int, int] | None = None
    """Producer id, epoch, topic id and sequence of an append, once it is acknowledged."""


@dataclass(slots=True)
class State:
    """All that a writer has made."""

    values: dict[int, list[bytes]] = field(
        default_factory=lambda: {partition: [] for partition in range(PARTITIONS)}
    )
    progress: dict[int, int] = field(default_factory=dict)
    topics: set[str] = field(default_factory=set)
    transaction: int = -1
    last_append: dict[int, tuple[Call, int]] = field(default_factory=dict)
    """By partition, with the offset of its first record."""

    def apply(self, name: str, call: Call) -> None:
        """A call has taken effect."""
        if call.kind == APPEND:
            self.last_append[call.partition] = call, len(self.values[call.partition])
        for partition, values in call.values.items():
            self.values[partition] += values
        if call.kind == PROGRESS:
            self.progress = dict(call.progress)
        elif call.kind == COMMIT:
            self.transaction = call.number
        elif call.kind == CREATE:
            self.topics.add(f"{name}-{call.number}")
        elif call.kind == DELETE:
            self.topics.discard(f"{name}-{call.number}")


class Writer(threading.Thread):
    """Makes one call after the other: its topic, group and transactions are its own."""

    def __init__(self, servers: str, name: str, seed: int) -> None:
        super().__init__(daemon=True)
        self.name = name
        self.calls: list[Call] = []
        self.problem = ""
        self._servers, self._dice = servers, Random(seed)
        self._done = threading.Event()
        self._state = State()

    def run(self) -> None:
        with Client(self._servers, request_timeout_ms=PATIENCE_MS) as client:
            while not self._done.wait(PAUSE_S * self._dice.random() * 2):
                call = self._draw()
                self.calls.append(call)
                try:
                    self._make_surely(client, call)
                except DLedgerError as error:
                    self.problem = f"{self.name}: {type(error).__name__}: {error}"
                    return
                self._state.apply(self.name, call)

    def finish(self) -> None:
        """The last call has ended."""
        self._done.set()
        self.join()

    def _values(self, partition: int) -> list[bytes]:
        """Such that each is like no other one."""
        number = len(self.calls)
        return [
            b"%s-%d-%d-%d" % (self.name.encode(), number, partition, one)
            + self._dice.randbytes(self._dice.randrange(1500))
            for one in range(self._dice.randrange(1, 12))
        ]

    def _draw(self) -> Call:
        state, number, chance = self._state, len(self.calls), self._dice.random()
        if chance < 0.55:
            at = self._dice.randrange(PARTITIONS)
            values = {at: self._values(at)}
            return Call(APPEND, at, values, key=(self.name, at, len(state.values[at])))
        if chance < 0.75:
            values = {at: self._values(at) for at in range(PARTITIONS)}
            return Call(COMMIT, SERIAL, values, number, key=(self.name, "commit", number))
        if chance < 0.92 or not number:
            # more than before, so that it is found among the entries
            progress = {at: len(values) for at, values in state.values.items()}
            if sum(progress.values()) > sum(state.progress.values()):
                key = (self.name, "progress", tuple(sorted(progress.items())))
                return Call(PROGRESS, progress=progress, key=key)
        if state.topics:
            topic = next(iter(state.topics))
            return Call(DELETE, number=int(topic.rpartition("-")[2]), key=(topic, "delete"))
        return Call(CREATE, number=number, key=(f"{self.name}-{number}", "create"))

    def _make_surely(self, client: Client, call: Call) -> None:
        """All but an append may be said again."""
        while True:
            try:
                return self._make(client, call)
            except TopicNotFound:
                if call.kind == DELETE:
                    return None
                raise
            except OutcomeUnknown:
                if call.kind == APPEND:
                    raise

    def _make(self, client: Client, call: Call) -> None:
        topic = f"{self.name}-{call.number}"
        if call.kind == APPEND:
            client.append(self.name, call.values[call.partition], partition=call.partition)
            call.session = session_of(client, self.name, call.partition)
        elif call.kind == COMMIT:
            with client.transaction(self.name, call.number) as transaction:
                for partition, values in call.values.items():
                    transaction.append(self.name, values, partition=partition)
        elif call.kind == PROGRESS:
            client.commit_offsets(self.name, {self.name: call.progress}, reset=True)
        elif call.kind == CREATE:
            client.create_topic(topic, if_absent=True)
            client.append(topic, b"soon gone")
        else:
            client.delete_topic(topic)


def session_of(client: Client, topic: str, partition: int) -> tuple[int, int, int, int] | None:
    """The numbers of the last append: by them a repeat is known."""
    session, topic_id = client._transports[-1].session, client.topic(topic).topic_id
    if session is None or (topic_id, partition) not in session.next:
        return None
    return session.producer_id, session.epoch, topic_id, session.next[topic_id, partition] - 1


def repeat(client: Client, topic: str, call: Call) -> tuple[int, int]:
    """Send an append again as a client does that got no answer; the offsets that it is told."""
    assert call.session is not None
    producer_id, epoch, topic_id, sequence = call.session
    with client._transport() as transport:
        transport.session = ProducerSession(
            producer_id, epoch, {(topic_id, call.partition): sequence}
        )
    done = client.append(topic, call.values[call.partition], partition=call.partition)
    return done.start, done.end


class History:
    """The entries of the group, and what all calls have made of it at each."""

    def __init__(self, client: Client, writers: list[Writer]) -> None:
        self._client, self._writers = client, writers
        self._places: dict[tuple[Any, ...], int] = {}
        self.entries: list[EntryState] = []

    def read(self) -> None:
        """Take in what is new."""
        for entry in self._client.entries(len(self.entries)):
            self.entries.append(entry)
            for key in _keys(entry):
                self._places.setdefault(key, entry.index)

    def at(self, index: int) -> dict[str, State]:
        """What each writer has made by this entry."""
        found: dict[str, State] = {}
        for writer in self._writers:
            state = found[writer.name] = State()
            for call in list(writer.calls):
                if self._places.get(call.key, index + 1) <= index:
                    state.apply(writer.name, call)
        return found


def _keys(entry: EntryState) -> list[tuple[Any, ...]]:
    """Of the calls that the entry may be of."""
    if entry.kind == "data":
        return [(entry.topic, entry.partition, entry.offset)]
    if entry.command == "CommitTransaction":
        fields = ast.literal_eval(entry.fields)
        return [(fields["writer_id"], "commit", fields["sequence"])]
    if entry.command == "CommitProgress":
        fields = ast.literal_eval(entry.fields)
        offsets = fields["offsets"].get(fields["consumer_group"], {})
        return [(fields["consumer_group"], "progress", tuple(sorted(offsets.items())))]
    if entry.command in ("CreateTopic", "DeleteTopic"):
        kind = "create" if entry.command == "CreateTopic" else "delete"
        return [(ast.literal_eval(entry.fields)["name"], kind)]
    return []
