"""``dledger topics``: list, show, create, alter, set, reset, delete."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from dledger.cli.commands import CommandGroup
from dledger.cli.common import (
    confirm,
    group_options,
    json_option,
    open_client,
    print_json,
    print_table,
    set_option,
    yes_option,
)
from dledger.cli.group.settings import expect_option, plain_value, told_values
from dledger.config import split_setting
from dledger.config.dynamic import OF_TOPICS, of_topic, unknown_setting
from dledger.errors import (
    ConfigError,
    PermissionDenied,
    TopicExists,
    TopicNotFound,
    UnknownOption,
)
from dledger.protocol.messages.client import TopicInfo

if TYPE_CHECKING:
    from dledger.client import Client
    from dledger.client.protocol.operations.group_state import PartitionState
    from dledger.records.columns.types import Columns


@click.group(cls=CommandGroup)
def topics() -> None:
    """List, show, create, alter, set and delete topics."""


@topics.command("list")
@group_options
@json_option
def list_topics(bootstrap: str, timeout: float, as_json: bool) -> None:
    """Topics with their partitions and offsets; of typed ones the newest version of their
    schema."""
    with open_client(bootstrap, timeout) as client:
        found = {info.name: (info, _newest(client, info)) for info in client.topics()}
        parts = [(*found[one.topic], one) for one in client.partitions() if one.topic in found]
    rows = [
        {
            "topic": info.name,
            "log_id": info.log_id,
            "type": _kind(info),
            "schema_version": version,
            **_place(one),
        }
        for info, version, one in parts
    ]
    if as_json:
        print_json(rows)
        return
    print_table(
        ("topic", "type", "schema", "part", "begin", "end", "records"),
        [
            (
                info.name,
                _kind(info),
                # a typed topic has none before its first frame
                f"v{version}" if version else "-",
                str(one.partition),
                one.begin_offset,
                one.end_offset,
                one.end_offset - one.begin_offset,
            )
            for info, version, one in parts
        ],
    )


@topics.command()
@click.argument("name")
@click.option(
    "--schema-version",
    type=click.IntRange(min=1),
    help="A typed topic's columns as of this version.",
)
@group_options
@json_option
def show(
    name: str, schema_version: int | None, bootstrap: str, timeout: float, as_json: bool
) -> None:
    """All about topic NAME: settings, partitions, and the columns of a typed one."""
    with open_client(bootstrap, timeout) as client:
        info = client.topic(name)
        if schema_version is not None and not info.typed:
            raise ConfigError(
                f"--schema-version {schema_version}: topic {name!r} is raw: it has keys and values"
            )
        versions = client.schemas(info) if info.typed else []
        parts = [one for one in client.partitions() if one.topic == name]
        kept = _retention(client, name)
    at = len(versions) if schema_version is None else schema_version
    if at > len(versions):
        raise ConfigError(
            f"--schema-version {at}: topic {name!r} has the versions 1 to {len(versions)}"
        )
    told = _describe(info, parts, versions[at - 1] if at else None, at, len(versions))
    told["retention"] = kept
    if as_json:
        print_json(told)
    else:
        _print(told)


def _retention(client: Client, topic: str) -> dict[str, dict[str, str]]:
    """The settings that a topic may have of its own: each value, and whether it is the topic's or
    the group's. Empty for a user who may not see the group's."""
    try:
        found = {one.name: one.value for one in client.settings()}
    except PermissionDenied:
        return {}
    kept = {}
    for name in OF_TOPICS:
        own = found.get(of_topic(topic, name))
        value, source = (found[name], "group") if own is None else (own, "topic")
        kept[name] = {"value": value, "from": source}
    return kept


def _newest(client: Client, info: TopicInfo) -> int | None:
    """The newest version of a typed topic's schema, 0 while there is none; None for a raw one."""
    try:
        return len(client.schemas(info)) if info.typed else None
    except TopicNotFound:  # it was deleted since it was listed
        return None


def _kind(info: TopicInfo) -> str:
    return "typed" if info.typed else "raw"


def _place(one: PartitionState) -> dict[str, int]:
    return {name: getattr(one, name) for name in ("partition", "begin_offset", "end_offset")}


def _time(us: int) -> str | None:
    """Microseconds since 1970 as text; None for 0, a partition that never had a record."""
    try:
        return (
            (datetime.fromtimestamp(0, UTC) + timedelta(microseconds=us)).isoformat()
            if us
            else None
        )
    except OverflowError:  # a writer's time may be any
        return f"{us} us"


def _describe(
    info: TopicInfo, parts: list[PartitionState], columns: Columns | None, at: int, newest: int
) -> dict[str, Any]:
    """``schema`` is null for a raw topic, and for a typed one without any write; its ``spark`` is
    the text that Spark's ``StructType.fromJson`` takes."""
    schema = None
    if columns is not None:
        schema = {
            "version": at,
            "newest": newest,
            "key": columns.key or None,
            "time": columns.time or None,
            "columns": [
                {"name": one.name, "type": str(one.type), "nullable": one.nullable}
                for one in columns.fields
            ],
            "spark": json.loads(columns.text),
        }
    partitions: list[dict[str, Any]] = [
        {
            **_place(one),
            "records": one.end_offset - one.begin_offset,
            "bytes": one.bytes,
            "newest": _time(one.newest_us),
        }
        for one in parts
    ]
    return {
        "topic": info.name,
        "log_id": info.log_id,
        "type": _kind(info),
        "settings": info.settings,
        "records": sum(one["records"] for one in partitions),
        "bytes": sum(one.bytes for one in parts),
        "partitions": partitions,
        "schema": schema,
    }


def _print(told: dict[str, Any]) -> None:
    """What `_describe` says, for people."""
    schema = told["schema"]
    facts = {
        "topic": told["topic"],
        "log id": told["log_id"],
        "type": told["type"],
        **{name: value for name, value in told["settings"].items() if name != "type"},
        "records": f"{told['records']:,} in {told['bytes']:,} bytes",
        **{name: f"{one['value']} ({one['from']})" for name, one in told["retention"].items()},
    }
    if schema:
        is_newest = schema["version"] == schema["newest"]
        facts["schema"] = f"v{schema['version']}" + (
            "" if is_newest else f" of v{schema['newest']}"
        )
    elif told["type"] == "typed":
        facts["schema"] = "none yet: the first frame that is written says it"
    width = max(map(len, facts))
    for name, value in facts.items():
        click.echo(f"{name:<{width}}  {value}")
    click.echo()
    print_table(
        ("part", "begin", "end", "records", "bytes", "newest record"),
        [
            (str(number), *counts, newest or "-")
            for number, *counts, newest in (one.values() for one in told["partitions"])
        ],
    )
    if schema:
        click.echo()
        names = {"event time": schema["time"], "key": schema["key"]}
        roles = {name.lower(): role for role, name in names.items() if name}
        print_table(
            ("column", "type", "null", "role"),
            [
                (name, kind, "yes" if nullable else "no", roles.get(name.lower(), ""))
                for name, kind, nullable in (one.values() for one in schema["columns"])
            ],
        )


@topics.command()
@click.argument("name")
@click.option("--partitions", type=click.IntRange(1, 10_000), default=1, show_default=True)
@click.option("--if-absent", is_flag=True, help="No error when it is there already.")
@click.option(
    "--from-schema",
    "schema",
    metavar="FILE|COLUMNS",
    help="A typed topic with the columns of a file of Arrow or Parquet, a JSON Schema or Spark's "
    "JSON, or 'id bigint not null, at timestamp, ...'.",
)
@click.option("--key", metavar="COLUMN", help="Of --from-schema: says a record's partition.")
@click.option("--time", metavar="COLUMN", help="Of --from-schema: has each record's time.")
@set_option("A setting of the topic.")
@group_options
@json_option
def create(
    name: str,
    partitions: int,
    if_absent: bool,
    schema: str | None,
    key: str | None,
    time: str | None,
    settings: tuple[str, ...],
    bootstrap: str,
    timeout: float,
    as_json: bool,
) -> None:
    """Create topic NAME."""
    chosen: dict[str, Any] = dict(map(split_setting, settings))
    columns = None
    if schema is not None:
        from dledger.cli.group.schema_text import columns_of_text

        columns = columns_of_text(schema, key or "", time or "")
        chosen["type"] = "typed"
    elif key is not None or time is not None:
        raise ConfigError("--key and --time name columns of --from-schema: give that too")
    with open_client(bootstrap, timeout, create=True) as client:
        try:
            info = client.create_topic(name, partitions, **chosen)
        except TopicExists:
            if not if_absent:
                raise
            info = client.topic(name)
        if columns is not None:
            found = client.evolve_schema(info, 0, columns)
            if found.columns != columns:
                raise TopicExists(
                    f"topic {name!r} is there with other columns (dledger topics show {name}): "
                    "write to it, and it takes new columns on, or name another topic"
                )
    _tell(info, as_json)


def _tell(info: TopicInfo, as_json: bool) -> None:
    if as_json:
        print_json({"topic": info.name, "log_id": info.log_id, "partitions": info.partitions})
    else:
        click.echo(f"topic {info.name}: {info.partitions} partitions, log id {info.log_id}")


@topics.command()
@click.argument("name")
@click.option(
    "--partitions", type=click.IntRange(1, 10_000), required=True, help="So many from now on."
)
@group_options
@json_option
def alter(name: str, partitions: int, bootstrap: str, timeout: float, as_json: bool) -> None:
    """Give topic NAME more partitions. What is in it stays where it is; keys may go elsewhere than
    before."""
    with open_client(bootstrap, timeout) as client:
        _tell(client.add_partitions(name, partitions), as_json)


def _of_topic(topic: str, name: str) -> str:
    """The full name of a setting of a topic, checked."""
    full = of_topic(topic, name)
    if text := unknown_setting(full):
        raise UnknownOption(text)
    return full


@topics.command("set")
@click.argument("name")
@click.argument("assignments", metavar="SETTING=VALUE...", nargs=-1, required=True)
@expect_option
@group_options
def set_topic(
    name: str, assignments: tuple[str, ...], expect: int | None, bootstrap: str, timeout: float
) -> None:
    """Let topic NAME keep its records for less than the group does, as in: retention_ms=1d
    retention_bytes=10GiB. 'dledger settings history' says who set what, and when."""
    pairs = [split_setting(one) for one in assignments]
    values = {_of_topic(name, key): plain_value(key, text) for key, text in pairs}
    if len(values) < len(pairs):
        raise ConfigError("one setting is named twice: name each once")
    with open_client(bootstrap, timeout) as client:
        version = client.set_settings(values, expect=expect)
    click.echo(f"{told_values(values)}; version {version}")


@topics.command("reset")
@click.argument("name")
@click.argument("settings", metavar="SETTING...", nargs=-1, required=True)
@expect_option
@group_options
def reset_topic(
    name: str, settings: tuple[str, ...], expect: int | None, bootstrap: str, timeout: float
) -> None:
    """Let the group's settings count for topic NAME again."""
    names = [_of_topic(name, key) for key in settings]
    with open_client(bootstrap, timeout) as client:
        version = client.reset_settings(names, expect=expect)
    click.echo(f"{', '.join(settings)} of topic {name}: as the group has it; version {version}")


@topics.command()
@click.argument("name")
@yes_option
@group_options
def delete(name: str, yes: bool, bootstrap: str, timeout: float) -> None:
    """Delete topic NAME with all its records."""
    question = f"Delete topic {name} with all its records?"
    confirm(yes, question, f"topic {name!r} would be deleted with all its records: say --yes")
    with open_client(bootstrap, timeout) as client:
        client.delete_topic(name)
    click.echo(f"topic {name} deleted")
