"""The commands about the users of a group. No password is in them, only what a password is checked
by."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

ITERATIONS: Final = range(4096, 1_000_001)
"""Of a verifier, on both sides: fewer make guesses cheap, more keep a client busy."""
PASSWORD_ITERATIONS: Final = 100_000
"""Some 40 ms of a client's processor time, once for each of its processes."""
TOKEN_ITERATIONS: Final = 4096
"""Nobody guesses a token: it has 256 bits of chance."""
SALT_BYTES: Final = range(16, 65)
KEY_BYTES: Final = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class ScramVerifier:
    """What a password or a token is checked by (RFC 5802). It opens no connection by itself."""

    salt: bytes
    iterations: int
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class SetUser:
    """A user has this password from now on. One ``is_new`` must not be there yet, any other one
    must."""

    name: str
    verifier: ScramVerifier
    is_new: bool
    keep_ms: int = 0
    """The former password, which has the same salt, is good for this long beside the new one."""
    decoy: bytes = field(default=b"", repr=False)
    """Where the group has none yet: the key by which it makes salts for users that are not
    there."""
    time_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveUser:
    """A user and its tokens are gone; with ``token_id`` only that token, whose user need not be
    named."""

    name: str = ""
    token_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class IssueToken:
    """Who has this token acts as the user, until it ends."""

    token_id: str
    user: str
    verifier: ScramVerifier
    lifetime_ms: int
    time_ms: int = 0
