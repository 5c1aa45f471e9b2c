"""Readers with a rack, and real nodes that stand in racks."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from dledger.client import AsyncClient
from dledger.node.handlers.fetches import Reads
from dledger.protocol.messages.membership import MemberRole
from tests.node.growing import ADD, LABEL, Newcomer, done

RECORDS = [str(number).encode() for number in range(8)]


@pytest.fixture(autouse=True)
def any_group_takes_them(takes_members: None) -> None:
    """Whatever its version."""


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How many fetches each node was asked for."""
    fetch, found = Reads.fetch, Counter[str]()

    def counted(self: Reads, connection: Any, request_id: int, request: Any) -> None:
        found[self._node_id] += 1
        fetch(self, connection, request_id, request)

    monkeypatch.setattr(Reads, "fetch", counted)
    return found


async def values(batches: Any, count: int) -> list[bytes]:
    found: list[bytes] = []
    while len(found) < count:
        found += (await anext(batches)).column("value").to_pylist()
    return found


async def test_observer_of_the_rack_serves_reads_until_it_is_gone(
    asked: Counter[str], group: Any
) -> None:
    """It shows each record that a reader who follows wants, and no lag of it fails a read."""
    newcomer = Newcomer(group, "n3")
    await done(group, ADD, "n3", **newcomer.place, role=MemberRole.OBSERVER, rack="west")
    for name in ("n0", "n1", "n2"):
        await done(group, LABEL, name, rack="east")
    observer = await newcomer.start()
    await group.agree()
    servers = group.addresses["n1"]
    async with AsyncClient(servers) as writer, AsyncClient(servers, rack="west") as reader:
        await writer.create_topic("t")
        for value in RECORDS:
            await writer.append("t", value)
        assert await values(reader.read("t", 0, 0), len(RECORDS)) == RECORDS
        assert set(asked) == {"n3"}
        following = reader.read("t", 0, 0, follow=True)
        assert await values(following, len(RECORDS)) == RECORDS
        for value in RECORDS:
            await writer.append("t", value)
            assert await values(following, 1) == [value]
        assert set(asked) == {"n3"}
        await observer.stop()
        for value in RECORDS:
            await writer.append("t", value)
            assert await values(following, 1) == [value]
        assert len(asked) > 1
        assert await values(reader.read("t", 0, 0), 3 * len(RECORDS)) == 3 * RECORDS
        await following.aclose()
