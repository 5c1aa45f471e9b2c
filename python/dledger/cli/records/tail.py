"""``dledger tail``: records to lines."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import click

from dledger.cli.common import group_options, naming_topic, open_client, text_or_base64
from dledger.errors import ConfigError, DLedgerError

if TYPE_CHECKING:
    import pyarrow as pa

    from dledger.client import Client

DEFAULT_FROM: Final = "-10"


@click.command()
@click.argument("topic")
@click.option("-f", "--follow", is_flag=True, help="Go on with new records as they come.")
@click.option(
    "--from",
    "start",
    default=DEFAULT_FROM,
    show_default=True,
    metavar="earliest|latest|N",
    help="First offset; a negative N means the last N records of each partition.",
)
@click.option("--partition", type=click.IntRange(min=0), help="Only this one; otherwise all.")
@click.option("--limit", type=click.IntRange(min=1), help="End after so many records.")
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="One JSON line per record, with offset, timestamp, key, headers.",
)
@click.option("--key-separator", metavar="TEXT", help="Print key, TEXT, value.")
@group_options
def tail(
    topic: str,
    follow: bool,
    start: str,
    partition: int | None,
    limit: int | None,
    as_json: bool,
    key_separator: str | None,
    bootstrap: str,
    timeout: float,
) -> None:
    """Print the records of TOPIC, one line each."""
    position = parse_start(start)
    printer = Printer(topic, as_json, key_separator=key_separator, limit=limit)
    with open_client(bootstrap, timeout) as client:
        with naming_topic(client, topic):
            info = client.topic(topic)
        if partition is not None and partition >= info.partitions:
            raise ConfigError(
                f"--partition {partition}: topic {topic!r} has partitions 0..{info.partitions - 1}"
            )
        wanted = range(info.partitions) if partition is None else (partition,)
        begins, ends = client.begin_offsets(topic), client.end_offsets(topic)
        if (
            not follow
            and isinstance(position, int)
            and position > (past := max(ends[at] for at in wanted))
        ):
            there = (
                f"the last offset of topic {topic!r} is {past - 1}"
                if past
                else f"topic {topic!r} is empty"
            )
            raise ConfigError(f"--from {position}: {there}")
        starts = {at: first_offset(position, begins[at], ends[at]) for at in wanted}
        if follow and len(starts) > 1:
            _follow_all(client, topic, starts, printer)
            return
        for at, first in starts.items():
            end = None if follow else ends[at]
            if follow or first < ends[at]:
                for batch in client.read(topic, at, first, end, follow=follow, value_format="json"):
                    if not printer.print(at, batch):
                        return


def parse_start(text: str) -> str | int:
    """Raises `ConfigError` for anything but earliest, latest and whole numbers."""
    if text in {"earliest", "latest"}:
        return text
    try:
        return int(text)
    except ValueError:
        raise ConfigError(
            f"--from {text}: write earliest, latest, an offset, or -N for the last N records"
        ) from None


def first_offset(position: str | int, begin: int, end: int) -> int:
    """Where to begin in a partition that holds [begin, end)."""
    if isinstance(position, str):
        return begin if position == "earliest" else end
    return max(begin, end + position) if position < 0 else position


class Printer:
    """Writes records, one at a time, from any thread."""

    def __init__(
        self, topic: str, as_json: bool, *, key_separator: str | None, limit: int | None
    ) -> None:
        self._topic = topic
        self._as_json = as_json
        self._separator = key_separator.encode() if key_separator is not None else None
        self._left = limit
        self._lock = threading.Lock()

    def print(self, partition: int, batch: pa.RecordBatch) -> bool:
        """Write a batch's records; False when the limit is reached."""
        with self._lock:
            if self._left is not None:
                batch = batch.slice(0, self._left)
                self._left -= batch.num_rows
            out = sys.stdout.buffer
            out.write(b"".join(line + b"\n" for line in self._lines(partition, batch)))
            out.flush()
            return self._left is None or self._left > 0

    def _lines(self, partition: int, batch: pa.RecordBatch) -> Iterator[bytes]:
        if self._as_json:
            for record in batch.to_pylist():
                yield json.dumps(self._as_dict(partition, record), ensure_ascii=False).encode()
            return
        values = batch.column("value").to_pylist()
        if self._separator is None:
            yield from (value or b"" for value in values)
            return
        for key, value in zip(batch.column("key").to_pylist(), values, strict=True):
            yield (key or b"") + self._separator + (value or b"")

    def _as_dict(self, partition: int, record: dict[str, Any]) -> dict[str, Any]:
        return {
            "topic": self._topic,
            "partition": partition,
            "offset": record["offset"],
            "timestamp": record["timestamp"].isoformat() if record["timestamp"] else None,
            **text_or_base64("key", record["key"]),
            **text_or_base64("value", record["value"]),
            "headers": [
                {"key": header["key"], **text_or_base64("value", header["value"])}
                for header in record["headers"] or ()
            ],
        }


def _follow_all(client: Client, topic: str, starts: dict[int, int], printer: Printer) -> None:
    """Follow several partitions at once, each on a thread; ends with the first error or the
    limit."""
    ended = threading.Event()
    errors: list[DLedgerError] = []

    def follow(partition: int, first: int) -> None:
        try:
            for batch in client.read(topic, partition, first, follow=True, value_format="json"):
                if ended.is_set() or not printer.print(partition, batch):
                    break
        except DLedgerError as error:
            errors.append(error)
        finally:
            ended.set()

    for partition, first in starts.items():
        threading.Thread(target=follow, args=(partition, first), daemon=True).start()
    ended.wait()
    if errors:
        raise errors[0]
