"""Whom a reader asks first, and then."""

from __future__ import annotations

from collections import Counter

from dledger.client.protocol.client_state import ClientState
from dledger.client.protocol.reading.replicas import Replicas
from dledger.environment import Environment, host_is_here
from dledger.errors import Unavailable


class On(Environment):
    """A machine with a name, whose dice fall as they are told to."""

    def __init__(self, name: str, draw: int) -> None:
        self.name = name
        self.draw = draw

    def below(self, n: int) -> int:  # type: ignore[override]
        return self.draw % n

    def is_here(self, host: str) -> bool:  # type: ignore[override]
        return host_is_here(host, self.name)


def order(addresses: str, host: str, preferred: str = "", draw: int = 0) -> list[str]:
    """The replicas as a reader on ``host`` would go through them."""
    replicas = Replicas(ClientState.make(addresses, "", {}, On(host, draw)), lambda: preferred)
    found = []
    for _ in addresses.split(","):
        found.append(replicas.address)
        replicas.failed(Unavailable("it is silent"))
    return found


def test_replica_on_readers_machine_is_asked_first_and_all_others_after() -> None:
    addresses = "box-a:1,box-b.example:2,box-c:3"
    for draw in range(6):
        found = order(addresses, "box-b", draw=draw)
        assert found[0] == "box-b.example:2"
        assert sorted(found) == sorted(addresses.split(","))


def test_a_replica_that_is_asked_for_by_name_comes_before_a_near_one() -> None:
    assert order("box-a:1,box-b:2", "box-b", preferred="box-a:1") == ["box-a:1", "box-b:2"]


def test_readers_spread_evenly_over_replicas_that_are_equally_near() -> None:
    addresses = "box:1,box:2,far-a:3,far-b:4"
    for host, equal in (("elsewhere", 4), ("box", 2)):
        first = Counter(order(addresses, host, draw=draw)[0] for draw in range(12))
        assert list(first.values()) == [12 // equal] * equal
