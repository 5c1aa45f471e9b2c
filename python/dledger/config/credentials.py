"""The name and password of a user, or a token, by which a client proves whose it is."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from dledger.config.names import check_name
from dledger.errors import ConfigError

_TOKEN: Final = re.compile(r"dledger-([0-9a-f]{32})-([A-Za-z0-9_-]{43})")


@dataclass(frozen=True, slots=True)
class Credentials:
    """No text that is made of them shows the secret; a pickle of them has it."""

    name: str
    """The user's, or the token's id."""
    secret: str = field(repr=False)
    is_token: bool = False
    file: str = ""
    """Where they were read, for a program that got them from another one: what the file has by now
    counts, where there is one."""


def token_text(token_id: str, secret: str) -> str:
    """A token as it is handed out."""
    return f"dledger-{token_id}-{secret}"


def token_id_of(text: str) -> str:
    """The id of a token, of which ``text`` is the whole or the id."""
    match = _TOKEN.fullmatch(text.strip())
    return match[1] if match else text.strip()


def parse_credentials(text: str, where: str) -> Credentials:
    """``text``: a token alone, or two lines ``user=alice`` and ``password=...``, in which blanks
    around the value do not count. Lines that begin with ``#`` are comments. ``where``: the file,
    for errors, which never have its content.

    Raises:
        ConfigError: it is neither, with the form that it should have.
    """
    lines = [line.strip() for line in text.splitlines()]
    lines = [line for line in lines if line and not line.startswith("#")]
    if len(lines) == 1 and (match := _TOKEN.fullmatch(lines[0])):
        return Credentials(match[1], match[2], is_token=True)
    given = {
        name.strip(): value.strip() for name, _, value in (one.partition("=") for one in lines)
    }
    if len(lines) != 2 or set(given) != {"user", "password"} or not given["password"]:
        raise ConfigError(
            f"credentials file {where} has neither a token alone in a line nor two lines "
            "user=NAME and password=PASSWORD"
        )
    return Credentials(check_name("user", given["user"]), given["password"])
