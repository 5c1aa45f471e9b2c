"""SIGKILL of the leader, or of all nodes, while messages are put into a RocketMQ commit log.

Afterwards every acknowledged message is found by queue offset, by key and by physical offset, as it
was sent and once; no queue has a hole; and on every node consume queues and index are what its
commit log says, no more and no less.
"""

from __future__ import annotations

import os
import random
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from dledger import Client, EmbeddedGroup
from dledger.client.protocol.operations.messages import PutMessageResult
from dledger.errors import DLedgerError
from dledger.node.rocketmq.dispatched import ROOT
from dledger.protocol.messages.rocketmq import GetMessageStatus
from dledger.rocketmq.format.message import Message, decode_message
from dledger.rocketmq.format.properties import keys_of, tags_code
from dledger.rocketmq.format.scan import scan
from dledger.rocketmq.format.scanned_piece import PieceKind
from dledger.rocketmq.store.consume_queues import ConsumeQueues
from dledger.rocketmq.store.index_service import IndexService

pytestmark = [pytest.mark.cluster]
MIB = 1 << 20
SEGMENT = 4 * MIB
QUEUES = 4
"""Of each of the two topics."""
PER_PUT = 5


@dataclass(frozen=True, slots=True)
class Sent:
    """A message that was acknowledged, and where."""

    topic: str
    body: bytes
    key: str
    result: PutMessageResult


class Sender(threading.Thread):
    """Puts messages, a few at a time, and keeps those that were acknowledged."""

    def __init__(self, servers: str, name: str, dice: random.Random) -> None:
        super().__init__(daemon=True)
        self._servers, self._name, self._dice = servers, name, dice
        self._done = threading.Event()
        self.acknowledged: list[Sent] = []
        self.unclear: set[bytes] = set()
        """Bodies of messages that may be there or not."""
        self.refused: set[bytes] = set()

    def run(self) -> None:
        number = 0
        with Client(self._servers, request_timeout_ms=5000) as client:
            while not self._done.is_set():
                messages = [self._message(number + n) for n in range(PER_PUT)]
                number += PER_PUT
                try:
                    results = client.put_messages(messages)
                except DLedgerError as error:
                    (self.refused if error.definite else self.unclear).update(
                        m.body for m in messages
                    )
                    continue
                for message, result in zip(messages, results, strict=True):
                    self.acknowledged.append(
                        Sent(
                            message.topic, message.body, message.property_map()["UNIQ_KEY"], result
                        )
                    )

    def _message(self, number: int) -> Message:
        text = f"{self._name} {number} "
        body = (text * (1 + self._dice.randrange(60))).encode()
        properties = (
            f"UNIQ_KEY\x01{self._name}-{number}\x02KEYS\x01k{number % 7}\x02TAGS\x01t{number % 3}"
        )
        return Message(f"topic{number % 2}", body, properties, number % QUEUES)

    def finish(self) -> None:
        self._done.set()
        self.join()


def all_dispatched(client: Client) -> bool:
    """Whether every node has everything, in queues and index too."""
    states = list(client.status().values())
    ends = {state.get("end_index") for state in states} | {
        state.get("dispatched_index") for state in states
    }
    return len(states) == 3 and len(ends) == 1 and None not in ends


def kill_all(group: EmbeddedGroup) -> None:
    """At one moment, as far as a program can; returns when all are gone."""
    for info in group.nodes.values():
        if info.pid is not None:
            with suppress(ProcessLookupError):
                os.kill(info.pid, signal.SIGKILL)
    for node in group.nodes:
        group.kill(node)


def queue_of(client: Client, topic: str, queue_id: int, replica: bool) -> Iterator[Message]:
    """All messages of a queue, which has no hole."""
    at = 0
    while True:
        found = client.get_message(topic, queue_id, at, max_messages=500, stale=replica)
        if not found.messages:
            assert found.status in (
                GetMessageStatus.OFFSET_OVERFLOW_ONE,
                GetMessageStatus.NO_MATCHED_LOGIC_QUEUE,
            )
            assert at == found.max_offset
            return
        assert [m.queue_offset for m in found.messages] == list(range(at, at + len(found.messages)))
        yield from found.messages
        at = found.next_begin_offset


def check_answers(client: Client, senders: list[Sender]) -> None:
    """What the group says of every message that was sent."""
    acknowledged = [sent for sender in senders for sent in sender.acknowledged]
    assert acknowledged
    queues = {
        (topic, queue): list(queue_of(client, topic, queue, replica=False))
        for topic in ("topic0", "topic1")
        for queue in range(QUEUES)
    }
    bodies = Counter(message.body for messages in queues.values() for message in messages)
    assert set(bodies.values()) <= {1}, "a message is there twice"
    known = {sent.body for sent in acknowledged}.union(*[sender.unclear for sender in senders])
    assert set(bodies) <= known, "a message is there that was refused, or never sent"
    for sent in acknowledged:
        result = sent.result
        message = queues[sent.topic, result.queue_id][result.queue_offset]
        assert (message.body, message.physical_offset) == (sent.body, result.physical_offset)
        assert message.store_timestamp == result.store_timestamp
    for sent in acknowledged:
        assert client.view_message(sent.result.message_id).body == sent.body
        (message,) = client.query_message(sent.topic, sent.key)
        assert (message.body, message.physical_offset) == (sent.body, sent.result.physical_offset)
    for sender in senders:  # what one sender was told one after the other lies so in the log
        offsets = [sent.result.physical_offset for sent in sender.acknowledged]
        assert offsets == sorted(offsets)


def log_of(directory: Path) -> list[Message]:
    """The messages in the data files of a node, in order; nothing in them is damaged."""
    found: list[Message] = []
    for path in sorted((directory / "data").glob("[0-9]" * 20)):
        data, start = path.read_bytes(), int(path.name)
        for piece in scan(data, start, file_end=start + SEGMENT):
            assert piece.kind is not PieceKind.DAMAGE, piece
            if piece.kind is PieceKind.ENTRY:
                found.append(decode_message(data, piece.message_offset - start))
                assert found[-1].physical_offset == piece.message_offset
    return found


def check_files(directory: Path) -> int:
    """Queues and index of a stopped node against its log; how many messages it has."""
    assert not (directory / ROOT / "abort").exists()
    log = log_of(directory)
    queues = ConsumeQueues(directory / ROOT / "consumequeue")
    queues.recover()
    expected: dict[tuple[str, int], list[tuple[int, int]]] = {}
    places: dict[tuple[str, str], list[int]] = {}
    for message in log:
        units = expected.setdefault((message.topic, message.queue_id), [])
        assert message.queue_offset == len(units)
        units.append((message.physical_offset, tags_code(message.property_map()["TAGS"])))
        for key in keys_of(message.property_map()):
            places.setdefault((message.topic, key), []).insert(0, message.physical_offset)
    real = {
        key: [(unit.physical_offset, unit.tags_code) for unit in queue.units(0, queue.max_offset)]
        for key, queue in queues.items()
        if not queue.is_empty
    }
    assert real == expected
    index = IndexService(directory / ROOT / "index")
    known = {message.physical_offset: message for message in log}
    for (topic, key), offsets in places.items():
        same = [at for at in index.lookup(topic, key) if key in keys_of(known[at].property_map())]
        assert [at for at in same if known[at].topic == topic] == offsets
    index.close()
    return len(log)


def test_messages_survive_kills_of_leader_and_of_all_nodes(
    tmp_path: Path, until: Callable[..., None], dice: random.Random, kills: int
) -> None:
    """Issue: acknowledged means found, whatever is killed; the leader and all nodes in turn."""
    path = tmp_path / "log"
    group = EmbeddedGroup(
        path,
        replicas=3,
        commit_log="rocketmq",
        segment_bytes=SEGMENT,
        max_body_bytes=MIB,
        index_file_bytes=1 << 20,
        checkpoint_entries=500,
    )
    with group:
        senders = [
            Sender(group.bootstrap_servers, f"s{n}", random.Random(dice.random())) for n in range(3)
        ]
        for sender in senders:
            sender.start()
        with Client(group.bootstrap_servers) as client:
            for turn in range(max(2, kills)):
                goal = sum(len(sender.acknowledged) for sender in senders) + dice.randrange(
                    100, 1500
                )
                until(
                    lambda goal=goal: sum(len(s.acknowledged) for s in senders) >= goal,
                    "messages to be put",
                )
                if turn % 2:
                    kill_all(group)
                    group.start()
                else:
                    leader = group.leader
                    group.kill(leader)
                    until(lambda leader=leader: group.leader != leader, "another leader")
                    group.restart(leader)
            for sender in senders:
                sender.finish()
            until(lambda: all_dispatched(client), "all nodes to have everything")
            check_answers(client, senders)
            for topic in ("topic0", "topic1"):
                for queue in range(QUEUES):
                    theirs = [m.body for m in queue_of(client, topic, queue, replica=True)]
                    assert theirs == [m.body for m in queue_of(client, topic, queue, replica=False)]
        nodes = [path / str(node) for node in group.nodes]
    counts = {check_files(node) for node in nodes}
    assert len(counts) == 1
    assert min(counts) >= sum(len(sender.acknowledged) for sender in senders)
