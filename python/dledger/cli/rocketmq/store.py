"""``dledger rocketmq``: the content of a RocketMQ store, read from its files alone."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from dledger.cli.commands import CommandGroup
from dledger.cli.common import PATH, print_json, text_or_base64
from dledger.cli.rocketmq.adopt import adopt
from dledger.cli.rocketmq.ha import follow, serve_ha
from dledger.errors import ConfigError, PathError
from dledger.rocketmq.format.index_file import DEFAULT_SLOTS
from dledger.storage.disk.file_names import is_file_name

if TYPE_CHECKING:
    from dledger.rocketmq.files.layout import Store

F = TypeVar("F", bound=Callable[..., Any])
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
LAYOUTS: Final = ("rocketmq", "dledger")
index_slots_option = click.option(
    "--index-slots",
    type=click.IntRange(min=1),
    default=DEFAULT_SLOTS,
    show_default=True,
    help="The broker's maxHashSlotNum.",
)


@click.group(cls=CommandGroup)
def rocketmq() -> None:
    """Look into a RocketMQ store without changing it; follow a RocketMQ broker, or be followed;
    adopt a store."""


for _command in (adopt, follow, serve_ha):
    rocketmq.add_command(_command)


@rocketmq.command()
@click.argument("directory", metavar="DIR", type=PATH)
@index_slots_option
def verify(directory: Path, index_slots: int) -> None:
    """Check every message in the commit log of the store in DIR, and print what was found as JSON.

    DIR is a store's root, or a folder with commit log files. Of a root, consume queues, index and
    checkpoints are compared with the log, too. Exit code 1 when something is damaged, missing, or
    does not agree.
    """
    from dledger.rocketmq.verify.store import Audit

    report = Audit(directory, commit_log_files(directory), index_slots=index_slots).run()
    print_json(report)
    if not report["ok"]:
        sys.exit(1)


def store_argument(function: F) -> F:
    """``STORE`` and the options to reach it."""
    function = click.option(
        "--storage-options",
        metavar="JSON",
        help="What fsspec's file system needs at a URL: '{\"anon\": true}'.",
    )(function)
    return click.argument("url", metavar="STORE")(function)


def find_store(url: str, options: str | None, layout: str = "rocketmq") -> Store:
    """A store on a disk or at a URL.

    Raises:
        ConfigError: the options are no JSON object.
        PathError: there is no store.
    """
    from dledger.rocketmq.files.layout import open_store
    from dledger.rocketmq.files.storage import Storage

    try:
        given = json.loads(options) if options else {}
    except ValueError:
        given = None
    if not isinstance(given, dict):
        raise ConfigError('--storage-options is no JSON object: write it as in {"anon": true}')
    return open_store(Storage.of(url, given), layout)


@rocketmq.command()
@store_argument
@click.option(
    "--layout",
    type=click.Choice(LAYOUTS),
    default="rocketmq",
    show_default=True,
    help="dledger: the directory of a node of Java's DLedger.",
)
def inspect(url: str, storage_options: str | None, layout: str) -> None:
    """What the store is, as JSON: its logs and files, when each begins, checkpoint and topics.

    STORE is a broker's store root, its commitlog or dledger-<id> folder, or a copy, on a disk or at
    any fsspec URL.
    """
    from dledger.rocketmq.files.inspect import inspect_store

    print_json(inspect_store(find_store(url, storage_options, layout)))


@rocketmq.command()
@store_argument
@click.option("--topic", default="", help="Messages of this topic.")
@click.option(
    "--key", default="", help="Messages with this word in their KEYS, or this unique key."
)
@click.option(
    "--id", "message_id", default="", help="The message with this id, the broker's or the client's."
)
@click.option(
    "--from",
    "begin",
    metavar="TIME",
    help="Stored then or later: milliseconds, or 2024-03-10T07:30:00Z.",
)
@click.option("--to", "end", metavar="TIME", help="Stored before then.")
@click.option(
    "-c",
    "-n",
    "--count",
    "--limit",
    "limit",
    type=click.IntRange(min=1),
    default=32,
    show_default=True,
    help="Messages at most.",
)
@index_slots_option
def search(
    url: str,
    storage_options: str | None,
    topic: str,
    key: str,
    message_id: str,
    begin: str | None,
    end: str | None,
    limit: int,
    index_slots: int,
) -> None:
    """Messages that fit all that is given, one JSON line each, in the order of the log.

    With --topic and --key the store's index files are used, and what they do not cover is read
    through, as is the log for anything else. Damage on the way is told on standard error; exit code
    1 when nothing was found.
    """
    from dledger.rocketmq.files.lookup import Search, message_with_id
    from dledger.rocketmq.files.lookup import search as search_store

    if not (topic or key or message_id or begin or end):
        raise ConfigError("what to look for? Give --topic, --key, --id, --from or --to")
    if message_id and key:
        raise ConfigError("--id and --key both name a message: give one of them")
    store = find_store(url, storage_options)
    row = message_with_id(store, message_id) if message_id else None
    if row is not None:
        print_message(row)
        return
    wanted = Search(topic, key or message_id, time_ms("--from", begin), time_ms("--to", end))
    count = 0
    for found in search_store(store, wanted, index_slots):
        if found.note:
            click.echo(found.note, err=True)
        if found.damage is not None:
            piece = found.damage
            click.echo(f"bytes {piece.start} to {piece.end} are damaged: {piece.reason}", err=True)
        if found.row is not None:
            print_message(found.row)
            count += 1
            if count == limit:
                break
    if not count:
        sys.exit(1)


def time_ms(option: str, text: str | None) -> int | None:
    """Milliseconds since 1970, rounded up.

    Raises:
        ConfigError: it is no time, or has no zone.
    """
    if text is None or text.isdecimal():
        return None if text is None else int(text)
    with suppress(ValueError):
        time = datetime.fromisoformat(text)
        if time.tzinfo is not None:
            return -(-(time - EPOCH) // timedelta(milliseconds=1))
    raise ConfigError(
        f"{option} {text!r}: write milliseconds since 1970, or a time as in 2024-03-10T07:30:00Z"
    )


def print_message(row: dict[str, Any]) -> None:
    """One line of JSON."""
    shown = {name: value for name, value in row.items() if name not in ("body", "properties")}
    shown |= {"properties": dict(row["properties"] or ()), **text_or_base64("body", row["body"])}
    click.echo(json.dumps(shown, ensure_ascii=False, default=datetime.isoformat))


def commit_log_files(directory: Path) -> list[Path]:
    """Commit log files of a store, those of a plain commit log before those of DLedger mode, by
    their offsets.

    Raises:
        PathError: it is no folder, or there are none in it.
    """
    if not directory.is_dir():
        what = "is a file" if directory.exists() else "does not exist"
        raise PathError(
            f"{directory} {what}; name the root of a RocketMQ store, or its commitlog folder"
        )
    folders = [directory, directory / "commitlog", *sorted(directory.glob("dledger-*/data"))]
    files = [
        path
        for folder in folders
        if folder.is_dir()
        for path in folder.iterdir()
        if is_file_name(path.name)
    ]
    if not files:
        raise PathError(
            f"no commit log files in {directory}; they are in commitlog or dledger-<id>/data of a "
            f"store"
        )
    return sorted(files, key=lambda path: (path.parent, path.name))
