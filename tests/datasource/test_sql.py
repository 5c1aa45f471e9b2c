"""How the options of a SQL table come back to the statements that read it."""

from __future__ import annotations

from pyspark.sql.types import StructType

from dledger.datasource.option_table import BATCH, STREAM
from dledger.datasource.schema import read_schema, table_schema
from dledger.datasource.sql import KEY, for_read, of_create_table

CREATE = {
    "provider": "dledger", "owner": "me", "topic": "orders", "option.topic": "orders", "a.property": "1",
    "startingoffsets": "earliest", "option.startingoffsets": "earliest", "option.createtopic": "true",
    "option.dledger.request.timeout": "5s", "option.maxoffsetspertrigger": "10",
}  # fmt: skip
LOCATED = CREATE | {"location": "file:/data/log", "path": "file:/data/log"}


def stored(options: dict[str, str]) -> StructType:
    """The schema as Spark's catalog keeps it: as JSON."""
    return StructType.fromJson(table_schema(options).jsonValue())


def test_options_and_location_are_kept_and_properties_are_not() -> None:
    assert of_create_table(LOCATED) == {
        "topic": "orders", "startingoffsets": "earliest", "createtopic": "true", "maxoffsetspertrigger": "10",
        "dledger.request.timeout": "5s", "path": "file:/data/log",
    }  # fmt: skip


def test_a_read_has_those_of_its_tables_options_that_are_for_it() -> None:
    common = {"topic": "orders", "startingoffsets": "earliest", "dledger.request.timeout": "5s",
              "path": "file:/data/log"}  # fmt: skip
    assert for_read({}, stored(LOCATED), BATCH) == common
    assert for_read({}, stored(LOCATED), STREAM) == common | {"maxoffsetspertrigger": "10"}


def test_an_option_of_the_statement_stands_above_all_that_say_the_same() -> None:
    found = for_read({"startingTimestamp": "5", "subscribe": "a,b"}, stored(LOCATED), BATCH)
    assert found == {
        "startingTimestamp": "5", "subscribe": "a,b", "dledger.request.timeout": "5s", "path": "file:/data/log",
    }  # fmt: skip


def test_a_statement_that_names_its_log_means_nothing_of_the_table() -> None:
    given = {"path": "/other", "topic": "t"}
    assert for_read(given, stored(LOCATED), BATCH) == given


def test_a_frame_without_a_table_has_its_own_options_alone() -> None:
    assert for_read({"topic": "t"}, read_schema(False), BATCH) == {"topic": "t"}
    assert KEY not in table_schema({"topic": "t"})[0].metadata
