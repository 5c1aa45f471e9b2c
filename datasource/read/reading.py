"""The schema of a read, keys and values or the columns of typed topics; found when a table is made
and when it is read."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from dledger.datasource.options.options import Options, parse_options
from dledger.datasource.options.sql import is_create_table, of_create_table, remade, with_options
from dledger.datasource.table.log import Log
from dledger.datasource.table.schema import (
    RECORD,
    check_read_schema,
    same_columns,
    selected,
    table_schema,
)
from dledger.datasource.table.schema import read_schema as record_schema
from dledger.datasource.table.typed import (
    check_readable,
    columns_of,
    one_schema,
    read_columns,
    refuse_mixture,
    spark_schema,
    unseen,
)
from dledger.errors import ConfigError, PathError, TopicNotFound, Unavailable
from dledger.protocol.messages.client import TopicInfo
from dledger.records.columns.types import Columns

LOGGER: Final = logging.getLogger("dledger.spark")


def schema_of_table(options: Mapping[str, str]) -> StructType:
    """The columns of a table under these options. For typed topics their own, which the group is
    asked for.

    Raises:
        UnknownOption, ConfigError: as the message says.
        Unavailable: no node can be asked.
    """
    created = is_create_table(options)
    said = of_create_table(options) if created else options
    checked, typed = parse_options(said), None
    if checked.address and checked.selection.given and not (checked.as_json or checked.metadata):
        try:
            typed = _typed_schema(checked)
        except Unavailable:
            if not created:
                raise  # else the table may be there before its log is
        except (TopicNotFound, PathError):
            if checked.columns:  # which may be those of a typed topic
                raise
            LOGGER.debug("the read itself gives the reason", exc_info=True)
    if typed is None:
        return table_schema(options)
    return with_options(typed, said) if created else typed


def _typed_schema(checked: Options) -> StructType | None:
    """The columns of typed topics; None when the topics are raw."""
    log = Log(checked)
    return log.settled(lambda infos: _schema_of(log, checked, infos))


def _schema_of(log: Log, checked: Options, infos: Mapping[str, TopicInfo]) -> StructType | None:
    if not any(info.typed for info in infos.values()):
        if checked.schema_version is not None:
            raise ConfigError(
                "option 'schemaVersion' is for typed topics; a raw one has no versions"
            )
        return None
    refuse_mixture(infos)
    columns = one_schema(
        {name: _ask(log, info, checked.schema_version) for name, info in infos.items()}
    )
    if checked.include_headers:
        raise ConfigError(
            "option 'includeHeaders' is for keys and values; a typed topic's rows have no headers"
        )
    fields, has_own = spark_schema(columns).fields, columns.find(RECORD.name) >= 0
    if checked.columns:
        return selected(fields if has_own else [*fields, RECORD], checked.columns)
    if not checked.include_metadata:
        return StructType(fields)
    if has_own:
        raise ConfigError(
            f"the topic has a column {RECORD.name!r} of its own: read it without 'includeMetadata'"
        )
    return StructType([*fields, RECORD])


@dataclass(frozen=True, slots=True)
class ReadColumns:
    """The columns that a read gives: of keys and values, or of typed topics."""

    records: pa.Schema | None = None
    """Some of `EVERY`, as they are named in the read."""
    typed: Columns | None = None
    has_place: bool = False
    """Behind the typed columns comes ``_record``."""


def columns_to_read(options: Options, schema: StructType, log: Log) -> ReadColumns:
    """The columns of a read under a schema: the table's, or the one of ``.schema(...)``, the only
    way in which Spark tells a Python source which columns it needs.

    Raises:
        ConfigError: the schema is neither the table's nor one that the topics can be read under.
    """
    headers, metadata = options.include_headers, options.include_metadata
    if options.as_json or same_columns(schema, record_schema(headers, metadata)):
        return _of_records(options, schema)
    return log.settled(lambda infos: _columns(log, options, schema, infos))


def _of_records(options: Options, schema: StructType) -> ReadColumns:
    check_read_schema(schema, options.include_headers, options.include_metadata)
    return ReadColumns(to_arrow_schema(schema, timezone="UTC"))


def _columns(
    log: Log, options: Options, schema: StructType, infos: Mapping[str, TopicInfo]
) -> ReadColumns:
    if not any(info.typed for info in infos.values()):
        return _of_records(options, schema)
    refuse_mixture(infos)
    fields = schema.fields
    has_place = bool(fields) and fields[-1] == RECORD
    if not has_place and (options.include_metadata or RECORD.name in options.columns):
        raise ConfigError(
            "the last column of the schema is '_record', with 'includeMetadata' and where "
            "'columns' names it; leave .schema() away"
        )
    wanted = columns_of(StructType(fields[:-1] if has_place else fields))
    way = remade(schema)
    for name, info in infos.items():
        newest = _ask(log, info, None)
        check_readable(name, newest, wanted, way)
        if way and options.schema_version is None and (more := unseen(newest, wanted)):
            LOGGER.warning(
                "topic %r has by now %s, which the table does not show: %s",
                name,
                ", ".join(more),
                way,
            )
    return ReadColumns(typed=wanted, has_place=has_place)


def _ask(log: Log, info: TopicInfo, version: int | None) -> Columns:
    return log.ask(lambda client: read_columns(client, info, version))


def check_kind(info: TopicInfo, columns: ReadColumns) -> None:
    """Refuse a raw topic, found while a query runs, where columns of typed ones are read.

    Raises:
        ConfigError: with the way out.
    """
    if columns.typed is not None and not info.typed:
        raise ConfigError(
            f"topic {info.name!r} is raw, and the query reads columns of typed topics: exclude it "
            "by the pattern, or set option 'valueFormat' to json"
        )
