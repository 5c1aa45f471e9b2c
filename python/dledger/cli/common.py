"""The common part of the commands: finding the group, settings given as name=value, and output.

Commands import modules when they run, so that each costs only its own part: a node needs no Arrow,
``--help`` needs no library.
"""

from __future__ import annotations

import base64
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
from click.core import ParameterSource

from dledger.errors import ConfigError
from dledger.logs.formats import harmless

if TYPE_CHECKING:
    from dledger.cli.settings.config_file import Context
    from dledger.client import Client

F = TypeVar("F", bound=Callable[..., Any])
TLS_VARIABLES: Final = {
    "tls_ca": "DLEDGER_TLS_CA",
    "tls_certificate": "DLEDGER_TLS_CERTIFICATE",
    "tls_key": "DLEDGER_TLS_KEY",
    "tls_crl": "DLEDGER_TLS_CRL",
}
FILE_VARIABLES: Final = {
    **TLS_VARIABLES,
    "secret_file": "DLEDGER_SECRET_FILE",
    "credentials": "DLEDGER_CREDENTIALS",
}

CONTEXT: Final = "dledger.context"
"""Of click's ``Context.meta``: the `Context` that a command goes to, where it goes to one."""
NO_GROUP: Final = (
    "which group? Give --bootstrap HOST:PORT,... or the directory of an embedded group, set "
    "DLEDGER_BOOTSTRAP, or name it once for all: dledger context add NAME -b ..."
)
_CONTEXT_NAME: Final = "dledger.context.name"
_GIVEN: Final = ParameterSource.COMMANDLINE

PATH: Final = click.Path(path_type=Path)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")
yes_option = click.option("--yes", is_flag=True, help="Do not ask.")
timeout_option = click.option(
    "--timeout",
    type=click.FloatRange(min=0.1),
    default=15.0,
    show_default=True,
    metavar="SECONDS",
    help="Give up when the group does not answer for so long.",
)


class Interrupted(click.Abort):
    """A command was interrupted, and says how far it got."""


def bootstrap_option(*, required: bool) -> Callable[[F], F]:
    """``--bootstrap`` and ``--context``, which name a group."""

    def choose(ctx: click.Context, _: click.Parameter, given: str | None) -> str:
        return _chosen_group(ctx, given, required)

    def decorate(function: F) -> F:
        return click.option(
            "-b",
            "--bootstrap",
            envvar="DLEDGER_BOOTSTRAP",
            callback=choose,
            metavar="ADDRESSES|DIR",
            help="host:port,host:port of running nodes, or the directory of an embedded group.",
        )(_context_option(function))

    return decorate


def _context_option(function: F) -> F:
    return click.option(
        "--context",
        envvar="DLEDGER_CONTEXT",
        callback=lambda ctx, _, name: ctx.meta.update({_CONTEXT_NAME: name}),
        is_eager=True,  # the callback of --bootstrap asks for it
        expose_value=False,
        metavar="NAME",
        help="A group by its name (dledger context add).",
    )(function)


def _chosen_group(ctx: click.Context, given: str | None, required: bool) -> str:
    """What names the group: the command line before the environment, and that before the context
    in use."""
    from dledger.cli.settings.config_file import read_config

    name = ctx.meta[_CONTEXT_NAME]
    named_here = ctx.get_parameter_source("context") is _GIVEN
    if given is not None:
        given_here = ctx.get_parameter_source("bootstrap") is _GIVEN
        if given_here and named_here:
            raise ConfigError("--bootstrap and --context both name the group: give one")
        if given_here or not named_here:
            return given
    config = read_config()
    name = name or config.current
    if name:
        chosen = ctx.meta[CONTEXT] = config.context(name)
        return chosen.bootstrap
    if required:
        raise ConfigError(NO_GROUP)
    return ""


def group_options(function: F) -> F:
    """``--bootstrap``, ``--context`` and ``--timeout``, for every command that talks to a group."""
    return bootstrap_option(required=True)(timeout_option(function))


def set_option(text: str) -> Callable[[F], F]:
    """``--set``, which may be given often."""
    return click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help=text)


def is_path(target: str) -> bool:
    """Whether ``--bootstrap`` names a directory: it has a slash, exists, or has no port."""
    return (
        "/" in target or target.startswith((".", "~")) or ":" not in target or Path(target).is_dir()
    )


def find_group(target: str, *, create: bool = False) -> str:
    """The addresses behind ``--bootstrap``; a group in a directory is started when it does not run.

    Raises:
        ConfigError: neither addresses nor a path.
        PathError: the directory has no group and ``create`` is not set, or cannot be used.
    """
    if is_path(target):
        from dledger.embedded import connect_path

        return connect_path(target, create=create)
    return find_addresses(target)


def find_addresses(target: str) -> str:
    """``--bootstrap`` as any program of this machine can use it; looks for no group.

    Raises:
        ConfigError: neither addresses nor a path.
    """
    if is_path(target):
        return str(Path(target).expanduser().absolute())
    from dledger.net.address import split_addresses

    return ",".join(split_addresses(target))


def open_client(target: str, timeout_s: float, *, create: bool = False, **settings: Any) -> Client:
    """A client for the group behind ``--bootstrap``; close it, or use it as a context manager."""
    make = group_client(request_timeout_ms=int(timeout_s * 1000), **settings)
    return make(find_group(target, create=create))


def group_client(**settings: Any) -> Callable[[str], Client]:
    """Makes clients for addresses of the group, on any thread."""
    from dledger.client import Client

    own = client_settings()
    return lambda addresses: Client(addresses, **own, **settings)


def client_settings() -> dict[str, str]:
    """`identity_files`, and the rack that a command reads in, from where they come."""
    from dledger.config import RACK_VARIABLE

    chosen = _context()
    rack = (chosen.rack if chosen is not None else "") or os.environ.get(RACK_VARIABLE)
    return {**identity_files(), **({"rack": rack} if rack else {})}


def identity_files() -> dict[str, str]:
    """The files by which a command proves its identity, as settings of a client: they come from its
    context, else from the environment (`FILE_VARIABLES`), so that no command line is long."""
    files = {
        name: str(Path(os.environ[variable]).absolute())
        for name, variable in FILE_VARIABLES.items()
        if os.environ.get(variable)
    }
    chosen = _context()
    return files if chosen is None else files | dict(chosen.files)


def _context() -> Context | None:
    """The context that this command goes to."""
    command = click.get_current_context(silent=True)
    return command.meta.get(CONTEXT) if command is not None else None


def confirm(yes: bool, question: str, unasked: str) -> None:
    """Ask before something that cannot be undone, unless ``yes``; a no ends the command.

    Raises:
        ConfigError: there is no terminal to ask on; ``unasked`` says so.
    """
    if not yes:
        if not sys.stdin.isatty():
            raise ConfigError(unasked)
        click.confirm(question, abort=True)


def tell_progress(line: str) -> None:
    """Beside what the command prints for others to read."""
    click.echo(line, err=True)


def print_json(value: Any) -> None:
    """One JSON document, indented."""
    click.echo(json.dumps(value, indent=2, default=str))


HEADS: Final = {
    "partition": "part", "partitions": "parts", "begin_offset": "begin", "end_offset": "end",
    "new_offset": "new", "lag_bytes": "bytes", "lag_s": "seconds",
}  # fmt: skip
"""Heads of columns in a table that fits 80 of a terminal; in JSON they have their whole names."""


def print_rows(columns: Sequence[str], rows: Sequence[Mapping[str, Any]], as_json: bool) -> None:
    """Rows as JSON with all that they have, or as a table of ``columns``."""
    if as_json:
        print_json(rows)
    else:
        heads = [HEADS.get(column, column) for column in columns]
        print_table(heads, [[_cell(row[column]) for column in columns] for row in rows])


def _cell(value: Any) -> Any:
    if isinstance(value, bool):
        return "yes" if value else "-"
    return round(value, 1) if isinstance(value, float) else value


STYLES: Final = {"LEADER": "green", "WARN": "yellow", "FULL": "red", "does not run": "red"}
"""Of cells, on a terminal with colours: rich hears NO_COLOR."""


def print_table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """A table for people: numbers to the right, everything else to the left."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
    for at, column in enumerate(columns):
        number = all(
            isinstance(row[at], int | float) or row[at] in ("", "-") for row in rows
        ) and bool(rows)
        table.add_column(column, justify="right" if number else "left", overflow="fold")
    for row in rows:
        texts = [f"{cell:,}" if isinstance(cell, int) else harmless(str(cell)) for cell in row]
        table.add_row(*[Text(text, STYLES.get(text, "")) for text in texts])
    console = Console(highlight=False, markup=False)  # a name may look like markup
    if not console.is_terminal:
        console.width = 400  # a script that reads it wants whole words
    console.print(table)


def text_or_base64(name: str, value: bytes | None) -> dict[str, str | None]:
    """Bytes in JSON: as text where they are UTF-8, otherwise as ``<name>_base64``."""
    if value is None:
        return {name: None}
    try:
        return {name: value.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(value).decode()}
