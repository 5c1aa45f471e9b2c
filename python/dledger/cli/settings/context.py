"""``dledger context``: names for groups, so that no command line has addresses."""

from __future__ import annotations

from pathlib import Path

import click

from dledger.cli.commands import CommandGroup
from dledger.cli.common import PATH, find_addresses, json_option, print_rows
from dledger.cli.settings.config_file import (
    FILES,
    edit_config,
    read_config,
    write_config,
)
from dledger.config import check_name, check_rack
from dledger.errors import ConfigError


@click.group(cls=CommandGroup)
def context() -> None:
    """Name groups, and choose the one that commands go to.

    A command goes to -b, else --context, else DLEDGER_BOOTSTRAP, else DLEDGER_CONTEXT, else to the
    context in use.
    """


@context.command()
@click.argument("name")
@click.option(
    "-b",
    "--bootstrap",
    required=True,
    metavar="ADDRESSES|DIR",
    help="host:port,host:port of running nodes, or the directory of an embedded group.",
)
@click.option("--secret-file", type=PATH, help="Secret of a group that asks clients for it.")
@click.option("--credentials", type=PATH, help="A user's name and password, or a token.")
@click.option("--tls-ca", type=PATH, help="Certificates of the authority, as PEM.")
@click.option("--tls-certificate", type=PATH, help="This side's certificate, as PEM.")
@click.option("--tls-key", type=PATH, help="Its private key, as PEM.")
@click.option("--tls-crl", type=PATH, help="Revoked certificates, as PEM.")
@click.option(
    "--rack", metavar="NAME", help="Where this machine stands: nodes there are read from."
)
@click.option("--use", is_flag=True, help="Use it from now on. The first context is used anyway.")
def add(name: str, bootstrap: str, rack: str | None, use: bool, **files: Path | None) -> None:
    """Let NAME stand for a group; a NAME that is there stands for this one from now on."""
    check_name("context", name)
    given = {"bootstrap": find_addresses(bootstrap)}
    given |= {one: str(path.absolute()) for one in FILES if (path := files[one]) is not None}
    if rack is not None:
        given["rack"] = check_rack(rack)
    known = read_config()
    path, document = edit_config()
    import tomlkit

    table = tomlkit.table()
    table.update(given)
    document.setdefault("contexts", tomlkit.table(is_super_table=True))[name] = table
    if use or not known.contexts:
        document["context"] = name
    write_config(path, document)
    used = use or not known.contexts or known.current == name
    click.echo(f"context {name} is {given['bootstrap']}{', and in use' if used else ''}")


@context.command()
@click.argument("name")
def use(name: str) -> None:
    """Let commands that name no group go to context NAME."""
    found = read_config().context(name)
    path, document = edit_config()
    document["context"] = name
    write_config(path, document)
    click.echo(f"context {name} is in use: {found.bootstrap}")


@context.command()
@click.argument("name")
def remove(name: str) -> None:
    """Forget context NAME. The group itself stays as it is."""
    known = read_config()
    known.context(name)
    path, document = edit_config()
    del document["contexts"][name]
    if known.current == name:
        del document["context"]
    write_config(path, document)
    click.echo(f"context {name} is removed" + ("; none is in use" * (known.current == name)))


@context.command("list")
@json_option
def list_contexts(as_json: bool) -> None:
    """Contexts, and which one is in use."""
    known = read_config()
    rows = [
        {"context": one.name, "used": one.name == known.current, "bootstrap": one.bootstrap}
        | dict(one.files)
        | ({"rack": one.rack} if one.rack else {})
        for one in known.contexts.values()
    ]
    if not rows and not as_json:
        raise ConfigError(
            f"{known.path} has no context; make one: dledger context add NAME -b HOST:PORT,..."
        )
    print_rows(("context", "used", "bootstrap"), rows, as_json)
