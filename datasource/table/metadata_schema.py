"""The columns of the tables of option ``metadata``."""

from __future__ import annotations

from typing import Final

from pyspark.sql.types import StructType

from dledger.datasource.table.column_text import columns

_OFFSETS: Final = "topic string, partition int, beginOffset bigint, endOffset bigint"


SCHEMAS: Final = {
    "topics": "topic string, topicId bigint, logId string, partitions int, records bigint, "
    "bytes bigint, newest timestamp, settings map<string,string>, type string, schemaVersion int, "
    "schema string",
    "partitions": f"{_OFFSETS}, records bigint, bytes bigint, newest timestamp",
    "groups": "groupId string, topic string, partition int, offset bigint, beginOffset bigint, "
    "endOffset bigint, lag bigint, lagBytes bigint, lagSeconds double, committed timestamp, "
    "holdsRetention boolean",
    "commits": "entryIndex bigint, committed timestamp, writer string, source string, "
    "query string, batch bigint, txnId string, topics array<string>, rows bigint, "
    "ranges array<struct<topic:string,partition:int,startOffset:bigint,endOffset:bigint>>, "
    "repeat string",
    "nodes": "node string, address string, rack string, member string, role string, term bigint, "
    "beginIndex bigint, endIndex bigint, durableIndex bigint, committedIndex bigint, "
    "appliedIndex bigint, bytesUsed bigint, diskLevel string, error string",
    "entries": "entryIndex bigint, term bigint, position bigint, size bigint, kind string, "
    "topic string, partition int, offset bigint, records bigint, command string, fields string",
}
"""Each table's columns; docs/options.md explains them."""


def metadata_schema(table: str) -> StructType:
    """The columns of a table of option ``metadata``."""
    return columns(SCHEMAS[table])
