"""A client goes on when all members that it knew are gone, one after the other."""

from __future__ import annotations

from typing import Any

import pytest

from dledger.client.protocol import routing
from dledger.protocol.messages.client import MetadataRequest
from tests.client.conftest import FakeNode

MOST = 2000
"""Appends within which a producer has surely asked."""


@pytest.fixture(autouse=True)
def asks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routing, "LIST_MS", 0)


def others_are_replaced(group: Any) -> None:
    """Of those there were, only the leader stays."""
    for name in ("n3", "n4"):
        group.nodes[name] = FakeNode(group, name)
    for name in ("n1", "n2"):
        group.nodes.pop(name).kill()


def leader_is_replaced(group: Any) -> None:
    group.leader = "n3"
    group.nodes.pop("n0").kill()


def test_a_client_finds_a_leader_that_came_while_another_one_led(group: Any, either: Any) -> None:
    either.append("t", b"0")
    others_are_replaced(group)
    either.append("t", b"1")
    leader_is_replaced(group)
    assert either.append("t", b"2").start == 2
    assert group.values("t") == [b"0", b"1", b"2"]


def test_a_producer_finds_a_leader_that_came_while_another_one_led(group: Any, either: Any) -> None:
    """It sends nothing but its appends, on one connection."""
    with either.producer("t") as producer:
        producer.append(b"0").result()
        others_are_replaced(group)
        before = len(group.requests(MetadataRequest))
        for _ in range(MOST):
            producer.append(b"1").result()
            if len(group.requests(MetadataRequest)) > before:
                break
        producer.append(b"1").result()  # behind the answer with the members
        leader_is_replaced(group)
        producer.append(b"2").result()
    assert group.values("t")[-1] == b"2"
