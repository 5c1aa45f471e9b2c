"""Typed topics at the Spark edge: whether a write or read is of one, and the columns that it and
the topic agree on."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

from pyspark.sql.types import StructType

from dledger.client import Client
from dledger.datasource.options.options import Options
from dledger.datasource.table.schema import FROM_A_READ, WRITABLE
from dledger.errors import ConfigError, ProtocolError, SchemaMismatch, TopicExists, TopicNotFound
from dledger.protocol.messages.client import TopicInfo
from dledger.records.columns.evolution import holds, merge, side_by_side
from dledger.records.columns.types import Columns, build, by_name

EVOLVE: Final = "set option 'schemaEvolution' to add"
"""The way to let a frame change its topic's columns."""
KEPT_METADATA: Final = "__COLLATIONS"
"""Spark's own notes on a column begin with ``spark.`` or ``__`` and are of the query that made it;
those of `dledger.datasource.options.sql` with ``dledger.``, and are of a table. Only this one is
about the column's type."""


def columns_of(schema: StructType, key: str = "", time: str = "") -> Columns:
    """The columns of a frame.

    Raises:
        ConfigError: a column cannot be carried, or the key or time column cannot be one.
    """
    data = json.loads(schema.json())
    for field in data["fields"]:
        field["metadata"] = {
            name: value
            for name, value in (field.get("metadata") or {}).items()
            if name == KEPT_METADATA or not name.startswith(("spark.", "dledger.", "__"))
        }
    return build(data["fields"], key, time)


def spark_schema(columns: Columns) -> StructType:
    """The columns as Spark has them."""
    return StructType.fromJson(json.loads(columns.text))


def has_names_of_records(schema: StructType) -> bool:
    """Whether a frame is Kafka-shaped by the names of its columns: those of a record, ``value``
    among them."""
    names = {name.lower() for name in schema.names}
    return "value" in names and names <= WRITABLE.keys() | FROM_A_READ


def is_typed_write(
    options: Options, schema: StructType, topic: Callable[[], TopicInfo | None]
) -> bool:
    """Whether a frame is written as it is: its topic says so when it is there, else the option,
    else the frame.

    Raises:
        ConfigError: the option says otherwise than the topic, or there is no telling where to.
    """
    if not options.topic:
        if options.topic_type == "typed" or not (
            has_names_of_records(schema) or "topic" in schema.names
        ):
            raise ConfigError(
                "which topic? Give the option 'topic', as in .option('topic', 'orders'); only rows "
                "of keys and values can name theirs in a column"
            )
        return False
    info = topic()
    if info is not None:
        there = "typed" if info.typed else "raw"
        if options.topic_type not in {"", there}:
            raise ConfigError(
                f"option 'topicType' is {options.topic_type}, but topic {options.topic!r} is "
                f"{there}: leave the option away, or write to a new topic"
            )
        return info.typed
    return options.topic_type == "typed" or (
        not options.topic_type and not has_names_of_records(schema)
    )


def open_topic(client: Client, options: Options, name: str, hint: str, **kind: Any) -> TopicInfo:
    """The topic to write to, made where it is not there and that is wanted.

    Args:
        hint: how to create it.

    Raises:
        TopicNotFound: it is not there, and is not to be created.
        ConfigError: it has another number of partitions than the option wants.
    """
    info = find_topic(client, name)
    if info is None:
        if not options.create_topic:
            raise TopicNotFound(
                f"topic {name!r} does not exist in {options.address}: create it ({hint}), or set "
                "option 'createTopic' to true"
            )
        with suppress(TopicExists):  # another writer was first
            partitions = options.create_partitions or 1
            client.create_topic(name, partitions=partitions, **kind, **options.create_settings)
        info = client.topic(name)
    check_partitions(options, info)
    return info


def check_partitions(options: Options, info: TopicInfo) -> None:
    """Refuse a topic that has another number of partitions than the option wants.

    Raises:
        ConfigError: with the way out.
    """
    if options.create_partitions not in {None, info.partitions}:
        raise ConfigError(
            f"option 'createTopic.partitions' is {options.create_partitions}, but topic "
            f"{info.name!r} exists with {info.partitions}: leave the option away, or write to a "
            "new topic"
        )


def find_topic(client: Client, name: str) -> TopicInfo | None:
    try:
        return client.topic(name)
    except TopicNotFound:
        return None


def read_columns(client: Client, info: TopicInfo, version: int | None) -> Columns:
    """The columns that a topic is read under.

    Raises:
        ConfigError: it has none yet, or not that version.
    """
    versions = client.schemas(info)
    if not versions:
        raise ConfigError(
            f"topic {info.name!r} is typed and has no columns yet: they come with the first frame "
            f"that is written to it"
        )
    if version is None:
        return versions[-1]
    try:
        return client.schema(info, version)
    except ProtocolError as error:
        raise ConfigError(f"option 'schemaVersion': {error}") from error


def check_readable(name: str, newest: Columns, wanted: Columns, remade: str = "") -> None:
    """Refuse columns to read that a topic does not have, or has as something else.

    Args:
        remade: for an SQL table the statement that makes it anew.

    Raises:
        SchemaMismatch: with both schemas side by side.
    """
    remarks: dict[str, str] = {}
    places = by_name(newest.fields)
    for one in wanted.fields:
        at = places.get(one.name.lower(), -1)
        if at < 0:
            remarks[one.name] = "the topic has no such column"
            continue
        step = merge(Columns((newest.fields[at],)), Columns((one,)))
        if step.problems and not holds(one.type, newest.fields[at].type):
            remarks[one.name] = f"{newest.fields[at].type} is not read as {one.type}"
    if remarks:
        table = side_by_side(f"topic {name!r}", newest, "columns to read", wanted, remarks)
        way = (
            f"make the table anew: {remade}" if remade else "leave .schema(...) away, or correct it"
        )
        raise SchemaMismatch(f"topic {name!r} cannot be read so: {way}\n{table}")


def unseen(newest: Columns, wanted: Columns) -> list[str]:
    """The columns of a topic that a read under ``wanted`` does not give, or gives as narrower
    ones."""
    found: list[str] = []
    places = by_name(wanted.fields)
    for one in newest.fields:
        at = places.get(one.name.lower(), -1)
        if at < 0 or wanted.fields[at].type != one.type:
            found.append(f"{one.name} {one.type}")
    return found


def refuse_mixture(infos: Mapping[str, TopicInfo]) -> None:
    """Typed topics can be read as they are only with their like.

    Raises:
        ConfigError: there is a raw one among them.
    """
    raw = [name for name, info in infos.items() if not info.typed]
    typed = [name for name, info in infos.items() if info.typed]
    if raw and typed:
        raise ConfigError(
            f"topic {raw[0]!r} is raw and {typed[0]!r} typed: read them one by one, or set option "
            "'valueFormat' to json to read all of them as keys and values"
        )


def one_schema(found: Mapping[str, Columns]) -> Columns:
    """The columns of all of these topics.

    Raises:
        ConfigError: they differ.
    """
    (first, columns), *others = found.items()
    for name, more in others:
        if more.fields != columns.fields:
            table = side_by_side(
                f"topic {first!r}", columns, f"topic {name!r}", more, merge(columns, more).changes
            )
            raise ConfigError(
                f"topics {first!r} and {name!r} have other columns: read them one by one, or set "
                f"option 'valueFormat' "
                f"to json to read all of them as keys and values\n{table}"
            )
    return columns
