"""Settings of topics as part of the group's, and the records that go by them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger.catalog.admission import refused
from dledger.catalog.listing import list_settings
from dledger.catalog.state_machine import Catalog
from dledger.catalog.topics.expiry import expire
from dledger.catalog.topics.partition import Partition
from dledger.catalog.topics.table import MemoryTables
from dledger.protocol.messages.catalog_commands import AlterSettings, CreateTopic, DeleteTopic
from dledger.protocol.messages.codes import Code


@pytest.fixture
def catalog() -> Catalog:
    made = Catalog(MemoryTables())
    create(made, "orders")
    return made


def apply(catalog: Catalog, command: Any) -> Any:
    return catalog.apply_command(catalog.applied_index + 1, command)


def create(catalog: Catalog, name: str) -> None:
    log_id = f"{name}-{catalog.applied_index}"
    assert apply(catalog, CreateTopic(name=name, log_id=log_id)).code is Code.SUCCESS


def alter(catalog: Catalog, values: dict[str, str], *reset: str) -> Any:
    command = AlterSettings(values=values, reset=reset, principal="User:a", time_ms=7)
    return apply(catalog, command)


def test_a_topic_has_settings_of_its_own_with_history(catalog: Catalog) -> None:
    assert alter(catalog, {"orders/retention_ms": "5", "retention_ms": "9"}).result == {
        "version": 1
    }
    assert catalog.settings.of_topics() == {"orders": {"retention_ms": 5}}
    again = Catalog.restore(catalog.snapshot(), MemoryTables())
    assert again.settings.of_topics() == catalog.settings.of_topics()
    alter(catalog, {}, "orders/retention_ms")
    assert catalog.settings.of_topics() == {}
    (first, second) = catalog.settings.history
    assert first.changes["orders/retention_ms"] == (None, "5")
    assert (second.principal, second.changes) == ("User:a", {"orders/retention_ms": ("5", None)})


@pytest.mark.parametrize(
    ("name", "code", "said"),
    [
        ("orders/retention_m", Code.MALFORMED, "did you mean 'retention_ms'"),
        ("orders/max_topics", Code.MALFORMED, "topic 'orders': no setting 'max_topics'"),
        ("a/b/retention_ms", Code.MALFORMED, "topic 'a/b'"),
        ("/retention_ms", Code.MALFORMED, "topic ''"),
        ("others/retention_ms", Code.UNKNOWN_TOPIC, "there is no topic 'others'"),
    ],
)
def test_what_no_topic_can_have_is_refused(
    catalog: Catalog, name: str, code: Code, said: str
) -> None:
    answer = alter(catalog, {name: "5"})
    assert (answer.code, said in answer.message) == (code, True), answer
    assert alter(catalog, {"orders/retention_ms": "x"}).code is Code.MALFORMED
    assert not catalog.settings


def test_a_leader_refuses_settings_of_a_topic_that_is_not_there(catalog: Catalog) -> None:
    answer = refused(catalog, AlterSettings(values={"others/retention_ms": "5"}))
    assert answer is not None
    assert answer.code is Code.UNKNOWN_TOPIC
    assert refused(catalog, AlterSettings(values={"orders/retention_ms": "5"})) is None


def test_a_later_topic_of_the_same_name_begins_without_any(catalog: Catalog) -> None:
    create(catalog, "orders.x")
    alter(catalog, {"orders/retention_ms": "5", "orders.x/retention_ms": "6"})
    apply(catalog, DeleteTopic(name="orders"))
    create(catalog, "orders")
    assert catalog.settings.of_topics() == {"orders.x": {"retention_ms": 6}}


def test_settings_of_topics_are_listed_behind_those_of_the_group(catalog: Catalog) -> None:
    alter(catalog, {"orders/retention_ms": "5", "orders/retention_bytes": "6"})
    own = {"retention_ms": "0", "max_topics": "3"}
    rows, following = list_settings(catalog, own, 0, 3)
    assert [(row["name"], row["source"]) for row in rows] == [
        ("retention_ms", "node"),
        ("max_topics", "node"),
        ("orders/retention_bytes", "set"),
    ]
    ((last,), end) = list_settings(catalog, own, following, 3)
    assert (last["name"], last["value"], end) == ("orders/retention_ms", "5", -1)


ROWS = st.lists(
    st.tuples(st.integers(1, 5), st.integers(1, 100), st.integers(-20, 20)), max_size=60
)
"""(records, size, time of each batch)"""
MAYBE = st.none() | st.integers(-25, 25)


@given(ROWS, MAYBE, st.integers(0, 2000), st.integers(-1, 130), st.none() | st.integers(0, 200))
def test_what_is_expired_is_what_a_look_at_every_batch_finds(
    rows: list[Any], before_us: int | None, max_bytes: int, up_to: int, held: int | None
) -> None:
    partition = Partition(MemoryTables(), "t", topic_id=1, number=0)
    bases, newest, times = [], -100, []
    for at, (count, size, time) in enumerate(rows):
        newest = max(newest, time)
        times.append(newest)
        bases.append(partition.append(2 * at, 2000 * at, size, at, count, time, 2 * at + 1))
    bases.append(partition.next_offset)
    sizes, kept = [size for _, size, _ in rows], 0
    while kept < len(rows):
        is_old = before_us is not None and times[kept] < before_us
        is_much = bool(max_bytes) and sum(sizes[kept:]) > max_bytes
        is_wanted = held is not None and bases[kept + 1] > held
        if not (is_old or is_much) or 2 * kept + 1 > up_to or is_wanted:
            break
        kept += 1
    found = expire(partition, before_us=before_us, max_bytes=max_bytes, up_to=up_to, held=held)
    assert (found, partition.begin_row, partition.begin_offset) == (kept, kept, bases[kept])
    assert expire(partition, before_us=None, max_bytes=0, up_to=up_to, held=None) == 0
    if kept < len(rows):
        assert partition.find(bases[kept], 1 << 40, 1 << 20)[0].base_offset == bases[kept]
