"""``dledger append``: lines to records."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from typing import TYPE_CHECKING, Final

import click

from dledger.cli.common import (
    group_options,
    is_path,
    json_option,
    naming_topic,
    open_client,
    print_json,
)
from dledger.errors import ConfigError, TopicNotFound

if TYPE_CHECKING:
    from dledger.client import Appended, Client, RecordFuture

_CHUNK: Final = 1 << 18


@click.command()
@click.argument("topic")
@click.option(
    "--value",
    "values",
    multiple=True,
    help="A record; may be given often. Otherwise: lines of stdin.",
)
@click.option("--key", help="Key of every record.")
@click.option("--key-separator", metavar="TEXT", help="Each line is key, TEXT, value.")
@click.option("--partition", type=click.IntRange(min=0), help="Otherwise by key, or in turn.")
@click.option(
    "--create/--no-create",
    default=None,
    help="Create the topic if it is missing; default: only where the group belongs to a directory.",
)
@group_options
@json_option
def append(
    topic: str,
    values: tuple[str, ...],
    key: str | None,
    key_separator: str | None,
    partition: int | None,
    create: bool | None,
    bootstrap: str,
    timeout: float,
    as_json: bool,
) -> None:
    """Append records to TOPIC, and print where they are once a quorum has them on disk."""
    if key is not None and key_separator is not None:
        raise ConfigError("--key and --key-separator exclude each other: give one")
    if create is None:
        create = is_path(bootstrap)
    chunks = iter([[value.encode() for value in values]]) if values else stdin_lines()
    with open_client(bootstrap, timeout, create=create) as client:
        _check_topic(client, topic, create)
        ranges = _append_all(client, topic, chunks, key, key_separator, partition)
    records = sum(end - start for spans in ranges.values() for start, end in spans)
    if as_json:
        offsets = {str(at): [list(span) for span in spans] for at, spans in sorted(ranges.items())}
        print_json({"topic": topic, "records": records, "offsets": offsets})
        return
    for at, spans in sorted(ranges.items()):
        for start, end in spans:
            click.echo(f"{topic}[{at}] offsets {start}..{end - 1}")
    if not ranges:
        click.echo("nothing to append", err=True)


def _check_topic(client: Client, topic: str, create: bool) -> None:
    """Raises `TopicNotFound` when it is missing and shall not be made."""
    if not create:
        with naming_topic(client, topic):
            client.topic(topic)
        return
    try:
        client.topic(topic)
    except TopicNotFound:
        client.create_topic(topic, if_absent=True)


def _append_all(
    client: Client,
    topic: str,
    chunks: Iterator[list[bytes]],
    key: str | None,
    separator: str | None,
    partition: int | None,
) -> dict[int, list[tuple[int, int]]]:
    """Send the chunks in order; the offsets they got by partition, neighbours joined."""
    ranges: dict[int, list[tuple[int, int]]] = {}
    waiting: deque[Future[Appended] | RecordFuture] = deque()
    with client.producer(topic) as producer:
        for lines in chunks:
            # each key has a partition of its own, so each line is an append of its own
            if separator is not None:
                keys, lines = split_keys(lines, separator.encode())
                waiting += [
                    producer.append(v, keys=k, partition=partition)
                    for k, v in zip(keys, lines, strict=True)
                ]
            else:
                same_keys = None if key is None else [key.encode()] * len(lines)
                waiting.append(producer.append(lines, keys=same_keys, partition=partition))
            while waiting and waiting[0].done():
                _note(ranges, waiting.popleft().result())
        producer.flush()
        for future in waiting:
            _note(ranges, future.result())
    return ranges


def _note(ranges: dict[int, list[tuple[int, int]]], appended: Appended) -> None:
    spans = ranges.setdefault(appended.partition, [])
    if spans and spans[-1][1] == appended.start:
        spans[-1] = (spans[-1][0], appended.end)
    else:
        spans.append((appended.start, appended.end))


def split_keys(lines: list[bytes], separator: bytes) -> tuple[list[bytes], list[bytes]]:
    """Keys and values of lines. Raises `ConfigError` for a line without the separator."""
    keys, values = [], []
    for line in lines:
        key, found, value = line.partition(separator)
        if not found:
            raise ConfigError(f"line {line[:60]!r} has no key separator {separator!r}")
        keys.append(key)
        values.append(value)
    return keys, values


def stdin_lines() -> Iterator[list[bytes]]:
    """Lines of stdin, as many at a time as are there, so that a slow pipe's lines go out as they
    come."""
    rest = b""
    while data := sys.stdin.buffer.read1(_CHUNK):  # type: ignore[union-attr]  # bytes of a real stdin or a test's
        *lines, rest = (rest + data).split(b"\n")
        if lines:
            yield lines
    if rest:
        yield [rest]
