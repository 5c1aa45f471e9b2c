"""Quotas as replicated state: what an entity has, what a command may say, and the snapshot."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dledger.catalog.access.quotas import QuotaState
from dledger.catalog.snapshot import PREFIX
from dledger.catalog.state_machine import Catalog
from dledger.catalog.topics.table import MemoryTables
from dledger.protocol.messages.catalog_commands import WHOLE_GROUP, AlterQuotas
from dledger.protocol.messages.codes import Code
from dledger.types import ALL_USERS, ANONYMOUS, OWNER, Principal

ALICE = Principal("User:alice")


def alter(catalog: Catalog, entity: str, **quotas: int) -> Any:
    command = AlterQuotas(entity=entity, quotas=quotas)
    return catalog.apply_command(catalog.applied_index + 1, command)


def names_of(snapshot: bytes) -> set[str]:
    """The fields of a snapshot."""
    _, size, _ = PREFIX.unpack_from(snapshot)
    return set(json.loads(snapshot[PREFIX.size : PREFIX.size + size]))


def test_quotas_that_are_not_named_stay_and_minus_one_takes_one_away() -> None:
    catalog = Catalog(MemoryTables())
    assert alter(catalog, ALICE, bytes_in=5, requests=7).result == {
        "quotas": {"bytes_in": 5, "requests": 7}
    }
    assert alter(catalog, ALICE, bytes_in=-1, connections=2).result == {
        "quotas": {"requests": 7, "connections": 2}
    }
    assert alter(catalog, ALICE).result == {"quotas": {}}, "none is named: all go"
    assert not catalog.quotas


def test_a_user_has_its_own_quotas_and_the_others_of_all_users() -> None:
    catalog = Catalog(MemoryTables())
    alter(catalog, ALL_USERS, bytes_in=5, requests=7)
    alter(catalog, ALICE, requests=9)
    assert catalog.quotas.of(ALICE) == {"bytes_in": 5, "requests": 9}
    assert catalog.quotas.of(ANONYMOUS) == {"bytes_in": 5, "requests": 7}
    assert catalog.quotas.of(OWNER) == {}, "no user"
    assert catalog.quotas.of(Principal("Node:n1")) == {}
    alter(catalog, OWNER, requests=3)
    assert catalog.quotas.of(OWNER) == {"requests": 3}, "it is named"


@pytest.mark.parametrize(
    ("entity", "quotas", "said"),
    [
        ("alice", {"requests": 1}, "did you mean 'User:alice'"),
        ("user:alice", {"requests": 1}, "did you mean 'User'"),
        ("", {"requests": 1}, "is no principal"),
        ("User:", {"requests": 1}, "user ''"),
        ("User:a/b", {"requests": 1}, "user 'a/b'"),
        ("User:" + "a" * 100_000, {"requests": 1}, "of 100000 characters"),
        ("Node:n1", {"requests": 1}, "is a member"),
        (ALICE, {"request": 1}, "did you mean 'requests'"),
        (ALICE, {"topics": 1}, "no quota of User:alice"),
        (WHOLE_GROUP, {"requests": 1}, "no quota of Group"),
        (ALICE, {"requests": 0}, "requests: 0 is not within 1 to"),
        (ALICE, {"bytes_in": -2}, "bytes_in: -2"),
        (ALICE, {"bytes_in": 1 << 62}, "is not within"),
        (WHOLE_GROUP, {"producers": 100_001}, "1 to 100000"),
        (WHOLE_GROUP, {"topics": 0}, "topics: 0"),
    ],
)
def test_malformed_quotas_change_nothing(entity: str, quotas: dict[str, int], said: str) -> None:
    catalog = Catalog(MemoryTables())
    answer = alter(catalog, entity, **quotas)
    assert (answer.code, said in answer.message) == (Code.MALFORMED, True), answer
    assert len(answer.message) < 300
    assert not catalog.quotas


def test_quotas_are_in_the_snapshot_and_without_any_it_is_as_before() -> None:
    catalog = Catalog(MemoryTables())
    before = catalog.snapshot()
    assert "quotas" not in names_of(before)
    assert not Catalog.restore(before, MemoryTables()).quotas
    alter(catalog, ALICE, bytes_in=5, requests=(1 << 62) - 1)
    alter(catalog, WHOLE_GROUP, topics=3)
    restored = Catalog.restore(catalog.snapshot(), MemoryTables())
    assert restored.quotas.by_entity == catalog.quotas.by_entity
    assert restored.snapshot() == catalog.snapshot()
    alter(catalog, ALICE)
    alter(catalog, WHOLE_GROUP)
    assert names_of(catalog.snapshot()) == names_of(before)


def test_the_order_of_commands_is_not_in_the_snapshot() -> None:
    one = QuotaState({"User:a": {"requests": 1, "bytes_in": 2}, "User:b": {"requests": 3}})
    other = QuotaState({"User:b": {"requests": 3}, "User:a": {"bytes_in": 2, "requests": 1}})
    assert one.image() == other.image()
