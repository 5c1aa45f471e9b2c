"""Schemas in the catalog: who is first, what is refused, and that a snapshot keeps them."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest

from dledger.catalog.results import CommandResult, DataResult
from dledger.catalog.state_machine import Catalog
from dledger.catalog.topics.schemas import MAX_VERSIONS
from dledger.catalog.topics.table import MemoryTables
from dledger.checksum import crc32
from dledger.protocol.messages.catalog_commands import CreateTopic, DeleteTopic, EvolveSchema
from dledger.protocol.messages.codes import Code
from dledger.records.columns.types import Atom, Columns, Field

A = Columns((Field("a", Atom("integer")),))
AB = Columns((*A.fields, Field("b", Atom("string"))))
AC = Columns((*A.fields, Field("c", Atom("string"))))
WIDE = Columns((Field("a", Atom("long")), *AB.fields[1:]))


@pytest.fixture
def typed(log: Any) -> Any:
    """A log with a typed topic ``rows`` of id 2 and two partitions."""
    log.run(CreateTopic(name="rows", log_id="L", partitions=2, settings={"type": "typed"}))
    return log


def evolve(
    log: Any, base: int, columns: Columns | str, topic: str = "rows", log_id: str = "L"
) -> CommandResult:
    text = columns if isinstance(columns, str) else columns.text
    return log.run(EvolveSchema(topic=topic, log_id=log_id, base_version=base, schema=text))  # type: ignore[no-any-return]


def send(
    log: Any, version: int, topic_id: int = 2, stage: int | None = None, sequence: int = 0
) -> DataResult:
    where = {"topic_id": topic_id, "partition": 1, "stage": stage, "sequence": sequence}
    return log.data(version=version, **where)  # type: ignore[no-any-return]


def test_versions_count_up_and_each_one_stays(typed: Any) -> None:
    for base, columns in enumerate([A, AB, WIDE]):
        answer = evolve(typed, base, columns)
        assert answer.result == {"accepted": True, "version": base + 1, "schema": columns.text}
    assert typed.catalog.schemas.by_topic == {2: [A.text, AB.text, WIDE.text]}


def test_first_of_two_concurrent_schema_changes_wins_and_second_is_told(
    typed: Any,
) -> None:
    evolve(typed, 0, A)
    assert evolve(typed, 1, AB).result["accepted"]
    assert evolve(typed, 1, AC).result == {"accepted": False, "version": 2, "schema": AB.text}
    both = Columns((*AB.fields, AC.fields[1]))
    assert evolve(typed, 2, both).result == {"accepted": True, "version": 3, "schema": both.text}


def test_a_repeat_of_a_change_finds_it_done_also_when_others_came_since(typed: Any) -> None:
    evolve(typed, 0, A)
    for _ in range(2):
        assert evolve(typed, 1, AB).result == {"accepted": True, "version": 2, "schema": AB.text}
    evolve(typed, 2, WIDE)
    assert evolve(typed, 1, AB).result["version"] == 2
    assert len(typed.catalog.schemas.by_topic[2]) == 3


def test_two_writers_of_the_same_first_columns_share_a_version(typed: Any) -> None:
    assert evolve(typed, 0, A).result == evolve(typed, 0, A).result


@pytest.mark.parametrize(
    ("columns", "more", "code"),
    [
        (AC, {}, Code.SCHEMA_MISMATCH),
        (Columns((Field("a", Atom("string")), *AB.fields[1:])), {}, Code.SCHEMA_MISMATCH),
        ("{}", {}, Code.MALFORMED),
        (WIDE, {"topic": "t", "log_id": "t-0"}, Code.SCHEMA_MISMATCH),
        (WIDE, {"topic": "nobody"}, Code.UNKNOWN_TOPIC),
        (WIDE, {"log_id": "another life"}, Code.UNKNOWN_TOPIC),
    ],
)
def test_a_change_that_cannot_be_is_refused_and_changes_nothing(
    typed: Any, columns: Columns | str, more: dict[str, str], code: Code
) -> None:
    evolve(typed, 0, AB)
    assert evolve(typed, 1, columns, **more).code is code
    assert typed.catalog.schemas.by_topic == {2: [AB.text]}


def test_versions_have_an_end(typed: Any) -> None:
    typed.catalog.schemas.by_topic[2] = [A.text] * MAX_VERSIONS
    assert evolve(typed, MAX_VERSIONS, AB).code is Code.MALFORMED


def test_batches_of_another_kind_or_of_no_version_get_no_offsets(typed: Any) -> None:
    """A reader would find rows where it expects records, or columns that nobody knows."""
    assert send(typed, 1).code is Code.SCHEMA_MISMATCH, "no version yet"
    evolve(typed, 0, A)
    assert [send(typed, version).code for version in (0, 2)] == [Code.SCHEMA_MISMATCH] * 2
    assert send(typed, 1, topic_id=1).code is Code.SCHEMA_MISMATCH
    assert typed.catalog.end_offset(2, 1) == typed.catalog.end_offset(1, 1) == 0
    assert send(typed, 1).base_offset == 0
    assert send(typed, 0, topic_id=1).base_offset == 0


def test_a_transaction_that_began_before_a_change_commits_behind_it(typed: Any) -> None:
    evolve(typed, 0, A)
    stage = typed.stage()
    assert send(typed, 1, stage=stage).code is Code.SUCCESS
    assert send(typed, 2, stage=stage, sequence=1).code is Code.SCHEMA_MISMATCH, (
        "staged batches are looked at too"
    )
    evolve(typed, 1, AB)
    assert send(typed, 2, stage=stage, sequence=1).code is Code.SUCCESS
    assert typed.commit((stage, 2, 2)).result["offsets"] == {"rows": {1: [0, 2]}}


def test_a_deleted_topic_takes_its_schemas_along(typed: Any) -> None:
    evolve(typed, 0, A)
    typed.run(DeleteTopic(name="rows"))
    assert evolve(typed, 1, AB).code is Code.UNKNOWN_TOPIC
    typed.run(CreateTopic(name="rows", log_id="M", partitions=2, settings={"type": "typed"}))
    assert send(typed, 1, topic_id=3).code is Code.SCHEMA_MISMATCH, "the new one has no version yet"


def test_a_topic_of_no_known_type_is_refused(log: Any) -> None:
    answer = log.run(CreateTopic(name="x", log_id="X", settings={"type": "table"}))
    assert (answer.code, "raw or typed" in answer.message) == (Code.MALFORMED, True)


def test_a_snapshot_keeps_schemas_and_what_they_refuse(typed: Any) -> None:
    evolve(typed, 0, A)
    evolve(typed, 1, AB)
    typed.restart()
    taken = [version for version in range(4) if send(typed, version).code is Code.SUCCESS]
    assert taken == [1, 2]
    assert evolve(typed, 1, AC).result["accepted"] is False
    other = typed.replay(Catalog(MemoryTables()))
    assert other.digest() == typed.catalog.digest()


def test_old_snapshot_is_read_and_one_without_schemas_is_unchanged(
    log: Any,
) -> None:
    """The old snapshot comes from a release without schemas."""
    data = log.catalog.snapshot()
    size = struct.unpack_from("<I", data, 8)[0]
    meta = json.loads(data[20 : 20 + size])
    assert "schemas" not in meta
    assert crc32(data[:-4]) == struct.unpack("<I", data[-4:])[0]
    assert Catalog.restore(data, log.tables).schemas.by_topic == {}
