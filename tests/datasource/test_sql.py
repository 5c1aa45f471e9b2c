"""How the options of a SQL table come back to the statements that read it."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql.types import StructType

from dledger.datasource.options.option_table import BATCH, STREAM
from dledger.datasource.options.sql import (
    KEY,
    TABLE,
    for_read,
    of_create_table,
    remade,
    with_options,
)
from dledger.datasource.read.reader import LogReader
from dledger.datasource.table.column_text import columns
from dledger.datasource.table.schema import check_read_schema, read_schema, table_schema
from dledger.datasource.table.typed import columns_of, unseen
from dledger.errors import ConfigError

CREATE = {
    "provider": "dledger", "owner": "me", "topic": "orders", "option.topic": "orders",
    "a.property": "1", "startingoffsets": "earliest", "option.startingoffsets": "earliest",
    "option.createtopic": "true", "option.dledger.request.timeout": "5s",
    "option.maxoffsetspertrigger": "10",
}  # fmt: skip
LOCATED = CREATE | {"location": "file:/data/log", "path": "file:/data/log"}
PLACE = {"dledger.request.timeout": "5s", "path": "file:/data/log"}
OF_READS = {"topic": "orders", "startingoffsets": "earliest"}


def stored(options: dict[str, str]) -> StructType:
    """The schema as Spark's catalog keeps it: as JSON."""
    return StructType.fromJson(table_schema(options).jsonValue())


def test_options_and_location_are_kept_and_properties_are_not() -> None:
    more = {"createtopic": "true", "maxoffsetspertrigger": "10"}
    assert of_create_table(LOCATED) == PLACE | OF_READS | more


def test_a_read_has_those_of_its_tables_options_that_are_for_it() -> None:
    assert for_read({}, stored(LOCATED), BATCH) == PLACE | OF_READS
    of_streams = {"maxoffsetspertrigger": "10"}
    assert for_read({}, stored(LOCATED), STREAM) == PLACE | OF_READS | of_streams


def test_an_option_of_the_statement_stands_above_all_that_say_the_same() -> None:
    given = {"startingTimestamp": "5", "subscribe": "a,b"}
    assert for_read(given, stored(LOCATED), BATCH) == given | PLACE


def test_a_statement_that_names_its_log_means_nothing_of_the_table() -> None:
    given = {"path": "/other", "topic": "t"}
    assert for_read(given, stored(LOCATED), BATCH) == given


def test_a_frame_without_a_table_has_its_own_options_alone() -> None:
    assert for_read({"topic": "t"}, read_schema(False), BATCH) == {"topic": "t"}
    assert KEY not in table_schema({"topic": "t"})[0].metadata


def test_statement_that_recreates_table_keeps_its_options() -> None:
    schema = table_schema(
        {"provider": "dledger", "option.path": "/it's \\ here", "option.topic": "t"}
    )
    assert remade(schema) == (
        f"CREATE OR REPLACE TABLE {TABLE} USING dledger OPTIONS ('path' '/it\\'s \\\\ here', "
        f"'topic' 't')"
    )
    assert remade(table_schema({"topic": "t"})) == ""


def test_table_with_foreign_columns_names_statement_that_recreates_it() -> None:
    extra = columns("extra bigint")
    altered = StructType([*stored(LOCATED), *extra])
    with pytest.raises(
        ConfigError, match=r"extra:bigint.*CREATE OR REPLACE TABLE .*'path' 'file:/data/log'"
    ):
        check_read_schema(altered, include_headers=False)
    with pytest.raises(ConfigError, match=r"leave \.schema"):
        check_read_schema(extra, include_headers=False)


def test_unseen_columns_of_table_are_those_that_are_new_or_wider() -> None:
    topic = columns_of(columns("id bigint, name string, score double"))
    seen = columns_of(columns("ID int, name string"))
    assert unseen(topic, seen) == ["id bigint", "score double"]
    assert unseen(topic, topic) == []


def test_the_tasks_of_an_sql_table_know_the_statement_that_makes_it_anew(group: Any) -> None:
    topic = group.create_topic("t", type="typed")
    group.evolve_schema(topic, 0, columns_of(columns("id bigint")))
    options = {"dledger.bootstrap.servers": group.address, "subscribe": "t"}
    schema = with_options(columns("id int"), options)
    assert LogReader(options, schema).remade == remade(schema) != ""
