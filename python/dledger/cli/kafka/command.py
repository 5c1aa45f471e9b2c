"""``dledger import``: the commands."""

from __future__ import annotations

import json
import re
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from dledger.cli.common import group_options, is_path, json_option, open_client, print_json
from dledger.config import nearest
from dledger.errors import ConfigError, TopicNotFound

if TYPE_CHECKING:
    from dledger.cli.kafka.copying import KafkaImport

TERMINAL_S: Final = 0.2
"""How often progress is told on a terminal."""
SCRIPT_S: Final = 10.0


@click.group("import")
def import_() -> None:
    """Copy topics of Kafka here, with the offsets of their groups."""


@import_.command()
@click.argument("topics", nargs=-1, metavar="[TOPIC]...")
@click.option(
    "--from",
    "servers",
    required=True,
    metavar="ADDRESSES",
    help="host:port,host:port of Kafka's brokers.",
)
@click.option("--pattern", metavar="REGEX", help="Also the topics whose whole name fits.")
@click.option(
    "--kafka-config",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="A file with name=value lines: librdkafka's settings, as for TLS and SASL.",
)
@click.option("--group", "groups", multiple=True, help="Only this consumer group; may be repeated.")
@click.option("--no-groups", is_flag=True, help="Leave the offsets of groups out.")
@click.option("--follow", "-f", is_flag=True, help="Go on with what comes, until Ctrl-C.")
@click.option(
    "--skip-removed",
    is_flag=True,
    help="Go on behind records that Kafka has removed before they were imported.",
)
@group_options
@json_option
def kafka(
    topics: tuple[str, ...],
    servers: str,
    pattern: str | None,
    kafka_config: Path | None,
    groups: tuple[str, ...],
    no_groups: bool,
    follow: bool,
    skip_removed: bool,
    bootstrap: str,
    timeout: float,
    as_json: bool,
) -> None:
    """Copy each TOPIC from Kafka: partitions, keys, values, headers, times, and the offsets of its
    groups.

    Run again, it goes on where the last run ended; no record is there twice. Needs confluent-kafka:
    pip install 'dledger[kafka]'.
    """
    if groups and no_groups:
        raise ConfigError("--group and --no-groups exclude each other: give one")
    from dledger.cli.kafka.cluster import KafkaCluster, load, read_config
    from dledger.cli.kafka.copying import KafkaImport

    fits = _regex(pattern)
    cluster = KafkaCluster(load(), servers, config=read_config(kafka_config), timeout_s=timeout)
    try:
        cluster_id, known = cluster.topics()
        chosen = choose(topics, fits, known, servers)
        with open_client(bootstrap, timeout, create=is_path(bootstrap)) as client:
            going = KafkaImport(client, cluster, None if no_groups else groups, skip_removed)
            try:
                going.begin(cluster_id, chosen)
                going.run(ImportProgress(), follow=follow)
            except KeyboardInterrupt:
                click.echo(f"interrupted: {_told(going)}; the same command goes on there", err=True)
                raise
    finally:
        cluster.close()
    _report(going, as_json)


def _regex(pattern: str | None) -> re.Pattern[str] | None:
    try:
        return None if pattern is None else re.compile(pattern)
    except re.error as error:
        raise ConfigError(f"--pattern {pattern!r} is no regular expression: {error}") from None


def choose(
    names: tuple[str, ...],
    pattern: re.Pattern[str] | None,
    known: dict[str, list[int]],
    servers: str,
) -> dict[str, list[int]]:
    """The topics to import, with their partitions.

    Raises:
        ConfigError: no topic is chosen.
        TopicNotFound: a topic is not there.
    """
    for name in names:
        if name not in known:
            raise TopicNotFound(
                f"Kafka at {servers} has no topic {name!r}{nearest(name, list(known))}"
            )
    chosen = {
        name: known[name]
        for name in sorted(known)
        if name in names or (pattern is not None and pattern.fullmatch(name))
    }
    if not chosen:
        there = ", ".join(sorted(known)[:20]) or "none"
        raise ConfigError(f"which topics? Name them, or give --pattern; Kafka has {there}")
    return chosen


class ImportProgress:
    """Tells on stderr how far an import is: in place on a terminal, else a line now and then."""

    def __init__(self) -> None:
        self._terminal = sys.stderr.isatty()
        self._began = self._told_at = time.monotonic()

    def __call__(self, going: KafkaImport) -> None:
        now = time.monotonic()
        if now < self._told_at + (TERMINAL_S if self._terminal else SCRIPT_S):
            return
        self._told_at = now
        records = sum(one.records for one in going.topics.values())
        rate = records / max(now - self._began, 1e-9)
        text = f"{records:,} records of at most {going.total:,}, {rate:,.0f}/s"
        click.echo(f"\r{text}\x1b[K" if self._terminal else text, nl=not self._terminal, err=True)


def _told(going: KafkaImport) -> str:
    return (
        ", ".join(f"{name}: {one.records:,} records" for name, one in going.topics.items())
        or "nothing is imported"
    )


def _report(going: KafkaImport, as_json: bool) -> None:
    topics = {
        name: {
            "records": one.records,
            "partitions": {p: {"kafka": k, "end": end} for p, (k, end) in one.step.ends.items()},
        }
        for name, one in sorted(going.topics.items())
    }
    if as_json:
        left_out = sorted(going.carried.left_out)
        print_json({"topics": topics, "groups": going.carried.groups, "left_out": left_out})
        return
    for name, one in sorted(going.topics.items()):
        held = sum(end for _, end in one.step.ends.values())
        click.echo(f"topic {name}: {one.records:,} records imported, {held:,} in all")
    for group, moved in sorted(going.carried.groups.items()):
        places = [f"{name}[{p}] {at:,}" for name, parts in moved.items() for p, at in parts.items()]
        click.echo(f"group {group}: {', '.join(places) or 'is not behind its place in Kafka'}")
    for group in sorted(going.carried.left_out):
        click.echo(f"group {group!r} is left out: its name cannot be one here", err=True)


@import_.command()
@click.argument("text", metavar="[JSON]", default="-")
@group_options
def offsets(text: str, bootstrap: str, timeout: float) -> None:
    """Translate offsets of Kafka into those here, for imported topics.

    JSON is what Spark's startingOffsets take, and what the last line of a file in a checkpoint's
    directory offsets has: {"orders": {"0": 23, "1": -2}}; without it, stdin.
    """
    from dledger.client.blocking.kafka_offsets import OffsetMap

    given = _offsets(sys.stdin.read() if text == "-" else text)
    with open_client(bootstrap, timeout) as client:
        found: dict[str, Any] = {}
        for topic, partitions in given.items():
            try:
                found[topic] = OffsetMap(client, topic).translated(partitions)
            except TopicNotFound:
                raise TopicNotFound(
                    f"topic {topic!r} was not imported from Kafka: dledger import kafka does that"
                ) from None
    click.echo(json.dumps(found))


def _offsets(text: str) -> dict[str, dict[str, int]]:
    """Raises `ConfigError` for anything else than offsets by topic and partition."""
    try:
        given = json.loads(text)
        return {
            str(topic): {str(int(p)): int(offset) for p, offset in partitions.items()}
            for topic, partitions in given.items()
        }
    except (ValueError, AttributeError, TypeError):
        raise ConfigError(
            f"{text[:60]!r} has no offsets: write topic -> partition -> offset in JSON, as in "
            '{"orders": {"0": 23}}'
        ) from None
