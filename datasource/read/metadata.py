"""The log's own state as small tables: ``.option("metadata", "topics")`` and so on. Read when the
action runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from dledger.client import Client
from dledger.client.member_lists import listed_members
from dledger.datasource.options.option_table import BATCH
from dledger.datasource.options.options import need_group, parse_options
from dledger.datasource.options.sql import HINT
from dledger.datasource.table.log import Address, Log
from dledger.datasource.table.metadata_schema import metadata_schema
from dledger.datasource.table.schema import same_columns
from dledger.errors import ConfigError, TopicNotFound
from dledger.protocol.messages.client import TopicInfo

Row = dict[str, Any]
CHUNK_ROWS: Final = 10_000


@dataclass
class MetadataSlice(InputPartition):
    """The whole of a table: it is read in one piece."""

    address: Address
    table: str
    starting_entry: int


class MetadataReader(DataSourceReader):
    """Reads one of these tables."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self.options = parse_options(options, BATCH)
        need_group(self.options, HINT)
        expected = metadata_schema(self.options.metadata)
        if not same_columns(schema, expected):
            raise ConfigError(
                f"the table {self.options.metadata!r} has its own columns, "
                f"{expected.simpleString()}, not {schema.simpleString()}: leave .schema(...) away"
            )

    def partitions(self) -> Sequence[InputPartition]:
        return [
            MetadataSlice(
                Log(self.options).found(), self.options.metadata, self.options.starting_entry
            )
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, MetadataSlice)
        rows = _TABLES[partition.table](partition.address.client(), partition.starting_entry)
        schema = to_arrow_schema(metadata_schema(partition.table), timezone="UTC")
        for at in range(0, len(rows), CHUNK_ROWS):
            yield pa.RecordBatch.from_pylist(rows[at : at + CHUNK_ROWS], schema=schema)


def _time(count: int, us: int) -> int | None:
    """Microseconds since 1970; None for a time that never was."""
    return count * us or None


def _topics(client: Client, _: int) -> list[Row]:
    rows: dict[str, Row] = {
        info.name: {
            "topic": info.name,
            "topicId": info.topic_id,
            "logId": info.log_id,
            "partitions": info.partitions,
            "records": 0,
            "bytes": 0,
            "newest": None,
            "settings": list(info.settings.items()),
            "type": "typed" if info.typed else "raw",
            **_newest_schema(client, info),
        }
        for info in client.topics()
    }
    for part in client.partitions():
        # else it was created between the two questions
        if (row := rows.get(part.topic)) is not None:
            row["records"] += part.end_offset - part.begin_offset
            row["bytes"] += part.bytes
            row["newest"] = max(row["newest"] or 0, part.newest_us) or None
    return list(rows.values())


def _newest_schema(client: Client, info: TopicInfo) -> Row:
    """Of a typed topic; nothing of one without any yet, or that was deleted since it was listed."""
    try:
        versions = client.schemas(info) if info.typed else []
    except TopicNotFound:
        versions = []
    text = ", ".join(map(str, versions[-1].fields)) if versions else None
    return {"schemaVersion": len(versions) or None, "schema": text}


def _partitions(client: Client, _: int) -> list[Row]:
    return [
        {
            "topic": one.topic,
            "partition": one.partition,
            "beginOffset": one.begin_offset,
            "endOffset": one.end_offset,
            "records": one.end_offset - one.begin_offset,
            "bytes": one.bytes,
            "newest": _time(one.newest_us, 1),
        }
        for one in client.partitions()
    ]


def _groups(client: Client, _: int) -> list[Row]:
    return [
        {
            "groupId": one.group,
            "topic": one.topic,
            "partition": one.partition,
            "offset": one.offset,
            "beginOffset": one.begin_offset,
            "endOffset": one.end_offset,
            "lag": one.rows,
            "lagBytes": one.bytes,
            "lagSeconds": one.seconds,
            "committed": _time(one.committed_ms, 1000),
            "holdsRetention": one.holds,
        }
        for group in client.groups()
        for one in client.lag(group)
    ]


def _commits(client: Client, start: int) -> list[Row]:
    return [
        {
            "entryIndex": one.index,
            "committed": _time(one.time_ms, 1000),
            "writer": one.writer_id,
            **parse_writer(one.writer_id, one.sequence),
            "topics": sorted(one.offsets),
            "rows": one.records,
            "ranges": [
                {"topic": topic, "partition": partition, "startOffset": first, "endOffset": end}
                for topic, spans in sorted(one.offsets.items())
                for partition, (first, end) in sorted(spans.items())
            ],
        }
        for one in client.commits(_first(client, start))
    ]


def parse_writer(writer_id: str, sequence: int) -> Row:
    """Which write it was that committed under this name; see `dledger.datasource.write.sink`."""
    row: Row = {"source": "client", "query": None, "batch": None, "txnId": None, "repeat": None}
    kind, _, rest = writer_id.partition("/")
    if kind == "spark" and rest:
        query, _, more = rest.partition("/")
        _, slash, txn_id = more.partition("/")
        row |= {"source": "foreachBatch" if slash else "stream", "query": query, "batch": sequence}
        row |= {"txnId": txn_id or None, "repeat": "nothing"}
    elif kind in {"job", "txn"} and rest:
        row |= {"source": "batch", "txnId": rest.partition("/")[0] if kind == "txn" else None}
        row["repeat"] = "nothing" if kind == "txn" else "again"
    return row


def _nodes(client: Client, _: int) -> list[Row]:
    rows: list[Row] = []
    status = client.status()
    listed = listed_members(status.values())
    for node, state in sorted(status.items()):
        port, member = state.get("port"), listed.get(node)
        rows.append(
            {
                "node": node,
                "address": f"{state['host']}:{port}" if port else None,
                "rack": member.rack if member else None,
                "member": member.role if member else None,
                "role": state.get("role"),
                "term": state.get("term"),
                "beginIndex": state.get("begin_index"),
                "endIndex": state.get("end_index"),
                "durableIndex": state.get("durable_index"),
                "committedIndex": state.get("committed_index"),
                "appliedIndex": state.get("applied_index"),
                "bytesUsed": state.get("bytes_used"),
                "diskLevel": state.get("disk_level"),
                "error": state.get("error"),
            }
        )
    return rows


def _entries(client: Client, start: int) -> list[Row]:
    return [
        {
            "entryIndex": one.index,
            "term": one.term,
            "position": one.pos,
            "size": one.size,
            "kind": one.kind,
            "topic": one.topic or None,
            "partition": _known(one.partition),
            "offset": _known(one.offset),
            "records": one.records,
            "command": one.command or None,
            "fields": one.fields or None,
        }
        for one in client.entries(_first(client, start))
    ]


def _known(number: int) -> int | None:
    return None if number < 0 else number


def _first(client: Client, start: int) -> int:
    """Where to start; below 0 it counts back from the log's end."""
    if start >= 0:
        return start
    ends = [
        int(state["applied_index"])
        for state in client.status().values()
        if "applied_index" in state
    ]
    return max(0, max(ends, default=-1) + 1 + start)


_TABLES: Final[dict[str, Callable[[Client, int], list[Row]]]] = {
    "topics": _topics,
    "partitions": _partitions,
    "groups": _groups,
    "commits": _commits,
    "nodes": _nodes,
    "entries": _entries,
}
