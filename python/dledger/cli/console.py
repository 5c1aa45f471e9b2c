"""``dledger console``: pages about a group, for a browser."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from dledger.cli.common import (
    CONTEXT,
    NO_GROUP,
    PATH,
    bootstrap_option,
    client_settings,
    find_addresses,
    find_group,
    timeout_option,
)
from dledger.errors import ConfigError

NEEDS: Final = ("starlette", "uvicorn", "jinja2")
"""What the extra ``console`` brings."""


@click.command()
@click.argument("path", required=False, type=PATH)
@click.option("--host", default="127.0.0.1", show_default=True, help="Where it listens.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=7080,
    show_default=True,
    help="0: any that is free.",
)
@click.option(
    "--name",
    "names",
    multiple=True,
    metavar="HOST",
    help="A host name by which browsers call it, beside --host; may be given often.",
)
@click.option("--certificate", type=PATH, metavar="FILE", help="PEM file, for HTTPS; with --key.")
@click.option("--key", type=PATH, metavar="FILE", help="PEM file with its private key.")
@click.option("--insecure", is_flag=True, help="Listen beyond loopback without HTTPS.")
@click.option("--write", is_flag=True, help="Let the browser change the group.")
@click.option("--no-messages", is_flag=True, help="Show no records, keys or headers.")
@bootstrap_option(required=False)
@timeout_option
@click.pass_context
def console(
    ctx: click.Context,
    path: Path | None,
    host: str,
    port: int,
    names: tuple[str, ...],
    certificate: Path | None,
    key: Path | None,
    insecure: bool,
    write: bool,
    no_messages: bool,
    bootstrap: str,
    timeout: float,
) -> None:
    """Pages about the group, for a browser: nodes, topics, records, consumer groups.

    Prints a link that works once and opens a session of eight hours; when it was used, the next
    one. Whoever has it acts with the rights of this command: of the owner of a path's group, or of
    the secret or certificate that names it. Reads only, unless --write. Ends with Ctrl-C.
    """
    target = _target(ctx, path, bootstrap)
    try:
        from dledger.console.server import serve
        from dledger.console.settings import ConsoleSettings
        from dledger.console.watch.watched_group import WatchedGroup
    except ModuleNotFoundError as error:
        if error.name not in NEEDS:
            raise
        raise ConfigError(
            f"the console needs {error.name}: pip install 'dledger[console]'"
        ) from None
    settings = ConsoleSettings(
        host=host,
        port=port,
        names=names,
        certificate=certificate,
        key=key,
        insecure=insecure,
        write=write,
        messages=not no_messages,
    )
    find_group(target)  # it is there, or the command ends here
    timeout_ms, own = int(timeout * 1000), client_settings()
    watched = WatchedGroup(find_addresses(target), timeout_ms=timeout_ms, **own)
    try:
        serve(settings, watched, target, lambda link: click.echo(f"console: {link}"))
    finally:
        watched.close()


def _target(ctx: click.Context, path: Path | None, bootstrap: str) -> str:
    """What names the group: the argument, or what names it for any command."""
    if path is None:
        if not bootstrap:
            raise ConfigError(NO_GROUP)
        return bootstrap
    if ctx.get_parameter_source("bootstrap") is click.core.ParameterSource.COMMANDLINE:
        raise ConfigError(f"{path} and --bootstrap both name the group: give one")
    ctx.meta.pop(CONTEXT, None)  # its files are another group's
    return str(path)
