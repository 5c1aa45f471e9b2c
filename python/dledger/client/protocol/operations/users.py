"""Operations on the users of a group and their tokens, as generators. A password does not leave
this program: the group is told what it is checked by."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from dledger.client.protocol.client_state import ClientState, Operation
from dledger.client.protocol.operations.group_state import list_rows
from dledger.client.protocol.operations.requests import execute
from dledger.config import check_name
from dledger.config.credentials import token_id_of, token_text
from dledger.errors import ConfigError
from dledger.net.scram import make_verifier
from dledger.protocol.messages.client import Listing
from dledger.protocol.messages.user_commands import (
    KEY_BYTES,
    PASSWORD_ITERATIONS,
    TOKEN_ITERATIONS,
    IssueToken,
    RemoveUser,
    SetUser,
)
from dledger.times import datetime_of

SHORTEST: Final = 8
"""Characters of a password."""


@dataclass(frozen=True, slots=True)
class TokenState:
    """A token of a user; the token itself is known to whom it was given, and to nobody else."""

    token_id: str
    issued_ms: int
    expires_ms: int
    """In ms since 1970 UTC, by the group's clock."""

    @property
    def expires(self) -> datetime:
        """`expires_ms` as a datetime in UTC."""
        return datetime_of(1000 * self.expires_ms)


@dataclass(frozen=True, slots=True)
class UserState:
    """A user of the group."""

    name: str
    changed_ms: int
    """When it got its password, in ms since 1970 UTC, by the group's clock."""
    tokens: tuple[TokenState, ...]

    @property
    def changed(self) -> datetime:
        """`changed_ms` as a datetime in UTC."""
        return datetime_of(1000 * self.changed_ms)


def add_user(_: ClientState, name: str, password: str) -> Operation[None]:
    """Add a user, who proves itself by this password under TLS (setting ``credentials``).

    Raises:
        ConfigError: the name or password cannot be, or there is such a user.
    """
    check_name("user", name)
    _check_password(password)
    verifier = make_verifier(password, PASSWORD_ITERATIONS)
    decoy = secrets.token_bytes(KEY_BYTES)
    command = SetUser(name=name, verifier=verifier, is_new=True, decoy=decoy)
    yield from execute(command, f"add user {name!r}")


def rotate_user(_: ClientState, name: str, password: str, keep_s: float = 0) -> Operation[None]:
    """Give a user another password. Connections by the former one end within 5 s; tokens stay as
    they are. With ``keep_s`` the former one is good for this long beside the new one, so that
    programs can be given the new one meanwhile.

    Raises:
        ConfigError: the password cannot be, or there is no such user.
    """
    check_name("user", name)
    _check_password(password)
    rows = yield from list_rows(Listing.USERS, "list users")
    known = [row for row in rows if row["user"] == name and not row["token_id"]]
    if not known:
        raise ConfigError(f"there is no user {name!r}: add it ('dledger users add')")
    is_kept = keep_s > 0
    salt, iterations = (
        (known[0]["salt"], known[0]["iterations"]) if is_kept else (b"", PASSWORD_ITERATIONS)
    )
    command = SetUser(
        name=name,
        verifier=make_verifier(password, iterations, salt),
        is_new=False,
        keep_ms=int(1000 * keep_s),
    )
    yield from execute(command, f"rotate user {name!r}")


def remove_user(_: ClientState, name: str) -> Operation[None]:
    """Remove a user and its tokens. Its connections end within 5 s.

    Raises:
        ConfigError: there is no such user.
        OutcomeUnknown: asked and not answered; see `users`.
    """
    check_name("user", name)
    yield from execute(RemoveUser(name=name), f"remove user {name!r}", repeatable=False)


def issue_token(_: ClientState, user: str, lifetime_s: float) -> Operation[str]:
    """A token, by which a program acts as this user for so long, at most a year. It is shown here
    and kept nowhere: the group keeps what it is checked by.

    Raises:
        ConfigError: there is no such user, or the time cannot be.
    """
    check_name("user", user)
    token_id, secret = secrets.token_hex(16), secrets.token_urlsafe(32)
    command = IssueToken(
        token_id=token_id,
        user=user,
        verifier=make_verifier(secret, TOKEN_ITERATIONS),
        lifetime_ms=int(1000 * lifetime_s),
    )
    yield from execute(command, f"token of user {user!r}")
    return token_text(token_id, secret)


def revoke_token(_: ClientState, token: str) -> Operation[None]:
    """End a token, given as a whole or by its id. Its connections end within 5 s.

    Raises:
        ConfigError: there is no such token.
        OutcomeUnknown: asked and not answered; see `users`.
    """
    token_id = check_name("token", token_id_of(token))
    yield from execute(
        RemoveUser(token_id=token_id), f"revoke token {token_id!r}", repeatable=False
    )


def users(_: ClientState) -> Operation[list[UserState]]:
    """All users by name, with their tokens."""
    rows = yield from list_rows(Listing.USERS, "list users")
    tokens: dict[str, list[TokenState]] = {}
    for row in rows:
        if row["token_id"]:
            found = TokenState(row["token_id"], row["changed_ms"], row["until_ms"])
            tokens.setdefault(row["user"], []).append(found)
    return [
        UserState(row["user"], row["changed_ms"], tuple(tokens.get(row["user"], ())))
        for row in rows
        if not row["token_id"]
    ]


def _check_password(password: str) -> None:
    if len(password) < SHORTEST:
        raise ConfigError(
            f"a password has {SHORTEST} characters or more, and this one has {len(password)}"
        )
    if password != password.strip():
        raise ConfigError("a password does not begin or end with a blank")
