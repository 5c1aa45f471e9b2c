"""``dledger import kafka`` from a real Kafka: transactions, aborted ones too, removed records, and
an import that is killed."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from typing import Any

from dledger import Client, EmbeddedGroup
from examples.kafka_copy.broker import Broker
from tests.cli.commands import process, program
from tests.kafka.producing import commit, consumed, make_topic, produce, transactions

TOPIC = "invoices"
ROWS = 150_000


def here(client: Client, partition: int, start: int = 0) -> list[Any]:
    """As `consumed`, without offsets."""
    rows: list[Any] = []
    for batch in client.read(TOPIC, partition, start):
        for row in batch.select(["key", "value", "headers", "timestamp"]).to_pylist():
            pairs = [(one["key"], one["value"]) for one in row["headers"] or ()] or None
            time_ms = round(row["timestamp"].timestamp() * 1000)
            rows.append((row["key"], row["value"], pairs, time_ms))
    return rows


def import_words(broker: Broker, group: EmbeddedGroup) -> str:
    return f"import kafka --from {broker.servers} -b {group.bootstrap_servers} {TOPIC} --json"


def end_after(client: Client, words: str, records: int, how: signal.Signals) -> tuple[int, str]:
    """Exit code and last words of an import that gets a signal when so many records are here."""
    running = subprocess.Popen(
        program(words), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    while True:
        known = any(info.name == TOPIC for info in client.topics())
        if known and sum(client.end_offsets(TOPIC).values()) >= records:
            break
        assert running.poll() is None, running.communicate()[1]
    running.send_signal(how)
    _, said = running.communicate()
    return running.returncode, said


def test_topic_and_groups_come_over_through_kills(
    broker: Broker, group: EmbeddedGroup, client: Client
) -> None:
    make_topic(broker.servers, TOPIC, 3)
    produce(
        broker.servers,
        TOPIC,
        ((n % 2, b"k%d" % (n % 97), b"invoice %d " % n + bytes(n % 50)) for n in range(ROWS)),
        headers=[("shop", b"7")],
    )
    transactions(
        broker.servers,
        TOPIC,
        [
            (turn % 3 > 0, [(2, None, b"tx %d/%d" % (turn, n)) for n in range(3)])
            for turn in range(9)
        ],
    )
    there = consumed(broker.servers, TOPIC, 3)
    assert there[2][0][0] > 0, "an aborted transaction leaves a gap"
    ends = {(TOPIC, 0): 40_000, (TOPIC, 1): len(there[1]), (TOPIC, 2): there[2][7][0]}
    commit(broker.servers, "billing", ends)

    words = import_words(broker, group)
    end_after(client, words, 1, signal.SIGKILL)
    code, said = end_after(client, words, 60_000, signal.SIGINT)
    assert code == 130
    assert re.search(rf"interrupted: {TOPIC}: [\d,]+ records; the same command goes on there", said)
    assert "Traceback" not in said
    done = process(words)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["topics"][TOPIC]["records"] < ROWS

    for partition in range(3):
        assert here(client, partition) == [row[1:] for row in there[partition]]
    places = client.group("billing").offsets[TOPIC]
    assert places == {0: 40_000, 1: len(there[1]), 2: 7}

    # behind the last transaction lies its marker, which a reader of Kafka has passed
    transactions(broker.servers, TOPIC, [(True, [(2, b"k", b"last")])])
    end = consumed(broker.servers, TOPIC, 3)[2][-1][0] + 2
    commit(broker.servers, "billing", {(TOPIC, 2): end})
    done = process(words)
    assert json.loads(done.stdout)["topics"][TOPIC]["records"] == 1
    assert client.group("billing").offsets[TOPIC][2] == client.end_offsets(TOPIC)[2]
