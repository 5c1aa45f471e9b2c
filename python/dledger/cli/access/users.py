"""``dledger users``: who may use a group under TLS without a certificate of their own."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, Final

import click

from dledger.cli.commands import CommandGroup
from dledger.cli.common import (
    PATH,
    confirm,
    group_options,
    json_option,
    open_client,
    print_rows,
    yes_option,
)
from dledger.config.durations import milliseconds
from dledger.errors import ConfigError, PathError
from dledger.times import utc

COLUMNS: Final = ("user", "token", "since", "until")


def _seconds(_: click.Context, __: click.Parameter, given: str) -> float:
    """A time such as ``12h``."""
    ms = milliseconds(given)
    if ms is None:
        raise click.BadParameter(f"{given!r}: write a time such as 30s, 10m, 12h or 7d")
    return ms / 1000


password_option = click.option(
    "--password-file",
    type=click.Path(path_type=Path, allow_dash=True),
    metavar="FILE",
    help="Its first line is the password; - is the standard input. Asked for unless given.",
)


@click.group(cls=CommandGroup)
def users() -> None:
    """Users of a group, who prove who they are by a password or a token. Only under TLS."""


@users.command()
@click.argument("name")
@password_option
@group_options
def add(name: str, password_file: Path | None, bootstrap: str, timeout: float) -> None:
    """Add user NAME."""
    password = _password(name, password_file)
    with open_client(bootstrap, timeout) as client:
        client.add_user(name, password)
    click.echo(f"user {name} is added")


@users.command()
@click.argument("name")
@password_option
@click.option(
    "--keep",
    callback=_seconds,
    default="0",
    metavar="TIME",
    help="The former password is good for this long beside the new one, e.g. 10m.",
)
@group_options
def rotate(
    name: str, password_file: Path | None, keep: float, bootstrap: str, timeout: float
) -> None:
    """Give user NAME another password. Connections by the former one end."""
    password = _password(name, password_file)
    with open_client(bootstrap, timeout) as client:
        client.rotate_user(name, password, keep)
    click.echo(f"user {name} has a new password")


@users.command()
@click.argument("name")
@yes_option
@group_options
def remove(name: str, yes: bool, bootstrap: str, timeout: float) -> None:
    """Remove user NAME and its tokens. Its connections end."""
    confirm(
        yes, f"Remove user {name!r} and its tokens?", f"user {name!r} is removed with --yes only"
    )
    with open_client(bootstrap, timeout) as client:
        client.remove_user(name)
    click.echo(f"user {name} is removed")


@users.command("list")
@json_option
@group_options
def list_users(as_json: bool, bootstrap: str, timeout: float) -> None:
    """Users, and the tokens of each: their ids, and until when they are good."""
    with open_client(bootstrap, timeout) as client:
        found = client.users()
    rows: list[dict[str, Any]] = []
    for user in found:
        rows.append({"user": user.name, "token": "", "since": utc(user.changed_ms), "until": ""})
        for token in user.tokens:
            times = {"since": utc(token.issued_ms), "until": utc(token.expires_ms)}
            rows.append({"user": user.name, "token": token.token_id, **times})
    print_rows(COLUMNS, rows, as_json)


@users.command()
@click.argument("name")
@click.option(
    "--expires",
    callback=_seconds,
    required=True,
    metavar="TIME",
    help="How long it is good, e.g. 12h; at most 366d.",
)
@click.option(
    "--file",
    type=PATH,
    help="Write it there, readable for this user alone, as a credentials file; do not print it.",
)
@group_options
def token(name: str, expires: float, file: Path | None, bootstrap: str, timeout: float) -> None:
    """Make a token, by which a program acts as user NAME. It is printed once."""
    with open_client(bootstrap, timeout) as client:
        made = client.issue_token(name, expires)
    if file is None:
        click.echo(made)
        return
    try:
        _write_private(file, made)
    except OSError as error:
        raise PathError(f"{file}: {error.strerror}; the token is lost, make another one") from None
    click.echo(f"{file} has a token of user {name}")


@users.command()
@click.argument("token")
@group_options
def revoke(token: str, bootstrap: str, timeout: float) -> None:
    """End TOKEN, given by its id (dledger users list). Its connections end."""
    with open_client(bootstrap, timeout) as client:
        client.revoke_token(token)
    click.echo("the token is revoked")


def _password(name: str, file: Path | None) -> str:
    """From a file, the standard input, or whoever sits at the terminal; never from the command
    line, which other users of the machine see."""
    if file is None:
        if not sys.stdin.isatty():
            raise ConfigError(
                "a password is asked for on a terminal; give it by --password-file FILE, or "
                "--password-file - from the standard input"
            )
        prompt = f"Password of {name}"
        typed: str = click.prompt(prompt, hide_input=True, confirmation_prompt=True)
        return typed
    if str(file) == "-":
        text = sys.stdin.readline()
    else:
        try:
            text = file.read_text("utf-8")
        except OSError as error:
            raise PathError(f"{file}: {error.strerror}") from None
        except ValueError:
            raise ConfigError(f"{file} is not UTF-8") from None
    return text.partition("\n")[0].rstrip("\r")


def _write_private(file: Path, text: str) -> None:
    """In the place of a file that is there, which is never half written; durable on return."""
    from dledger.storage.disk.disk import RealDisk

    draft = file.with_name(f".{file.name}.{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "w") as written:
            written.write(text + "\n")
            written.flush()
            os.fsync(descriptor)
        draft.replace(file)
        RealDisk().fsync_dir(file.parent)
    finally:
        draft.unlink(missing_ok=True)
