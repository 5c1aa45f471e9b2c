"""``dledger secret``: the proof of a group's members where there is no TLS."""

from __future__ import annotations

from pathlib import Path

import click

from dledger.cli.commands import CommandGroup
from dledger.cli.common import PATH, group_options, open_client
from dledger.errors import PathError


@click.group(cls=CommandGroup)
def secret() -> None:
    """The secret that the nodes of a group share."""


@secret.command()
@click.argument("file", type=PATH)
def create(file: Path) -> None:
    """Make a secret in FILE, readable for this user alone. Copy it to each node's machine."""
    from dledger.net.secret import create_secret

    try:
        create_secret(file)
    except FileExistsError:
        raise PathError(
            f"{file} is there already; name another file, or remove it if no node uses it"
        ) from None
    except OSError as error:
        raise PathError(f"{file}: {error.strerror}") from None
    click.echo(
        f"{file} has a new secret: start every node of the group with --secret-file and a copy of "
        f"it"
    )


@secret.command()
@group_options
def enforce(bootstrap: str, timeout: float) -> None:
    """Take no member any more that does not prove the secret, for ever. New groups do so from the
    beginning."""
    with open_client(bootstrap, timeout) as client:
        client.enforce_secret()
    click.echo("every member has to prove the secret now")
