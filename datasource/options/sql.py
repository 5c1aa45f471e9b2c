"""The options of Spark's SQL tables, beside a DataFrame's. Pure.

Spark hands the options of ``CREATE TABLE ... OPTIONS`` to the call that asks for the schema and to
no call after it: no SELECT, INSERT or stream over the table gets them. But it keeps the schema,
with the metadata of each column. So the options are put there, and found again by reads. Writes
must not look there: a frame that comes from another table brings that table's metadata along, and
its rows would go to where they came from.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from pyspark.sql.types import StructField, StructType

from dledger.datasource.options.option_table import ALL, OPTIONS, is_for
from dledger.datasource.options.selection import WAYS
from dledger.datasource.options.settings import PREFIX

KEY: Final = "dledger.options"
"""In the metadata of a table's first column."""
PREFIXED: Final = "option."
"""Spark marks the options of OPTIONS so; TBLPROPERTIES and its own words stand beside."""
_WHERE: Final = {name.lower(): where for name, where in OPTIONS.items()}
_LOG: Final = {"path", "dledger.bootstrap.servers", "bootstrap.servers", "dledger.peers"}
_SAME: Final = (
    frozenset({"topic", *(way.lower() for way in WAYS)}),
    frozenset(name for name in _WHERE if name.startswith("starting")),
    frozenset(name for name in _WHERE if name.startswith("ending")),
)
"""Options that say one thing in several ways: one of a statement's stands above all of the
table's."""
HINT: Final = (
    "In SQL: CREATE OR REPLACE TABLE orders USING dledger OPTIONS (path '/data/log', topic "
    "'orders') without columns, or name both in the statement, as in SELECT * FROM orders WITH "
    "(path = '/data/log', topic = 'orders')"
)
WRITE_HINT: Final = (
    "Spark gives a write nothing of a table's OPTIONS, and CREATE TABLE ... AS SELECT none of its "
    "own. Name the log and the topic in the statement: INSERT INTO orders WITH (path = "
    "'/data/log', topic = 'orders') (value) VALUES (CAST('text' AS BINARY)); in place of AS SELECT "
    "make the table first, and then insert: CREATE TABLE orders USING dledger OPTIONS (path "
    "'/data/log', topic 'orders'); INSERT INTO orders WITH (path = '/data/log', topic = 'orders') "
    "(value) SELECT CAST(to_json(struct(*)) AS BINARY) FROM people; in Python .option(...) before "
    ".append() or .toTable(...). An INSERT INTO a temporary view has the options of its CREATE"
)
TABLE: Final = "name_of_the_table"
"""Spark tells a source everything of a table but its name."""


def is_create_table(options: Mapping[str, str]) -> bool:
    """Whether Spark asks for the schema of a table that is being created."""
    return "provider" in options


def of_create_table(options: Mapping[str, str]) -> dict[str, str]:
    """The options of OPTIONS and LOCATION, without those that Spark and TBLPROPERTIES add."""
    said = {
        name[len(PREFIXED) :]: text for name, text in options.items() if name.startswith(PREFIXED)
    }
    if "location" in options and "path" in options:
        said["path"] = options["path"]
    return said


def with_options(schema: StructType, options: Mapping[str, str]) -> StructType:
    """The schema of a table that is being created, with its options."""
    if not options:
        return schema
    first = schema.fields[0]
    metadata = {**first.metadata, KEY: json.dumps(options, sort_keys=True)}
    return StructType(
        [StructField(first.name, first.dataType, first.nullable, metadata), *schema.fields[1:]]
    )


def remade(schema: StructType) -> str:
    """The statement that makes an SQL table anew, with its options and the columns that its topics
    have by now; empty for the schema of anything else."""
    kept = _kept(schema)
    if not kept:
        return ""
    said: dict[str, str] = json.loads(kept)
    options = ", ".join(f"{_quoted(name)} {_quoted(text)}" for name, text in said.items())
    return f"CREATE OR REPLACE TABLE {TABLE} USING dledger OPTIONS ({options})"


def _quoted(text: str) -> str:
    """A literal of Spark's SQL."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _kept(schema: StructType) -> str:
    return next((field.metadata[KEY] for field in schema.fields if KEY in field.metadata), "")


def for_read(given: Mapping[str, str], schema: StructType, use: str) -> Mapping[str, str]:
    """The options of a read: those of the statement, above those of its table.

    Args:
        use: ``batch read`` or ``stream read``; a table's options for others are left out.
    """
    kept = _kept(schema)
    said = {name.lower() for name in given}
    if not kept or said & _LOG:  # a statement that names its log means that one alone
        return given
    hidden = set(said)
    for same in _SAME:
        if said & same:
            hidden |= same
    table: dict[str, str] = json.loads(kept)
    return {
        name: text
        for name, text in table.items()
        if name.lower() not in hidden and _fits(name, use)
    } | dict(given)


def _fits(name: str, use: str) -> bool:
    return is_for(_WHERE.get(name.lower(), ALL if name.lower().startswith(PREFIX) else ""), use)
