"""The columns of the table: those of Spark's Kafka connector, in its order, with its names and
types."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from dledger.config import nearest
from dledger.datasource.options.options import parse_options
from dledger.datasource.options.sql import is_create_table, of_create_table, remade, with_options
from dledger.datasource.table.column_text import columns
from dledger.datasource.table.metadata_schema import metadata_schema
from dledger.errors import ConfigError

COLUMNS: Final = columns(
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
    "timestampType int"
)
HEADERS: Final = columns("headers array<struct<key:string,value:binary>>")
METADATA: Final = columns("term int, entryIndex bigint, size int")
EVERY: Final = StructType([*COLUMNS, *HEADERS, *METADATA])
"""All columns of keys and values, wanted or not."""
PLACE: Final = columns(
    "topic string, partition int, offset bigint, timestamp timestamp, term int, entryIndex bigint"
)
"""Where a typed topic's row lies in the log."""
RECORD: Final = StructField("_record", PLACE)
"""Added to a typed topic's columns by option ``includeMetadata``."""
WRITABLE: Final = {
    "value": "a string or binary: CAST(value AS STRING), or to_json(struct(*)) AS value",
    "key": "a string or binary: CAST(key AS STRING)",
    "headers": "array<struct<key:string,value:binary>>",
    "topic": "a string: CAST(topic AS STRING)",
    "partition": "an int: CAST(partition AS INT)",
    "timestamp": "a timestamp: CAST(timestamp AS TIMESTAMP)",
}
"""Column of a written frame -> its required type, and how to make it so."""
FROM_A_READ: Final = {"offset", "timestamptype", "term", "entryindex", "size"}
"""Columns that a read adds and the log assigns itself; a frame that has them can be written as it
is."""


def table_schema(options: Mapping[str, str]) -> StructType:
    """The table's columns under these options.

    Raises:
        UnknownOption, ConfigError: as the message says.
    """
    said = of_create_table(options) if is_create_table(options) else options
    checked = parse_options(said)
    schema = read_schema(checked.include_headers, checked.include_metadata)
    if checked.columns:
        schema = selected(EVERY, checked.columns)
    if checked.metadata:
        schema = metadata_schema(checked.metadata)
    return with_options(schema, said) if is_create_table(options) else schema


def read_schema(include_headers: bool, include_metadata: bool = False) -> StructType:
    """The seven columns, and ``headers`` and those of the log itself when they are wanted."""
    extra = (HEADERS if include_headers else ()), (METADATA if include_metadata else ())
    return StructType([*COLUMNS, *extra[0], *extra[1]])


def selected(whole: Iterable[StructField], names: Iterable[str]) -> StructType:
    """The columns that option ``columns`` names, in its order.

    Raises:
        ConfigError: there is no such column.
    """
    known = {field.name.lower(): field for field in whole}
    for name in names:
        if name.lower() not in known:
            shown = [field.name for field in known.values()]
            raise ConfigError(
                f"option 'columns' names {name!r}{nearest(name, shown)}; there are "
                f"{', '.join(shown)}"
            )
    return StructType([known[name.lower()] for name in names])


def is_of_records(schema: StructType) -> bool:
    """Whether the columns are some of those of keys and values, each once."""
    known = {field.name.lower(): field.dataType for field in EVERY}
    found = {field.name.lower(): field.dataType for field in schema}
    return 0 < len(schema) == len(found) and found.items() <= known.items()


def check_read_schema(
    schema: StructType, include_headers: bool, include_metadata: bool = False
) -> None:
    """Refuse columns of the user's own: a log has these and no others.

    Raises:
        ConfigError: saying how to get other columns out of ``value``.
    """
    if is_of_records(schema):
        return
    expected = read_schema(include_headers, include_metadata)
    if way := remade(schema):
        raise ConfigError(
            f"the table has the columns {schema.simpleString()}, and a log is read with its own: "
            f"{expected.simpleString()}. Make the table anew: {way}; to have other columns, make "
            f"a view over it that "
            "unpacks the value, as in from_json(CAST(value AS STRING), 'id INT, name STRING')"
        )
    raise ConfigError(
        f"a log is read with its own columns, all or some of {EVERY.simpleString()}, not with "
        f"{schema.simpleString()}: leave .schema(...) away and unpack the value, as in "
        "from_json(CAST(value AS STRING), 'id INT, name STRING')"
    )


def same_columns(one: StructType, other: StructType) -> bool:
    """Whether names and types are the same, in order."""
    return [(f.name, f.dataType) for f in one] == [(f.name, f.dataType) for f in other]


@dataclass(frozen=True, slots=True)
class WriteColumns:
    """The place of each column in a written frame; -1 where it has none."""

    value: int
    key: int = -1
    headers: int = -1
    topic: int = -1
    partition: int = -1
    timestamp: int = -1


def check_write_schema(schema: StructType, topic: str) -> WriteColumns:
    """Find the columns to write; ``topic`` is the option, which stands above a column of that name.

    Raises:
        ConfigError: a column is missing, unknown, there twice, or of a wrong type, with the
            expression to use.
    """
    found: dict[str, int] = {}
    for i, column in enumerate(schema.fields):
        name = column.name.lower()
        if name in found:
            raise ConfigError(f"the frame has two columns {column.name!r}: drop or rename one")
        if name not in WRITABLE and name not in FROM_A_READ:
            raise ConfigError(
                f"column {column.name!r} ({column.dataType.simpleString()}) cannot be "
                f"written{nearest(name, list(WRITABLE))}: a log has {', '.join(WRITABLE)}. Drop "
                "it, or pack the frame: df.selectExpr('to_json(struct(*)) AS value')"
            )
        found[name] = i
        if name in WRITABLE and not _fits(name, column.dataType):
            raise ConfigError(
                f"column {column.name!r} is {column.dataType.simpleString()}; it must be "
                f"{WRITABLE[name]}"
            )
    if "value" not in found:
        raise ConfigError(
            f"the frame has no column 'value' (it has {', '.join(schema.names) or 'none'}): make "
            "one, as in df.selectExpr('CAST(id AS STRING) AS key', 'to_json(struct(*)) AS value')"
        )
    if not topic and "topic" not in found:
        raise ConfigError(
            "which topic? Give the option 'topic', as in .option('topic', 'orders'), or a column "
            "'topic'"
        )
    places = {name: i for name, i in found.items() if name in WRITABLE}
    if topic:
        places.pop("topic", None)
    return WriteColumns(**places)


def check_partitioner(columns: WriteColumns, partitioner: str) -> None:
    """Refuse a frame whose column ``partition`` and the option do not go together.

    Raises:
        ConfigError: with the way out.
    """
    if partitioner == "explicit" and columns.partition < 0:
        raise ConfigError(
            "option 'partitioner' is explicit, but the frame has no column 'partition': add one "
            "(an int), or set the option to murmur2 or roundRobin"
        )
    if partitioner == "roundRobin" and columns.partition >= 0:
        raise ConfigError(
            "option 'partitioner' is roundRobin, but the frame's column 'partition' says where "
            "rows go: drop the column, or set the option to explicit"
        )


def _fits(name: str, kind: DataType) -> bool:
    if name in {"value", "key"}:
        return isinstance(kind, StringType | BinaryType)
    if name == "headers":
        return _is_headers(kind)
    allowed: dict[str, Any] = {
        "topic": StringType,
        "partition": IntegerType | ShortType,
        "timestamp": TimestampType,
    }
    return isinstance(kind, allowed[name])


def _is_headers(kind: DataType) -> bool:
    if not (isinstance(kind, ArrayType) and isinstance(kind.elementType, StructType)):
        return False
    fields = kind.elementType.fields
    return (
        [f.name for f in fields] == ["key", "value"]
        and isinstance(fields[0].dataType, StringType)
        and isinstance(fields[1].dataType, BinaryType)
    )
