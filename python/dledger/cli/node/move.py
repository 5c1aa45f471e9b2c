"""``dledger move``: the group of a path goes to nodes of `dledger serve`."""

from __future__ import annotations

from pathlib import Path

import click

from dledger.cli.common import PATH, timeout_option
from dledger.cli.node.up import client_for_command


@click.command()
@click.argument("path", type=PATH)
@click.option(
    "--to",
    "servers",
    required=True,
    metavar="n3-HOST:PORT;...",
    help="The nodes that are to be the group, with ids that none of its nodes has.",
)
@click.option(
    "--print-serve",
    is_flag=True,
    help="Change nothing: print the command that starts each of these nodes, and end.",
)
@timeout_option
def move(path: Path, servers: str, print_serve: bool, timeout: float) -> None:
    """Move the group of directory PATH to nodes that were started with dledger serve --join, while
    programs use it.

    They get the whole log, and take over; then the nodes in PATH are removed, and their files
    deleted. PATH says from then on where the group is: programs that name it find the group there,
    and so does this command, which moves it on. Said again, it goes on where it was interrupted.
    """
    from dledger.cli.group.filling import filling
    from dledger.config import parse_peers
    from dledger.embedded.moving import Move

    nodes = parse_peers(servers)
    if print_serve:
        for line in Move(path, nodes, client_for_command, timeout).serve_commands():
            click.echo(line)
        return
    with filling() as shown:
        file = Move(path, nodes, client_for_command, timeout, shown.tell, shown.moved).run()
    click.echo(f"{path}: the group is at {file.bootstrap_servers}, and {path} says so")
