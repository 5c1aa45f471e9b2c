"""``dledger topics``: list, show, create, alter, delete."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from dledger.cli.common import (
    group_options,
    json_option,
    naming_topic,
    open_client,
    print_json,
    print_table,
)
from dledger.errors import ConfigError, TopicExists, TopicNotFound
from dledger.protocol.messages.client import TopicInfo

if TYPE_CHECKING:
    from dledger.client import Client
    from dledger.client.protocol.operations.group_state import PartitionState
    from dledger.records.columns.types import Columns


@click.group()
def topics() -> None:
    """List, show, create, alter and delete topics."""


@topics.command("list")
@group_options
@json_option
def list_topics(bootstrap: str, timeout: float, as_json: bool) -> None:
    """Topics with their partitions and offsets; of typed ones the newest version of their
    schema."""
    with open_client(bootstrap, timeout) as client:
        found = {info.name: (info, _newest(client, info)) for info in client.topics()}
        rows = [(*found[one.topic], one) for one in client.partitions() if one.topic in found]
    if as_json:
        print_json(
            [
                {
                    "topic": info.name,
                    "log_id": info.log_id,
                    "type": _kind(info),
                    "schema_version": version,
                    "partition": one.partition,
                    "begin_offset": one.begin_offset,
                    "end_offset": one.end_offset,
                }
                for info, version, one in rows
            ]
        )
        return
    print_table(
        ("topic", "type", "schema", "partition", "begin", "end", "records"),
        [
            (
                one.topic,
                _kind(info),
                _version(version),
                str(one.partition),
                one.begin_offset,
                one.end_offset,
                _records(one),
            )
            for info, version, one in rows
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
        with naming_topic(client, name):
            info = client.topic(name)
        if schema_version is not None and not info.typed:
            raise ConfigError(
                f"--schema-version {schema_version}: topic {name!r} is raw: it has keys and values"
            )
        versions = client.schemas(info) if info.typed else []
        parts = [one for one in client.partitions() if one.topic == name]
    at = len(versions) if schema_version is None else schema_version
    if at > len(versions):
        raise ConfigError(
            f"--schema-version {at}: topic {name!r} has the versions 1 to {len(versions)}"
        )
    columns = versions[at - 1] if at else None
    if as_json:
        print_json(_as_json(info, parts, columns, at, len(versions)))
    else:
        _print(info, parts, columns, at, len(versions))


def _newest(client: Client, info: TopicInfo) -> int | None:
    """The newest version of a typed topic's schema, 0 while there is none; None for a raw one."""
    try:
        return len(client.schemas(info)) if info.typed else None
    except TopicNotFound:  # it was deleted since it was listed
        return None


def _kind(info: TopicInfo) -> str:
    return "typed" if info.typed else "raw"


def _version(version: int | None) -> str:
    """Of a schema, for people: a typed topic has none before its first frame."""
    return "-" if not version else f"v{version}"


def _records(one: PartitionState) -> int:
    return one.end_offset - one.begin_offset


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


def _as_json(
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
    return {
        "topic": info.name,
        "log_id": info.log_id,
        "type": _kind(info),
        "settings": info.settings,
        "records": sum(map(_records, parts)),
        "bytes": sum(one.bytes for one in parts),
        "partitions": [
            {
                "partition": one.partition,
                "begin_offset": one.begin_offset,
                "end_offset": one.end_offset,
                "records": _records(one),
                "bytes": one.bytes,
                "newest": _time(one.newest_us),
            }
            for one in parts
        ],
        "schema": schema,
    }


def _print(
    info: TopicInfo, parts: list[PartitionState], columns: Columns | None, at: int, newest: int
) -> None:
    facts = {
        "topic": info.name,
        "log id": info.log_id,
        "type": _kind(info),
        **{name: value for name, value in info.settings.items() if name != "type"},
        "records": f"{sum(map(_records, parts)):,} in {sum(one.bytes for one in parts):,} bytes",
    }
    if columns is not None:
        facts["schema"] = f"{_version(at)} of {_version(newest)}" if at < newest else _version(at)
    elif info.typed:
        facts["schema"] = "none yet: the first frame that is written says it"
    width = max(map(len, facts))
    for name, value in facts.items():
        click.echo(f"{name:<{width}}  {value}")
    click.echo()
    print_table(
        ("partition", "begin", "end", "records", "bytes", "newest record"),
        [
            (
                str(one.partition),
                one.begin_offset,
                one.end_offset,
                _records(one),
                one.bytes,
                _time(one.newest_us) or "-",
            )
            for one in parts
        ],
    )
    if columns is not None:
        roles = {columns.find(columns.time): "event time", columns.find(columns.key): "key"}
        print_table(
            ("column", "type", "null", "role"),
            [
                (one.name, str(one.type), "yes" if one.nullable else "no", roles.get(place, ""))
                for place, one in enumerate(columns.fields)
            ],
        )


@topics.command()
@click.argument("name")
@click.option("--partitions", type=click.IntRange(1, 10_000), default=1, show_default=True)
@click.option("--if-absent", is_flag=True, help="No error when it is there already.")
@click.option(
    "--set", "settings", multiple=True, metavar="NAME=VALUE", help="A setting of the topic."
)
@group_options
@json_option
def create(
    name: str,
    partitions: int,
    if_absent: bool,
    settings: tuple[str, ...],
    bootstrap: str,
    timeout: float,
    as_json: bool,
) -> None:
    """Create topic NAME."""
    chosen: dict[str, Any] = {}
    for text in settings:
        key, equals, value = text.partition("=")
        if not equals:
            raise ConfigError(f"--set {text!r}: write name=value")
        chosen[key] = value
    with open_client(bootstrap, timeout, create=True) as client:
        try:
            info = client.create_topic(name, partitions, **chosen)
        except TopicExists:
            if not if_absent:
                raise
            info = client.topic(name)
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
    with open_client(bootstrap, timeout) as client, naming_topic(client, name):
        _tell(client.add_partitions(name, partitions), as_json)


@topics.command()
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@group_options
def delete(name: str, yes: bool, bootstrap: str, timeout: float) -> None:
    """Delete topic NAME with all its records."""
    if not yes:
        if not sys.stdin.isatty():
            raise ConfigError(f"topic {name!r} would be deleted with all its records: say --yes")
        click.confirm(f"Delete topic {name} with all its records?", abort=True)
    with open_client(bootstrap, timeout) as client, naming_topic(client, name):
        client.delete_topic(name)
    click.echo(f"topic {name} deleted")
