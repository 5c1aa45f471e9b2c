"""``dledger tail``: the records of a topic, to stdout or a file."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import closing, nullcontext
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from dledger.cli.common import (
    PATH,
    Interrupted,
    group_options,
    open_client,
)
from dledger.cli.interruption import Interruption, interruption
from dledger.cli.output_file import output_file
from dledger.cli.progress import CommandProgress, progress
from dledger.cli.records.output import (
    FORMATS,
    TABLES,
    PrintOptions,
    RecordSink,
    choose_form,
    sink_for,
)
from dledger.client.positions import METAVAR, Kind, OffsetSpec, offsets_of, parse_position
from dledger.errors import ConfigError, DLedgerError, UnreadableBatch

if TYPE_CHECKING:
    import pyarrow as pa

    from dledger.client import Client

DEFAULT_FROM: Final = "-10"


class Tail(click.Command):
    """``-f`` is --follow, and with a format string behind it kcat's -f: no topic has a % in its
    name."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        for at, (one, behind) in enumerate(pairwise(args)):
            if one == "-f" and "%" in behind:
                args = [*args[:at], "--format", *args[at + 1 :]]
        return super().parse_args(ctx, args)


@click.command(cls=Tail)
@click.argument("topic")
@click.option(
    "-f/-e",
    "--follow/--exit",
    "follow",
    default=False,
    help="Go on with new records as they come, or end behind the last one, as without this.",
)
@click.option(
    "-o",
    "--from",
    "start",
    default=DEFAULT_FROM,
    show_default=True,
    metavar=METAVAR,
    help="First record; -N: the last N of each partition.",
)
@click.option("--to", "end", metavar=METAVAR, help="End before this one.")
@click.option("-p", "--partition", type=click.IntRange(min=0), help="Only this; otherwise all.")
@click.option(
    "-c", "-n", "--count", "--limit", type=click.IntRange(min=1), help="End after so many records."
)
@click.option(
    "--on-damage",
    type=click.Choice(["fail", "skip"]),
    default="fail",
    show_default=True,
    help="Of records that nobody can open: end with an error, or leave them out with a warning.",
)
@click.option(
    "-F",
    "--format",
    "form",
    metavar="|".join(FORMATS) + "|TEXT",
    help="A form, or a text with %s value, %k key, %o offset, %p partition, %t topic, %T time in "
    "ms, %h headers, %S %K %R sizes, and \\n: nothing else ends a record then.",
)
@click.option("-J", "--json", "as_json", is_flag=True, help="As --format json.")
@click.option("-D", "--delimiter", metavar="TEXT", help="Ends a record; a line's end by default.")
@click.option(
    "-K", "--key-delimiter", "--key-separator", metavar="TEXT", help="Print key, TEXT, value."
)
@click.option("--null", metavar="TEXT", help="Printed for a null key or value; else nothing is.")
@click.option("-Z", "as_null", is_flag=True, help="As --null NULL.")
@click.option("--base64", is_flag=True, help="Keys and values as base64.")
@click.option(
    "--length-prefixed", is_flag=True, help="Each value behind its length, 4 bytes big-endian."
)
@click.option(
    "-O", "--output", type=PATH, metavar="FILE", help="Into FILE, which says the form by its name."
)
@group_options
def tail(
    topic: str,
    follow: bool,
    start: str,
    end: str | None,
    partition: int | None,
    count: int | None,
    on_damage: str,
    form: str | None,
    as_json: bool,
    delimiter: str | None,
    key_delimiter: str | None,
    null: str | None,
    as_null: bool,
    base64: bool,
    length_prefixed: bool,
    output: Path | None,
    bootstrap: str,
    timeout: float,
) -> None:
    """Print the records of TOPIC, one line each unless told otherwise."""
    chosen = choose_form(form, as_json, output)
    null = "NULL" if as_null else null
    wanted = PrintOptions(chosen, delimiter, key_delimiter, null, base64, length_prefixed, output)
    first, last = parse_position("--from", start), None
    if end is not None:
        last = parse_position("--to", end)
        if follow:
            raise ConfigError("--follow has no end, and --to is one: give one of them")
    make_sink = sink_for(wanted, sys.stdout.isatty())
    with (
        progress("read", beside=output is None) as shown,
        open_client(bootstrap, timeout) as client,
    ):
        ranges = _ranges(client, topic, partition, first, last, follow)
        rows = _rows_of(client, wanted, topic, follow)
        with output_file(output) if output is not None else nullcontext(sys.stdout.buffer) as out:
            sink = make_sink(out, rows)
            printer = RecordPrinter(topic, sink, null=null or "", limit=count, shown=shown)
            interrupted = _read(client, topic, ranges, printer, follow, rows is not None, on_damage)
            told = printer.told() if interrupted else ""
            if interrupted and output is not None and not follow:
                raise Interrupted(f"{told} were read, and {output} is not made")
            printer.close()
    if interrupted:
        raise Interrupted(f"{told} are {f'in {output}' if output else 'printed'}")


def _ranges(
    client: Client,
    topic: str,
    partition: int | None,
    first: OffsetSpec,
    last: OffsetSpec | None,
    follow: bool,
) -> dict[int, tuple[int, int | None]]:
    """Where to begin and end in each partition.

    Raises:
        ConfigError: there is no such partition, or nothing at or behind the first offset.
    """
    count = client.topic(topic).partitions
    if partition is not None and partition >= count:
        raise ConfigError(f"--partition {partition}: topic {topic!r} has partitions 0..{count - 1}")
    numbers = range(count) if partition is None else (partition,)
    ends = client.end_offsets(topic)
    past = max(ends[at] for at in numbers)
    if not follow and first.kind is Kind.OFFSET and first.number > past:
        there = (
            f"the last offset of topic {topic!r} is {past - 1}"
            if past
            else f"topic {topic!r} is empty"
        )
        raise ConfigError(f"--from {first.number}: {there}")
    starts = offsets_of(client, topic, first, numbers)
    if follow:
        return {at: (starts[at], None) for at in numbers}
    stops = ends if last is None else offsets_of(client, topic, last, numbers)
    return {at: (starts[at], min(stops[at], ends[at])) for at in numbers}


def _rows_of(client: Client, wanted: PrintOptions, topic: str, follow: bool) -> pa.Schema | None:
    """The schema of rows, for a table of a typed topic; else None: records are keys and values.

    Raises:
        ConfigError: an option is not for such a table.
    """
    if wanted.form not in TABLES or not (info := client.topic(topic)).typed:
        return None
    if follow:
        raise ConfigError(
            f"--follow prints the rows of a typed topic as lines of JSON: leave out {wanted.form}"
        )
    if wanted.base64:
        raise ConfigError(f"--base64 is for keys and values, and topic {topic!r} is typed")
    from dledger.records.body.typed import arrow_schema

    versions = client.schemas(info)
    if not versions:
        raise ConfigError(f"topic {topic!r} has no columns yet: nothing was appended to it")
    return arrow_schema(versions[-1])


def _read(
    client: Client,
    topic: str,
    ranges: dict[int, tuple[int, int | None]],
    printer: RecordPrinter,
    follow: bool,
    as_rows: bool,
    on_damage: str,
) -> bool:
    """Print the records, or rows in their own columns; whether Ctrl-C ended it."""
    with interruption() as stop:
        try:
            if follow and len(ranges) > 1:
                with stop.allowed():
                    _follow_all(client, topic, ranges, printer, on_damage)
                return False
            for at, (start, end) in ranges.items():
                if end is None or start < end:
                    with closing(
                        client.scan(
                            topic, {at: start}, {at: end}, partitions=[at], on_damage=on_damage
                        )
                        if as_rows and end is not None
                        else client.read(
                            topic,
                            at,
                            start,
                            end,
                            follow=follow,
                            value_format="json",
                            on_damage=on_damage,
                        )
                    ) as batches:
                        if not _print_all(at, iter(batches), printer, stop):
                            return False
        except KeyboardInterrupt:
            return True
        except UnreadableBatch as error:
            way = f"--on-damage skip, or --partition {error.partition} --from {error.end}"
            raise ConfigError(f"{error.what}. To go on behind it: {way}") from error
    return False


def _print_all(
    partition: int, batches: Iterator[pa.RecordBatch], printer: RecordPrinter, stop: Interruption
) -> bool:
    """Print the records of a partition; False when there is enough. What is printed is counted:
    Ctrl-C comes between two batches."""
    while True:
        with stop.allowed():
            batch = next(batches, None)
        if batch is None:
            return True
        if not printer.print(partition, batch):
            return False


class RecordPrinter:
    """Writes records, one batch at a time, from any thread."""

    def __init__(
        self, topic: str, sink: RecordSink, *, null: str, limit: int | None, shown: CommandProgress
    ) -> None:
        from dledger.cli.records.format_string import constant

        self._topic = topic
        self._sink = sink
        self._null = constant(null.encode())
        self._left = limit
        self._shown = shown
        self._behind: dict[int, int] = {}
        self._lock = threading.Lock()
        self._closed = False

    def print(self, partition: int, batch: pa.RecordBatch) -> bool:
        """Write a batch's records; False when there is enough."""
        from dledger.cli.records.format_string import PrintedRecords

        with self._lock:
            if self._closed:
                return False
            if self._left is not None:
                batch = batch.slice(0, self._left)
                self._left -= batch.num_rows
            if batch.num_rows:
                size = self._sink.write(PrintedRecords(self._topic, partition, batch, self._null))
                # the log's own, where the topic has a column of that name
                name = "_offset" if "_offset" in batch.schema.names else "offset"
                self._behind[partition] = batch.column(name)[-1].as_py() + 1
                self._shown.add(batch.num_rows, size)
            return self._left is None or self._left > 0

    def told(self) -> str:
        """How far it is, for people; nothing more is printed."""
        with self._lock:
            self._closed = True
        places = ", ".join(f"{at}: {offset}" for at, offset in sorted(self._behind.items())[:8])
        behind = f" (next offset by partition: {places})" if places else ""
        return f"{self._shown.records:,} records{behind}"

    def close(self) -> None:
        """Complete what is written; a thread that still reads writes nothing more."""
        with self._lock:
            self._closed = True
            self._sink.close()


def _follow_all(
    client: Client,
    topic: str,
    ranges: dict[int, tuple[int, int | None]],
    printer: RecordPrinter,
    on_damage: str,
) -> None:
    """Follow several partitions at once, each on a thread; ends with the first error or when there
    is enough."""
    ended = threading.Event()
    errors: list[BaseException] = []

    def follow(partition: int, first: int) -> None:
        try:
            for batch in client.read(
                topic, partition, first, follow=True, value_format="json", on_damage=on_damage
            ):
                if ended.is_set() or not printer.print(partition, batch):
                    break
        except (DLedgerError, OSError) as error:  # also of a pipe that nobody reads any more
            errors.append(error)
        finally:
            ended.set()

    for partition, (first, _) in ranges.items():
        threading.Thread(target=follow, args=(partition, first), daemon=True).start()
    ended.wait()
    if errors:
        raise errors[0]
