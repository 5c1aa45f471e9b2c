"""The group's users: what their passwords and tokens are checked by, and when tokens end."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from dataclasses import astuple, dataclass, replace
from typing import Any, Final

from dledger.catalog.results import CommandResult
from dledger.config import check_name
from dledger.errors import ConfigError
from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.user_commands import (
    ITERATIONS,
    KEY_BYTES,
    PASSWORD_ITERATIONS,
    SALT_BYTES,
    TOKEN_ITERATIONS,
    IssueToken,
    RemoveUser,
    ScramVerifier,
    SetUser,
)

MAX_USERS: Final = 10_000
MAX_TOKENS: Final = 20_000
MAX_LIFETIME_MS: Final = 366 * 24 * 3_600_000
_SUCCESS: Final = CommandResult(Code.SUCCESS)


@dataclass(frozen=True, slots=True)
class KnownUser:
    """One user. ``former``: the verifier of its last password, which is good until
    ``former_until_ms`` of the catalog's time."""

    verifier: ScramVerifier
    changed_ms: int
    former: ScramVerifier | None = None
    former_until_ms: int = 0


@dataclass(frozen=True, slots=True)
class KnownToken:
    """One token of a user; times are the catalog's."""

    user: str
    verifier: ScramVerifier
    issued_ms: int
    expires_ms: int


class Users:
    """All users and tokens. Changed by commands alone."""

    def __init__(self) -> None:
        self.by_name: dict[str, KnownUser] = {}
        self.tokens: dict[str, KnownToken] = {}
        self._decoy = b""
        self.on_change: Callable[[], object] = bool
        """Called when a user or token has come, changed or gone."""

    def __bool__(self) -> bool:
        """Whether the group has ever had a user."""
        return bool(self._decoy)

    # ---- questions

    def verifiers(self, name: str, is_token: bool, now_ms: int) -> list[ScramVerifier]:
        """Those that a proof of this user, or of the token of this id, is checked by: one salt, and
        none that is over. One that nothing passes, for a name that there is not: it looks and costs
        the same."""
        decoy = self._decoy_of(name, is_token)
        if is_token:
            token = self.tokens.get(name)
            return [token.verifier] if token and now_ms < token.expires_ms else [decoy]
        user = self.by_name.get(name)
        if user is None:
            return [decoy]
        is_kept = user.former is not None and now_ms < user.former_until_ms
        return [user.verifier, user.former] if is_kept and user.former else [user.verifier]

    def _decoy_of(self, name: str, is_token: bool) -> ScramVerifier:
        key = f"{'token' if is_token else 'user'} {name}".encode()
        made = hmac.digest(self._decoy, key, hashlib.sha256)
        iterations = TOKEN_ITERATIONS if is_token else PASSWORD_ITERATIONS
        return ScramVerifier(
            salt=made[:16], iterations=iterations, stored_key=made, server_key=made
        )

    def owner(self, name: str, is_token: bool) -> str:
        """The user of that name, or of the token of that id; empty where there is none."""
        if is_token:
            return self.tokens[name].user if name in self.tokens else ""
        return name if name in self.by_name else ""

    def rows(self) -> list[dict[str, Any]]:
        """For `Listing.USERS`: each user by name, and behind it its tokens."""
        tokens: dict[str, list[dict[str, Any]]] = {}
        for token_id, token in sorted(self.tokens.items(), key=lambda item: item[1].issued_ms):
            tokens.setdefault(token.user, []).append(
                {
                    "user": token.user,
                    "token_id": token_id,
                    "changed_ms": token.issued_ms,
                    "until_ms": token.expires_ms,
                }
            )
        rows: list[dict[str, Any]] = []
        for name, user in sorted(self.by_name.items()):
            rows.append(
                {
                    "user": name,
                    "token_id": "",
                    "changed_ms": user.changed_ms,
                    "until_ms": user.former_until_ms,
                    "salt": user.verifier.salt,
                    "iterations": user.verifier.iterations,
                }
            )
            rows += tokens.get(name, ())
        return rows

    def next_expiry_ms(self) -> int | None:
        """When the first token ends; None without one."""
        return min((token.expires_ms for token in self.tokens.values()), default=None)

    # ---- commands

    def change(self, command: SetUser | IssueToken | RemoveUser, clock_ms: int) -> CommandResult:
        """Carry out a command that `refusal` has nothing against."""
        match command:
            case SetUser():
                return self._set(command, clock_ms)
            case IssueToken():
                return self._issue(command, clock_ms)
            case RemoveUser():
                return self._remove(command)

    def _set(self, command: SetUser, clock_ms: int) -> CommandResult:
        """Add a user, or give it another password."""
        known = self.by_name.get(command.name)
        if known is not None and known.verifier == command.verifier:
            return _SUCCESS  # a repeat
        user = KnownUser(command.verifier, clock_ms)
        if known is not None and command.keep_ms:
            user = replace(user, former=known.verifier, former_until_ms=clock_ms + command.keep_ms)
        self.by_name[command.name] = user
        self._decoy = self._decoy or command.decoy
        self.on_change()
        return _SUCCESS

    def _issue(self, command: IssueToken, clock_ms: int) -> CommandResult:
        """Give a user a token."""
        token = KnownToken(command.user, command.verifier, clock_ms, clock_ms + command.lifetime_ms)
        known = self.tokens.setdefault(command.token_id, token)
        self.on_change()
        return CommandResult(Code.SUCCESS, result={"expires_ms": known.expires_ms})

    def _remove(self, command: RemoveUser) -> CommandResult:
        """Remove a user with its tokens, or one token."""
        if command.token_id:
            del self.tokens[command.token_id]
        else:
            del self.by_name[command.name]
            self.tokens = {
                token_id: token
                for token_id, token in self.tokens.items()
                if token.user != command.name
            }
        self.on_change()
        return _SUCCESS

    def expire(self, clock_ms: int) -> None:
        """Forget tokens that are over."""
        over = [one for one, token in self.tokens.items() if token.expires_ms <= clock_ms]
        for token_id in over:
            del self.tokens[token_id]
        if over:
            self.on_change()

    def refusal(self, command: SetUser | IssueToken | RemoveUser) -> CommandResult | None:
        """Why the present state cannot take this command, or None."""
        code, text = Code.UNEXPECTED_ARGUMENT, ""
        match command:
            case SetUser():
                known = self.by_name.get(command.name)
                if known is None and not command.is_new:
                    text = f"there is no user {command.name!r}: add it ('dledger users add')"
                elif known is None and len(self.by_name) >= MAX_USERS:
                    code, text = Code.LIMIT_REACHED, f"a group has at most {MAX_USERS} users"
                elif known is not None and command.is_new and known.verifier != command.verifier:
                    text = f"user {command.name!r} is there already: rotate it, or remove it first"
                elif known is not None and command.keep_ms and _differ(known, command):
                    text = f"user {command.name!r} was changed meanwhile: ask again"
            case IssueToken():
                if command.user not in self.by_name:
                    text = f"there is no user {command.user!r}: add it ('dledger users add')"
                elif command.token_id not in self.tokens and len(self.tokens) >= MAX_TOKENS:
                    code, text = Code.LIMIT_REACHED, f"a group has at most {MAX_TOKENS} tokens"
            case RemoveUser(token_id=""):
                if command.name not in self.by_name:
                    text = f"there is no user {command.name!r}"
            case RemoveUser():
                token = self.tokens.get(command.token_id)
                if token is None or command.name not in ("", token.user):
                    text = f"there is no token {command.token_id!r}"
        return CommandResult(code, text) if text else None

    # ---- the snapshot

    def encode(self) -> dict[str, Any]:
        """Plain values for the snapshot's JSON."""
        return {
            "decoy": self._decoy.hex(),
            "users": [
                [
                    name,
                    _texts(user.verifier),
                    user.changed_ms,
                    user.former and _texts(user.former),
                    user.former_until_ms,
                ]
                for name, user in sorted(self.by_name.items())
            ],
            "tokens": [
                [token_id, token.user, _texts(token.verifier), token.issued_ms, token.expires_ms]
                for token_id, token in sorted(self.tokens.items())
            ],
        }

    @classmethod
    def decode(cls, data: dict[str, Any]) -> Users:
        """The inverse of `encode`."""
        users = cls()
        users._decoy = bytes.fromhex(data["decoy"])
        for name, verifier, changed_ms, former, until_ms in data["users"]:
            kept = former and _verifier(former)
            users.by_name[name] = KnownUser(_verifier(verifier), changed_ms, kept, until_ms)
        for token_id, user, verifier, issued_ms, expires_ms in data["tokens"]:
            users.tokens[token_id] = KnownToken(user, _verifier(verifier), issued_ms, expires_ms)
        return users


def _differ(user: KnownUser, command: SetUser) -> bool:
    """Whether one salt does not do for both passwords."""
    one, other = user.verifier, command.verifier
    return (one.salt, one.iterations) != (other.salt, other.iterations)


def _texts(verifier: ScramVerifier) -> list[Any]:
    return [one.hex() if isinstance(one, bytes) else one for one in astuple(verifier)]


def _verifier(texts: list[Any]) -> ScramVerifier:
    salt, iterations, stored_key, server_key = texts
    return ScramVerifier(
        salt=bytes.fromhex(salt),
        iterations=iterations,
        stored_key=bytes.fromhex(stored_key),
        server_key=bytes.fromhex(server_key),
    )


def malformed_user(command: SetUser | IssueToken | RemoveUser) -> str:
    """Why no state could take this command; empty where one could."""
    match command:
        case SetUser():
            names = {"user": command.name}
        case IssueToken():
            names = {"user": command.user, "token": command.token_id}
        case RemoveUser(token_id=""):
            names = {"user": command.name}
        case RemoveUser():
            names = {"token": command.token_id}
    try:
        for what, name in names.items():
            check_name(what, name)
    except ConfigError as error:
        return str(error)
    if isinstance(command, RemoveUser):
        return ""
    if isinstance(command, IssueToken) and not 0 < command.lifetime_ms <= MAX_LIFETIME_MS:
        return f"a token lasts for 1 ms to {MAX_LIFETIME_MS} ms, not for {command.lifetime_ms}"
    if isinstance(command, SetUser) and not 0 <= command.keep_ms <= MAX_LIFETIME_MS:
        return f"a password is kept for 0 to {MAX_LIFETIME_MS} ms, not for {command.keep_ms}"
    if isinstance(command, SetUser) and command.is_new and len(command.decoy) != KEY_BYTES:
        return f"a decoy has {KEY_BYTES} bytes, not {len(command.decoy)}"
    return _malformed_verifier(command.verifier)


def _malformed_verifier(verifier: ScramVerifier) -> str:
    if verifier.iterations not in ITERATIONS:
        return (
            f"a verifier has {ITERATIONS[0]} to {ITERATIONS[-1]} iterations, not "
            f"{verifier.iterations}"
        )
    if len(verifier.salt) not in SALT_BYTES:
        return f"a salt has {SALT_BYTES[0]} to {SALT_BYTES[-1]} bytes, not {len(verifier.salt)}"
    if {len(verifier.stored_key), len(verifier.server_key)} != {KEY_BYTES}:
        return f"the keys of a verifier have {KEY_BYTES} bytes each"
    return ""
