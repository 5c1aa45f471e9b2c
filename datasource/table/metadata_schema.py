"""The columns of the tables of option ``metadata``."""

from __future__ import annotations

from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

_OFFSETS: Final = "topic string, partition int, beginOffset bigint, endOffset bigint"


SCHEMAS: Final = {
    "topics": "topic string, topicId bigint, logId string, partitions int, records bigint, bytes "
    "bigint, "
    "newest timestamp, settings map<string,string>, type string, schemaVersion int, schema string",
    "partitions": f"{_OFFSETS}, records bigint, bytes bigint, newest timestamp",
    "groups": "groupId string, topic string, partition int, offset bigint, beginOffset bigint, "
    "endOffset bigint, "
    "lag bigint, lagBytes bigint, lagSeconds double, committed timestamp, holdsRetention boolean",
    "commits": "entryIndex bigint, committed timestamp, writer string, source string, query "
    "string, batch bigint, "
    "txnId string, topics array<string>, rows bigint, "
    "ranges array<struct<topic:string,partition:int,startOffset:bigint,endOffset:bigint>>, repeat "
    "string",
    "nodes": "node string, address string, role string, term bigint, beginIndex bigint, endIndex "
    "bigint, "
    "durableIndex bigint, committedIndex bigint, appliedIndex bigint, bytesUsed bigint, diskLevel "
    "string, error string",
    "entries": "entryIndex bigint, term bigint, position bigint, size bigint, kind string, topic "
    "string, "
    "partition int, offset bigint, records bigint, command string, fields string",
}
"""Each table's columns; docs/options.md explains them."""


_RANGE: Final = StructType(
    [
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("startOffset", LongType()),
        StructField("endOffset", LongType()),
    ]
)


_SIMPLE: Final = (
    StringType(),
    IntegerType(),
    LongType(),
    DoubleType(),
    BooleanType(),
    TimestampType(),
)


_NESTED: Final = (MapType(StringType(), StringType()), ArrayType(StringType()), ArrayType(_RANGE))


_TYPES: Final[dict[str, DataType]] = {kind.simpleString(): kind for kind in (*_SIMPLE, *_NESTED)}


def metadata_schema(table: str) -> StructType:
    """The columns of a table of option ``metadata``. Spark's own parser of such texts needs its
    JVM."""
    columns = [column.split(" ") for column in SCHEMAS[table].split(", ")]
    return StructType([StructField(name, _TYPES[kind]) for name, kind in columns])
