"""Dynamic settings as replicated state: what a command may say, versions, history, the snapshot."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

import pytest

from dledger.catalog.dynamic_settings import MAX_CHANGES
from dledger.catalog.snapshot import PREFIX
from dledger.catalog.state_machine import Catalog
from dledger.catalog.topics.table import MemoryTables
from dledger.config import LIVE, GroupConfig, NodeConfig
from dledger.config.dynamic import DYNAMIC, NOT_DYNAMIC, texts_of, with_texts
from dledger.protocol.messages.catalog_commands import AlterSettings
from dledger.protocol.messages.codes import Code
from dledger.types import NodeId

FOUNDING = texts_of(GroupConfig())


def alter(
    catalog: Catalog, *reset: str, expect: int = -1, who: str = "User:a", **values: str
) -> Any:
    command = AlterSettings(
        values=values,
        reset=reset,
        expected_version=expect,
        principal=who,
        founding=FOUNDING,
        time_ms=1000 + catalog.applied_index,
    )
    return catalog.apply_command(catalog.applied_index + 1, command)


def names_of(snapshot: bytes) -> set[str]:
    """The fields of a snapshot."""
    _, size, _ = PREFIX.unpack_from(snapshot)
    return set(json.loads(snapshot[PREFIX.size : PREFIX.size + size]))


def test_each_setting_of_a_group_is_dynamic_or_has_a_reason() -> None:
    of_group = {one.name for one in fields(GroupConfig)}
    assert DYNAMIC.keys() | NOT_DYNAMIC.keys() >= of_group
    assert not DYNAMIC.keys() & NOT_DYNAMIC.keys()
    assert NOT_DYNAMIC.keys() <= of_group
    assert DYNAMIC.keys() - of_group <= set(LIVE), "a node takes them while it runs"


def test_the_first_change_makes_the_leaders_settings_those_of_the_group() -> None:
    catalog = Catalog(MemoryTables())
    assert catalog.settings.kept == {}
    assert alter(catalog, retention_ms="5").result == {"version": 1}
    assert catalog.settings.kept == FOUNDING | {"retention_ms": "5"}
    command = AlterSettings(values={"max_topics": "7"}, founding={"pending_bytes": "9999999"})
    catalog.apply_command(catalog.applied_index + 1, command)
    assert catalog.settings.kept == FOUNDING | {"retention_ms": "5", "max_topics": "7"}


def test_a_reset_setting_is_what_it_was_before_it_was_ever_set() -> None:
    catalog = Catalog(MemoryTables())
    alter(catalog, retention_ms="5", max_topics="7")
    assert alter(catalog, "retention_ms", "max_topics").result == {"version": 2}
    assert catalog.settings.kept == FOUNDING, "retention is each node's own again"
    assert alter(catalog, "max_topics").result == {"version": 2}, "nothing has changed"


def test_a_change_that_expects_another_version_changes_nothing() -> None:
    catalog = Catalog(MemoryTables())
    assert alter(catalog, expect=0, max_topics="7").result == {"version": 1}
    refused = alter(catalog, expect=0, max_topics="8", who="User:b")
    assert refused.code is Code.UNEXPECTED_ARGUMENT
    assert "have version 1 (by User:a), not 0" in refused.message
    assert catalog.settings.values == {"max_topics": "7"}
    assert alter(catalog, expect=1, max_topics="8").result == {"version": 2}
    assert alter(catalog, max_topics="9").result == {"version": 3}, "any"


def test_a_repeat_of_a_change_that_expects_is_no_conflict() -> None:
    catalog = Catalog(MemoryTables())
    alter(catalog, max_topics="7")
    for _ in range(2):
        assert alter(catalog, expect=1, max_topics="8", retention_ms="5").result == {"version": 2}
    assert len(catalog.settings.history) == 2
    alter(catalog, max_topics="9")
    assert alter(catalog, expect=1, max_topics="9").code is Code.UNEXPECTED_ARGUMENT


def test_the_history_says_who_changed_what_and_has_an_end() -> None:
    catalog = Catalog(MemoryTables())
    alter(catalog, retention_ms="5", max_topics="7")
    alter(catalog, "retention_ms", who="User:b", max_topics="8")
    first, second = catalog.settings.history
    assert (first.version, first.principal, first.time_ms) == (1, "User:a", 999)
    assert first.changes == {"retention_ms": (None, "5"), "max_topics": ("10000", "7")}
    assert (second.version, second.principal) == (2, "User:b")
    assert second.changes == {"retention_ms": ("5", None), "max_topics": ("7", "8")}
    for number in range(MAX_CHANGES + 5):
        alter(catalog, max_topics=str(1 + number))
    history = catalog.settings.history
    assert [one.version for one in history] == list(range(8, 8 + MAX_CHANGES))


@pytest.mark.parametrize(
    ("values", "reset", "said"),
    [
        ({}, (), "which settings?"),
        ({"retention_m": "5"}, (), "did you mean 'retention_ms'"),
        ({}, ("max_topic",), "did you mean 'max_topics'"),
        ({"segment_bytes": "5"}, (), "segment_bytes does not change at run time: files of the log"),
        ({"election_ms": "5"}, (), "election_ms does not change at run time"),
        ({"max_connections": "5"}, (), "is each node's own"),
        ({"n" * 100_000: "5"}, (), "there is no dynamic setting"),
        ({"retention_ms": "-1"}, (), "'-1' is no whole number from 0"),
        ({"retention_ms": "1d"}, (), "'1d' is no whole number"),
        ({"retention_ms": "٣"}, (), "is no whole number"),
        ({"retention_ms": "9" * 100_000}, (), "more than 1024 characters"),
        ({"max_topics": "0"}, (), "from 1"),
        ({"max_producers": "100001"}, (), "from 1 to 100000"),
        ({"pending_bytes": "5"}, (), "from 1048576"),
        ({"delete_when": "24"}, (), "write hours"),
        ({"preferred_leaders": "n0,n0"}, (), "name each node once"),
        ({"preferred_leaders": "n/0"}, (), "node id 'n/0'"),
        ({"max_topics": "5", "retention_ms": "x"}, (), "retention_ms: 'x'"),
        ({"max_topics": "5"}, ("max_topics",), "to be set and to be reset"),
    ],
)
def test_malformed_changes_change_nothing(
    values: dict[str, str], reset: tuple[str, ...], said: str
) -> None:
    catalog = Catalog(MemoryTables())
    answer = alter(catalog, *reset, **values)
    assert (answer.code, said in answer.message) == (Code.MALFORMED, True), answer
    assert len(answer.message) < 600
    assert not catalog.settings


def test_settings_are_in_the_snapshot_and_without_any_it_is_as_before() -> None:
    catalog = Catalog(MemoryTables())
    before = catalog.snapshot()
    assert "settings" not in names_of(before)
    assert not Catalog.restore(before, MemoryTables()).settings
    alter(catalog, retention_ms="5", delete_when="04;16")
    alter(catalog, "retention_ms", preferred_leaders="n1")
    restored = Catalog.restore(catalog.snapshot(), MemoryTables())
    assert vars(restored.settings) == vars(catalog.settings)
    assert restored.snapshot() == catalog.snapshot()


def test_texts_are_values_and_back_and_leave_the_rest_of_a_config() -> None:
    members = (NodeId("n0"), NodeId("n1"))
    config = GroupConfig(members=members, preferred_leaders=members[1:], election_ms=3000)
    assert with_texts(GroupConfig(members=members, election_ms=3000), texts_of(config)) == config
    small = GroupConfig(ack_timeout_ms=5, pending_bytes=1)  # less than may be set at run time
    assert with_texts(GroupConfig(), texts_of(small)) == small
    changed = with_texts(
        config, {"preferred_leaders": "n7,n0", "max_topics": "3", "retention_ms": "1"}
    )
    n7 = NodeId("n7")  # of which the node was not told
    assert (changed.preferred_leaders, changed.max_topics) == ((n7, members[0]), 3)
    assert (changed.members, changed.election_ms) == (members, 3000)
    node = NodeConfig(node_id=members[0], directory="/")  # type: ignore[arg-type]
    assert with_texts(node, {"delete_when": "", "max_topics": "3"}) == node
