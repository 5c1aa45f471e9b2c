"""The columns of a store's table: RocketMQ's fields by the names that its own clients give them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from dledger.config import nearest
from dledger.datasource.options.sql import is_create_table, of_create_table, with_options
from dledger.datasource.options.store_options import StoreOptions, parse_store_options
from dledger.datasource.table.column_text import columns
from dledger.datasource.table.schema import selected
from dledger.errors import ConfigError
from dledger.rocketmq.columns.entries import ENTRY_SCHEMA
from dledger.rocketmq.columns.messages import SCHEMA
from dledger.rocketmq.files.layout import DLEDGER

TYPES: Final[dict[pa.DataType, DataType]] = {
    pa.string(): StringType(),
    pa.int32(): IntegerType(),
    pa.int64(): LongType(),
    pa.binary(): BinaryType(),
    pa.timestamp("us", "UTC"): TimestampType(),
    pa.map_(pa.string(), pa.string()): MapType(StringType(), StringType()),
}
DAMAGE: Final = columns(
    "file string, start bigint, end bigint, bytes bigint, kind string, reason string"
)
"""Of ``metadata`` damage."""


def spark_name(column: str) -> str:
    """``queue_id`` -> ``queueId``."""
    first, *others = column.split("_")
    return first + "".join(part.capitalize() for part in others)


def columns_by_name(layout: str) -> dict[str, str]:
    """Spark's name of each column -> its own."""
    return {
        spark_name(name): name for name in (ENTRY_SCHEMA if layout == DLEDGER else SCHEMA).names
    }


def store_schema(options: Mapping[str, str]) -> StructType:
    """The columns of such a read under these options.

    Raises:
        UnknownOption, ConfigError: as the message says.
    """
    created = is_create_table(options)
    said = of_create_table(options) if created else options
    schema = wanted_schema(parse_store_options(said))
    return with_options(schema, said) if created else schema


def whole_schema(options: StoreOptions) -> StructType:
    """All columns."""
    if options.table:
        return DAMAGE
    arrow = ENTRY_SCHEMA if options.layout == DLEDGER else SCHEMA
    return StructType([StructField(spark_name(field.name), TYPES[field.type]) for field in arrow])


def wanted_schema(options: StoreOptions) -> StructType:
    """The columns of option ``columns``, or all."""
    whole = whole_schema(options)
    return selected(whole, options.columns) if options.columns else whole


def columns_to_read(options: StoreOptions, schema: StructType) -> tuple[str, ...]:
    """The columns that a read gives, in the order of its schema: all, or those that
    ``.schema(...)`` names. Spark tells a Python source nothing else of which it needs.

    Raises:
        ConfigError: there is no such column, or it has another type.
    """
    whole = {field.name.lower(): field for field in whole_schema(options)}
    names = {name.lower(): own for name, own in columns_by_name(options.layout).items()}
    for field in schema:
        known = whole.get(field.name.lower())
        if known is None:
            shown = [one.name for one in whole.values()]
            raise ConfigError(
                f"no column {field.name!r}{nearest(field.name, shown)}; there are "
                f"{', '.join(shown)}"
            )
        if known.dataType != field.dataType:
            raise ConfigError(
                f"column {known.name!r} is {known.dataType.simpleString()}, not "
                f"{field.dataType.simpleString()}: name "
                "it so in .schema(...), and cast it in the query"
            )
    if options.table:
        if schema.names != DAMAGE.names:
            raise ConfigError(
                f"the table {options.table!r} has its own columns: leave .schema(...) away"
            )
        return ()
    return tuple(names[field.name.lower()] for field in schema)
