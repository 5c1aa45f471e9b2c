"""``dledger topics``: list, create, alter, delete."""

from __future__ import annotations

import sys
from typing import Any

import click

from dledger.cli.common import group_options, json_option, open_client, print_json, print_table
from dledger.errors import ConfigError, TopicExists
from dledger.messages.client import TopicInfo


@click.group()
def topics() -> None:
    """List, create, alter and delete topics."""


@topics.command("list")
@group_options
@json_option
def list_topics(bootstrap: str, timeout: float, as_json: bool) -> None:
    """Topics with their partitions and offsets."""
    with open_client(bootstrap, timeout) as client:
        found = sorted(client.topics(), key=lambda info: info.name)
        rows = []
        for info in found:
            begins, ends = client.begin_offsets(info.name), client.end_offsets(info.name)
            rows += [(info.name, info.log_id, at, begins[at], ends[at]) for at in range(info.partitions)]
    if as_json:
        keys = ("topic", "log_id", "partition", "begin_offset", "end_offset")
        print_json([dict(zip(keys, row, strict=True)) for row in rows])
        return
    print_table(
        ("topic", "partition", "begin", "end", "records"),
        [(name, str(at), begin, end, end - begin) for name, _, at, begin, end in rows],
    )


@topics.command()
@click.argument("name")
@click.option("--partitions", type=click.IntRange(1, 10_000), default=1, show_default=True)
@click.option("--if-absent", is_flag=True, help="No error when it is there already.")
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="A setting of the topic.")
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
@click.option("--partitions", type=click.IntRange(1, 10_000), required=True, help="So many from now on.")
@group_options
@json_option
def alter(name: str, partitions: int, bootstrap: str, timeout: float, as_json: bool) -> None:
    """Give topic NAME more partitions. What is in it stays where it is; keys may go elsewhere than before."""
    with open_client(bootstrap, timeout) as client:
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
    with open_client(bootstrap, timeout) as client:
        client.delete_topic(name)
    click.echo(f"topic {name} deleted")


__all__ = ["topics"]
