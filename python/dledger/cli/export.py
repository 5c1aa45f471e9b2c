"""``dledger export``: a topic as a RocketMQ store, or a group's log as that of a DLedger node."""

from __future__ import annotations

import heapq
import ipaddress
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from dledger.cli.common import TIMEOUT_S, naming_topic, open_client, print_json
from dledger.cli.files import check_directory
from dledger.errors import ConfigError, CorruptEntry, CorruptStore, PathError

if TYPE_CHECKING:
    from dledger.client import Client
    from dledger.rocketmq.export.record_messages import RecordMessages
    from dledger.rocketmq.export.store import StoreExport
    from dledger.rocketmq.format.hosts import Host
    from dledger.rocketmq.format.message import Message
    from dledger.storage.offline.inspect import Inspection

FORMATS: Final = ("rocketmq", "dledger")
SELF_ID: Final = re.compile(r"[A-Za-z][0-9]{1,10}")
MAX_SELF_NUMBER: Final = (1 << 31) - 2
"""A broker counts from 1, in 32 bits."""
MARK: Final = "export-is-not-finished"
FETCHED: Final = 64 << 20
"""Bytes that all partitions together fetch at once."""
BATCH_BYTES: Final = 4 << 20
FILE_SIZE: Final = 1 << 30
MAX_FILE: Final = (1 << 31) - 1
TIMES: Final = 1000
"""Microseconds in one of RocketMQ's milliseconds."""

Row = tuple[int, int, int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]
"""Store time in ms, partition, offset, key, value, headers."""


@click.command()
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    required=True,
    help="rocketmq: a plain commit log. dledger: DLedger's log, alone or of a broker.",
)
@click.option(
    "-b",
    "--bootstrap",
    envvar="DLEDGER_BOOTSTRAP",
    metavar="ADDRESSES|DIR",
    default="",
    help="host:port,host:port of running nodes, or the directory of an embedded group.",
)
@click.option("--topic", default="", help="The topic: each record becomes a message.")
@click.option("--as", "name", default="", metavar="NAME", help="The topic's name in RocketMQ.")
@click.option(
    "--node",
    type=click.Path(path_type=Path),
    metavar="NODE_DIR",
    help="In place of a topic: the log of a stopped node, all entries (--format dledger).",
)
@click.option(
    "--messages",
    "only_messages",
    is_flag=True,
    help="Of --node, whose group has commit_log=rocketmq: only the messages, for a broker in "
    "DLedger mode, "
    "behind the old commit log that was adopted.",
)
@click.option(
    "--broker",
    default="127.0.0.1:10911",
    show_default=True,
    metavar="IP:PORT",
    help="The broker that will serve the store; it is part of each message's id.",
)
@click.option(
    "--self-id",
    default="n0",
    show_default=True,
    metavar="ID",
    help="dLegerSelfId (--format dledger): one letter and a number.",
)
@click.option(
    "--file-size",
    type=click.IntRange(min=1024, max=MAX_FILE),
    default=FILE_SIZE,
    metavar="BYTES",
    help="Bytes of each log file (mappedFileSizeCommitLog); 1 GiB by default.",
)
@click.option(
    "--base64", "as_base64", is_flag=True, help="Write keys and headers that are no text as base64."
)
@click.option("--no-index", is_flag=True, help="Make no index by key.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0.1),
    default=TIMEOUT_S,
    show_default=True,
    metavar="SECONDS",
    help="Give up when the group does not answer for so long.",
)
def export(
    directory: Path,
    form: str,
    bootstrap: str,
    topic: str,
    name: str,
    node: Path | None,
    only_messages: bool,
    broker: str,
    self_id: str,
    file_size: int,
    as_base64: bool,
    no_index: bool,
    timeout: float,
) -> None:
    """Write a topic as a store in DIR that a RocketMQ 4 broker opens, serves and goes on with.

    Partitions become queues with the same offsets, keys KEYS, headers properties, values bodies.
    DIR must not be there, or be empty; it is there when everything is in it. With --format dledger
    the store is one of a broker in DLedger mode; with --node it is a directory for Java's DLedger,
    or with --messages besides, a store of a broker in DLedger mode. Prints as JSON what was
    written.
    """
    check_self_id(self_id, only_node=node is not None and not only_messages)
    if node is not None:
        if topic or form != "dledger":
            raise ConfigError(
                "--node is for --format dledger, and takes no --topic: it writes the whole log"
            )
        with staged(directory) as place:
            if only_messages:
                report = export_messages(node, place, self_id, file_size, index=not no_index)
            else:
                report = export_node(node, place, self_id, file_size)
    elif only_messages:
        raise ConfigError(
            "--messages is for the log of a stopped node: name its directory with --node"
        )
    elif not topic or not bootstrap:
        raise ConfigError(
            "what to export? Give --bootstrap and --topic, or --node for a stopped node's log"
        )
    else:
        from dledger.rocketmq.export.record_messages import RecordMessages, check_topic_name

        messages = RecordMessages(
            check_topic_name(name or topic), broker_address(broker), as_base64
        )
        with (
            open_client(bootstrap, timeout) as client,
            staged(directory) as place,
            naming_topic(client, topic),
        ):
            report = export_topic(
                client, topic, messages, place, form, self_id, file_size, index=not no_index
            )
    print_json({"directory": str(directory), "format": form, **report})


def check_self_id(self_id: str, *, only_node: bool) -> None:
    """Raises `ConfigError` for an id that who opens the store refuses.

    Args:
        only_node: the store is for DLedger alone, and not for a broker, which makes a number of its
            id.
    """
    if only_node:
        if not self_id.isalnum() or not self_id.isascii():
            raise ConfigError(f"--self-id {self_id}: letters and digits without accents, as in n0")
    elif not SELF_ID.fullmatch(self_id) or int(self_id[1:]) > MAX_SELF_NUMBER:
        raise ConfigError(
            f"--self-id {self_id}: a broker's dLegerSelfId is one letter and a whole number of at "
            f"most "
            f"{MAX_SELF_NUMBER}, as in n0: the broker takes what stands behind the first "
            f"character for its number, and "
            "does not start where that is none"
        )


def broker_address(text: str) -> Host:
    """Raises `ConfigError` for what is no IP address and port."""
    from dledger.rocketmq.format.hosts import Host

    address, _, port = text.rpartition(":")
    try:
        if 0 < int(port) < 1 << 16:
            return Host.of(str(ipaddress.ip_address(address.strip("[]"))), int(port))
    except ValueError:
        pass
    raise ConfigError(
        f"--broker {text}: write the broker's IP address and port, as in 10.0.0.1:10911"
    )


@contextmanager
def staged(directory: Path) -> Iterator[Path]:
    """A directory to write into that gets its name when all is done. What an export that was killed
    has left is removed.

    Raises:
        PathError: the directory, or the one to write into, is there and not empty; or cannot be
            made.
    """
    target = directory.absolute()
    place = target.with_name(target.name + ".partial")
    if target.is_symlink() or (target.exists() and (not target.is_dir() or any(target.iterdir()))):
        raise PathError(
            f"{directory} is there already; name a directory that is not there, or an empty one"
        )
    try:
        if (place / MARK).exists():
            shutil.rmtree(place)
        place.mkdir(parents=True)
        (place / MARK).touch()
    except OSError as error:
        raise PathError(
            f"{place} cannot be made: {error.strerror}; it is where the export is written first"
        ) from error
    try:
        yield place
        (place / MARK).unlink()
        try:
            place.rename(target)
        except OSError as error:
            raise PathError(f"{place} cannot become {directory}: {error.strerror}") from error
    except BaseException:
        shutil.rmtree(place, ignore_errors=True)
        raise


def export_topic(
    client: Client,
    topic: str,
    messages: RecordMessages,
    place: Path,
    form: str,
    self_id: str,
    file_size: int,
    *,
    index: bool,
) -> dict[str, Any]:
    """Write all records of a topic that there are now; how many messages each queue has."""
    from dledger.rocketmq.export.store import LedgerExport, PlainExport

    begins, ends = client.begin_offsets(topic), client.end_offsets(topic)
    store: StoreExport
    if form == "dledger":
        store = LedgerExport(place, self_id, messages.topic, begins, file_size, index=index)
    else:
        store = PlainExport(place, messages.topic, begins, file_size, index=index)
    try:
        for batch in batches(rows(client, topic, begins, ends), messages):
            store.put(batch)
        store.close()
    except BaseException:
        store.abandon()
        raise
    queues = [
        {"queue": at, "begin_offset": begins[at], "end_offset": ends[at]} for at in sorted(begins)
    ]
    return {
        "topic": messages.topic,
        "messages": sum(ends[at] - begins[at] for at in begins),
        "queues": queues,
    }


def rows(client: Client, topic: str, begins: dict[int, int], ends: dict[int, int]) -> Iterator[Row]:
    """The records of all partitions, those of each in order, the older one of two partitions
    first."""
    fetch = max(1 << 16, FETCHED // max(1, len(begins)))
    parts = [partition_rows(client, topic, at, begins[at], ends[at], fetch) for at in begins]
    return heapq.merge(*parts, key=lambda row: row[:2])


def partition_rows(
    client: Client, topic: str, partition: int, begin: int, end: int, fetch: int
) -> Iterator[Row]:
    """The records of one partition."""
    if begin >= end:
        return
    for batch in client.read(topic, partition, begin, end, max_bytes=fetch):
        columns = [batch.column(name) for name in ("offset", "key", "value", "headers")]
        times = batch.column("timestamp").cast("int64").to_pylist()
        for at, offset, key, value, headers in zip(
            times, *(one.to_pylist() for one in columns), strict=True
        ):
            pairs = [(header["key"], header["value"]) for header in headers or ()]
            yield ((at or 0) // TIMES, partition, offset, key, value, pairs)


def batches(found: Iterator[Row], messages: RecordMessages) -> Iterator[list[Message]]:
    """Messages of the records, some MiB at a time. Store times never go back: a broker looks them
    up by halving."""
    batch: list[Message] = []
    size = stored = 0
    for born, partition, offset, key, value, headers in found:
        stored = max(stored, born)
        message = messages.message(partition, offset, born, key, value, headers, stored)
        batch.append(message)
        size += len(message.body) + len(message.properties)
        if size >= BATCH_BYTES or len(batch) >= 1 << 14:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def export_node(node: Path, place: Path, self_id: str, file_size: int) -> dict[str, Any]:
    """Write every entry of a stopped node's log with its index, term and body; what there was.

    DLedger 0.3 and before knows one kind of entry: those that a leader opens its term with become
    plain ones with the same body, so that indexes stay. A RocketMQ message that says where it lies
    goes on saying so.

    Raises:
        CorruptEntry: an entry is damaged.
        PathError: there is no log, or a node runs on it.
    """
    from dledger.rocketmq.export.ledger_files import LedgerFiles
    from dledger.rocketmq.export.moved_messages import moved_message
    from dledger.storage.log.walker import Bad, Finish, Good
    from dledger.storage.offline.inspect import inspect_store

    check_directory(node)
    look = inspect_store(node)
    check_problems(look)
    files: LedgerFiles | None = None
    first, left_out = -1, ""
    for event in look.walker().walk():
        if isinstance(event, Bad):
            raise CorruptEntry(
                f"{node}, entry {event.first}: {event.reason}; export a sound node's log",
                event.first,
            )
        if isinstance(event, Finish):
            left_out = event.reason
        if isinstance(event, Good):
            entry = event.entry
            if files is None:
                first = entry.index
                files = LedgerFiles(
                    place / f"dledger-{self_id}",
                    data_file_size=file_size,
                    first_index=first,
                    first_pos=entry.pos,
                )
            files.append(entry.term, entry.body, moved_message(entry.pos))
    if files is None:
        raise PathError(f"{node} has no entry yet")
    hard = look.state.hard_state if look.state else None
    committed = check_committed(look, files.next_index - 1, left_out)
    files.close(committed if hard else None, hard.term if hard else 0)
    return {
        "first_index": first,
        "end_index": files.next_index - 1,
        "committed_index": committed,
        "term": files.term,
        "too_large_to_replicate": files.oversize,
        "left_out": left_out,
    }


def check_problems(look: Inspection) -> None:
    """Raises `CorruptStore` for files that are missing, or have another size."""
    told = [one for one in look.problems if Path(one["file"]).is_relative_to(look.data.directory)]
    if told:
        raise CorruptStore(
            f"{told[0]['file']}: {told[0]['reason']}. Put the file back, or export another "
            f"member's log"
        )


def check_committed(look: Inspection, last: int, left_out: str) -> int:
    """The last entry that the node knew to be committed.

    Args:
        last: index of the last entry that is there.
        left_out: what stands behind it.

    Raises:
        CorruptStore: entries that were on the disk are not there.
    """
    hard, mark = look.state.hard_state if look.state else None, look.mark
    committed = max(hard.commit_hint if hard else -1, mark.commit if mark else -1)
    known = committed if mark is None else max(mark.commit, mark.durable.position.index)
    if last < known:
        raise CorruptStore(
            f"{look.directory}: the log ends with entry {last}, and {known - last:,} more were on "
            f"the disk"
            f"{f' ({left_out})' if left_out else ''}: put the whole last file back, or export "
            f"another member's log"
        )
    return committed


def export_messages(
    node: Path, place: Path, self_id: str, file_size: int, *, index: bool
) -> dict[str, Any]:
    """Write the messages of a stopped node's commit log, and those of the old one in front of it,
    as the store of a broker in DLedger mode; how many there are.

    Old messages stay where they were. The others move, since what else the group had in its log
    goes: their queue offsets stay, their physical offsets and the broker's ids of them do not.

    Raises:
        ConfigError: the node's files have another size than the broker's.
        CorruptEntry: an entry is damaged.
        PathError: there is no log, a node runs on it, or there is no message in it.
    """
    from dledger.rocketmq.export.group_log import CommitLogExport
    from dledger.rocketmq.upgrade.examine import examine
    from dledger.rocketmq.upgrade.old_commit_log import OldCommitLog
    from dledger.storage.log.walker import Bad, Finish, Good
    from dledger.storage.offline.inspect import inspect_store

    check_directory(node)
    look = inspect_store(node)
    check_problems(look)
    size = look.data.file_size
    if file_size not in (FILE_SIZE, size):
        raise ConfigError(
            f"--file-size {file_size}: the node's files have {size} bytes, and the broker's must "
            f"too"
        )
    if not look.data.starts:
        raise PathError(f"{node} has no entry yet")
    old = OldCommitLog.find(node)
    try:
        if (
            old is not None
            and not old.is_gone
            and f"{examine(old.root).fingerprint:08x}" != old.fingerprint
        ):
            raise PathError(
                f"the old commit log in front of {node} is not what was adopted: put its files back"
            )
        last, left_out = -1, ""
        store = CommitLogExport(place, self_id, size, look.data.starts[0], old, index=index)
        try:
            for event in look.walker().walk():
                if isinstance(event, Bad):
                    text = f"{node}, entry {event.first}: {event.reason}; export a sound node's log"
                    raise CorruptEntry(text, event.first)
                if isinstance(event, Finish):
                    left_out = event.reason
                if isinstance(event, Good):
                    store.put(event.entry)
                    last = event.entry.index
            check_committed(look, last, left_out)
            report = store.close()
        finally:
            store.abandon()
    finally:
        if old is not None:
            old.close()
    if not report["messages"]:
        raise PathError(
            f"{node} has no message of a RocketMQ commit log; its group has commit_log=topics, or "
            f"is new"
        )
    return {**report, "file_size": size, "left_out": left_out}


__all__ = ["export"]
