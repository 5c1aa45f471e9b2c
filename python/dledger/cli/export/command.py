"""``dledger export``: a topic as a RocketMQ store, or a group's log as that of a DLedger node."""

from __future__ import annotations

import ipaddress
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from dledger.cli.common import (
    PATH,
    bootstrap_option,
    open_client,
    print_json,
    timeout_option,
)
from dledger.cli.export.node_log import FILE_SIZE, export_messages, export_node
from dledger.cli.export.topic import export_topic
from dledger.cli.staging import staged
from dledger.errors import ConfigError

if TYPE_CHECKING:
    from dledger.rocketmq.format.hosts import Host

FORMATS: Final = ("rocketmq", "dledger")
SELF_ID: Final = re.compile(r"[A-Za-z][0-9]{1,10}")
MAX_SELF_NUMBER: Final = (1 << 31) - 2
"""A broker counts from 1, in 32 bits."""
MAX_FILE: Final = (1 << 31) - 1


@click.command()
@click.argument("directory", metavar="DIR", type=PATH)
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    required=True,
    help="rocketmq: a plain commit log. dledger: DLedger's log, alone or of a broker.",
)
@bootstrap_option(required=False)
@click.option("--topic", default="", help="The topic: each record becomes a message.")
@click.option("--as", "name", default="", metavar="NAME", help="The topic's name in RocketMQ.")
@click.option(
    "--node",
    type=PATH,
    metavar="NODE_DIR",
    help="In place of a topic: the log of a stopped node, all entries (--format dledger).",
)
@click.option(
    "--messages",
    "only_messages",
    is_flag=True,
    help="Of --node, whose group has commit_log=rocketmq: only the messages, for a broker in "
    "DLedger mode, behind the old commit log that was adopted.",
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
@timeout_option
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
        from dledger.rocketmq import with_numpy  # noqa: F401 - else it says what to install
        from dledger.rocketmq.export.record_messages import RecordMessages, check_topic_name

        messages = RecordMessages(
            check_topic_name(name or topic), broker_address(broker), as_base64
        )
        with open_client(bootstrap, timeout) as client, staged(directory) as place:
            report = export_topic(
                client, topic, messages, place, form, self_id, file_size, index=not no_index
            )
    print_json({"directory": str(directory), "format": form, **report})


def check_self_id(self_id: str, *, only_node: bool) -> None:
    """Raises `ConfigError` for an id that the reader of the store refuses.

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
            f"most {MAX_SELF_NUMBER}, as in n0: the broker takes what stands behind the first "
            "character for its number, and does not start where that is none"
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
