"""``dledger up``: the group of a path runs, with as many nodes as are wanted."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dledger.cli.common import PATH, identity_files, timeout_option

if TYPE_CHECKING:
    from dledger.client import Client
    from dledger.embedded.groupfile import GroupFile


@click.command()
@click.argument("path", type=PATH)
@click.option(
    "--nodes",
    type=int,
    metavar="N",
    help="So many: 1, 3, 5 or 7. Of a group with other nodes they are added or removed, one after "
    "the other, while programs use it. 3 for a new group unless given.",
)
@click.option(
    "--advertise-host",
    metavar="HOST",
    help="By which other machines reach its nodes; only this one does unless given. Of a group "
    "that does not run.",
)
@timeout_option
def up(path: Path, nodes: int | None, advertise_host: str | None, timeout: float) -> None:
    """Start the embedded group in directory PATH, which is made where there is none. Its nodes end
    when nobody has used them for idle_timeout_ms.

    With --nodes a node that is added gets the whole log before it counts, and one that is removed
    counts no more before its files are deleted. Said again, it goes on where it was interrupted.
    """
    from dledger.cli.group.filling import filling
    from dledger.embedded import connect_path
    from dledger.embedded.group import read_group
    from dledger.embedded.home import Home
    from dledger.embedded.resizing import Resize

    if nodes is None or advertise_host is not None:
        given: dict[str, Any] = {"advertise_host": advertise_host} if advertise_host else {}
        connect_path(path, None if Home(path).read() else nodes, **given)
    if nodes is None:
        _, file = read_group(path)
    else:
        with filling() as shown:
            file = Resize(path, nodes, client_for_command, timeout, shown.tell, shown.moved).run()
    places = ", ".join(f"{node} {file.addresses[node]}" for node in file.members)
    click.echo(f"{path}: {places}")


def client_for_command(file: GroupFile, timeout_s: float) -> Client:
    """A client for a path's group, which proves who it is as those of every command."""
    from dledger.embedded.member_steps import group_client

    return group_client(file, timeout_s, **identity_files())
