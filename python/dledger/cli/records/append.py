"""``dledger append``: lines, files and tables to records."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from dledger.cli.common import (
    PATH,
    Interrupted,
    group_options,
    is_path,
    json_option,
    open_client,
    print_json,
)
from dledger.cli.interruption import Interruption, interruption
from dledger.cli.progress import progress
from dledger.cli.records.given import FORMATS, AppendOptions, check, records_of
from dledger.errors import DLedgerError, TopicNotFound

if TYPE_CHECKING:
    import pyarrow as pa

    from dledger.cli.records.sender import RecordSender
    from dledger.client import Client, Producer
    from dledger.protocol.messages.client import TopicInfo


@click.command()
@click.argument("topic")
@click.argument("files", metavar="[FILE]...", nargs=-1, type=PATH)
@click.option(
    "--value", "values", multiple=True, help="A record; may be given often. Otherwise: FILE, stdin."
)
@click.option("-k", "--key", help="Key of every record.")
@click.option(
    "-K",
    "--key-delimiter",
    "--key-separator",
    metavar="TEXT",
    help="Each line is key, TEXT, value.",
)
@click.option(
    "-H",
    "--header",
    "headers",
    multiple=True,
    metavar="NAME=VALUE",
    help="A header of every record; NAME alone has no value. May be given often.",
)
@click.option("-p", "--partition", type=click.IntRange(min=0), help="Else by key, or in turn.")
@click.option(
    "-F",
    "--format",
    "form",
    type=click.Choice(FORMATS),
    help="json: as tail --json prints it. csv, arrow, parquet: a row is a record. file: each FILE "
    "is one record. Otherwise by FILE's name; else lines.",
)
@click.option("-D", "--delimiter", metavar="TEXT", help="Ends a record; a line's end by default.")
@click.option(
    "--length-prefixed", is_flag=True, help="Values behind 4 bytes of length, big-endian."
)
@click.option("--base64", is_flag=True, help="Keys and values of lines are base64.")
@click.option("--null", metavar="TEXT", help="A key or value that is TEXT is null.")
@click.option("-Z", "empty_is_null", is_flag=True, help="Empty keys and values are null.")
@click.option("-c", "--count", type=click.IntRange(min=1), help="End after so many records.")
@click.option(
    "--evolve", is_flag=True, help="New and wider columns of a table become those of a typed topic."
)
@click.option(
    "-z",
    "--compression",
    type=click.Choice(["none", "lz4", "zstd"]),
    default="none",
    show_default=True,
)
@click.option(
    "--create/--no-create",
    default=None,
    help="Create the topic if it is missing; default: only where the group belongs to a directory.",
)
@group_options
@json_option
def append(
    topic: str,
    create: bool | None,
    compression: str,
    empty_is_null: bool,
    bootstrap: str,
    timeout: float,
    as_json: bool,
    **options: Any,
) -> None:
    """Append records to TOPIC, and print where they are once a quorum has them on disk.

    Records are the lines of stdin or of each FILE (- is stdin), or what --format says.
    """
    from dledger.cli.records.sender import RecordSender
    from dledger.cli.records.topic_columns import TopicColumns

    if empty_is_null:
        options["null"] = ""
    given = AppendOptions(topic, **options)
    check(given)
    if create is None:
        create = is_path(bootstrap)
    with (
        progress("appended", beside=False) as shown,
        open_client(bootstrap, timeout, create=create, compression=compression) as client,
    ):
        _check_topic(client, topic, create)
        opened = partial(_open_topic, client, topic, create)
        sender = RecordSender(opened, given.partition, evolve=given.evolve, shown=shown)
        batches = records_of(given, TopicColumns.of(client, topic))
        with interruption() as stop:
            _append_all(sender, given, batches, stop)
    if as_json:
        spans = sorted(sender.spans.items())
        offsets = {str(at): [list(one) for one in ranges] for at, ranges in spans}
        print_json({"topic": topic, "records": sender.records, "offsets": offsets})
        return
    for line in places_of(topic, sender.spans):
        click.echo(line)
    if not sender.records:
        click.echo("nothing to append", err=True)


def _check_topic(client: Client, topic: str, create: bool) -> None:
    """Raises `TopicNotFound` when it is missing and shall not be made."""
    if not create:
        client.topic(topic)


def _append_all(
    sender: RecordSender,
    given: AppendOptions,
    batches: Iterator[pa.RecordBatch],
    stop: Interruption,
) -> None:
    """Append the records in order.

    After an error or Ctrl-C it waits for what was sent, and says how far it got.
    """
    try:
        for batch in _until(given.count, batches, stop):
            sender.send(batch)
        sender.finish()
    except KeyboardInterrupt:
        raise Interrupted(_told(given.topic, sender)) from None
    except DLedgerError as error:
        told = _told(given.topic, sender)
        if sender.records:
            error.args = (f"{error}; {told}", *error.args[1:])
        raise


def _open_topic(
    client: Client, topic: str, create: bool, batch: pa.RecordBatch
) -> tuple[Producer, TopicInfo]:
    """The topic, which is made now, where there are records for it: a typed one for other columns
    than those of records."""
    from dledger.cli.records.topic_columns import is_records

    try:
        info = client.topic(topic)
    except TopicNotFound:
        if not create:
            raise
        schema = None if is_records(batch.schema.names) else batch.schema
        info = client.create_topic(topic, if_absent=True, schema=schema)
    return client.producer(topic), info


def _until(
    count: int | None, batches: Iterator[pa.RecordBatch], stop: Interruption
) -> Iterator[pa.RecordBatch]:
    """The first ``count`` records. Ctrl-C ends the wait for the next ones, and nothing else.

    Raises:
        KeyboardInterrupt: it was asked for.
    """
    left = count
    while left is None or left > 0:
        with stop.allowed():
            batch = next(batches, None)
        if batch is None:
            return
        if not batch.num_rows:
            continue
        if left is not None:
            batch = batch.slice(0, left)
            left -= batch.num_rows
        yield batch


def _told(topic: str, sender: RecordSender) -> str:
    """How far it is, when all that was sent is answered."""
    least = "" if sender.settle() else "at least "
    places = ", ".join(places_of(topic, sender.spans)[:8])
    return f"{least}{sender.records:,} records are appended" + (f": {places}" if places else "")


def places_of(topic: str, spans: dict[int, list[tuple[int, int]]]) -> list[str]:
    """Where records are, for people."""
    return [
        f"{topic}[{at}] offsets {start}..{end - 1}"
        for at, ranges in sorted(spans.items())
        for start, end in ranges
    ]
