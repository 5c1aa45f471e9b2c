"""``dledger serve``: one node of a group, in the foreground."""

from __future__ import annotations

import resource
from pathlib import Path

import click

from dledger.cli.common import PATH, parse_settings, set_option
from dledger.config import NOTHING_ACCEPTED, GroupConfig, NodeConfig, from_settings, parse_peers
from dledger.errors import ConfigError
from dledger.logs.formats import FORMATS, LEVELS
from dledger.types import NodeId

DECIDED = ("members", "node_id", "directory", "port", "parent_pid", "accept_loss", "secret_file")


@click.command()
@click.option("--self-id", required=True, help="Which of the peers this node is, e.g. n0.")
@click.option(
    "--peers",
    required=True,
    metavar="n0-HOST:PORT;...",
    help="All nodes of the group, the same everywhere.",
)
@click.option(
    "--dir",
    "directory",
    required=True,
    type=PATH,
    help="For this node's files; made if missing.",
)
@click.option(
    "--group",
    default="default",
    show_default=True,
    help="Identity of the group, the same everywhere.",
)
@click.option(
    "--secret-file",
    type=PATH,
    help="The group's secret, the same on every node (dledger secret create). A group on one "
    "machine needs none named.",
)
@click.option("--host", help="Where to listen; the host of this node's own address unless given.")
@click.option(
    "--log-format", type=click.Choice(FORMATS), help="Lines of the log; text unless given."
)
@click.option("--log-level", type=click.Choice(LEVELS), help="From which on; info unless given.")
@set_option(
    "Any other setting of a group or node, e.g. retention_ms=604800000. Group settings must be "
    "equal everywhere."
)
@click.option(
    "--accept-loss",
    type=int,
    default=NOTHING_ACCEPTED,
    metavar="INDEX",
    help="Of a group of one whose disk has lost committed entries: go on with the log as it is, "
    "which ends at INDEX.",
)
def serve(
    self_id: str,
    peers: str,
    directory: Path,
    group: str,
    secret_file: Path | None,
    host: str | None,
    log_format: str | None,
    log_level: str | None,
    settings: tuple[str, ...],
    accept_loss: int,
) -> None:
    """Run one node until SIGTERM or SIGINT; then it hands leadership over and drains."""
    from dledger.embedded.process import raise_limits
    from dledger.net.address import split_address

    addresses = parse_peers(peers)
    if self_id not in addresses:
        raise ConfigError(f"--self-id {self_id}: not one of the peers {', '.join(addresses)}")
    own_host, port = split_address(addresses[NodeId(self_id)])
    given = parse_settings(settings, GroupConfig, NodeConfig, forbidden=(*DECIDED, "group", "host"))
    of_node = {name: given.pop(name) for name in NodeConfig.__dataclass_fields__ if name in given}
    given |= {"group": group, "members": tuple(addresses)}
    of_node |= {
        "node_id": NodeId(self_id),
        "directory": directory,
        "host": host or own_host,
        "port": port,
        "accept_loss": accept_loss,
        "secret_file": str(secret_file.absolute()) if secret_file is not None else "",
    }
    log = {"log_format": log_format, "log_level": log_level}
    of_node |= {name: value for name, value in log.items() if value is not None}
    group_config = from_settings(GroupConfig, given)
    node_config = from_settings(NodeConfig, of_node)
    from dledger.node.peers.membership_secret import with_secret
    from dledger.node.process import run_node

    # a node has a file for each partition with records, and a shell's own limit is often 1024
    raise_limits(resource.RLIMIT_NOFILE)
    run_node(group_config, with_secret(node_config, addresses), lambda: addresses)
