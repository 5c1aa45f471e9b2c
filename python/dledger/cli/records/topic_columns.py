"""The columns that a topic takes: of keys and values, its own, or those of the table that makes
it."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from dledger.cli.records.inputs import Input, json_batches
from dledger.cli.records.table_input import (
    CSV_TYPES,
    LEFT_OUT,
    RECORD_COLUMNS,
    record_columns,
    table_batches,
)
from dledger.errors import ConfigError, TopicNotFound
from dledger.records.body.typed import arrow_schema

if TYPE_CHECKING:
    from dledger.client import Client


@dataclass(frozen=True, slots=True)
class TopicColumns:
    """A topic, as a writer of tables needs to know it."""

    topic: str
    is_there: bool = False
    is_typed: bool = False
    schema: pa.Schema | None = None
    """Of a typed topic; None while it has none."""

    @staticmethod
    def of(client: Client, topic: str) -> TopicColumns:
        """A topic as it is now; it need not be there."""
        try:
            info = client.topic(topic)
        except TopicNotFound:
            return TopicColumns(topic)
        versions = client.schemas(info) if info.typed else []
        schema = arrow_schema(versions[-1]) if versions else None
        return TopicColumns(topic, True, info.typed, schema)

    def rows(self, given: Input, form: str) -> Iterator[pa.RecordBatch]:
        """The rows of a table, as records or as the topic's rows.

        Raises:
            ConfigError: the table is broken, or its columns are not the topic's.
        """
        if form == "json":
            yield from self._json_rows(given)
            return
        for batch in table_batches(given, form, self._types(given) if form == "csv" else {}):
            if self.is_typed or (not self.is_there and not is_records(batch.schema.names)):
                yield batch
            else:
                yield record_columns(given, self.topic, batch)

    def check_lines(self) -> None:
        """Raises `ConfigError` for a typed topic, which takes no lines."""
        if self.is_typed:
            names = f" ({', '.join(self.schema.names)})" if self.schema is not None else ""
            raise ConfigError(
                f"topic {self.topic!r} is typed{names}: append its rows with --format json, csv, "
                "arrow or parquet"
            )

    def _types(self, given: Input) -> dict[str, pa.DataType]:
        """Types of the columns of CSV."""
        if self.schema is not None:
            return {field.name: field.type for field in self.schema}
        if self.is_there:
            return {} if self.is_typed else CSV_TYPES
        if not given.stream.seekable():
            raise ConfigError(
                f"topic {self.topic!r} is not there, and a pipe of CSV does not say its columns "
                "before it is read: name a file, or create it with dledger topics create"
            )
        head = next(csv.reader([given.stream.readline().decode("utf-8", "replace")]), [])
        given.stream.seek(0)
        return CSV_TYPES if is_records(head) else {}

    def _json_rows(self, given: Input) -> Iterator[pa.RecordBatch]:
        schema = self.schema
        if schema is None:
            raise ConfigError(
                f"topic {self.topic!r} has no columns yet, which JSON does not say: append a table "
                "of arrow or parquet first, or create it with --from-schema"
            )
        for field in schema:
            if not _plain(field.type):
                raise ConfigError(
                    f"column {field.name!r} of topic {self.topic!r} is {field.type}, which JSON "
                    "rows do not hold: append it with --format arrow or parquet"
                )
        yield from json_batches(given, schema)


def is_records(names: Sequence[str]) -> bool:
    """Whether columns are those of records of keys and values."""
    return "value" in names and set(names) <= {*RECORD_COLUMNS, *LEFT_OUT}


def _plain(kind: pa.DataType) -> bool:
    """Whether Arrow reads the type from JSON as `dledger tail` writes it."""
    if pa.types.is_struct(kind):
        return all(_plain(kind.field(at).type) for at in range(kind.num_fields))
    if pa.types.is_list(kind):
        return _plain(kind.value_type)
    kinds = (
        pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_string,
        pa.types.is_timestamp, pa.types.is_date32,
    )  # fmt: skip
    return any(is_it(kind) for is_it in kinds)
