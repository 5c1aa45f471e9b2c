"""Who sends and gets how much: bytes of a node's clients by principal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from dledger.node.access.traffic import MOST_NAMES, MovedBytes, Traffic
from dledger.types import Principal
from tests.node.bodies import body
from tests.node.scraping import samples


@dataclass
class FakeConnection:
    received: int = 0
    handed: int = 0


ALICE = Principal("User:alice")


def test_bytes_of_open_and_ended_connections_are_added() -> None:
    traffic, first, second = Traffic(), FakeConnection(10, 1), FakeConnection(5, 2)
    assert traffic.moved() == {}
    name = traffic.begin(ALICE, first)
    assert traffic.begin(ALICE, second) == name == ALICE
    assert traffic.moved() == {ALICE: MovedBytes(2, 15, 3)}
    first.received += 100
    traffic.end(name, first)
    assert traffic.moved() == {ALICE: MovedBytes(1, 115, 3)}, "nothing falls when one ends"
    traffic.end(name, second)
    assert traffic.moved() == {ALICE: MovedBytes(0, 115, 3)}


def test_so_many_principals_have_a_name_and_keep_it() -> None:
    traffic = Traffic()
    for number in range(MOST_NAMES + 5):
        connection = FakeConnection(received=1)
        traffic.end(traffic.begin(Principal(f"User:u{number}"), connection), connection)
    moved = traffic.moved()
    assert len(moved) == MOST_NAMES + 1
    assert (moved["User:u0"], moved["other"]) == (MovedBytes(0, 1, 0), MovedBytes(0, 5, 0))
    assert traffic.begin(Principal("User:u0"), FakeConnection()) == "User:u0"


@pytest.mark.group(1, metrics_port=0)
async def test_a_node_tells_who_sends_most(group: Any) -> None:
    client, topic = await group.topic()
    leader = await group.leader()
    counter = 'dledger_principal_received_bytes_total{principal="User:ANONYMOUS"}'
    before = (await samples(leader))[counter]
    assert (await client.append(body(topic, bytes(100_000)))).base_offset == 0
    after = (await samples(leader))[counter]
    assert 100_000 <= after - before < 101_000
    told = (await client.status())["principals"]["User:ANONYMOUS"]
    assert told["connections"] == 1
    assert told["received"] >= after > told["sent"] > 0
    moved = leader.parts.router.port_sessions.traffic.moved
    had = moved()["User:ANONYMOUS"]
    client.close()
    await group.until(lambda: not moved()["User:ANONYMOUS"].connections)
    assert moved()["User:ANONYMOUS"] == had._replace(connections=0)
