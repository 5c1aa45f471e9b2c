"""``dledger stop``: the end of an embedded group's nodes."""

from __future__ import annotations

from pathlib import Path

import click

from dledger.cli.common import PATH
from dledger.errors import ConfigError


@click.command()
@click.argument("path", type=PATH)
@click.option("--force", is_flag=True, help="Even while programs use the group.")
def stop(path: Path, force: bool) -> None:
    """Stop the nodes of the embedded group in directory PATH. Its records stay, and the next use of
    PATH starts it again."""
    from dledger.embedded.group import read_group
    from dledger.embedded.start import stop_group

    home, _ = read_group(path)
    with home.lock():
        home, file = read_group(path)
        if file.has_moved:
            raise ConfigError(
                f"{home}: the group has moved to {file.bootstrap_servers}: stop its nodes there"
            )
        users = ", ".join(str(user.process.pid) for user in file.live_users())
        if users and not force:
            raise ConfigError(
                f"{home} is in use by process {users}: end it first, or say --force; a program "
                "that uses the group then starts it again when it next asks for the path"
            )
        running = [node for node in file.local if home.node(node).running]
        stop_group(home, file)
    click.echo(f"{home}: {', '.join(running)} stopped" if running else f"{home} did not run")
